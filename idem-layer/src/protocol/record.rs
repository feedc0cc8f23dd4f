use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::RecordError;
use super::fingerprint::Fingerprint;
use super::identity::Identity;
use super::snapshot::Snapshot;
use super::token::Token;
use super::transition::Tag;

/// What the store holds for an identity.
///
/// # Stored form
///
/// | bytes | what |
/// |---|---|
/// | 0..4 | `idem` |
/// | 4 | version of this form, [`Record::VERSION`] |
/// | 5 | state: `I` in flight, `C` completed, `F` freed, `H` held |
/// | 6..22 | token |
/// | 22.. | the fields, in postcard's encoding, then the snapshot or the progress up to the end |
///
/// A store that can only compare bytes needs no more than bytes 5..22, which are [`Record::OWNER`], to write conditionally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// [`Identity::digest`] of the identity that the record belongs to.
    pub identity: [u8; 32],
    /// The claim that wrote the state.
    pub token: Token,
    /// 1 for the first claim of the key, +1 at each later claim while the record is remembered.
    pub attempt: u32,
    /// An earlier attempt ended (or vanished) without saying what it did.
    pub earlier_unknown: bool,
    /// Milliseconds since the epoch, by the clock of the process that brought the record into this state. For people: no
    /// decision depends on it.
    pub since_ms: u64,
    /// How long this record is remembered: while in flight behind its lease, else from its last write.
    pub retention_ms: u64,
    /// Digest of the request; none compares equal to any.
    pub fingerprint: Option<Fingerprint>,
    /// What an unfinished operation has recorded of itself. Dropped when it completes.
    pub progress: Option<Bytes>,
    /// What is known of the run.
    pub state: State,
}

/// What is known of the run that a record stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A claim is open.
    InFlight {
        /// What becomes of it when its lease lapses.
        on_lapse: OnLapse,
    },
    /// No claim is open and the next may run, but the attempts (and the progress, if any) are remembered.
    Freed,
    /// It took effect.
    Completed {
        /// What a repeat gets.
        completion: Completion,
        /// How long the identity is remembered after the snapshot stops replaying. Zero: not at all.
        remember_ms: u64,
    },
    /// The outcome is unknown; nobody may run it until a person or a reconciler decides.
    Held(Held),
}

/// What the guarantee of the claim says about a lapse. Where two claims differ, [`OnLapse::Hold`] wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLapse {
    /// The next repeat takes over (at least once).
    RunAgain,
    /// Nobody runs it again (at most once).
    Hold,
}

/// The outcome of a completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Repeats get this.
    Replayable(Snapshot),
    /// It took effect, but the outcome could not be kept.
    NotReplayable(NotReplayable),
}

/// Why a completed operation cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotReplayable {
    /// The outcome is larger than the snapshot limit.
    TooLarge,
    /// An event stream, which has no end to wait for.
    Stream,
    /// The connection was handed over to another protocol.
    Upgrade,
    /// The store had no room for it.
    NoRoom,
    /// The value could not be encoded, or it is a final error that the function was not asked to keep.
    Unencodable,
    /// The response broke off after its handler had said that it took effect.
    BrokenOff,
    /// It was kept for its retention, which is over: only the identity is still remembered.
    Gone,
}

/// Why a record is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Held {
    /// Its owner vanished and the lease lapsed.
    Lapsed,
    /// The run ended without a known outcome: a panic, an unclassified error, a body that broke off.
    Unknown,
    /// The handler asked for it, in these words (cut at 256 bytes).
    Because(String),
}

impl Held {
    /// Held by the handler's own decision. Longer text is cut at 256 bytes.
    pub fn because(why: impl Into<String>) -> Self {
        let mut why = why.into();
        let end = (0..=256.min(why.len())).rev().find(|end| why.is_char_boundary(*end)).unwrap_or(0);
        why.truncate(end);
        Self::Because(why)
    }
}

impl Record {
    /// The version of the stored form that this code writes.
    pub const VERSION: u8 = 1;

    /// Where the stored form holds state and token: two records with the same bytes here are of one claim in one state.
    pub const OWNER: std::ops::Range<usize> = 5..22;

    /// Which state it is in, without what belongs to it.
    pub fn tag(&self) -> Tag {
        match self.state {
            State::InFlight { .. } => Tag::InFlight,
            State::Freed => Tag::Freed,
            State::Completed { .. } => Tag::Completed,
            State::Held(_) => Tag::Held,
        }
    }

    /// How long the record lives on after the active part of its life: a claim behind its lease, a completed record behind
    /// its replay time. A store that keeps one expiry per record finds the lease over when no more than this is left.
    pub fn tail(&self) -> Duration {
        match self.state {
            State::InFlight { .. } => Duration::from_millis(self.retention_ms),
            State::Completed { remember_ms, .. } => Duration::from_millis(remember_ms),
            State::Freed | State::Held(_) => Duration::ZERO,
        }
    }

