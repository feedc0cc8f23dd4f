use std::fmt;
use std::sync::Arc;

use crate::protocol::{Fingerprint, Identity, Policy};

/// One arrival of a request, message or call: its identity, and what it is compared by.
#[derive(Clone)]
pub struct Arrival {
    pub(super) identity: Identity,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) observed: bool,
    pub(super) redigest: Option<Redigest>,
    pub(super) policy: Option<Policy>,
    pub(super) shadow: bool,
}

pub(super) type Redigest = Arc<dyn Fn(u8) -> Option<Fingerprint> + Send + Sync>;

impl Arrival {
    /// An arrival of this identity that compares equal to any other.
    pub fn new(identity: Identity) -> Self {
        Self { identity, fingerprint: None, observed: false, redigest: None, policy: None, shadow: false }
    }

    /// What arrives.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Compares by this fingerprint: another arrival of the identity with a different one is a mismatch.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Compares, but only reports a difference. For senders who cannot correct themselves.
    #[must_use]
    pub fn observed(mut self) -> Self {
        self.observed = true;
        self
    }

    /// How to make the fingerprint by another version of the rules, should the record have been written by one. Answers
    /// `None` for a version it does not know; then the arrival is refused, for it cannot be compared.
    #[must_use]
    pub fn redigest(mut self, redigest: impl Fn(u8) -> Option<Fingerprint> + Send + Sync + 'static) -> Self {
        self.redigest = Some(Arc::new(redigest));
        self
    }

    /// Other times than the guard's.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// An arrival that is only watched: whoever asks runs in any case, whatever the answer. [`Guard::run`](super::Guard::run)
    /// sees to that; who claims by hand sees to it himself. Its events, and those of the claim that it wins, say so
    /// ([`Event::shadow`](super::Event::shadow)), and it never waits. The store is asked and written as for any other.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.shadow
    }
}

impl From<Identity> for Arrival {
    fn from(identity: Identity) -> Self {
        Self::new(identity)
    }
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival")
            .field("identity", &self.identity)
            .field("observed", &self.observed)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
