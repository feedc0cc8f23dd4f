use std::time::Duration;

use bytes::Bytes;

use super::fingerprint::Fingerprint;
use super::identity::Identity;
use super::record::{Completion, Held, NotReplayable, OnLapse, Record, State};
use super::token::Token;

/// Decides what a command is answered and what it writes, given what is stored.
///
/// Total: every state meets every command. A store calls it with what it has read and makes the write conditional on
/// exactly that (token, state, and for a lapse that the lease is still over); where the condition fails, it reads and calls
/// again. The first row that fits decides.
pub fn transition(seen: Option<&Seen>, identity: &Identity, command: &Command) -> Step {
    use Command::{Acquire, Operate, Renew, Settle};
    use State::{Completed, Freed, InFlight};

    let Some(Seen { record, phase }) = seen else {
        return match command {
            Acquire(acquire) => claim(identity, acquire, None, Origin::Fresh),
            // A first attempt's release leaves nothing, so that nothing stored is what a repeated one finds.
            Settle(settle) if matches!(settle.settlement, Settlement::Release) => Step::keep(Owned::Done),
            Renew(_) | Settle(_) | Operate(_) => Step::keep(Owned::Lost(None)),
        };
    };
    let comparison = match command {
        Acquire(acquire) => compare(record.fingerprint, acquire.fingerprint),
        Renew(_) | Settle(_) | Operate(_) => Comparison::Equal,
    };
    let differs = comparison == Comparison::Different;

    match (command, &record.state, *phase) {
        (Acquire(acquire), InFlight { .. }, _) if acquire.token == record.token => {
            Step::keep(Acquired::Claimed(Ticket::new(identity, record.clone()), Origin::Repeated))
        }
        (Acquire(acquire), _, _) if !acquire.observed && comparison != Comparison::Equal => {
            Step::keep(match comparison {
                Comparison::OtherVersion(version) => Acquired::OtherVersion(version),
                Comparison::Different | Comparison::Equal => Acquired::Mismatch,
            })
        }
        (Acquire(acquire), Freed, _) => claim(identity, acquire, Some(record), Origin::Freed),
        (Acquire(_), InFlight { .. }, Phase::Active { left }) => {
            Step::keep(Acquired::Busy { since_ms: record.since_ms, left, differs })
        }
        (Acquire(acquire), InFlight { on_lapse }, Phase::Tail) => match (on_lapse, acquire.on_lapse) {
            (OnLapse::RunAgain, OnLapse::RunAgain) => claim(identity, acquire, Some(record), Origin::TakenOver),
            (OnLapse::Hold, _) | (_, OnLapse::Hold) => {
                let held = held(record, Held::Lapsed, acquire.at_ms, acquire.held_limit);
                Step { answer: Acquired::Held { held: Held::Lapsed, since_ms: acquire.at_ms }.into(), write: held }
            }
        },
        (Acquire(_), Completed { completion, .. }, Phase::Active { .. }) => {
            Step::keep(Acquired::Replay { completion: completion.clone(), since_ms: record.since_ms, differs })
        }
        (Acquire(_), Completed { .. }, Phase::Tail) => Step::keep(Acquired::Gone),
        (Acquire(_), State::Held(held), _) => {
            Step::keep(Acquired::Held { held: held.clone(), since_ms: record.since_ms })
        }

        (Renew(renew), InFlight { .. }, _) if renew.token == record.token => {
            let progress = renew.progress.clone().or_else(|| record.progress.clone());
            Step::done(put(Record { progress, ..record.clone() }, renew.lease, retention(record)))
        }

        // Held by a lapse is abandoned already, and somebody has been told that it stays so.
        (Settle(settle), State::Held(Held::Lapsed), _)
            if settle.token == record.token && settle.settlement == Settlement::Abandon =>
        {
            Step::keep(Owned::Done)
        }
        (Settle(settle), InFlight { .. } | State::Held(Held::Lapsed), _) if settle.token == record.token => {
            Step::done(settled(record, settle))
        }
        (Settle(settle), state, _) if settle.token == record.token && is_settled_so(state, &settle.settlement) => {
            Step::keep(Owned::Done)
        }

        (Operate(operate), state, phase)
            if operate.seen == (record.tag(), record.token)
                && (!matches!(state, InFlight { .. }) || phase == Phase::Tail || operate.force) =>
        {
            Step::done(resolved(record, operate))
        }

        (Renew(_) | Settle(_) | Operate(_), _, _) => Step::keep(Owned::Lost(Some(record.clone()))),
    }
}

