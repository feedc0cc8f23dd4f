//! Repeats that wait.

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::guard::waiting::MOST_WAITERS;
use crate::protocol::PolicyBuilder;

const WAIT: Duration = Duration::from_secs(60);

type Answer = Result<Admission, StoreError>;

/// A bench whose repeats wait, and whose store cannot be looked into: whatever wakes them, it is this process.
fn blind(make: fn(FaultyStore) -> Guard) -> Bench {
    let bench = watching(make);
    bench.store.always(Verb::Read, Fault::Hang);
    bench
}

/// A bench whose repeats wait.
pub(super) fn watching(make: fn(FaultyStore) -> Guard) -> Bench {
    with(bench(make), policy().wait(WAIT))
}

pub(super) fn with(bench: Bench, policy: PolicyBuilder) -> Bench {
    Bench { guard: bench.guard.with_policy(policy.build().unwrap()), ..bench }
}

fn keyed(key: impl Into<String>) -> Identity {
    Identity::new(Operation::new("test").unwrap(), None, Scope::unscoped(), Key::new(key.into()).unwrap())
}

impl Bench {
    /// Another guard on the same store: it stands for another process.
    fn elsewhere(&self) -> Guard {
        let guard = match self.guard.0.guarantee {
            Guarantee::AtLeastOnce => Guard::at_least_once(self.store.clone()),
            Guarantee::AtMostOnce => Guard::at_most_once(self.store.clone()),
        };
        guard.with_policy(*self.guard.policy())
    }

    /// So many repeats that wait.
    async fn waiting(&self, repeats: usize) -> Vec<JoinHandle<Answer>> {
        let before = self.count(EventKind::Waiting);
        let waiting = (0..repeats).map(|_| tokio::spawn(self.guard.claim(identity()))).collect();
        self.until_waiting(before + repeats).await;
        waiting
    }

