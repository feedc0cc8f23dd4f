use std::time::Duration;

use thiserror::Error;

use super::arrival::{Arrival, Redigest};
use super::claim::Claim;
use super::settling::Terms;
use super::{Course, EventKind, Guard};
use crate::clock::Moment;
use crate::protocol::{
    Acquire, Acquired, Completion, Fingerprint, Held, Identity, NotReplayable, Origin, Owned, Policy, Record, Renew,
    Snapshot, State, Token,
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

/// Each time that the store was asked, something was out of date by the time of its answer.
#[derive(Debug, Error)]
#[error("the fingerprint's version, or the claim that was won, was out of date {ROUNDS} times in a row")]
struct OutOfDate;

/// How often an arrival asks again because its fingerprint, or the claim it won, was out of date.
const ROUNDS: usize = 4;

/// What an arrival asks the store.
pub(super) struct Question {
    pub(super) identity: Identity,
    pub(super) terms: Terms,
    fingerprint: Option<Fingerprint>,
    redigest: Option<Redigest>,
}

/// What it was answered, and what is reported of that when it is the last word.
pub(super) struct Answer {
    admission: Admission,
    differs: bool,
    event: EventKind,
}

impl Guard {
    /// Asks the store until it has an answer that can be acted upon, and waits where the policy says so.
    ///
    /// The course is committed while a command is on its way or its claim is ours, and not while the arrival waits.
    pub(crate) async fn admit(&self, arrival: Arrival, course: &Course) -> Result<Admission, StoreError> {
        let Arrival { identity, fingerprint, observed, redigest, policy, shadow } = arrival;
        let terms = Terms { policy: policy.unwrap_or(self.0.policy), observed, shadow };
        let mut question = Question { identity, terms, fingerprint, redigest };

        match self.answer(&mut question, course).await {
            Ok(Answer { admission, differs, event }) => {
                if differs {
                    self.emit(&question.identity, shadow, EventKind::Differs);
                }
                self.emit(&question.identity, shadow, event);
                Ok(admission)
            }
            Err(error) => {
                self.emit_failure(&question.identity, shadow, &error);
                Err(error)
            }
        }
    }

    async fn answer(&self, question: &mut Question, course: &Course) -> Result<Answer, StoreError> {
        course.commit();
        let Some(wait) = question.terms.policy.wait().filter(|_| !question.terms.shadow) else {
            return self.ask(question).await;
        };
        let asking = self.0.waiters.asking();
        let answer = self.ask(question).await?;
        if !answer.is_busy() {
            return Ok(answer);
        }
        // Boxed, so that arrivals that do not wait do not carry the room for it.
        Box::pin(self.wait(question, answer, wait, &asking, course)).await
    }

    pub(super) async fn ask(&self, question: &mut Question) -> Result<Answer, StoreError> {
        let terms = question.terms;
        for _ in 0..ROUNDS {
            let acquire = self.command(Token::mint(), question.fingerprint, terms);
            let identity = &question.identity;
            let sent = self.0.clock.now();
            let answer = self.call(terms.policy.store_call(), || self.0.store.acquire(identity, &acquire)).await;
            let acquired = answer.inspect_err(|error| {
                if error.is_outcome_unknown() {
                    self.release_in_background(identity.clone(), acquire.token, terms);
                }
            })?;
            let (repeat, differs) = match acquired {
                Acquired::Claimed(ticket, origin) => {
                    let claim = Claim::open(self.clone(), ticket, terms, sent);
                    let Some(claim) = self.confirm(claim, sent, terms.policy).await? else { continue };
                    return Ok(Answer::claimed(claim, origin));
                }
                Acquired::OtherVersion(version) => {
                    let again = question.redigest.as_ref().and_then(|redigest| redigest(version));
                    let Some(again) = again.filter(|fingerprint| fingerprint.version() == version) else {
                        return Err(StoreError::new(StoreErrorKind::Unreadable).because(UnknownFingerprint(version)));
                    };
                    question.fingerprint = Some(again);
                    continue;
                }
                Acquired::Replay { completion, differs, .. } => (completion.into(), differs),
                Acquired::Busy { since_ms, left, differs } => (Repeat::Busy { left, since_ms }, differs),
                Acquired::Held { held, since_ms } => (Repeat::Held { held, since_ms }, false),
                Acquired::Mismatch => (Repeat::Mismatch, false),
                Acquired::Gone => (Repeat::Gone, false),
            };
            return Ok(Answer::repeat(repeat, differs));
        }
        Err(StoreError::new(StoreErrorKind::Broken).because(OutOfDate))
    }

    /// The command that asks for the right to run, by this guard's guarantee.
    pub(super) fn command(&self, token: Token, fingerprint: Option<Fingerprint>, terms: Terms) -> Acquire {
        let Terms { policy, observed, .. } = terms;
        Acquire {
            token,
            fingerprint,
            observed,
            on_lapse: self.on_lapse(),
            lease: policy.lease(),
            retention: policy.retention(),
            held_limit: policy.held_limit(),
            at_ms: self.0.clock.epoch_ms(),
        }
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
}

impl Answer {
    fn claimed(claim: Claim, origin: Origin) -> Self {
        let attempt = claim.attempt();
        let event = match origin {
            Origin::TakenOver => EventKind::TakenOver { attempt },
            _ => EventKind::Claimed { attempt },
        };
        Self { admission: Admission::Claimed(claim), differs: false, event }
    }

    fn repeat(repeat: Repeat, differs: bool) -> Self {
        let event = EventKind::of_repeat(&repeat);
        Self { admission: Admission::Repeat(repeat), differs, event }
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.admission, Admission::Repeat(Repeat::Busy { .. }))
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
