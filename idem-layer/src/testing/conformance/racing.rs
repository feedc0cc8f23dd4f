use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::*;

const MANY: usize = 50;

/// Copies of a request that arrive together: one runs, all others are told that it does.
pub async fn of_fifty_concurrent_asks_one_is_claimed(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let answers = all_at_once(&subject, |_| ask()).await;
    assert_one_claim(&answers, Origin::Fresh);
}

/// Copies that find a lapsed claim together: one takes over.
pub async fn of_fifty_concurrent_takeovers_one_is_claimed(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    subject.claim().await;
    subject.advance(LEASE).await;
    let answers = all_at_once(&subject, |_| ask()).await;
    assert_one_claim(&answers, Origin::TakenOver);
    assert_eq!(subject.stored().await.expect("the successor's claim").attempt, 2);

    let subject = subject.another();
    let second = subject.claim_twice().await;
    subject.settled(&second, Settlement::Release).await;
    assert_one_claim(&all_at_once(&subject, |_| ask()).await, Origin::Freed);
}

/// One command that is sent many times, because its sender lost patience, is one claim.
pub async fn copies_of_one_command_are_one_claim(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let acquire = ask();
    let answers = all_at_once(&subject, |_| acquire.clone()).await;
    let origins: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Acquired::Claimed(ticket, origin) if ticket.record.attempt == 1 => *origin,
            other => panic!("not the claim, but {other:?}"),
        })
        .collect();
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Fresh).count(), 1);
    assert_eq!(origins.iter().filter(|origin| **origin == Origin::Repeated).count(), MANY - 1);
}

/// A lapsed owner completes just as a repeat takes over: either the outcome is stored and replayed, or the repeat runs and
/// the outcome is refused.
pub async fn a_settle_races_a_takeover_and_one_of_them_wins(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for _ in 0..MANY {
        let subject = subject.another();
        let ticket = subject.claim().await;
        subject.advance(LEASE).await;

        let start = Arc::new(Barrier::new(2));
        let completing = tokio::spawn({
            let (store, start) = (subject.store.clone(), Arc::clone(&start));
            async move {
                start.wait().await;
                let settle = Settle { token: ticket.record.token, settlement: complete(b"done"), at_ms: 2 };
                store.settle(&ticket, &settle).await.expect("the store answers a settle")
            }
        });
        start.wait().await;
        let asked = subject.acquire(&ask()).await;
        match (completing.await.expect("no panic"), asked) {
            (Owned::Done, answer @ Acquired::Replay { .. }) => assert_replays(answer, b"done"),
            (Owned::Lost(Some(stored)), Acquired::Claimed(successor, Origin::TakenOver)) => {
                assert_eq!(stored, successor.record);
                assert_eq!(subject.stored().await, Some(stored));
            }
            (settled, asked) => panic!("both or neither: {settled:?}, {asked:?}"),
        }
    }
}

async fn all_at_once<H: StoreHarness>(subject: &Subject<H>, asking: impl Fn(usize) -> Acquire) -> Vec<Acquired> {
    let start = Arc::new(Barrier::new(MANY));
    let mut asks = JoinSet::new();
    for at in 0..MANY {
        let (acquire, start) = (asking(at), Arc::clone(&start));
        let (store, identity) = (subject.store.clone(), subject.identity.clone());
        asks.spawn(async move {
            start.wait().await;
            store.acquire(&identity, &acquire).await.expect("the store answers an acquire")
        });
    }
    asks.join_all().await
}

#[track_caller]
fn assert_one_claim(answers: &[Acquired], expected: Origin) {
    let claimed = answers.iter().filter(|a| matches!(a, Acquired::Claimed(_, origin) if *origin == expected)).count();
    let busy = answers.iter().filter(|answer| matches!(answer, Acquired::Busy { .. })).count();
    assert_eq!((claimed, busy), (1, MANY - 1), "{answers:?}");
}
