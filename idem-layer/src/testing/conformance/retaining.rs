use super::*;

/// However long it ran, and whatever the claim had said, an outcome replays for its retention from when it was completed.
pub async fn retention_counts_from_completion(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for ran in [Duration::ZERO, LEASE / 2, RETENTION / 2] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&Acquire { retention: RETENTION * 3, ..ask() }).await;
        subject.advance(ran).await;
        subject.settled(&ticket, complete(b"done")).await;
        subject.advance_almost(RETENTION).await;
        assert_replays(subject.acquire(&ask()).await, b"done");
        subject.advance(subject.margin()).await;
        assert_eq!(subject.stored().await, None, "after {ran:?}");
    }
}

/// Its owner gone, a claim is remembered long enough that a late repeat still counts or holds the lapse.
pub async fn a_claim_is_remembered_for_its_retention_behind_its_lease(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.advance_almost(LEASE + RETENTION).await;
    assert_eq!(subject.stored().await, Some(ticket.record));
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::TakenOver);

    let subject = subject.another();
    subject.claim().await;
    subject.advance(LEASE + RETENTION).await;
    assert_eq!(subject.stored().await, None);
    let (ticket, origin) = subject.claim_as(&ask_once()).await;
    assert_eq!((ticket.record.attempt, ticket.record.earlier_unknown, origin), (1, false, Origin::Fresh));
}

/// Renewing moves the end of the retention on with the lease; so does abandoning, which ends the lease.
pub async fn a_renewed_claim_is_remembered_from_its_last_renewal(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.advance(LEASE + RETENTION / 2).await;
    assert_eq!(subject.renew(&ticket, LEASE, None).await, Owned::Done);
    subject.advance_almost(LEASE + RETENTION).await;
    assert!(subject.stored().await.is_some());

    subject.settled(&ticket, Settlement::Abandon).await;
    subject.advance_almost(RETENTION).await;
    assert!(subject.stored().await.is_some());
    subject.advance(subject.margin()).await;
    assert_eq!(subject.stored().await, None);
}

/// What has expired is nothing: another request may use the key, and starts at attempt 1.
pub async fn an_expired_key_starts_afresh(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (first, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
    assert_eq!(subject.renew(&first, LEASE, Some(b"step 1")).await, Owned::Done);
    subject.settled(&first, Settlement::Abandon).await;
    let (second, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
    subject.settled(&second, complete(b"done")).await;
    subject.advance(RETENTION).await;

    let (ticket, origin) = subject.claim_as(&ask_with(fingerprint("y"))).await;
    assert_eq!(origin, Origin::Fresh);
    assert_eq!((ticket.record.attempt, ticket.record.earlier_unknown, ticket.record.progress), (1, false, None));
}

/// A freed key's attempts are remembered from when it was freed, not from when it was claimed.
pub async fn a_freed_key_is_remembered_from_its_release(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let second = subject.claim_twice().await;
    subject.advance(LEASE + RETENTION / 2).await;
    subject.settled(&second, Settlement::Release).await;
    subject.advance_almost(RETENTION).await;
    assert!(subject.stored().await.is_some());
    subject.advance(subject.margin()).await;
    assert_eq!(subject.stored().await, None);
}

/// Where the identity outlives its outcome, a repeat that comes too late for the replay is told so and does not run.
pub async fn a_replay_that_is_over_is_gone_and_then_forgotten(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    let outcome = Settlement::Complete { completion: replayable(b"done"), retention: RETENTION, remember: REMEMBER };
    subject.settled(&ticket, outcome).await;

    subject.advance_almost(RETENTION).await;
    assert_replays(subject.acquire(&ask()).await, b"done");
    subject.advance(subject.margin()).await;
    assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);
    subject.advance_almost(REMEMBER).await;
    assert_eq!(subject.acquire(&ask_once()).await, Acquired::Gone);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::Fresh);
}

/// Held is for good: by a decision and by a lapse.
pub async fn a_held_key_stays_for_ever(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.settled(&ticket, hold()).await;
    let lapsed = subject.another();
    lapsed.claim_as(&ask_once()).await;
    lapsed.advance(LEASE).await;
    assert_held(lapsed.acquire(&ask()).await, Held::Lapsed);

    subject.advance(A_LONG_TIME).await;
    assert_held(subject.acquire(&ask()).await, Held::because("as tested"));
    assert_held(lapsed.acquire(&ask()).await, Held::Lapsed);
}

/// Only a limit that was asked for lets a held key go: the settlement's, or that of who found the lapse.
pub async fn a_held_key_with_a_limit_is_let_go(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let limit = RETENTION * 5;
    let ticket = subject.claim().await;
    subject.settled(&ticket, Settlement::Hold { held: Held::Unknown, limit: Some(limit) }).await;
    subject.advance_almost(limit).await;
    assert_held(subject.acquire(&ask()).await, Held::Unknown);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::Fresh);

    let subject = subject.another();
    subject.claim_as(&ask_once()).await;
    subject.advance(LEASE).await;
    assert_held(subject.acquire(&Acquire { held_limit: Some(limit), ..ask_once() }).await, Held::Lapsed);
    subject.advance_almost(limit).await;
    assert_held(subject.acquire(&ask_once()).await, Held::Lapsed);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim_as(&ask_once()).await.1, Origin::Fresh);
}
