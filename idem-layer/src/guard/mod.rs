//! The engine: one execution against a store.
//!
//! A [`Guard`] is made with the promise that it keeps. It turns an [`Arrival`] (identity and fingerprint) into an
//! [`Admission`]: either the [`Claim`], which is the right to run and is settled exactly once, or what the repeat gets
//! instead. The HTTP layer and `#[idempotent]` are built on it, and it is usable by hand:
//!
//! ```
//! use idem_layer::guard::{Admission, Guard, Repeat};
//! use idem_layer::protocol::{Identity, Key, Operation, Scope};
//! use idem_layer::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let guard = Guard::at_least_once(MemoryStore::new());
//! let order = Identity::new(Operation::new("order.create")?, None, Scope::new("user:alice")?, Key::new("k-1")?);
//!
//! match guard.claim(order.clone()).await? {
//!     Admission::Claimed(claim) => {
//!         let id = 42; // ... the work ...
//!         let _ = claim.complete(&id).await;
//!     }
//!     Admission::Repeat(Repeat::Replay(snapshot)) => println!("already done: {snapshot:?}"),
//!     Admission::Repeat(other) => println!("not now: {other:?}"),
//! }
//! assert!(guard.stored(&order).await?.is_some());
//! # Ok(()) }
//! ```
//!
//! 1. A claim is renewed by a task of its own, at a third of its lease, up to the run ceiling. One failed renewal is no
//!    reason to stop; the claim is lost when the store says so.
//! 2. Settling a claim is handed to the runtime when its future is dropped, and retried in the background when the store
//!    does not answer: the caller gets his result, the claim is kept.
//! 3. An owner who learns that his claim is lost is told what the key holds instead. If it holds nothing (the store lost
//!    the record), the outcome is stored under a fresh claim.
//! 4. A claim that is dropped unsettled has an unknown outcome: it is abandoned or held, by the guarantee.
//! 5. A repeat of what is running is told so at once, or waits for its end where the policy asks for that
//!    ([`PolicyBuilder::wait`](crate::protocol::PolicyBuilder::wait)).
//! 6. Every event is emitted at one place, to [`Observer`]s; `tracing` is the first.
//!
//! A guard needs a tokio runtime with its timer enabled: without one its futures panic.

mod admission;
mod arrival;
mod claim;
mod event;
mod handover;
mod renewal;
mod settling;
mod tracker;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::protocol::{Identity, OnLapse, Policy, Seen};
use crate::store::{Inspect, SharedStore, StoreError, StoreErrorKind};

pub use admission::{Admission, Repeat};
pub use arrival::Arrival;
pub use claim::{Claim, Settled};
pub use event::{Event, EventKind, Observer, TracingObserver};
pub use tracker::Drained;

pub(crate) use handover::{Course, Handover};
pub(crate) use tracker::Tracked;

/// Lets one operation per identity take effect, by the guarantee that it was made with. See the [module docs](self).
///
/// Cheap to clone; clones share the store, the observers, the count of what is open and the repeats that wait.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    store: SharedStore,
    guarantee: Guarantee,
    policy: Policy,
    clock: Clock,
    observers: Vec<Arc<dyn Observer>>,
    tracker: Arc<tracker::Tracker>,
    waiters: Arc<waiting::Waiters>,
}

/// How long a repeat is asked to wait before it comes again, where waiting helps.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is promised when an outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guarantee {
    AtLeastOnce,
    AtMostOnce,
}

impl Guard {
    /// A run whose outcome is unknown (its owner died, it panicked) is run again by the next repeat, which learns that it
    /// is a further attempt.
    pub fn at_least_once(store: impl Inspect) -> Self {
        Self::new(store, Guarantee::AtLeastOnce)
    }

    /// A run whose outcome is unknown is held: repeats are told so, nobody runs it again until it is decided.
    pub fn at_most_once(store: impl Inspect) -> Self {
        Self::new(store, Guarantee::AtMostOnce)
    }

    fn new(store: impl Inspect, guarantee: Guarantee) -> Self {
        Self(Arc::new(Inner {
            store: SharedStore::new(store),
            guarantee,
            policy: Policy::default(),
            clock: Clock::system(),
            observers: vec![Arc::new(TracingObserver)],
            tracker: Arc::default(),
            waiters: Arc::default(),
        }))
    }

