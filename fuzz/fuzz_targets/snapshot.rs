//! What a store gives back, be it what it likes: snapshots and records are read or refused, and what is read is written
//! again as what it was.

#![no_main]

use bytes::Bytes;
use idem_layer::protocol::{
    Completion, Content, Identity, Key, Operation, Record, Scope, Snapshot, SnapshotError, State,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    snapshot(&Snapshot::from_bytes(bytes.clone()));
    // Most inputs are no snapshot of this version: the same bytes as the rest of one.
    snapshot(&Snapshot::from_bytes([&[Snapshot::VERSION, b'R'], &bytes[..]].concat().into()));

    let identity = identity();
    record(&bytes, &identity);
    if let Some(of_ours) = of_identity(&bytes, &identity) {
        record(&of_ours, &identity);
    }
});

fn snapshot(snapshot: &Snapshot) {
    let again = match snapshot.decode() {
        Ok(Content::Response(response)) => Snapshot::response(&response),
        Ok(Content::Value(json)) => Snapshot::value(&json),
        Ok(Content::Error(json)) => Snapshot::error(&json),
        Err(SnapshotError::UnknownVersion(version)) => {
            assert_ne!(version, Snapshot::VERSION);
            return;
        }
        Err(_) => return,
    };
    // Numbers can be written in more than one length, so the bytes may differ where a response's head is read.
    assert_eq!(again.decode(), snapshot.decode());
    if snapshot.as_bytes()[1] != b'R' {
        assert_eq!(&again, snapshot);
    }
}

fn record(bytes: &Bytes, identity: &Identity) {
    let Ok(record) = Record::decode(bytes, identity) else { return };
    assert_eq!(record.identity, *identity.digest());
    assert_eq!(record.tag().as_byte(), bytes[Record::OWNER.start]);
    let again = record.encode();
    assert_eq!(Record::decode(&again, identity).as_ref(), Ok(&record));
    assert_eq!(again[Record::OWNER], bytes[Record::OWNER]);
    assert!(record.payload_len() <= bytes.len());
    if let State::Completed { completion: Completion::Replayable(kept), .. } = &record.state {
        snapshot(kept);
    }
}

/// The same bytes as a record of this version and identity, where they are long enough.
fn of_identity(bytes: &[u8], identity: &Identity) -> Option<Bytes> {
    let owner = bytes.get(..Record::OWNER.len())?;
    let rest = &bytes[owner.len()..];
    Some([b"idem", &[Record::VERSION][..], owner, &identity.digest()[..], rest].concat().into())
}

fn identity() -> Identity {
    let operation = Operation::new("fuzz").expect("a name");
    Identity::new(operation, None, Scope::unscoped(), Key::new("k").expect("a key"))
}
