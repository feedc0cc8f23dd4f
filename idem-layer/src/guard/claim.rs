use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::admission::Repeat;
use super::renewal::Renewal;
use super::settling::Terms;
use super::tracker::Tracked;
use super::{Guarantee, Guard, Handover};
use crate::clock::Moment;
use crate::protocol::{Completion, Held, Identity, NotReplayable, Settlement, Snapshot, Ticket};

/// The right to run one operation, renewed in the background until it is settled.
///
/// Settled exactly once, by one of the methods that consume it. Dropped unsettled, its outcome is unknown: it is abandoned or
/// held, by the guarantee, from a task on the current runtime; without one, by its lease.
#[must_use = "a claim that is dropped has an unknown outcome"]
pub struct Claim(Option<Box<Open>>);

pub(super) struct Open {
    pub(super) guard: Guard,
    pub(super) ticket: Ticket,
    pub(super) terms: Terms,
    /// When the claim was sent.
    since: Moment,
    /// Whether the work may have begun. Until then, dropping the claim releases it.
    begun: bool,
    renewal: Option<Renewal>,
    _tracked: Tracked,
}

/// What became of a settling.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an owner whose claim is lost answers with what the key holds"]
pub enum Settled {
    /// The store has it.
    Stored,
    /// The claim was no longer ours; nothing was written. This is what the key holds: one key has one answer, so it is what
    /// the caller should get.
    Lost(Repeat),
    /// The store does not answer. It is retried in the background until it is stored or refused; the caller may have his
    /// result.
    Deferred,
}

impl Claim {
    pub(super) fn open(guard: Guard, ticket: Ticket, terms: Terms, sent: Moment) -> Self {
        let renewal = Renewal::start(&guard, &ticket, terms, sent);
        let tracked = guard.track();
        Self(Some(Box::new(Open { guard, ticket, terms, since: sent, begun: false, renewal, _tracked: tracked })))
    }

    /// What is claimed.
    pub fn identity(&self) -> &Identity {
        &self.ticket().identity
    }

    /// 1 for the first claim of the key, +1 at each later one while the record is remembered. A fence: it never falls, so a
    /// row that keeps it can refuse the write of a stale owner.
    pub fn attempt(&self) -> u32 {
        self.ticket().record.attempt
    }

    /// Whether an earlier attempt ended without a known outcome. Then its effect may have happened: ask before acting.
    pub fn earlier_unknown(&self) -> bool {
        self.ticket().record.earlier_unknown
    }

    /// What an earlier attempt has recorded of itself.
    pub fn progress(&self) -> Option<&Bytes> {
        self.ticket().record.progress.as_ref()
    }

    /// It took effect: repeats get `value`, as JSON. One that cannot be encoded is completed as
    /// [`NotReplayable::Unencodable`]: it took effect all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, once polled, hands it to the runtime. So do all settlings.
    pub fn complete<T: Serialize + ?Sized>(self, value: &T) -> impl Future<Output = Settled> + Send + use<T> {
        let completion = match serde_json::to_vec(value) {
            Ok(json) => Completion::Replayable(Snapshot::value(&json)),
            Err(error) => {
                tracing::error!(target: "idem", operation = self.identity().operation().as_str(), %error, "unencodable");
                Completion::NotReplayable(NotReplayable::Unencodable)
            }
        };
        self.complete_with(completion)
    }

    /// It took effect, with this outcome.
    pub fn complete_with(self, completion: Completion) -> impl Future<Output = Settled> + Send + use<> {
        let policy = self.open_ref().terms.policy;
        let (retention, remember) = (policy.retention(), policy.remember());
        self.settle(Settlement::Complete { completion, retention, remember })
    }

    /// Nothing took effect: the next repeat runs.
    pub fn release(self) -> impl Future<Output = Settled> + Send + use<> {
        self.settle(Settlement::Release)
    }

    /// The outcome is unknown, and the next repeat may run all the same.
    pub fn abandon(self) -> impl Future<Output = Settled> + Send + use<> {
        self.settle(Settlement::Abandon)
    }

    /// The outcome is unknown, and nobody may run it until it is decided.
    pub fn hold(self, held: Held) -> impl Future<Output = Settled> + Send + use<> {
        let limit = self.open_ref().terms.policy.held_limit();
        self.settle(Settlement::Hold { held, limit })
    }

    /// The outcome is unknown: abandons or holds, by the guarantee.
    pub fn unknown(self) -> impl Future<Output = Settled> + Send + use<> {
        let unknown = self.open_ref().unknown();
        self.settle(unknown)
    }

    /// The work begins: from here on a dropped claim has an unknown outcome.
    pub(crate) fn begin(&mut self) {
        if let Some(open) = &mut self.0 {
            open.begun = true;
        }
    }

    /// Forgets the claim without settling it: it is not ours any more.
    pub(super) fn disown(mut self) {
        self.0 = None;
    }

    pub(super) fn ticket(&self) -> &Ticket {
        &self.open_ref().ticket
    }

    /// How long the run may still be renewed, by the run ceiling of the policy.
    pub fn until_ceiling(&self) -> Duration {
        let open = self.open_ref();
        open.terms.policy.run_ceiling().saturating_sub(open.guard.0.clock.now().since(open.since))
    }

    /// Whose it is.
    #[cfg(feature = "http")]
    pub(crate) fn guard(&self) -> &Guard {
        &self.open_ref().guard
    }

    /// Reports that the run goes on without its caller.
    #[cfg(feature = "http")]
    pub(crate) fn emit_handed_over(&self) {
        let open = self.open_ref();
        open.guard.emit(self.identity(), open.terms.shadow, super::EventKind::HandedOver);
    }

    fn settle(mut self, settlement: Settlement) -> impl Future<Output = Settled> + Send + use<> {
        let open = self.0.take().expect("a claim is open until it is settled");
        Handover::new(open.settle(settlement))
    }

    fn open_ref(&self) -> &Open {
        self.0.as_ref().expect("a claim is open until it is settled")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let settlement = if open.begun { open.unknown() } else { Settlement::Release };
        // Without a runtime the lease does it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(open.settle(settlement));
        }
    }
}

impl Open {
    /// How an unknown outcome is settled, by the guarantee.
    fn unknown(&self) -> Settlement {
        match self.guard.0.guarantee {
            Guarantee::AtLeastOnce => Settlement::Abandon,
            Guarantee::AtMostOnce => Settlement::Hold { held: Held::Unknown, limit: self.terms.policy.held_limit() },
        }
    }

    async fn settle(mut self, settlement: Settlement) -> Settled {
        // A renewal on the wire may still arrive after the settling; it is refused then.
        self.renewal = None;
        self.guard.settle(&self.ticket, self.terms, settlement).await
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("identity", self.identity()).field("attempt", &self.attempt()).finish()
    }
}