    /// The same guard with other times. Warns of a retention below the lease: retries hardly come that soon, and a later one
    /// would run again.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        if policy.retention() < policy.lease() {
            let (retention, lease) = (policy.retention(), policy.lease());
            tracing::warn!(target: "idem", ?retention, ?lease, "a retention below the lease forgets outcomes before retries come");
        }
        Self(Arc::new(Inner { policy, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// The same guard with a further observer of its events.
    #[must_use]
    pub fn observed_by(self, observer: impl Observer) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.observers.push(Arc::new(observer));
        Self(Arc::new(inner))
    }

    /// The times that apply where an arrival brings none of its own.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Asks for the right to run. Where the policy says so, a repeat waits for the end of a run that is going on.
    ///
    /// # Errors
    ///
    /// When the store does not know within the policy's limit of a store call. Nothing may be run then. A claim that was
    /// granted without our learning of it is released in the background.
    ///
    /// # Panics
    ///
    /// When it is polled outside of a tokio runtime with its timer enabled.
    ///
    /// # Cancel safety
    ///
    /// Once polled, dropping the future hands it to the runtime, where a claim that it wins is released. One that is waiting
    /// for another's run stops waiting, and claims nothing.
    pub fn claim<A: Into<Arrival>>(
        &self,
        arrival: A,
    ) -> impl Future<Output = Result<Admission, StoreError>> + Send + use<A> {
        let (guard, arrival) = (self.clone(), arrival.into());
        let tracked = self.track();
        let course = Course::default();
        let admission = Handover::on(course.clone(), async move {
            let _tracked = tracked;
            guard.admit(arrival, &course).await
        });
        async move {
            let mut admission = admission.await?;
            if let Admission::Claimed(claim) = &mut admission {
                claim.begin();
            }
            Ok(admission)
        }
    }

    /// What is stored for an identity now, for people and tools: by the time the answer arrives it may have changed.
    ///
    /// # Errors
    ///
    /// When the store does not know within the policy's limit of a store call.
    ///
    /// # Panics
    ///
    /// When it is polled outside of a tokio runtime with its timer enabled.
    pub async fn stored(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        self.call(self.0.policy.store_call(), || self.0.store.read(identity)).await
    }

    /// Waits until no claim is open, no repeat waits, nothing that was handed over is running and no settling is being
    /// retried, at most for `limit`. For shutdown, after the server has stopped accepting: what has not ended by then is left
    /// to its lease, and a settling that is being retried is tried a last time. There is no way back: from then on a settling
    /// that fails is retried once, at once.
    ///
    /// # Panics
    ///
    /// When it is polled outside of a tokio runtime with its timer enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, once polled, only ends the waiting: the guard goes on draining.
    pub async fn drain(&self, limit: Duration) -> Drained {
        self.0.tracker.drain(limit).await
    }

    /// Counts something as open until the result is dropped.
    pub(crate) fn track(&self) -> Tracked {
        self.0.tracker.track()
    }

    /// Whether the other is a clone of this one, perhaps with other times.
    #[cfg(feature = "http")]
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.tracker, &other.0.tracker)
    }

    /// The clock that the guard reads for people.
    #[cfg(feature = "http")]
    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn on_lapse(&self) -> OnLapse {
        match self.0.guarantee {
            Guarantee::AtLeastOnce => OnLapse::RunAgain,
            Guarantee::AtMostOnce => OnLapse::Hold,
        }
    }

    pub(crate) fn emit(&self, identity: &Identity, shadow: bool, kind: EventKind) {
        self.tell(&Event::new(identity, kind, shadow, None));
    }

    fn emit_failure(&self, identity: &Identity, shadow: bool, error: &StoreError) {
        self.tell(&Event::new(identity, EventKind::StoreFailed { kind: error.kind() }, shadow, Some(error)));
    }

    /// The one place at which events leave the engine.
    fn tell(&self, event: &Event<'_>) {
        for observer in &self.0.observers {
            observer.observe(event);
        }
    }

    /// One call to the store: limited, and repeated once when it failed in a way that may pass. Safe because every command
    /// is idempotent by its token.
    async fn call<T, F>(&self, limit: Duration, mut command: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let repeated = async {
            let first = match command().await {
                Err(error) if error.is_passing() && error.kind() != StoreErrorKind::Full => error,
                answer => return answer,
            };
            match command().await {
                Err(second) if first.is_outcome_unknown() => Err(second.with_unknown_outcome()),
                answer => answer,
            }
        };
        match tokio::time::timeout(limit, repeated).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::new(StoreErrorKind::TimedOut).with_unknown_outcome()),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("guarantee", &self.0.guarantee)
            .field("policy", &self.0.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "memory", feature = "testing"))]
mod tests;