    /// What is left of the record when its outcome replays no longer: the identity outlives the outcome. A completed record
    /// without its snapshot ([`NotReplayable::Gone`]); any other as it is.
    #[must_use]
    pub fn without_snapshot(mut self) -> Self {
        if let State::Completed { completion: completion @ Completion::Replayable(_), .. } = &mut self.state {
            *completion = Completion::NotReplayable(NotReplayable::Gone);
        }
        self
    }

    /// Bytes that the record carries beyond its fixed fields.
    pub fn payload_len(&self) -> usize {
        match &self.state {
            State::Completed { completion: Completion::Replayable(snapshot), .. } => snapshot.as_bytes().len(),
            _ => self.progress.as_ref().map_or(0, Bytes::len),
        }
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let (state, payload) = match &self.state {
            State::InFlight { on_lapse } => (StoredState::InFlight(*on_lapse), self.progress.clone()),
            State::Freed => (StoredState::Freed, self.progress.clone()),
            State::Held(held) => (StoredState::Held(held.clone()), self.progress.clone()),
            State::Completed { completion: Completion::Replayable(snapshot), remember_ms } => (
                StoredState::Completed { not_replayable: None, remember_ms: *remember_ms },
                Some(snapshot.as_bytes().clone()),
            ),
            State::Completed { completion: Completion::NotReplayable(why), remember_ms } => {
                (StoredState::Completed { not_replayable: Some(*why), remember_ms: *remember_ms }, None)
            }
        };
        let stored = Stored {
            identity: self.identity,
            attempt: self.attempt,
            earlier_unknown: self.earlier_unknown,
            since_ms: self.since_ms,
            retention_ms: self.retention_ms,
            fingerprint: self.fingerprint.map(|f| (f.version(), *f.digest())),
            payload: payload.is_some(),
            state,
        };
        let payload = payload.unwrap_or_default();
        let mut bytes = Vec::with_capacity(Self::OWNER.end + 112 + payload.len());
        bytes.extend_from_slice(MAGIC);
        bytes.push(Self::VERSION);
        bytes.push(self.tag().as_byte());
        bytes.extend_from_slice(self.token.as_bytes());
        let mut bytes = postcard::to_extend(&stored, bytes).expect("plain fields always encode");
        bytes.extend_from_slice(&payload);
        bytes.into()
    }

    /// Reads the stored form and makes sure that it belongs to `identity`. The payload shares memory with `bytes`.
    ///
    /// # Errors
    ///
    /// See [`RecordError`]. None of them may be taken for "nothing stored".
    pub fn decode(bytes: &Bytes, identity: &Identity) -> Result<Self, RecordError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(RecordError::NotARecord)?;
        let (&version, rest) = rest.split_first().ok_or(RecordError::NotARecord)?;
        if version != Self::VERSION {
            return Err(RecordError::UnknownVersion(version));
        }
        let (&tag, rest) = rest.split_first().ok_or(RecordError::Damaged)?;
        let (token, rest) = rest.split_first_chunk::<16>().ok_or(RecordError::Damaged)?;
        let (stored, payload) = postcard::take_from_bytes::<Stored>(rest).map_err(|_| RecordError::Damaged)?;
        if stored.identity != *identity.digest() {
            return Err(RecordError::OtherIdentity);
        }
        let payload = match stored.payload {
            true => Some(bytes.slice_ref(payload)),
            false if payload.is_empty() => None,
            false => return Err(RecordError::Damaged),
        };
        let (state, progress) = match (stored.state, payload) {
            (StoredState::InFlight(on_lapse), progress) => (State::InFlight { on_lapse }, progress),
            (StoredState::Freed, progress) => (State::Freed, progress),
            (StoredState::Held(held), progress) => (State::Held(held), progress),
            (StoredState::Completed { not_replayable: None, remember_ms }, Some(snapshot)) => {
                let completion = Completion::Replayable(Snapshot::from_bytes(snapshot));
                (State::Completed { completion, remember_ms }, None)
            }
            (StoredState::Completed { not_replayable: Some(why), remember_ms }, None) => {
                (State::Completed { completion: Completion::NotReplayable(why), remember_ms }, None)
            }
            (StoredState::Completed { .. }, _) => return Err(RecordError::Damaged),
        };
        let record = Self {
            identity: stored.identity,
            token: Token::from_bytes(*token),
            attempt: stored.attempt,
            earlier_unknown: stored.earlier_unknown,
            since_ms: stored.since_ms,
            retention_ms: stored.retention_ms,
            fingerprint: stored.fingerprint.map(|(version, digest)| Fingerprint::from_parts(version, digest)),
            progress,
            state,
        };
        if record.tag().as_byte() == tag { Ok(record) } else { Err(RecordError::Damaged) }
    }
}

const MAGIC: &[u8; 4] = b"idem";

