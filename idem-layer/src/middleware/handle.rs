use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::classify::Verdict;
use crate::guard::{Claim, Guard};
use crate::protocol::{Identity, Key};

/// What a handler knows of its own run, and how it says what became of it. In the request's extensions whenever the request
/// is guarded; with the feature `axum` also an extractor (`Idempotency` or `Option<Idempotency>`).
///
/// What the handler says counts more than what the response looks like: a handler that answers 4xx or 503 *after* something
/// took effect must say [`complete`](Idempotency::complete) or [`hold`](Idempotency::hold), else the key is released. The
/// last word counts, up to the end of the response body.
///
/// ```
/// # use idem_layer::middleware::Idempotency;
/// # fn provider_timed_out() -> bool { true }
/// fn charge(idempotency: &Idempotency) -> http::StatusCode {
///     if idempotency.earlier_unknown() {
///         // An earlier attempt may have charged: ask the provider before charging again.
///     }
///     if provider_timed_out() {
///         idempotency.hold("the provider did not answer: ask before a second charge");
///     }
///     http::StatusCode::BAD_GATEWAY
/// }
/// ```
#[derive(Clone)]
pub struct Idempotency(Arc<Run>);

struct Run {
    identity: Identity,
    attempt: u32,
    earlier_unknown: bool,
    said: Mutex<Option<Verdict>>,
    /// Where the claim is a shadow's: whose. It keeps nobody from running.
    shadow_of: Option<Guard>,
}

impl Idempotency {
    pub(super) fn of(claim: &Claim, shadow: bool) -> Self {
        Self(Arc::new(Run {
            identity: claim.identity().clone(),
            attempt: claim.attempt(),
            earlier_unknown: claim.earlier_unknown(),
            said: Mutex::new(None),
            shadow_of: shadow.then(|| claim.guard().clone()),
        }))
    }

    /// The caller's key. Pass it (or a key derived from it) to the services that the handler calls.
    pub fn key(&self) -> &Key {
        self.0.identity.key()
    }

    /// The whole identity.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// 1 for the first run of the key, more for each later one. A fence: it never falls while the record is remembered, so a
    /// row that keeps it can refuse the write of a stale owner.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Whether an earlier attempt ended without a known outcome: its effect may have happened.
    pub fn earlier_unknown(&self) -> bool {
        self.0.earlier_unknown
    }

    /// It took effect: whatever the response, repeats get it.
    pub fn complete(&self) {
        self.say(Verdict::Complete);
    }

    /// Nothing took effect: whatever the response, the next repeat runs.
    pub fn release(&self) {
        self.say(Verdict::Release);
    }

    /// The outcome is unknown and must not be tried again until somebody has decided, under either guarantee.
    pub fn hold(&self, why: impl Into<String>) {
        self.say(Verdict::Hold(why.into()));
    }

    fn say(&self, verdict: Verdict) {
        *self.0.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
    }

    /// Whether a layer of `guard` further in has nothing to guard this identity from. A shadow protects nothing; but where it
    /// uses the same store, its claim would be in the way of one further in.
    pub(super) fn guards(&self, identity: &Identity, guard: &Guard) -> bool {
        let open = self.0.shadow_of.as_ref().is_none_or(|shadow| shadow.shares_with(guard));
        open && self.0.identity == *identity
    }

    pub(super) fn said(&self) -> Option<Verdict> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("identity", &self.0.identity).field("attempt", &self.0.attempt).finish()
    }
}