    async fn until_waiting(&self, repeats: usize) {
        for _ in 0..100_000 {
            if self.count(EventKind::Waiting) >= repeats {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{} of {repeats} wait", self.count(EventKind::Waiting));
    }

    /// What is stored, whatever is scripted for reads.
    async fn stored_past_the_fault(&self) -> Option<Tag> {
        self.store.heal();
        let stored = self.stored().await;
        self.store.always(Verb::Read, Fault::Hang);
        stored
    }

    pub(super) fn now(&self) -> crate::clock::Moment {
        self.guard.0.clock.now()
    }
}

async fn claimed(guard: &Guard) -> Claim {
    match guard.claim(identity()).await.unwrap() {
        Admission::Claimed(claim) => claim,
        Admission::Repeat(repeat) => panic!("expected a claim, got {repeat:?}"),
    }
}

async fn repeat(waiting: JoinHandle<Answer>) -> Repeat {
    match waiting.await.unwrap().unwrap() {
        Admission::Repeat(repeat) => repeat,
        Admission::Claimed(claim) => panic!("expected a repeat, got {claim:?}"),
    }
}

/// The one that has won a claim, and the others, which have not ended.
async fn split(waiting: Vec<JoinHandle<Answer>>) -> (Claim, Vec<JoinHandle<Answer>>) {
    // All that can go on without time passing has done so by then.
    sleep(Duration::from_millis(1)).await;
    let (mut ended, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(JoinHandle::is_finished);
    assert_eq!(ended.len(), 1, "exactly one takes over");
    match ended.remove(0).await.unwrap().unwrap() {
        Admission::Claimed(claim) => (claim, others),
        Admission::Repeat(repeat) => panic!("expected a claim, got {repeat:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_waits_is_woken_at_once_by_the_end_of_the_run() {
    let bench = blind(Guard::at_least_once);
    let claim = bench.claim().await;
    let waiting = bench.waiting(3).await;
    let ended = bench.now();
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    for waiting in waiting {
        assert_eq!(repeat(waiting).await, value("1"));
    }
    assert_eq!(bench.now().since(ended), Duration::ZERO);
    use EventKind::{Claimed, Completed, Replayed, Waiting};
    assert_eq!(
        bench.events(),
        [Claimed { attempt: 1 }, Waiting, Waiting, Waiting, Completed, Replayed, Replayed, Replayed]
    );
}

/// The repeat was told of the run; the run ended, and nobody was there to be woken; then the repeat began to wait.
#[tokio::test(start_paused = true)]
async fn an_end_between_the_answer_and_the_waiting_is_not_missed() {
    let bench = blind(Guard::at_least_once);
    let claim = bench.claim().await;
    let delay = Duration::from_millis(100);
    bench.store.next(Verb::Acquire, Fault::Delay(delay));
    let asked = bench.now();
    let waiting = tokio::spawn(bench.guard.claim(identity()));
    sleep(delay / 2).await;
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(repeat(waiting).await, value("1"));
    assert_eq!(bench.now().since(asked), delay);
}

/// The same in real threads, at whatever moment the run ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whenever_a_run_ends_all_who_wait_for_it_are_woken() {
    let patient = policy().wait(WAIT).store_call(CEILING);
    let bench = with(bench(Guard::at_least_once), patient);
    bench.store.always(Verb::Read, Fault::Hang);
    for round in 0..500 {
        let identity = keyed(format!("k-{round}"));
        let Ok(Admission::Claimed(claim)) = bench.guard.claim(identity.clone()).await else { panic!("a claim") };
        let waiting: Vec<_> = (0..4).map(|_| tokio::spawn(bench.guard.claim(identity.clone()))).collect();
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        assert_eq!(claim.complete(&1).await, Settled::Stored);
        for waiting in waiting {
            let woken = timeout(WAIT / 2, repeat(waiting)).await;
            assert_eq!(woken.expect("woken by the end, not by the end of the wait"), value("1"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_releases_exactly_one_takes_over_and_the_others_get_its_outcome() {
    let bench = blind(Guard::at_most_once);
    let mut claim = bench.claim().await;
    let mut waiting = bench.waiting(10).await;
    for _ in 0..2 {
        assert_eq!(claim.release().await, Settled::Stored);
        (claim, waiting) = split(waiting).await;
    }
    assert_eq!(waiting.len(), 8);
    assert_eq!(claim.complete(&"second").await, Settled::Stored);
    for waiting in waiting {
        assert_eq!(repeat(waiting).await, value("\"second\""));
    }
    assert_eq!(bench.count(EventKind::Waiting), 10, "each began to wait once");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_taken_over_by_one_who_waits_or_told_to_all() {
    let bench = blind(Guard::at_least_once);
    let claim = bench.claim().await;
    let waiting = bench.waiting(3).await;
    assert_eq!(claim.unknown().await, Settled::Stored);
    let (claim, others) = split(waiting).await;
    assert_eq!((claim.attempt(), others.len()), (2, 2));

    let bench = blind(Guard::at_most_once);
    let claim = bench.claim().await;
    let waiting = bench.waiting(3).await;
    assert_eq!(claim.unknown().await, Settled::Stored);
    for waiting in waiting {
        assert!(matches!(repeat(waiting).await, Repeat::Held { held: Held::Unknown, .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn another_request_is_refused_at_once_while_others_wait() {
    let bench = blind(Guard::at_least_once);
    let arrival = |text| Arrival::new(identity()).fingerprint(fingerprint(text));
    let Ok(Admission::Claimed(claim)) = bench.guard.claim(arrival("a")).await else { panic!("a claim") };
    let waiting = tokio::spawn(bench.guard.claim(arrival("a")));
    bench.until_waiting(1).await;
    let began = bench.now();
    let other = bench.guard.claim(arrival("b")).await.unwrap();
    assert!(matches!(other, Admission::Repeat(Repeat::Mismatch)));
    assert_eq!(bench.now().since(began), Duration::ZERO);

    assert_eq!(claim.release().await, Settled::Stored);
    let Ok(Ok(Admission::Claimed(_claim))) = waiting.await else { panic!("a claim") };
    assert_eq!(bench.count(EventKind::Mismatch), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_policys_number_of_repeats_wait_for_one_identity() {
    let two = with(bench(Guard::at_least_once), policy().wait(WAIT).waiters(2));
    for (bench, most) in [(watching(Guard::at_least_once), 64), (two, 2)] {
        let claim = bench.claim().await;
        let waiting = bench.waiting(most).await;
        let began = bench.now();
        assert!(matches!(bench.repeat().await, Repeat::Busy { .. }));
        assert_eq!(bench.now().since(began), Duration::ZERO);
        assert_eq!((bench.count(EventKind::Waiting), bench.count(EventKind::InProgress)), (most, 1));

        // Whose caller leaves, frees a place.
        waiting[0].abort();
        let _other = bench.waiting(1).await;
        assert_eq!(claim.complete(&1).await, Settled::Stored);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_thousand_repeats_wait_in_one_guard() {
    let bench = watching(Guard::at_least_once);
    let mut claims = Vec::new();
    let mut waiting = Vec::new();
    for i in 0..MOST_WAITERS / 64 {
        let Ok(Admission::Claimed(claim)) = bench.guard.claim(keyed(format!("k-{i}"))).await else { panic!("a claim") };
        claims.push(claim);
        waiting.extend((0..64).map(|_| tokio::spawn(bench.guard.claim(keyed(format!("k-{i}"))))));
    }
    bench.until_waiting(MOST_WAITERS).await;
    let _claim = bench.claim().await;
    // Clones of the guard count together, whatever their policy.
    let clone = bench.guard.clone().with_policy(policy().wait(WAIT / 2).waiters(usize::MAX).build().unwrap());
    let began = bench.now();
    assert!(matches!(clone.claim(identity()).await, Ok(Admission::Repeat(Repeat::Busy { .. }))));
    assert_eq!(bench.now().since(began), Duration::ZERO);

    for claim in claims {
        assert_eq!(claim.complete(&1).await, Settled::Stored);
    }
    for waiting in waiting {
        assert_eq!(repeat(waiting).await, value("1"));
    }
    let _one_more = bench.waiting(1).await;
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_wait_a_repeat_is_told_that_the_first_is_running() {
    let bench = with(at_least_once(), policy().wait(LEASE / 2));
    let _claim = bench.claim().await;
    let began = bench.now();
    // What it is told is true at the end of the wait: the lease has been renewed, and a part of it has passed since.
    let renewed = LEASE / 3;
    assert!(matches!(bench.repeat().await, Repeat::Busy { left, .. } if left < LEASE && left > LEASE - renewed));
    assert_eq!(bench.now().since(began), LEASE / 2);
    use EventKind::{Claimed, InProgress, Waiting};
    assert_eq!(bench.events(), [Claimed { attempt: 1 }, Waiting, InProgress]);
    assert_eq!(bench.guard.0.waiters.places(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_while_he_waits_claims_nothing() {
    let bench = blind(Guard::at_most_once);
    let claim = bench.claim().await;
    let calls = bench.store.calls(Verb::Acquire);
    let waiting = bench.guard.claim(identity());
    assert!(timeout(Duration::from_millis(500), waiting).await.is_err());
    assert_eq!((bench.count(EventKind::Waiting), bench.guard.0.waiters.places()), (1, 0));
    let (drained, settled) = tokio::join!(bench.guard.drain(LEASE), claim.release());
    assert_eq!((drained, settled), (Drained { open: 0 }, Settled::Stored));
    sleep(WAIT * 2).await;
    assert_eq!((bench.store.calls(Verb::Acquire), bench.stored_past_the_fault().await), (calls + 1, None));
    assert_eq!(bench.claim().await.attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_while_he_asks_again_leaves_a_free_key() {
    let bench = blind(Guard::at_most_once);
    let claim = bench.claim().await;
    let mut waiting = bench.waiting(1).await;
    bench.store.next(Verb::Acquire, Fault::Delay(Duration::from_millis(200)));
    assert_eq!(claim.release().await, Settled::Stored);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(bench.store.calls(Verb::Acquire), 3, "it asks again");
    waiting.remove(0).abort();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.stored_past_the_fault().await, Some(Tag::InFlight), "the claim has been granted");
    assert_eq!(bench.guard.drain(LEASE).await, Drained { open: 0 });
    assert_eq!(bench.stored_past_the_fault().await, None);
    assert_eq!(bench.count(EventKind::Released), 2);
}

/// The caller left while his first question was on its way; it was answered that another runs, and a task that nobody awaited
/// waited for that run's end, and claimed.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_caller_who_has_left() {
    let bench = blind(Guard::at_most_once);
    let _claim = bench.claim().await;
    for asked_before in [false, true] {
        let waiting = match asked_before {
            true => bench.waiting(1).await.remove(0),
            false => tokio::spawn(bench.guard.claim(identity())),
        };
        bench.store.next(Verb::Acquire, Fault::Delay(Duration::from_millis(200)));
        bench.guard.0.waiters.wake(&identity());
        sleep(Duration::from_millis(50)).await;
        waiting.abort();
        sleep(Duration::from_millis(200)).await;
        assert_eq!(bench.guard.drain(Duration::ZERO).await, Drained { open: 1 }, "the first claim alone");
        assert_eq!(bench.count(EventKind::Waiting), usize::from(asked_before));
        assert_eq!(bench.guard.0.waiters.places(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_elsewhere_is_watched_by_one_of_those_who_wait() {
    let bench = watching(Guard::at_least_once);
    let claim = claimed(&bench.elsewhere()).await;
    let mut waiting = bench.waiting(10).await;
    let second = Duration::from_secs(1);
    sleep(second).await;
    let looks = bench.store.calls(Verb::Read);
    assert!((20..=36).contains(&looks), "one of ten looks, every 40 ms: {looks} in a second");

    // Whichever it is: another takes its turn.
    while waiting.len() > 1 {
        waiting.remove(0).abort();
        let before = bench.store.calls(Verb::Read);
        sleep(second).await;
        let looks = bench.store.calls(Verb::Read) - before;
        assert!((20..=36).contains(&looks), "one of {} looks: {looks} in a second", waiting.len());
    }

    let ended = bench.now();
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    assert_eq!(repeat(waiting.remove(0)).await, value("1"));
    assert!(bench.now().since(ended) <= Duration::from_millis(50));
    let looks = bench.store.calls(Verb::Read);
    sleep(second).await;
    assert_eq!(bench.store.calls(Verb::Read), looks, "nobody waits, nobody looks");
}

#[tokio::test(start_paused = true)]
async fn a_release_elsewhere_lets_one_of_those_who_wait_run() {
    let bench = watching(Guard::at_most_once);
    let elsewhere = bench.elsewhere();
    let claim = claimed(&elsewhere).await;
    let waiting = bench.waiting(5).await;
    assert_eq!(claim.release().await, Settled::Stored);
    sleep(Duration::from_millis(50)).await;
    let (claim, others) = split(waiting).await;
    assert_eq!(bench.store.calls(Verb::Acquire), 1 + 5 + 5, "each asks twice");
    // And those elsewhere wait for the one here.
    let repeats = tokio::spawn(elsewhere.claim(identity()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    for waiting in others.into_iter().chain([repeats]) {
        assert_eq!(repeat(waiting).await, value("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_follows_elsewhere_is_waited_for_too() {
    let bench = watching(Guard::at_least_once);
    let elsewhere = bench.elsewhere();
    let first = claimed(&elsewhere).await;
    let waiting = bench.waiting(3).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(first.release().await, Settled::Stored);
    let second = claimed(&elsewhere).await;
    let asked = bench.store.calls(Verb::Acquire);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.store.calls(Verb::Acquire), asked + 3, "each asks once more");
    assert_eq!(second.complete(&2).await, Settled::Stored);
    for waiting in waiting {
        assert_eq!(repeat(waiting).await, value("2"));
    }
}

/// The first was released elsewhere and the key claimed for another request before anybody looked: who waits does so for what
/// will never be his.
#[tokio::test(start_paused = true)]
async fn a_key_that_now_runs_another_request_is_a_mismatch_at_once() {
    let bench = watching(Guard::at_least_once);
    let elsewhere = bench.elsewhere();
    let arrival = |text| Arrival::new(identity()).fingerprint(fingerprint(text));
    let Ok(Admission::Claimed(first)) = elsewhere.claim(arrival("a")).await else { panic!("a claim") };
    let waiting = tokio::spawn(bench.guard.claim(arrival("a")));
    bench.until_waiting(1).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(first.release().await, Settled::Stored);
    let Ok(Admission::Claimed(_second)) = elsewhere.claim(arrival("b")).await else { panic!("a claim") };
    let began = bench.now();
    assert_eq!(repeat(waiting).await, Repeat::Mismatch);
    assert!(bench.now().since(began) <= Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn when_an_owner_dies_one_who_waits_takes_over_or_all_are_told() {
    let bench = watching(Guard::at_least_once);
    bench.claim().await.disown();
    let waiting = bench.waiting(3).await;
    sleep(LEASE + Duration::from_millis(50)).await;
    let (claim, others) = split(waiting).await;
    assert_eq!((claim.attempt(), claim.earlier_unknown()), (2, true));
    assert_eq!(claim.complete(&2).await, Settled::Stored);
    for waiting in others {
        assert_eq!(repeat(waiting).await, value("2"));
    }

    let bench = watching(Guard::at_most_once);
    bench.claim().await.disown();
    let began = bench.now();
    for waiting in bench.waiting(3).await {
        assert!(matches!(repeat(waiting).await, Repeat::Held { held: Held::Lapsed, .. }));
    }
    assert!(bench.now().since(began) <= LEASE + Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_while_they_wait_is_an_error_to_all() {
    let bench = watching(Guard::at_least_once);
    let _claim = bench.claim().await;
    let waiting = bench.waiting(3).await;
    bench.store.always(Verb::Read, Fault::FailBefore).always(Verb::Acquire, Fault::FailBefore);
    let began = bench.now();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), StoreErrorKind::Unavailable);
    }
    assert!(bench.now().since(began) < Duration::from_secs(1));
    assert_eq!(bench.count(EventKind::StoreFailed { kind: StoreErrorKind::Unavailable }), 3);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_ends_no_wait() {
    let bench = watching(Guard::at_least_once);
    let claim = claimed(&bench.elsewhere()).await;
    let waiting = bench.waiting(2).await;
    let asked = bench.store.calls(Verb::Acquire);
    for _ in 0..6 {
        bench.store.next(Verb::Read, Fault::FailBefore);
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.store.calls(Verb::Acquire), asked + 3, "each look, repeated once, is followed by a question");
    assert_eq!(claim.complete(&1).await, Settled::Stored);
    for waiting in waiting {
        assert_eq!(repeat(waiting).await, value("1"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_takes_late_wakes_those_who_wait() {
    let bench = blind(Guard::at_least_once);
    let claim = bench.claim().await;
    let mut waiting = bench.waiting(1).await;
    bench.store.next(Verb::Settle, Fault::FailBefore).next(Verb::Settle, Fault::FailBefore);
    let began = bench.now();
    assert_eq!(claim.complete(&1).await, Settled::Deferred);
    assert_eq!(repeat(waiting.remove(0)).await, value("1"));
    assert!(bench.now().since(began) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_those_who_wait() {
    let bench = blind(Guard::at_least_once);
    let claim = claimed(&bench.elsewhere()).await;
    let mut waiting = bench.waiting(1).await;
    assert_eq!(bench.guard.drain(WAIT / 2).await, Drained { open: 1 });
    assert_eq!(bench.guard.drain(WAIT).await, Drained { open: 0 });
    assert!(matches!(repeat(waiting.remove(0)).await, Repeat::Busy { .. }));
    assert_eq!(claim.complete(&1).await, Settled::Stored);
}

#[tokio::test(start_paused = true)]
async fn a_settling_does_nothing_for_waiters_where_there_are_none() {
    let bench = watching(Guard::at_least_once);
    assert_eq!(bench.claim().await.complete(&1).await, Settled::Stored);
    assert_eq!(bench.guard.0.waiters.wakings(), 0);
}
