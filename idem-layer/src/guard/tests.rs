#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arrivals;
mod waiting;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::protocol::{Completion, Fingerprint, Held, Key, NotReplayable, Operation, Scope, Snapshot, State, Tag};
use crate::store::MemoryStore;
use crate::testing::{Fault, FaultyStore, Verb};

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(1000);
const CEILING: Duration = Duration::from_secs(100);

/// A guard over a store that fails when it is told to, under a paused clock.
struct Bench {
    guard: Guard,
    store: FaultyStore,
    events: Arc<Mutex<Vec<EventKind>>>,
}

fn bench(make: fn(FaultyStore) -> Guard) -> Bench {
    let store = FaultyStore::new(MemoryStore::new());
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let guard = make(store.clone())
        .with_policy(policy().build().unwrap())
        .observed_by(move |event: &Event<'_>| seen.lock().unwrap().push(event.kind));
    Bench { guard, store, events }
}

fn at_least_once() -> Bench {
    bench(Guard::at_least_once)
}

fn at_most_once() -> Bench {
    bench(Guard::at_most_once)
}

fn policy() -> crate::protocol::PolicyBuilder {
    Policy::builder().lease(LEASE).retention(RETENTION).run_ceiling(CEILING)
}

fn identity() -> Identity {
    Identity::new(Operation::new("test").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
}

fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::digester().part(text).finish()
}

impl Bench {
    async fn admit(&self) -> Admission {
        self.guard.claim(identity()).await.unwrap()
    }

    async fn claim(&self) -> Claim {
        match self.admit().await {
            Admission::Claimed(claim) => claim,
            Admission::Repeat(repeat) => panic!("expected a claim, got {repeat:?}"),
        }
    }

    async fn repeat(&self) -> Repeat {
        match self.admit().await {
            Admission::Repeat(repeat) => repeat,
            Admission::Claimed(claim) => panic!("expected a repeat, got {claim:?}"),
        }
    }

    async fn stored(&self) -> Option<Tag> {
        self.guard.stored(&identity()).await.unwrap().map(|seen| seen.record.tag())
    }

    fn events(&self) -> Vec<EventKind> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    fn count(&self, kind: EventKind) -> usize {
        self.events.lock().unwrap().iter().filter(|event| **event == kind).count()
    }
}

fn value(json: &str) -> Repeat {
    Repeat::Replay(Snapshot::value(json.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn one_runs_and_the_repeats_get_its_outcome() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    assert_eq!((claim.attempt(), claim.earlier_unknown()), (1, false));
    assert!(matches!(bench.repeat().await, Repeat::Busy { left, .. } if left == LEASE));
    assert_eq!(claim.complete(&"paid").await, Settled::Stored);
    assert_eq!(bench.repeat().await, value("\"paid\""));
    use EventKind::{Claimed, Completed, InProgress, Replayed};
    assert_eq!(bench.events(), [Claimed { attempt: 1 }, InProgress, Completed, Replayed]);
}

#[tokio::test(start_paused = true)]
async fn a_run_longer_than_its_lease_is_renewed() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    sleep(LEASE * 5 + LEASE / 2).await;
    assert!(matches!(bench.repeat().await, Repeat::Busy { .. }));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    let renewals = bench.store.calls(Verb::Renew);
    sleep(LEASE * 5).await;
    assert_eq!(bench.store.calls(Verb::Renew), renewals, "a settled claim is not renewed");
}

#[tokio::test(start_paused = true)]
async fn a_run_outlives_failed_renewals() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    bench.store.next(Verb::Renew, Fault::FailBefore).next(Verb::Renew, Fault::FailBefore);
    bench.store.next(Verb::Renew, Fault::Hang).next(Verb::Renew, Fault::LoseReply).next(Verb::Renew, Fault::LoseReply);
    sleep(LEASE * 3).await;
    assert!(matches!(bench.repeat().await, Repeat::Busy { .. }));
    assert!(bench.count(EventKind::RenewalFailed) >= 2);
    assert_eq!(claim.complete(&1).await, Settled::Stored);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_renewed_no_longer_than_the_run_ceiling() {
    let bench = at_least_once();
    let first = bench.claim().await;
    sleep(CEILING - LEASE / 2).await;
    assert!(matches!(bench.repeat().await, Repeat::Busy { .. }));
    sleep(LEASE * 2).await;
    assert_eq!(bench.count(EventKind::CeilingReached), 1);
    let second = bench.claim().await;
    assert_eq!((second.attempt(), second.earlier_unknown()), (2, true));
    assert_eq!(second.complete(&2).await, Settled::Stored);
    assert_eq!(first.complete(&1).await, Settled::Lost(value("2")));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_has_an_unknown_outcome() {
    let bench = at_least_once();
    drop(bench.claim().await);
    let _ = bench.guard.drain(LEASE / 2).await;
    let claim = bench.claim().await;
    assert_eq!((claim.attempt(), claim.earlier_unknown()), (2, true));
    assert_eq!(bench.count(EventKind::TakenOver { attempt: 2 }), 1);

    let bench = at_most_once();
    drop(bench.claim().await);
    let _ = bench.guard.drain(LEASE / 2).await;
    assert!(matches!(bench.repeat().await, Repeat::Held { held: Held::Unknown, .. }));
    sleep(RETENTION * 10).await;
    assert!(matches!(bench.repeat().await, Repeat::Held { .. }), "held until somebody decides");
}

#[tokio::test(start_paused = true)]
async fn each_settling_leaves_what_it_says() {
    let bench = at_most_once();
    assert_eq!(bench.claim().await.release().await, Settled::Stored);
    assert_eq!(bench.stored().await, None);
    assert_eq!(
        bench.claim().await.complete_with(Completion::NotReplayable(NotReplayable::Stream)).await,
        Settled::Stored
    );
    assert_eq!(bench.repeat().await, Repeat::NotReplayable(NotReplayable::Stream));

    let bench = at_least_once();
    assert_eq!(bench.claim().await.abandon().await, Settled::Stored);
    let claim = bench.claim().await;
    assert_eq!(claim.attempt(), 2);
    assert_eq!(claim.release().await, Settled::Stored);
    let claim = bench.claim().await;
    assert_eq!((claim.attempt(), claim.earlier_unknown()), (3, true));
    assert_eq!(claim.hold(Held::because("ask the bank")).await, Settled::Stored);
    assert!(matches!(bench.repeat().await, Repeat::Held { held: Held::Because(why), .. } if why == "ask the bank"));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_encoded_took_effect_all_the_same() {
    let bench = at_least_once();
    let map = std::collections::HashMap::from([((1, 2), 3)]);
    assert_eq!(bench.claim().await.complete(&map).await, Settled::Stored);
    assert_eq!(bench.repeat().await, Repeat::NotReplayable(NotReplayable::Unencodable));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_once_is_repeated_with_the_same_token() {
    let bench = at_least_once();
    bench.store.next(Verb::Acquire, Fault::FailBefore);
    assert_eq!(bench.claim().await.release().await, Settled::Stored);
    // The first was applied: the second must find its own claim, not a stranger's.
    bench.store.next(Verb::Acquire, Fault::LoseReply).next(Verb::Settle, Fault::LoseReply);
    let claim = bench.claim().await;
    assert_eq!(claim.attempt(), 1);
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(bench.store.calls(Verb::Acquire), 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_given_up_within_its_limit() {
    let bench = at_least_once();
    bench.store.always(Verb::Acquire, Fault::Hang);
    let (began, limit) = (bench.guard.0.clock.now(), bench.guard.policy().store_call());
    let error = bench.guard.claim(identity()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::TimedOut, true));
    assert_eq!(bench.guard.0.clock.now().since(began), limit);
    assert_eq!(bench.events(), [EventKind::StoreFailed { kind: StoreErrorKind::TimedOut }]);
}

/// The claim was granted, its reply lost; the caller got an error and ran nothing. Then the lease lapsed: the key was held as
/// an unknown outcome of a run that never was.
#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_learned_of_is_released() {
    let bench = at_most_once();
    bench.store.next(Verb::Acquire, Fault::HangAfter);
    bench.guard.claim(identity()).await.unwrap_err();
    assert_eq!(bench.stored().await, Some(Tag::InFlight));
    sleep(LEASE / 2).await;
    assert_eq!(bench.stored().await, None);
    // The same when the command arrives only after its caller has given up.
    bench.store.next(Verb::Acquire, Fault::LoseReply).next(Verb::Acquire, Fault::ApplyLate(Duration::from_secs(2)));
    bench.store.next(Verb::Read, Fault::FailBefore);
    bench.guard.claim(identity()).await.unwrap_err();
    sleep(LEASE * 2).await;
    assert_eq!(bench.stored().await, None);
    assert_eq!(bench.claim().await.attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_while_his_claim_is_on_the_wire_leaves_a_free_key() {
    let bench = at_most_once();
    bench.store.next(Verb::Acquire, Fault::Delay(Duration::from_millis(200)));
    let claim = bench.guard.claim(identity());
    assert!(tokio::time::timeout(Duration::from_millis(50), claim).await.is_err());
    assert_eq!(bench.stored().await, Some(Tag::InFlight), "the claim has been granted");
    assert_eq!(bench.guard.drain(Duration::from_secs(1)).await, Drained { open: 0 });
    assert_eq!(bench.stored().await, None);
    assert_eq!(bench.count(EventKind::Released), 1);
}

#[tokio::test(start_paused = true)]
async fn a_settling_that_is_dropped_goes_on() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    bench.store.next(Verb::Settle, Fault::ApplyLate(Duration::from_millis(200)));
    assert!(tokio::time::timeout(Duration::from_millis(50), claim.complete(&1)).await.is_err());
    assert_eq!(bench.guard.drain(Duration::from_secs(1)).await, Drained { open: 0 });
    assert_eq!(bench.repeat().await, value("1"));
}

#[tokio::test(start_paused = true)]
async fn a_settling_that_the_store_does_not_take_is_retried_until_it_does() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    bench.store.always(Verb::Settle, Fault::FailBefore);
    assert_eq!(claim.complete(&1).await, Settled::Deferred);
    sleep(LEASE * 3).await;
    assert_eq!(bench.count(EventKind::SettledLate), 0);
    bench.store.heal();
    sleep(LEASE).await;
    assert_eq!((bench.count(EventKind::SettlingDeferred), bench.count(EventKind::SettledLate)), (1, 1));
    assert_eq!(bench.repeat().await, value("1"));
}

/// The store fell silent; each arrival's claim had perhaps been granted and waited to be looked for, until no slot was left;
/// then a run that had taken effect ended, and its outcome was given up, though the store came back within the lease.
#[tokio::test(start_paused = true)]
async fn claims_that_were_perhaps_granted_take_no_room_from_outcomes() {
    let bench = at_most_once();
    let claim = bench.claim().await;
    for verb in [Verb::Acquire, Verb::Settle, Verb::Read] {
        bench.store.always(verb, Fault::Hang);
    }
    let arrivals: Vec<_> = (0..=tracker::RETRY_SLOTS.max(tracker::SEARCH_SLOTS))
        .map(|i| {
            let key = Key::new(format!("other-{i}")).unwrap();
            let identity = Identity::new(Operation::new("test").unwrap(), None, Scope::unscoped(), key);
            tokio::spawn(bench.guard.claim(identity))
        })
        .collect();
    for arrival in arrivals {
        arrival.await.unwrap().unwrap_err();
    }
    assert_eq!(claim.complete(&1).await, Settled::Deferred);
    assert_eq!(bench.count(EventKind::SettlingGivenUp), 0);
    bench.store.heal();
    sleep(LEASE / 2).await;
    assert_eq!(bench.repeat().await, value("1"));
}

#[tokio::test(start_paused = true)]
async fn a_drain_tries_what_is_deferred_a_last_time() {
    let bench = at_least_once();
    bench.store.always(Verb::Settle, Fault::FailBefore);
    assert_eq!(bench.claim().await.complete(&1).await, Settled::Deferred);
    sleep(LEASE).await;
    let calls = bench.store.calls(Verb::Settle);
    assert_eq!(bench.guard.drain(LEASE * 100).await, Drained { open: 0 });
    assert!(bench.store.calls(Verb::Settle) > calls);
    assert_eq!(bench.count(EventKind::SettlingGivenUp), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_open_claims_and_says_what_is_left() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    assert_eq!(bench.guard.drain(LEASE).await, Drained { open: 1 });
    let guard = bench.guard.clone();
    let drained = tokio::spawn(async move { guard.drain(CEILING).await });
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(drained.await.unwrap(), Drained { open: 0 });
}

/// An owner was paused beyond its lease before it learned of its claim; another took over and ran; the first, unaware, ran
/// too.
#[tokio::test(start_paused = true)]
async fn an_owner_whose_deadline_has_passed_renews_before_it_goes_on() {
    let patient = policy().store_call(LEASE * 4).build().unwrap();
    let bench = at_least_once();
    let slow = bench.guard.clone().with_policy(patient);

    bench.store.next(Verb::Acquire, Fault::Delay(LEASE * 2));
    let first = tokio::spawn({
        let slow = slow.clone();
        async move { slow.claim(identity()).await }
    });
    sleep(LEASE + LEASE / 2).await;
    let second = bench.claim().await;
    assert_eq!(second.attempt(), 2);
    let Ok(Ok(Admission::Repeat(Repeat::Busy { .. }))) = first.await else { panic!("the first must not run") };
    assert_eq!(second.complete(&2).await, Settled::Stored);

    // Nobody took over: the renewal makes the claim good.
    let bench = at_least_once();
    let slow = bench.guard.clone().with_policy(patient);
    bench.store.next(Verb::Acquire, Fault::Delay(LEASE * 2));
    let Ok(Admission::Claimed(claim)) = slow.claim(identity()).await else { panic!("a claim") };
    assert!(bench.store.applied(Verb::Renew) >= 1);
    assert!(matches!(bench.repeat().await, Repeat::Busy { .. }));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
}

/// An owner was paused beyond its lease before it learned of its claim; a repeat found the claim lapsed and held it; the
/// owner stood back, and the key stayed held for good as the unknown outcome of a run that never was.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_held_before_its_owner_learned_of_it_is_free_again() {
    let bench = at_most_once();
    let slow = bench.guard.clone().with_policy(policy().store_call(LEASE * 4).build().unwrap());
    bench.store.next(Verb::Acquire, Fault::Delay(LEASE * 2));
    bench.store.next(Verb::Renew, Fault::Hang);
    bench.store.always(Verb::Renew, Fault::FailBefore);
    let first = tokio::spawn(async move { slow.claim(identity()).await });
    sleep(LEASE + LEASE / 2).await;
    assert!(matches!(bench.repeat().await, Repeat::Held { held: Held::Lapsed, .. }));
    bench.store.heal();
    let Ok(Ok(Admission::Claimed(claim))) = first.await else { panic!("nobody has run: the first may") };
    assert_eq!((claim.attempt(), claim.earlier_unknown()), (1, false));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(bench.repeat().await, value("1"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_lost_its_claim_learns_what_the_key_holds() {
    let bench = at_least_once();
    let first = bench.claim().await;
    bench.store.always(Verb::Renew, Fault::FailBefore);
    sleep(LEASE * 2).await;
    let second = bench.claim().await;
    assert!(matches!(first.complete(&1).await, Settled::Lost(Repeat::Busy { .. })));
    assert_eq!(second.complete(&2).await, Settled::Stored);
    assert_eq!(bench.repeat().await, value("2"));
    assert_eq!(bench.count(EventKind::Lost { found: Some(Tag::InFlight) }), 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_may_still_settle_what_was_held_when_its_lease_lapsed() {
    let bench = at_most_once();
    let claim = bench.claim().await;
    bench.store.always(Verb::Renew, Fault::FailBefore);
    sleep(LEASE * 2).await;
    assert!(matches!(bench.repeat().await, Repeat::Held { held: Held::Lapsed, .. }));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(bench.repeat().await, value("1"));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_record_the_store_has_lost_is_kept_under_a_fresh_claim() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    // The record runs out: renewal has stopped at the ceiling, lease and retention have passed.
    sleep(CEILING + LEASE + RETENTION * 2).await;
    assert_eq!(bench.stored().await, None);
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!((bench.count(EventKind::Lost { found: None }), bench.count(EventKind::Restored)), (1, 1));
    assert_eq!(bench.repeat().await, value("1"));
}

/// The store had lost the record; the fresh claim for its outcome was granted and its reply lost; the retry met that claim,
/// took it for somebody else's run, and the outcome was given up.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_kept_although_the_reply_to_its_fresh_claim_was_lost() {
    for lost in [Verb::Acquire, Verb::Settle] {
        let bench = at_most_once();
        let claim = bench.claim().await;
        sleep(CEILING + LEASE + RETENTION * 2).await;
        assert_eq!(bench.stored().await, None);
        match lost {
            Verb::Acquire => bench.store.next(Verb::Acquire, Fault::LoseReply).next(Verb::Acquire, Fault::LoseReply),
            // The first finds the record gone.
            _ => bench.store.next(Verb::Settle, Fault::Delay(Duration::ZERO)).next(Verb::Settle, Fault::HangAfter),
        };
        assert_eq!(claim.complete(&1).await, Settled::Deferred);
        sleep(LEASE / 2).await;
        assert_eq!(bench.count(EventKind::SettlingGivenUp), 0, "lost reply to {lost:?}");
        assert_eq!(bench.count(EventKind::SettledLate), 1, "lost reply to {lost:?}");
        assert_eq!(bench.repeat().await, value("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_fingerprint_version_is_compared_by_that_version() {
    let bench = at_least_once();
    let old = |text: &str| Fingerprint::from_parts(0, *fingerprint(text).digest());
    let _claim = bench.guard.claim(Arrival::new(identity()).fingerprint(old("a"))).await.unwrap();

    let knows = |text: &'static str| {
        let redigest = move |version| (version == 0).then(|| old(text));
        Arrival::new(identity()).fingerprint(fingerprint(text)).redigest(redigest)
    };
    let same = bench.guard.claim(knows("a")).await.unwrap();
    assert!(matches!(same, Admission::Repeat(Repeat::Busy { .. })));
    let other = bench.guard.claim(knows("b")).await.unwrap();
    assert!(matches!(other, Admission::Repeat(Repeat::Mismatch)));
    let ignorant = bench.guard.claim(Arrival::new(identity()).fingerprint(fingerprint("a"))).await;
    assert_eq!(ignorant.unwrap_err().kind(), StoreErrorKind::Unreadable);
}

#[tokio::test(start_paused = true)]
async fn a_difference_refuses_or_is_only_reported() {
    let bench = at_least_once();
    let arrival = |text| Arrival::new(identity()).fingerprint(fingerprint(text));
    let Ok(Admission::Claimed(claim)) = bench.guard.claim(arrival("a")).await else { panic!("a claim") };
    assert!(matches!(bench.guard.claim(arrival("b")).await, Ok(Admission::Repeat(Repeat::Mismatch))));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert!(matches!(bench.guard.claim(arrival("b")).await, Ok(Admission::Repeat(Repeat::Mismatch))));
    assert!(matches!(bench.guard.claim(arrival("b").observed()).await, Ok(Admission::Repeat(Repeat::Replay(_)))));
    assert_eq!((bench.count(EventKind::Mismatch), bench.count(EventKind::Differs)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_stricter_of_two_guarantees_decides_at_a_lapse() {
    let store = MemoryStore::new();
    let policy = policy().build().unwrap();
    for (first, second) in [
        (Guard::at_most_once(store.clone()), Guard::at_least_once(store.clone())),
        (Guard::at_least_once(MemoryStore::new()), Guard::at_least_once(store)),
    ] {
        let first = first.with_policy(policy);
        let strict = first.0.guarantee == Guarantee::AtMostOnce;
        let second = if strict { second } else { Guard::at_most_once(first.0.store.clone()) }.with_policy(policy);
        let Ok(Admission::Claimed(claim)) = first.claim(identity()).await else { panic!("a claim") };
        claim.disown();
        sleep(LEASE * 2).await;
        let Ok(Admission::Repeat(Repeat::Held { held: Held::Lapsed, .. })) = second.claim(identity()).await else {
            panic!("held")
        };
        let seen = first.stored(&identity()).await.unwrap().unwrap();
        assert_eq!(seen.record.state, State::Held(Held::Lapsed));
    }
}

#[test]
fn a_claim_that_outlives_its_runtime_is_left_to_its_lease() {
    let bench = at_least_once();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let claim = runtime().block_on(bench.claim());
    drop(claim);
    let repeat = runtime().block_on(bench.repeat());
    assert!(matches!(repeat, Repeat::Busy { .. }));
}

/// Something else stood in the record's place; the settling was tried against it every two seconds until the retention was over.
#[tokio::test(start_paused = true)]
async fn a_settling_that_meets_what_cannot_be_read_is_given_up() {
    let bench = at_least_once();
    let claim = bench.claim().await;
    bench.store.always(Verb::Settle, Fault::FailWith(StoreErrorKind::Unreadable));
    assert_eq!(claim.complete(&1).await, Settled::Deferred);
    sleep(LEASE).await;
    assert_eq!(bench.count(EventKind::SettlingGivenUp), 1);
    let calls = bench.store.calls(Verb::Settle);
    sleep(LEASE * 5).await;
    assert_eq!(bench.store.calls(Verb::Settle), calls);
}
