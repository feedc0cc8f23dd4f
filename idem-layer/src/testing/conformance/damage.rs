use std::error::Error as _;

use super::*;
use crate::protocol::RecordError;
use crate::store::{StoreError, StoreErrorKind};

/// Bytes that are no record are an error of their own: not a claim, and not overwritten.
pub async fn garbage_is_unreadable_and_never_a_miss(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let a_record = a_claim_of(&subject.identity).encode();
    let cut_off = a_record.slice(..a_record.len() - 1);
    for (bytes, error) in [
        (Bytes::new(), RecordError::NotARecord),
        (Bytes::from_static(b"\0\xff garbage"), RecordError::NotARecord),
        (Bytes::from_static(b"{\"status\":\"done\"}"), RecordError::NotARecord),
        (Bytes::from_static(b"idem\x01"), RecordError::Damaged),
        (cut_off, RecordError::Damaged),
    ] {
        assert_unreadable(&subject, bytes, error).await;
    }
}

/// A record of a version that this code does not know stands for an execution all the same.
pub async fn a_newer_record_is_unreadable_and_never_a_miss(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let mut bytes = a_claim_of(&subject.identity).encode().to_vec();
    bytes[4] = Record::VERSION + 1;
    let error = RecordError::UnknownVersion(Record::VERSION + 1);
    assert_unreadable(&subject, bytes.into(), error).await;
}

/// A record that says whose it is, and is found under another name, answers for neither.
pub async fn a_record_of_another_identity_is_unreadable_and_never_a_miss(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let bytes = a_claim_of(&fresh_identity()).encode();
    assert_unreadable(&subject, bytes, RecordError::OtherIdentity).await;
}

fn a_claim_of(identity: &Identity) -> Record {
    Record {
        identity: *identity.digest(),
        token: Token::mint(),
        attempt: 1,
        earlier_unknown: false,
        since_ms: 1,
        retention_ms: RETENTION.as_millis() as u64,
        fingerprint: None,
        progress: None,
        state: State::InFlight { on_lapse: OnLapse::RunAgain },
    }
}

/// Every verb refuses, and refuses again: whoever reads first has not removed it.
async fn assert_unreadable<H: StoreHarness>(subject: &Subject<H>, bytes: Bytes, expected: RecordError) {
    if !subject.harness.plant(&subject.identity, bytes).await {
        return;
    }
    let Subject { store, identity, .. } = subject;
    let ticket = Ticket { identity: identity.clone(), record: a_claim_of(identity) };
    let token = ticket.record.token;
    for _ in 0..2 {
        for acquire in [ask(), ask_once()] {
            check(store.acquire(identity, &acquire).await, expected);
        }
        check(store.renew(&ticket, &Renew { token, lease: LEASE, progress: None }).await, expected);
        for settlement in settlements() {
            check(store.settle(&ticket, &Settle { token, settlement, at_ms: 2 }).await, expected);
        }
        check(store.read(identity).await, expected);
    }
}

#[track_caller]
fn check<T: std::fmt::Debug>(answer: Result<T, StoreError>, expected: RecordError) {
    let error = answer.expect_err("a record that cannot be read is an error");
    assert_eq!(error.kind(), StoreErrorKind::Unreadable);
    let source = error.source().and_then(|source| source.downcast_ref::<RecordError>());
    assert_eq!(source, Some(&expected));
}
