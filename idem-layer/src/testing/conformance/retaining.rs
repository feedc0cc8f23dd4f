use super::*;
use crate::protocol::NotReplayable;

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
    subject.settled(&ticket, complete_and_remember(b"done")).await;

    subject.advance_almost(RETENTION).await;
    assert_replays(subject.acquire(&ask()).await, b"done");
    subject.advance(subject.margin()).await;
    assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);
    subject.advance_almost(REMEMBER).await;
    assert_eq!(subject.acquire(&ask_once()).await, Acquired::Gone);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::Fresh);
}

/// Whatever bytes the outcome has: until its retention is over repeats get exactly them, and from then on nobody does, not
/// even who reads the record.
pub async fn an_identity_outlives_its_outcome(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let every_byte: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    for bytes in [Vec::new(), vec![0], vec![0; 17], b"\x01Vnull".to_vec(), every_byte, large] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
        let completion = Completion::Replayable(Snapshot::from_bytes(bytes.into()));
        let settlement =
            Settlement::Complete { completion: completion.clone(), retention: RETENTION, remember: REMEMBER };
        subject.settled(&ticket, settlement).await;
        let stored_with = |completion| {
            let state = State::Completed { completion, remember_ms: REMEMBER.as_millis() as u64 };
            Some(Record { since_ms: 2, progress: None, state, ..ticket.record.clone() })
        };

        subject.advance_almost(RETENTION).await;
        let answer = subject.acquire(&ask_with(fingerprint("x"))).await;
        assert_eq!(answer, Acquired::Replay { completion: completion.clone(), since_ms: 2, differs: false });
        assert_eq!(subject.stored().await, stored_with(completion));

        subject.advance(subject.margin()).await;
        assert_eq!(subject.acquire(&ask_with(fingerprint("x"))).await, Acquired::Gone);
        assert_eq!(subject.stored().await, stored_with(Completion::NotReplayable(NotReplayable::Gone)));
    }
}

/// What could not be kept in the first place is remembered just as long.
pub async fn a_completion_without_snapshot_is_remembered_too(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    let completion = Completion::NotReplayable(NotReplayable::TooLarge);
    let settlement = Settlement::Complete { completion: completion.clone(), retention: RETENTION, remember: REMEMBER };
    subject.settled(&ticket, settlement.clone()).await;

    subject.advance_almost(RETENTION).await;
    let told = Acquired::Replay { completion, since_ms: 2, differs: false };
    assert_eq!(subject.acquire(&ask()).await, told);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);
    subject.settled(&ticket, settlement).await;
    subject.advance(REMEMBER).await;
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::Fresh);
}

/// The owner of an outcome that is gone is told that it was stored, or what is; it neither brings it back nor is it remembered
/// for longer.
pub async fn a_late_owner_of_a_gone_outcome_changes_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.settled(&ticket, complete_and_remember(b"done")).await;
    subject.advance(RETENTION).await;
    let gone = subject.stored().await;
    assert!(gone.is_some());

    subject.advance_almost(REMEMBER).await;
    for _ in 0..2 {
        subject.settled(&ticket, complete_and_remember(b"done")).await;
    }
    assert_eq!(subject.renew(&ticket, LEASE, Some(b"late")).await, Owned::Lost(gone.clone()));
    for other in [Settlement::Release, Settlement::Abandon, hold()] {
        assert_eq!(subject.settle(&ticket, other.clone()).await, Owned::Lost(gone.clone()), "{other:?}");
    }
    assert_eq!(subject.stored().await, gone);
    assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);

    subject.advance(subject.margin()).await;
    assert_eq!(subject.stored().await, None);
    assert_eq!(subject.settle(&ticket, complete_and_remember(b"done")).await, Owned::Lost(None));
    assert_eq!(subject.claim_as(&ask()).await.1, Origin::Fresh);
}

/// An owner who sends its outcome again while it replays changes neither the replay nor when it is gone.
pub async fn a_repeated_complete_puts_off_no_end(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.settled(&ticket, complete_and_remember(b"done")).await;
    subject.advance_almost(RETENTION).await;
    let stored = subject.stored().await;
    subject.settled(&ticket, complete_and_remember(b"done")).await;
    assert_eq!(subject.settle(&ticket, complete_and_remember(b"other")).await, Owned::Lost(stored.clone()));
    assert_eq!(subject.renew(&ticket, LEASE, None).await, Owned::Lost(stored));
    assert_replays(subject.acquire(&ask()).await, b"done");

    subject.advance(subject.margin()).await;
    assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);
    subject.advance(REMEMBER).await;
    assert_eq!(subject.stored().await, None);
}

/// The first owner stalled and its successor completed: what the first sends late, whether it is to replay for longer or
/// shorter, leaves the successor's outcome and its end alone.
pub async fn a_stale_owner_neither_replaces_nor_prolongs_an_outcome(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for stale_retention in [RETENTION / 2, RETENTION * 2] {
        let subject = subject.another();
        let stale = subject.claim().await;
        subject.advance(LEASE).await;
        let successor = subject.claim().await;
        subject.settled(&successor, complete_and_remember(b"the answer")).await;
        let stored = subject.stored().await;
        for bytes in [&b"the answer"[..], b"another answer"] {
            let completion = replayable(bytes);
            let late = Settlement::Complete { completion, retention: stale_retention, remember: REMEMBER };
            assert_eq!(subject.settle(&stale, late).await, Owned::Lost(stored.clone()));
        }
        subject.advance_almost(RETENTION).await;
        assert_replays(subject.acquire(&ask()).await, b"the answer");
        subject.advance(subject.margin()).await;
        assert_eq!(subject.acquire(&ask()).await, Acquired::Gone);
    }
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