/// Everything that can be asked of a record.
#[derive(Clone, Debug)]
pub enum Command {
    /// Of someone who wants to run the operation.
    Acquire(Acquire),
    /// Of an owner who is still running it.
    Renew(Renew),
    /// Of an owner whose run has ended.
    Settle(Settle),
    /// Of a person or a reconciler.
    Operate(Operate),
}

/// Asks for the right to run.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// Minted for this claim, and the same when the command is repeated.
    pub token: Token,
    /// Digest of the request; none compares equal to any.
    pub fingerprint: Option<Fingerprint>,
    /// A different fingerprint is reported but refuses nothing.
    pub observed: bool,
    /// The guarantee of the caller.
    pub on_lapse: OnLapse,
    /// How long the claim lives without renewal.
    pub lease: Duration,
    /// How long the record is remembered behind the lease.
    pub retention: Duration,
    /// When the record is given up if this command finds it lapsed and holds it.
    pub held_limit: Option<Duration>,
    /// Milliseconds since the epoch by the caller's clock; for people only.
    pub at_ms: u64,
}

/// Prolongs a claim.
#[derive(Clone, Debug)]
pub struct Renew {
    /// The claim's token.
    pub token: Token,
    /// The lease from now on.
    pub lease: Duration,
    /// Replaces the recorded progress, if given.
    pub progress: Option<Bytes>,
}

/// Ends a claim.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The claim's token.
    pub token: Token,
    /// How it ended.
    pub settlement: Settlement,
    /// Milliseconds since the epoch by the caller's clock; for people only.
    pub at_ms: u64,
}

/// How a claim ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It took effect: repeats get the outcome for `retention`, and learn that it is gone for `remember` after that. The store
    /// drops the outcome when `retention` is over.
    Complete {
        /// What repeats get.
        completion: Completion,
        /// How long they get it.
        retention: Duration,
        /// How long the identity is remembered after that.
        remember: Duration,
    },
    /// Nothing took effect: the key is free.
    Release,
    /// The outcome is unknown and it may run again: as if the lease had lapsed now. A claim that is held for its lapse
    /// already stays held.
    Abandon,
    /// The outcome is unknown and it must not run again.
    Hold {
        /// Why.
        held: Held,
        /// When it is given up, if ever.
        limit: Option<Duration>,
    },
}

/// A decision from outside about a record as it was read.
#[derive(Clone, Debug)]
pub struct Operate {
    /// State and token as read: another state by now refuses the command.
    pub seen: (Tag, Token),
    /// Overrule a live claim.
    pub force: bool,
    /// The decision.
    pub resolution: Resolution,
    /// Milliseconds since the epoch by the caller's clock; for people only.
    pub at_ms: u64,
}

/// What a person or a reconciler decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It took effect, with this outcome.
    Complete {
        /// What repeats get.
        completion: Completion,
        /// How long they get it.
        retention: Duration,
    },
    /// It did not take effect: the next repeat runs.
    Release,
    /// Nobody may run it.
    Hold {
        /// Why.
        held: Held,
        /// When it is given up, if ever.
        limit: Option<Duration>,
    },
    /// As if the key had never been seen.
    Forget,
}

/// The state of a record without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// A claim is open.
    InFlight,
    /// No claim is open; attempts are remembered.
    Freed,
    /// It took effect.
    Completed,
    /// The outcome is unknown.
    Held,
}

impl Tag {
    /// How the stored form names it.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::InFlight => b'I',
            Self::Freed => b'F',
            Self::Completed => b'C',
            Self::Held => b'H',
        }
    }
}

/// A record as a store has read it, with what the store's clock says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The record. One that has expired is not seen at all.
    pub record: Record,
    /// Which part of its life it is in.
    pub phase: Phase,
}

impl Seen {
    /// A record as it was read, in this part of its life. Behind its replay time a completed one is seen
    /// [without its snapshot](Record::without_snapshot), whether or not the store has dropped that yet.
    pub fn new(record: Record, phase: Phase) -> Self {
        match phase {
            Phase::Active { .. } => Self { record, phase },
            Phase::Tail => Self { record: record.without_snapshot(), phase },
        }
    }
}

