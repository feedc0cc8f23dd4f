use std::time::Duration;

use super::error::PolicyError;

/// The times and limits of a guard. Validated once, by [`PolicyBuilder::build`].
///
/// | value | default | meaning |
/// |---|---|---|
/// | lease | 30 s | how long a claim lives without renewal; renewed at a third of it |
/// | run ceiling | 15 min | how long one run is renewed at the most |
/// | retention | 24 h | how long a completed record replays, counted from completion |
/// | store call | 1 s | how long one call to the store may take, a retry included |
/// | remember | zero | how long an identity is remembered behind its retention: a retry is told that the outcome is gone |
/// | held limit | none | when a held record is given up; the end of the promise, see [`PolicyBuilder::held_limit`] |
/// | wait | none | how long a repeat waits for a run that is going on, see [`PolicyBuilder::wait`]; at most 60 s |
/// | waiters | 64 | how many repeats of one identity wait in one guard at once; of all identities, 1024 |
///
/// ```
/// use std::time::Duration;
/// use idem_layer::protocol::Policy;
///
/// let policy = Policy::builder().lease(Duration::from_secs(10)).retention(Duration::from_secs(3 * 86_400)).build()?;
/// assert_eq!(policy.renewal_interval(), Duration::from_secs(10) / 3);
/// # Ok::<(), idem_layer::protocol::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    lease: Duration,
    run_ceiling: Duration,
    retention: Duration,
    store_call: Duration,
    held_limit: Option<Duration>,
    remember: Duration,
    wait: Option<Duration>,
    waiters: usize,
}

impl Policy {
    /// The longest wait that a policy may ask for.
    pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

    /// Starts from the defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder(Self::default())
    }

    /// A builder that starts from these values.
    pub fn to_builder(self) -> PolicyBuilder {
        PolicyBuilder(self)
    }

    /// How long a claim lives without renewal.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How often a claim is renewed: at a third of its lease.
    pub fn renewal_interval(&self) -> Duration {
        self.lease / 3
    }

    /// How long one run is renewed at the most.
    pub fn run_ceiling(&self) -> Duration {
        self.run_ceiling
    }

    /// How long a completed record replays, counted from completion.
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// How long one call to the store may take, a retry included.
    pub fn store_call(&self) -> Duration {
        self.store_call
    }

    /// When a held record is given up, if ever.
    pub fn held_limit(&self) -> Option<Duration> {
        self.held_limit
    }

    /// How long an identity is remembered behind its retention.
    pub fn remember(&self) -> Duration {
        self.remember
    }

    /// How long a repeat waits for a run that is going on, if at all.
    pub fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How many repeats of one identity wait in one guard at once.
    pub fn waiters(&self) -> usize {
        self.waiters
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            run_ceiling: Duration::from_secs(15 * 60),
            retention: Duration::from_secs(24 * 60 * 60),
            store_call: Duration::from_secs(1),
            held_limit: None,
            remember: Duration::ZERO,
            wait: None,
            waiters: 64,
        }
    }
}

/// Builds a [`Policy`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PolicyBuilder(Policy);

impl PolicyBuilder {
    /// Sets the lease. A short one frees a dead owner's key soon, a long one spares renewals.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// Sets the run ceiling: after it a run is no longer renewed and its lease lapses.
    pub fn run_ceiling(mut self, run_ceiling: Duration) -> Self {
        self.0.run_ceiling = run_ceiling;
        self
    }

