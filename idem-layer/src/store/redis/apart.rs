//! A snapshot that is kept apart from its record, because the record outlives it.

use bytes::Bytes;

use crate::protocol::{Completion, Identity, NotReplayable, Record, RecordError, Snapshot, State};

/// What a record holds in place of a snapshot that is kept apart. No snapshot is this: its first byte is its version, and
/// there is no version zero.
const REFERENCE: &[u8] = &[0];

/// The value of the record's key, and that of its snapshot's key if the record is to outlive it.
///
/// The snapshot follows the token of the claim that it completed, so that a record never answers with another's.
pub(super) fn split(record: &Record) -> (Bytes, Option<Bytes>) {
    match &record.state {
        State::Completed { completion: Completion::Replayable(snapshot), remember_ms: remember_ms @ 1.. } => {
            let reference = Completion::Replayable(Snapshot::from_bytes(Bytes::from_static(REFERENCE)));
            let state = State::Completed { completion: reference, remember_ms: *remember_ms };
            let apart = [record.token.as_bytes(), &snapshot.as_bytes()[..]].concat();
            (Record { state, ..record.clone() }.encode(), Some(apart.into()))
        }
        _ => (record.encode(), None),
    }
}

/// The record again. Without a snapshot of its own claim that it refers to, it is [`NotReplayable::Gone`].
pub(super) fn join(value: &Bytes, apart: Option<&Bytes>, identity: &Identity) -> Result<Record, RecordError> {
    let mut record = Record::decode(value, identity)?;
    if let State::Completed { completion, remember_ms: 1.. } = &mut record.state
        && let Completion::Replayable(reference) = completion
    {
        if reference.as_bytes() != REFERENCE {
            return Err(RecordError::Damaged);
        }
        let token = record.token.as_bytes();
        let snapshot = apart.filter(|apart| apart.starts_with(token)).map(|apart| apart.slice(token.len()..));
        *completion = match snapshot {
            Some(bytes) => Completion::Replayable(Snapshot::from_bytes(bytes)),
            None => Completion::NotReplayable(NotReplayable::Gone),
        };
    }
    Ok(record)
}

/// Whether the record has lost its snapshot. Then its replay is over, whatever time it has left.
pub(super) fn is_gone(record: &Record) -> bool {
    matches!(record.state, State::Completed { completion: Completion::NotReplayable(NotReplayable::Gone), .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Key, OnLapse, Operation, Scope, Token};

    fn identity() -> Identity {
        Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
    }

    fn record(state: State) -> Record {
        Record {
            identity: *identity().digest(),
            token: Token::from_bytes([7; 16]),
            attempt: 1,
            earlier_unknown: false,
            since_ms: 1,
            retention_ms: 2,
            fingerprint: None,
            progress: None,
            state,
        }
    }

    fn completed(snapshot: &'static [u8], remember_ms: u64) -> Record {
        let completion = Completion::Replayable(Snapshot::from_bytes(Bytes::from_static(snapshot)));
        record(State::Completed { completion, remember_ms })
    }

    /// What an earlier release has stored must be read for ever.
    #[test]
    fn a_record_that_outlives_its_snapshot_is_stored_the_same_for_good() {
        let (value, apart) = split(&completed(b"snap", 5));
        let identity = identity();
        let expected = [b"idem\x01C", &[7; 16][..], identity.digest(), b"\x01\0\x01\x02\0\x01\x02\0\x05", b"\0"];
        assert_eq!(value, expected.concat());
        let apart = apart.unwrap();
        assert_eq!(apart, [&[7; 16][..], b"snap"].concat());
        assert_eq!(join(&value, Some(&apart), &identity), Ok(completed(b"snap", 5)));
    }

    #[test]
    fn nothing_else_is_kept_apart() {
        let not_replayable = Completion::NotReplayable(NotReplayable::Stream);
        for record in [
            completed(b"snap", 0),
            completed(b"\0", 0),
            record(State::Completed { completion: not_replayable, remember_ms: 5 }),
            record(State::InFlight { on_lapse: OnLapse::Hold }),
            record(State::Freed),
        ] {
            let (value, apart) = split(&record);
            assert_eq!((&value, apart), (&record.encode(), None));
            assert_eq!(join(&value, None, &identity()).as_ref(), Ok(&record));
            assert_eq!(join(&value, Some(&Bytes::from_static(&[7; 20])), &identity()).as_ref(), Ok(&record));
        }
    }

    #[test]
    fn a_snapshot_that_is_not_there_or_of_another_claim_is_gone() {
        let (value, _) = split(&completed(b"snap", 5));
        for apart in [None, Some(&b""[..]), Some(&[7; 15]), Some(&[8; 20])] {
            let apart = apart.map(Bytes::from_static);
            let found = join(&value, apart.as_ref(), &identity()).unwrap();
            assert_eq!(found, completed(b"snap", 5).without_snapshot());
            assert!(is_gone(&found));
        }
        let empty = completed(b"", 5);
        let (value, apart) = split(&empty);
        assert_eq!(join(&value, apart.as_ref(), &identity()), Ok(empty), "an empty snapshot is not none");
    }

    #[test]
    fn a_record_that_refers_to_what_this_code_does_not_know_is_never_a_miss() {
        for reference in [&b""[..], b"\x01", b"\0\0", b"\x01Vnull"] {
            let value = completed(reference, 5).encode();
            assert_eq!(join(&value, Some(&Bytes::from_static(&[7; 20])), &identity()), Err(RecordError::Damaged));
        }
    }
}
