use super::*;

/// A lapse is no verdict: as long as nobody else has the key, its owner can still say how it ended.
pub async fn a_lapsed_claim_can_be_settled_by_its_owner(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for acquire in [ask(), ask_once()] {
        for settlement in settlements() {
            let subject = subject.another();
            let (ticket, _) = subject.claim_as(&acquire).await;
            subject.advance(LEASE + RETENTION / 2).await;
            subject.settled(&ticket, settlement.clone()).await;
            assert_settled_so(&subject, &ticket, &settlement).await;
        }
    }
}

/// Nor is being held for a lapse: the owner comes back and tells what became of it.
pub async fn a_claim_held_by_a_lapse_can_be_settled_by_its_owner(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for settlement in [complete(b"late"), Settlement::Release, hold()] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&ask_once()).await;
        subject.advance(LEASE).await;
        assert_held(subject.acquire(&ask_once()).await, Held::Lapsed);
        subject.advance(RETENTION * 2).await;
        subject.settled(&ticket, settlement.clone()).await;
        assert_settled_so(&subject, &ticket, &settlement).await;
    }
}

/// Whoever was told that a key is held can rely on it: an owner who knows no more than that he does not know lifts nothing.
pub async fn an_abandoning_owner_lifts_no_hold(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.advance(LEASE).await;
    assert_held(subject.acquire(&ask_once()).await, Held::Lapsed);
    let held = subject.stored().await;

    subject.settled(&ticket, Settlement::Abandon).await;
    assert_eq!(subject.stored().await, held);
    subject.advance(A_LONG_TIME).await;
    assert_held(subject.acquire(&ask()).await, Held::Lapsed);
}

/// The first owner stalled, a second one runs: nothing that the first sends now lands.
pub async fn a_stale_owner_changes_nothing_of_a_running_successor(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let stale = subject.claim().await;
    subject.advance(LEASE).await;
    let successor = subject.claim().await;

    assert_sees_only(&subject, &stale, Some(&successor.record)).await;
    // It has not lived longer by the stale renewals either.
    subject.advance_almost(LEASE).await;
    assert_busy(subject.acquire(&ask()).await);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim().await.record.attempt, 3);
}

/// Nor does it land in what the second one has made of it: completed, held, freed, or nothing.
pub async fn a_stale_owner_changes_nothing_of_a_settled_successor(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for settlement in settlements() {
        let subject = subject.another();
        let stale = subject.claim().await;
        subject.advance(LEASE).await;
        let successor = subject.claim().await;
        subject.settled(&successor, settlement.clone()).await;
        let stored = subject.stored().await;
        assert!(stored.is_some(), "{settlement:?} at attempt 2 leaves a record");
        assert_sees_only(&subject, &stale, stored.as_ref()).await;
    }
}

/// Whose record has been forgotten is not told that he stored anything, and stores nothing.
pub async fn a_forgotten_owner_is_told_that_nothing_is_stored(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.advance(LEASE + RETENTION).await;
    assert_eq!(subject.renew(&ticket, LEASE, None).await, Owned::Lost(None));
    for settlement in [complete(b"late"), Settlement::Abandon, hold()] {
        assert_eq!(subject.settle(&ticket, settlement.clone()).await, Owned::Lost(None), "{settlement:?}");
        assert_eq!(subject.stored().await, None);
    }
}

async fn assert_sees_only<H: StoreHarness>(subject: &Subject<H>, stale: &Ticket, stored: Option<&Record>) {
    assert_eq!(subject.renew(stale, LEASE * 10, Some(b"stale")).await, Owned::Lost(stored.cloned()));
    for settlement in settlements() {
        let answer = subject.settle(stale, settlement.clone()).await;
        assert_eq!(answer, Owned::Lost(stored.cloned()), "{settlement:?}");
    }
    assert_eq!(subject.stored().await.as_ref(), stored);
}

async fn assert_settled_so<H: StoreHarness>(subject: &Subject<H>, ticket: &Ticket, settlement: &Settlement) {
    let stored = subject.stored().await;
    let state = stored.as_ref().map(|record| (record.token, &record.state));
    match settlement {
        Settlement::Complete { .. } => assert_replays(subject.acquire(&ask()).await, b"late"),
        Settlement::Release => assert_eq!(state, None),
        Settlement::Abandon => assert_eq!(state, Some((ticket.record.token, &ticket.record.state))),
        Settlement::Hold { held, .. } => assert_held(subject.acquire(&ask()).await, held.clone()),
    }
}
