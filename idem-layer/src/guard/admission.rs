use std::time::Duration;

use thiserror::Error;

use super::arrival::Arrival;
use super::claim::Claim;
use super::settling::Terms;
use super::{EventKind, Guard};
use crate::clock::Moment;
use crate::protocol::{
    Acquire, Acquired, Completion, Held, Identity, NotReplayable, Origin, Owned, Policy, Record, Renew, Snapshot,
    State, Token,
};
use crate::store::{Store, StoreError, StoreErrorKind};

/// What an arrival gets.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// The right to run. Settle it.
    Claimed(Claim),
    /// Another arrival was first.
    Repeat(Repeat),
}

/// What a repeat finds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repeat {
    /// It is done; this is the outcome.
    Replay(Snapshot),
    /// It is done, but the outcome could not be kept.
    NotReplayable(NotReplayable),
    /// It is running.
    Busy {
        /// How long the present lease runs on. It is renewed while the owner lives.
        left: Duration,
        /// When the run was claimed, in milliseconds since the epoch by its owner's clock.
        since_ms: u64,
    },
    /// Its outcome is unknown; nobody may run it until that is decided.
    Held {
        /// Why.
        held: Held,
        /// Since when, in milliseconds since the epoch by the clock of who held it.
        since_ms: u64,
    },
    /// The key was used for a different request.
    Mismatch,
    /// It was done so long ago that the outcome is no longer kept.
    Gone,
}

impl Repeat {
    /// What a record that is not ours says to us; `None` where nobody owns the key.
    pub(super) fn of(record: Option<Record>) -> Option<Self> {
        let record = record?;
        match record.state {
            State::InFlight { .. } => Some(Self::Busy { left: Duration::ZERO, since_ms: record.since_ms }),
            State::Completed { completion, .. } => Some(completion.into()),
            State::Held(held) => Some(Self::Held { held, since_ms: record.since_ms }),
            State::Freed => None,
        }
    }
}

impl From<Completion> for Repeat {
    fn from(completion: Completion) -> Self {
        match completion {
            Completion::Replayable(snapshot) => Self::Replay(snapshot),
            Completion::NotReplayable(NotReplayable::Gone) => Self::Gone,
            Completion::NotReplayable(why) => Self::NotReplayable(why),
        }
    }
}

/// The record's fingerprint was made by rules that this code cannot apply.
#[derive(Debug, Error)]
#[error("the record was fingerprinted by version {0} of the rules, which this code does not know")]
struct UnknownFingerprint(u8);

/// How often an arrival asks again because its fingerprint, or the claim it won, was out of date.
const ROUNDS: usize = 4;

impl Guard {
    /// Asks the store, until it has an answer that can be acted upon.
    pub(crate) async fn admit(&self, arrival: Arrival) -> Result<Admission, StoreError> {
        let Arrival { identity, mut fingerprint, observed, redigest, policy } = arrival;
        let policy = policy.unwrap_or(self.0.policy);
        let terms = Terms { policy, observed };

        for _ in 0..ROUNDS {
            let acquire = Acquire {
                token: Token::mint(),
                fingerprint,
                observed,
                on_lapse: self.on_lapse(),
                lease: policy.lease(),
                retention: policy.retention(),
                held_limit: policy.held_limit(),
                at_ms: self.0.clock.epoch_ms(),
            };
            let sent = self.0.clock.now();
            let answer = self.call(policy.store_call(), || self.0.store.acquire(&identity, &acquire)).await;
            let acquired = match answer {
                Ok(acquired) => acquired,
                Err(error) => {
                    self.emit_failure(&identity, &error);
                    if error.is_outcome_unknown() {
                        self.release_in_background(identity, acquire.token, terms);
                    }
                    return Err(error);
                }
            };
            let repeat = match acquired {
                Acquired::Claimed(ticket, origin) => {
                    let claim = Claim::open(self.clone(), ticket, terms, sent);
                    let Some(claim) = self.confirm(claim, sent, policy).await? else { continue };
                    self.emit(
                        &identity,
                        match origin {
                            Origin::TakenOver => EventKind::TakenOver { attempt: claim.attempt() },
                            _ => EventKind::Claimed { attempt: claim.attempt() },
                        },
                    );
                    return Ok(Admission::Claimed(claim));
                }
                Acquired::OtherVersion(version) => {
                    let again = redigest.as_ref().and_then(|redigest| redigest(version));
                    let Some(again) = again.filter(|fingerprint| fingerprint.version() == version) else {
                        let error = StoreError::new(StoreErrorKind::Unreadable).because(UnknownFingerprint(version));
                        self.emit_failure(&identity, &error);
                        return Err(error);
                    };
                    fingerprint = Some(again);
                    continue;
                }
                Acquired::Replay { completion, differs, .. } => {
                    self.emit_difference(&identity, differs);
                    completion.into()
                }
                Acquired::Busy { since_ms, left, differs } => {
                    self.emit_difference(&identity, differs);
                    Repeat::Busy { left, since_ms }
                }
                Acquired::Held { held, since_ms } => Repeat::Held { held, since_ms },
                Acquired::Mismatch => Repeat::Mismatch,
                Acquired::Gone => Repeat::Gone,
            };
            self.emit(&identity, EventKind::of_repeat(&repeat));
            return Ok(Admission::Repeat(repeat));
        }
        Err(StoreError::new(StoreErrorKind::Broken))
    }

    /// An owner whose own deadline has passed before it learned of its claim renews before it goes on. `None`: someone
    /// else has taken over meanwhile.
    async fn confirm(&self, claim: Claim, sent: Moment, policy: Policy) -> Result<Option<Claim>, StoreError> {
        let lease = policy.lease();
        if self.0.clock.now().since(sent) < lease {
            return Ok(Some(claim));
        }
        let renew = Renew { token: claim.ticket().record.token, lease, progress: None };
        match self.call(policy.store_call(), || self.0.store.renew(claim.ticket(), &renew)).await {
            Ok(Owned::Done) => Ok(Some(claim)),
            // Held for its lapse, although nobody has run under it: it is set free, and asked for again.
            Ok(Owned::Lost(Some(found))) if found.token == renew.token => {
                let _ = claim.release().await;
                Ok(None)
            }
            Ok(Owned::Lost(_)) => {
                claim.disown();
                Ok(None)
            }
            Err(error) => {
                let _ = claim.release().await;
                Err(error)
            }
        }
    }

    fn emit_difference(&self, identity: &Identity, differs: bool) {
        if differs {
            self.emit(identity, EventKind::Differs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong order: A stalls, B takes over and completes, B's outcome outlives its retention, A completes and is told what
    /// is stored.
    #[test]
    fn what_is_left_of_an_outcome_is_gone_to_a_stale_owner() {
        let gone = Completion::NotReplayable(NotReplayable::Gone);
        assert_eq!(Repeat::from(gone), Repeat::Gone);
        let too_large = Completion::NotReplayable(NotReplayable::TooLarge);
        assert_eq!(Repeat::from(too_large), Repeat::NotReplayable(NotReplayable::TooLarge));
    }
}
