//! What else an arrival may bring, and what it may meet.

use std::sync::atomic::{AtomicU8, Ordering};

use super::waiting::{watching, with};
use super::*;
use crate::protocol::{Acquire, Acquired, Owned, Renew, Settle, Ticket};
use crate::store::Store;

#[tokio::test(start_paused = true)]
async fn an_arrival_that_is_only_watched_never_waits_and_its_events_say_what_it_is() {
    let bench = watching(Guard::at_least_once);
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let guard = (bench.guard.clone())
        .observed_by(move |event: &Event<'_>| seen.lock().unwrap().push((event.kind, event.shadow)));
    let shadow = || Arrival::new(identity()).shadow();
    let began = bench.now();

    let Ok(Admission::Claimed(claim)) = guard.claim(shadow()).await else { panic!("a claim") };
    assert!(matches!(guard.claim(shadow()).await, Ok(Admission::Repeat(Repeat::Busy { .. }))));
    assert_eq!(bench.now().since(began), Duration::ZERO);
    bench.store.next(Verb::Settle, Fault::FailBefore).next(Verb::Settle, Fault::FailBefore);
    bench.store.next(Verb::Renew, Fault::FailBefore).next(Verb::Renew, Fault::FailBefore);
    sleep(LEASE / 2).await;
    assert_eq!(claim.complete(&1).await, Settled::Deferred);
    sleep(Duration::from_secs(1)).await;
    let Ok(Admission::Repeat(Repeat::Replay(_))) = guard.claim(identity()).await else { panic!("a replay") };
    bench.store.next(Verb::Acquire, Fault::FailBefore).next(Verb::Acquire, Fault::FailBefore);
    let kind = guard.claim(shadow()).await.unwrap_err().kind();

    use EventKind::{
        Claimed, Completed, InProgress, RenewalFailed, Replayed, SettledLate, SettlingDeferred, StoreFailed,
    };
    let failed = StoreFailed { kind };
    let watched = [Claimed { attempt: 1 }, InProgress, RenewalFailed, failed, SettlingDeferred, Completed, SettledLate];
    let mut expected: Vec<_> = watched.map(|kind| (kind, true)).into();
    expected.extend([(Replayed, false), (failed, true)]);
    assert_eq!(*events.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_identity_is_remembered_behind_its_retention() {
    for remember in [Duration::ZERO, RETENTION] {
        let bench = with(at_least_once(), policy().remember(remember));
        assert_eq!(bench.claim().await.complete(&1).await, Settled::Stored);
        sleep(RETENTION - LEASE).await;
        assert_eq!(bench.repeat().await, value("1"));
        sleep(LEASE * 2).await;
        if !remember.is_zero() {
            assert_eq!(bench.repeat().await, Repeat::Gone);
            assert_eq!(bench.count(EventKind::Gone), 1);
            sleep(remember).await;
        }
        assert_eq!(bench.claim().await.attempt(), 1);
    }
}

/// Answers each question as if the record had been fingerprinted by yet another version.
struct Fickle(AtomicU8);

impl Store for Fickle {
    async fn acquire(&self, _: &Identity, _: &Acquire) -> Result<Acquired, StoreError> {
        Ok(Acquired::OtherVersion(self.0.fetch_add(1, Ordering::SeqCst)))
    }

    async fn renew(&self, _: &Ticket, _: &Renew) -> Result<Owned, StoreError> {
        Ok(Owned::Lost(None))
    }

    async fn settle(&self, _: &Ticket, _: &Settle) -> Result<Owned, StoreError> {
        Ok(Owned::Lost(None))
    }
}

impl Inspect for Fickle {
    async fn read(&self, _: &Identity) -> Result<Option<Seen>, StoreError> {
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_answers_never_hold_is_given_up_with_a_cause_and_an_event() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let guard = Guard::at_least_once(Fickle(Default::default()))
        .observed_by(move |event: &Event<'_>| seen.lock().unwrap().push(event.kind));
    let redigest = |version| Some(Fingerprint::from_parts(version, [0; 32]));
    let arrival = Arrival::new(identity()).fingerprint(fingerprint("a")).redigest(redigest);
    let error = guard.claim(arrival).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Broken);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("4 times in a row"));
    assert_eq!(*events.lock().unwrap(), [EventKind::StoreFailed { kind: StoreErrorKind::Broken }]);
}