/// The fields behind the fixed header. Changing anything here is a new [`Record::VERSION`].
#[derive(Serialize, Deserialize)]
struct Stored {
    identity: [u8; 32],
    attempt: u32,
    earlier_unknown: bool,
    since_ms: u64,
    retention_ms: u64,
    fingerprint: Option<(u8, [u8; 32])>,
    payload: bool,
    state: StoredState,
}

#[derive(Serialize, Deserialize)]
enum StoredState {
    InFlight(OnLapse),
    Freed,
    Completed { not_replayable: Option<NotReplayable>, remember_ms: u64 },
    Held(Held),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{Key, Operation, Scope};

    fn identity() -> Identity {
        Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
    }

    fn record(state: State, progress: Option<&'static [u8]>) -> Record {
        Record {
            identity: *identity().digest(),
            token: Token::from_bytes([7; 16]),
            attempt: 2,
            earlier_unknown: true,
            since_ms: 1_800_000_000_000,
            retention_ms: 86_400_000,
            fingerprint: Some(Fingerprint::from_parts(1, [9; 32])),
            progress: progress.map(Bytes::from_static),
            state,
        }
    }

    fn completed(completion: Completion) -> State {
        State::Completed { completion, remember_ms: 5 }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// What an earlier release has stored must be read for ever: these bytes never change. A new form is a new version.
    #[test]
    fn a_stored_record_reads_the_same_for_good() {
        let snapshot = Snapshot::from_bytes(Bytes::from_static(b"snap"));
        let golden = [
            (record(State::InFlight { on_lapse: OnLapse::Hold }, None), "49", "000001"),
            (record(State::InFlight { on_lapse: OnLapse::RunAgain }, Some(b"step")), "49", "01000073746570"),
            (record(State::Freed, None), "46", "0001"),
            (record(completed(Completion::Replayable(snapshot)), None), "43", "01020005736e6170"),
            (record(completed(Completion::NotReplayable(NotReplayable::Stream)), None), "43", "0002010105"),
            (record(completed(Completion::NotReplayable(NotReplayable::Gone)), None), "43", "0002010605"),
            (record(State::Held(Held::because("why")), None), "48", "00030203776879"),
        ];
        for (record, state, tail) in golden {
            let bytes = record.encode();
            let expected = format!(
                "6964656d01{state}{token}{identity}0201{since}{retention}0101{fingerprint}{tail}",
                token = "07".repeat(16),
                identity = hex(identity().digest()),
                since = "80a0f1c2b134",
                retention = "80b89929",
                fingerprint = "09".repeat(32),
            );
            assert_eq!(hex(&bytes), expected);
            assert_eq!(Record::decode(&bytes, &identity()), Ok(record));
        }
    }

    #[test]
    fn what_is_no_record_of_ours_is_never_a_miss() {
        let bytes = record(State::Freed, None).encode();
        let with = |at: usize, byte: u8| {
            let mut changed = bytes.to_vec();
            changed[at] = byte;
            Record::decode(&changed.into(), &identity())
        };
        assert_eq!(with(0, b'x'), Err(RecordError::NotARecord));
        assert_eq!(with(4, 2), Err(RecordError::UnknownVersion(2)));
        assert_eq!(with(5, b'C'), Err(RecordError::Damaged));
        assert_eq!(with(22, 0xff), Err(RecordError::OtherIdentity));
        assert_eq!(Record::decode(&Bytes::new(), &identity()), Err(RecordError::NotARecord));
        assert_eq!(Record::decode(&bytes.slice(..bytes.len() - 1), &identity()), Err(RecordError::Damaged));
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Record::decode(&longer.into(), &identity()), Err(RecordError::Damaged));
    }

    #[test]
    fn an_identity_outlives_its_outcome_alone() {
        let snapshot = Snapshot::from_bytes(Bytes::from_static(b"snap"));
        let before = record(completed(Completion::Replayable(snapshot)), None);
        let after = record(completed(Completion::NotReplayable(NotReplayable::Gone)), None);
        assert_eq!(before.without_snapshot(), after);
        for other in [
            record(State::InFlight { on_lapse: OnLapse::Hold }, Some(b"step")),
            record(State::Freed, Some(b"step")),
            record(completed(Completion::NotReplayable(NotReplayable::Stream)), None),
            record(State::Held(Held::Lapsed), None),
        ] {
            assert_eq!(other.clone().without_snapshot(), other);
        }
    }

    #[test]
    fn empty_progress_and_empty_snapshot_are_not_none() {
        for record in [
            record(State::Freed, Some(b"")),
            record(completed(Completion::Replayable(Snapshot::from_bytes(Bytes::new()))), None),
        ] {
            assert_eq!(Record::decode(&record.encode(), &identity()), Ok(record));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), ours in any::<bool>()) {
            let mut all = if ours { b"idem\x01I".to_vec() } else { Vec::new() };
            all.extend(bytes);
            let _ = Record::decode(&all.into(), &identity());
        }
    }
}
