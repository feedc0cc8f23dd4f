use super::*;

/// The lease runs on from when it was renewed, by as much as was asked for: longer or shorter than what was left.
pub async fn a_renewal_prolongs(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for renewed in [LEASE, LEASE * 2, LEASE / 2 + Duration::from_millis(1)] {
        let subject = subject.another();
        let ticket = subject.claim().await;
        subject.advance_almost(LEASE).await;
        assert_eq!(subject.renew(&ticket, renewed, None).await, Owned::Done);
        assert_eq!(subject.renew(&ticket, renewed, None).await, Owned::Done, "the command repeated");
        assert_eq!(subject.stored().await.as_ref(), Some(&ticket.record));

        subject.advance_almost(renewed).await;
        assert_busy(subject.acquire(&ask()).await);
        subject.advance(subject.margin()).await;
        assert_eq!(subject.claim().await.record.attempt, 2);
    }
}

/// An owner who wakes up late and finds his claim still his goes on with it.
pub async fn a_lapsed_claim_that_nobody_took_can_be_renewed(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (ticket, _) = subject.claim_as(&ask_once()).await;
    subject.advance(LEASE * 3).await;
    assert_eq!(subject.renew(&ticket, LEASE, None).await, Owned::Done);
    assert_busy(subject.acquire(&ask_once()).await);
    subject.advance(LEASE).await;
    assert_held(subject.acquire(&ask_once()).await, Held::Lapsed);
    assert!(matches!(subject.renew(&ticket, LEASE, None).await, Owned::Lost(Some(_))), "held is not renewed");
}

/// What an operation recorded of itself reaches the attempt that goes on with it, and is dropped when it is complete.
pub async fn progress_survives_takeover_and_release(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let recorded = |bytes| Some(Bytes::from_static(bytes));

    let first = subject.claim().await;
    assert_eq!(first.record.progress, None);
    assert_eq!(subject.renew(&first, LEASE, Some(b"step 1")).await, Owned::Done);
    subject.advance(LEASE).await;

    let second = subject.claim().await;
    assert_eq!(second.record.progress, recorded(b"step 1"));
    assert_eq!(subject.renew(&second, LEASE, Some(b"step 2\0\xff")).await, Owned::Done);
    subject.settled(&second, Settlement::Release).await;

    let third = subject.claim().await;
    assert_eq!(third.record.progress, recorded(b"step 2\0\xff"));
    subject.settled(&third, complete(b"done")).await;
    assert_eq!(subject.stored().await.expect("a completed record").progress, None);

    // A first attempt that got half-way is remembered too, for a release does not undo its steps.
    let subject = subject.another();
    let first = subject.claim().await;
    assert_eq!(subject.renew(&first, LEASE, Some(b"")).await, Owned::Done);
    subject.settled(&first, Settlement::Release).await;
    let (second, origin) = subject.claim_as(&ask()).await;
    assert_eq!((second.record.attempt, second.record.progress, origin), (2, recorded(b""), Origin::Freed));
}

/// A renewal that says nothing of progress leaves it alone; one that does replaces it.
pub async fn a_renewal_without_progress_keeps_what_is_recorded(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    for (given, expected) in [(Some(&b"one"[..]), &b"one"[..]), (None, b"one"), (Some(b""), b""), (None, b"")] {
        assert_eq!(subject.renew(&ticket, LEASE, given).await, Owned::Done);
        assert_eq!(subject.stored().await.expect("a claim").progress.as_deref(), Some(expected));
    }
}

/// A renewal that arrives after the completion that was sent after it neither shortens nor prolongs the replay.
pub async fn a_late_renewal_leaves_retention_alone(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.settled(&ticket, complete(b"done")).await;
    let completed = subject.stored().await;
    for lease in [Duration::from_millis(1), RETENTION * 2] {
        assert_eq!(subject.renew(&ticket, lease, Some(b"late")).await, Owned::Lost(completed.clone()));
    }

    subject.advance_almost(RETENTION).await;
    assert_replays(subject.acquire(&ask()).await, b"done");
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim().await.record.attempt, 1);
}