/// The two parts of a record's life, by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The lease (or the replay time of a completed record) runs for `left` more.
    Active {
        /// Time left. [`Duration::MAX`] where a store need not know it.
        left: Duration,
    },
    /// The lease has lapsed, the replay time is over.
    Tail,
}

/// An open claim, as its owner knows it. Needed to renew and to settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// What is claimed.
    pub identity: Identity,
    /// The record in flight.
    pub record: Record,
}

impl Ticket {
    fn new(identity: &Identity, record: Record) -> Self {
        Self { identity: identity.clone(), record }
    }
}

/// What a command is answered, and what the store has to write for the answer to be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The answer.
    pub answer: Answer,
    /// The write.
    pub write: Write,
}

impl Step {
    fn keep(answer: impl Into<Answer>) -> Self {
        Self { answer: answer.into(), write: Write::Keep }
    }

    fn done(write: Write) -> Self {
        Self { answer: Owned::Done.into(), write }
    }
}

/// An answer to any command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an [`Acquire`].
    Acquired(Acquired),
    /// To all others.
    Owned(Owned),
}

impl Answer {
    /// The answer to an [`Acquire`].
    ///
    /// # Panics
    ///
    /// When it is an answer to another command.
    pub fn into_acquired(self) -> Acquired {
        match self {
            Self::Acquired(acquired) => acquired,
            Self::Owned(_) => panic!("an acquire is answered with an Acquired"),
        }
    }

    /// The answer to any command but [`Acquire`].
    ///
    /// # Panics
    ///
    /// When it is the answer to an acquire.
    pub fn into_owned(self) -> Owned {
        match self {
            Self::Owned(owned) => owned,
            Self::Acquired(_) => panic!("only an acquire is answered with an Acquired"),
        }
    }
}

impl From<Acquired> for Answer {
    fn from(answer: Acquired) -> Self {
        Self::Acquired(answer)
    }
}

impl From<Owned> for Answer {
    fn from(answer: Owned) -> Self {
        Self::Owned(answer)
    }
}

/// The answer to an [`Acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The caller has the right to run.
    Claimed(Ticket, Origin),
    /// Someone else is running it.
    Busy {
        /// When that claim was made, for people.
        since_ms: u64,
        /// How long its lease runs on.
        left: Duration,
        /// The request differs (only where that is observed).
        differs: bool,
    },
    /// It is done.
    Replay {
        /// The outcome.
        completion: Completion,
        /// When it was completed, for people.
        since_ms: u64,
        /// The request differs (only where that is observed).
        differs: bool,
    },
    /// It was done, so long ago that the outcome is no longer kept.
    Gone,
    /// The outcome is unknown.
    Held {
        /// Why.
        held: Held,
        /// Since when, for people.
        since_ms: u64,
    },
    /// The key was used for another request.
    Mismatch,
    /// The fingerprint was made by this other version of the rules: digest by that and ask again.
    OtherVersion(u8),
}

/// How a claim came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was stored.
    Fresh,
    /// An earlier attempt was released.
    Freed,
    /// An earlier attempt's lease had lapsed (or it was abandoned): its outcome is unknown.
    TakenOver,
    /// This very claim had been granted before; its answer got lost.
    Repeated,
}

/// The answer to an owner or operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owned {
    /// It is stored so.
    Done,
    /// It is not the caller's to decide (any more); nothing was written. This is stored instead.
    Lost(Option<Record>),
}

/// A write, conditional on what was read.
#[expect(clippy::large_enum_variant, reason = "made and taken apart within one step, never kept")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Keep,
    /// This record, for so long from now.
    Put(Record, Life),
    /// Remove the record.
    Delete,
}

/// How long a record lives, from the moment of the write, by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// First its active part, then its tail; then it is forgotten.
    Timed {
        /// The lease, the replay time, the time until a freed record is forgotten.
        active: Duration,
        /// [`Record::tail`].
        tail: Duration,
    },
    /// Until it is resolved.
    Forever,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    OtherVersion(u8),
}

/// The one comparison of fingerprints.
fn compare(stored: Option<Fingerprint>, given: Option<Fingerprint>) -> Comparison {
    match (stored, given) {
        (Some(stored), Some(given)) if stored.version() != given.version() => {
            Comparison::OtherVersion(stored.version())
        }
        (Some(stored), Some(given)) if stored != given => Comparison::Different,
        _ => Comparison::Equal,
    }
}