    /// Sets the retention. It must outlive the longest interval after which a client or provider still retries.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.0.retention = retention;
        self
    }

    /// Sets the limit of one call to the store.
    pub fn store_call(mut self, store_call: Duration) -> Self {
        self.0.store_call = store_call;
        self
    }

    /// Lets held records go after this time. **The end of the promise**: a retry that comes later runs although nobody knows
    /// what the earlier run did.
    pub fn held_limit(mut self, held_limit: Duration) -> Self {
        self.0.held_limit = Some(held_limit);
        self
    }

    /// Sets how long an identity is remembered behind its retention: for so long a late retry is answered that the outcome is
    /// gone, where it would run again otherwise. The outcome itself is not kept for that. Zero, the default: not at all.
    pub fn remember(mut self, remember: Duration) -> Self {
        self.0.remember = remember;
        self
    }

    /// Lets a repeat of a run that is going on wait for its end, for 1 ms to 60 s by the time of the tokio runtime; it is
    /// refused as in progress only when that is over. It gets what it then finds: the outcome, the claim if the run took no
    /// effect (one of those who wait), or what else has become of the key. Another request under the key is refused at once.
    ///
    /// Whoever waits keeps its connection, and its place under every limit of concurrency that stands outside of the guard: a
    /// wait that is longer than the client's patience only costs.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.wait = Some(wait);
        self
    }

    /// Sets how many repeats of one identity wait in one guard (its clones included) at once. One more is refused at once, and
    /// so is whoever would be the 1025th to wait for any of the guard's identities.
    pub fn waiters(mut self, waiters: usize) -> Self {
        self.0.waiters = waiters;
        self
    }

    /// Checks that the times fit together.
    ///
    /// # Errors
    ///
    /// One [`PolicyError`] for each way in which they do not.
    pub fn build(self) -> Result<Policy, PolicyError> {
        const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
        let Self(policy) = self;
        if policy.wait.is_some_and(|wait| wait > Policy::LONGEST_WAIT) {
            return Err(PolicyError::WaitTooLong);
        }
        let times = [
            ("the lease", policy.lease),
            ("the run ceiling", policy.run_ceiling),
            ("the retention", policy.retention),
            ("the store call limit", policy.store_call),
            ("the held limit", policy.held_limit.unwrap_or(CENTURY)),
            ("the wait", policy.wait.unwrap_or(CENTURY)),
            ("the time to remember", if policy.remember.is_zero() { CENTURY } else { policy.remember }),
        ];
        for (name, time) in times {
            match time {
                Duration::ZERO => return Err(PolicyError::Zero(name)),
                time if time < Duration::from_millis(1) => return Err(PolicyError::TooShort(name)),
                time if time > CENTURY => return Err(PolicyError::TooLong(name)),
                _ => {}
            }
        }
        if policy.run_ceiling < policy.lease {
            return Err(PolicyError::CeilingBelowLease);
        }
        if policy.waiters == 0 {
            return Err(PolicyError::NoWaiters);
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Policy::builder().build(), Ok(Policy::default()));
    }

    #[test]
    fn times_that_do_not_fit_are_refused_each_by_name() {
        let s = Duration::from_secs;
        let build = |change: fn(PolicyBuilder) -> PolicyBuilder| change(Policy::builder()).build();
        assert_eq!(build(|p| p.lease(Duration::ZERO)), Err(PolicyError::Zero("the lease")));
        assert_eq!(build(|p| p.retention(Duration::from_nanos(9))), Err(PolicyError::TooShort("the retention")));
        assert_eq!(build(|p| p.held_limit(Duration::MAX)), Err(PolicyError::TooLong("the held limit")));
        assert_eq!(Policy::builder().run_ceiling(s(29)).build(), Err(PolicyError::CeilingBelowLease));
        assert_eq!(build(|p| p.wait(Duration::ZERO)), Err(PolicyError::Zero("the wait")));
        assert_eq!(build(|p| p.wait(Duration::from_micros(999))), Err(PolicyError::TooShort("the wait")));
        assert_eq!(build(|p| p.wait(Duration::from_millis(60_001))), Err(PolicyError::WaitTooLong));
        assert_eq!(build(|p| p.wait(Duration::MAX)), Err(PolicyError::WaitTooLong));
        assert_eq!(build(|p| p.waiters(0)), Err(PolicyError::NoWaiters));
        assert_eq!(build(|p| p.remember(Duration::from_nanos(1))), Err(PolicyError::TooShort("the time to remember")));
        assert_eq!(build(|p| p.remember(Duration::MAX)), Err(PolicyError::TooLong("the time to remember")));
    }

    #[test]
    fn a_wait_is_one_millisecond_to_one_minute_and_none_unless_it_is_asked_for() {
        assert_eq!((Policy::default().wait(), Policy::default().waiters()), (None, 64));
        for wait in [Duration::from_millis(1), Policy::LONGEST_WAIT] {
            assert_eq!(Policy::builder().wait(wait).build().map(|policy| policy.wait()), Ok(Some(wait)));
        }
    }
}