/// Whether a record is of another request than the one with this fingerprint: what an acquire would call a mismatch.
pub(crate) fn is_of_another_request(record: &Record, fingerprint: Option<Fingerprint>) -> bool {
    compare(record.fingerprint, fingerprint) != Comparison::Equal
}

fn claim(identity: &Identity, acquire: &Acquire, before: Option<&Record>, origin: Origin) -> Step {
    let record = Record {
        identity: *identity.digest(),
        token: acquire.token,
        attempt: before.map_or(0, |record| record.attempt).saturating_add(1),
        earlier_unknown: origin == Origin::TakenOver || before.is_some_and(|record| record.earlier_unknown),
        since_ms: acquire.at_ms,
        retention_ms: millis(acquire.retention),
        // Half-done work may not change, whoever goes on with it.
        fingerprint: acquire.fingerprint.or(before.filter(|r| r.progress.is_some()).and_then(|r| r.fingerprint)),
        progress: before.and_then(|record| record.progress.clone()),
        state: State::InFlight { on_lapse: acquire.on_lapse },
    };
    let ticket = Ticket::new(identity, record.clone());
    Step { answer: Acquired::Claimed(ticket, origin).into(), write: put(record, acquire.lease, acquire.retention) }
}

fn settled(record: &Record, settle: &Settle) -> Write {
    let at_ms = settle.at_ms;
    match &settle.settlement {
        Settlement::Complete { completion, retention, remember } => {
            completed(record, completion.clone(), at_ms, *retention, *remember)
        }
        Settlement::Release if record.attempt > 1 || record.progress.is_some() => freed(record, at_ms),
        Settlement::Release => Write::Delete,
        Settlement::Abandon => put(record.clone(), Duration::ZERO, retention(record)),
        Settlement::Hold { held: why, limit } => held(record, why.clone(), at_ms, *limit),
    }
}

/// Whether the record is in the state that the settlement would bring it into. The outcome counts, as long as it is known: an
/// operator may have completed the claim with another one, which then is the one to send.
fn is_settled_so(state: &State, settlement: &Settlement) -> bool {
    match (state, settlement) {
        (State::Completed { completion: stored, .. }, Settlement::Complete { completion, .. }) => {
            use NotReplayable::{Gone, NoRoom};
            stored == completion || matches!(stored, Completion::NotReplayable(NoRoom | Gone))
        }
        (State::Held(_), Settlement::Hold { .. }) | (State::Freed, Settlement::Release) => true,
        _ => false,
    }
}

fn resolved(record: &Record, operate: &Operate) -> Write {
    let at_ms = operate.at_ms;
    match &operate.resolution {
        Resolution::Complete { completion, retention } => {
            completed(record, completion.clone(), at_ms, *retention, Duration::ZERO)
        }
        Resolution::Release => freed(&Record { earlier_unknown: false, ..record.clone() }, at_ms),
        Resolution::Hold { held: why, limit } => held(record, why.clone(), at_ms, *limit),
        Resolution::Forget => Write::Delete,
    }
}

fn completed(record: &Record, completion: Completion, at_ms: u64, retention: Duration, remember: Duration) -> Write {
    let record = Record {
        since_ms: at_ms,
        retention_ms: millis(retention),
        progress: None,
        state: State::Completed { completion, remember_ms: millis(remember) },
        ..record.clone()
    };
    put(record, retention, remember)
}

/// A corrected request may run, a half-done one may not change.
fn freed(record: &Record, at_ms: u64) -> Write {
    let fingerprint = record.fingerprint.filter(|_| record.progress.is_some());
    let record = Record { since_ms: at_ms, fingerprint, state: State::Freed, ..record.clone() };
    let retention = retention(&record);
    put(record, retention, Duration::ZERO)
}

fn held(record: &Record, why: Held, at_ms: u64, limit: Option<Duration>) -> Write {
    let record = Record { since_ms: at_ms, state: State::Held(why), ..record.clone() };
    let life = limit.map_or(Life::Forever, |active| Life::Timed { active, tail: Duration::ZERO });
    Write::Put(record, life)
}

fn put(record: Record, active: Duration, tail: Duration) -> Write {
    Write::Put(record, Life::Timed { active, tail })
}

fn retention(record: &Record) -> Duration {
    Duration::from_millis(record.retention_ms)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
