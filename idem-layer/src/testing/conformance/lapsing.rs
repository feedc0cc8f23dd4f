use super::*;

/// Before its end a lease keeps everybody out, at its end nobody: however long the leases are that others ask for.
pub async fn a_lease_ends_on_time_whoever_asks(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for asked in [LEASE, LEASE / 2, LEASE * 2, Duration::from_millis(1)] {
        let subject = subject.another();
        subject.claim().await;
        subject.advance_almost(LEASE).await;
        assert_busy(subject.acquire(&Acquire { lease: asked, ..ask() }).await);
        subject.advance(subject.margin()).await;
        let (ticket, origin) = subject.claim_as(&Acquire { lease: asked, ..ask() }).await;
        assert_eq!((ticket.record.attempt, origin), (2, Origin::TakenOver), "asked for {asked:?}");
    }
}

/// Whoever takes over is told that it is a later attempt, and that nobody knows what the one before did.
pub async fn a_lapsed_claim_is_taken_over_as_the_next_attempt(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let first = subject.claim().await;
    subject.advance(LEASE).await;

    let (second, origin) = subject.claim_as(&Acquire { at_ms: 5, ..ask() }).await;
    assert_eq!(origin, Origin::TakenOver);
    assert_ne!(second.record.token, first.record.token);
    assert_eq!((second.record.attempt, second.record.earlier_unknown, second.record.since_ms), (2, true, 5));
    assert_eq!(subject.stored().await.as_ref(), Some(&second.record));

    // The successor's lease is its own.
    subject.advance_almost(LEASE).await;
    assert_busy(subject.acquire(&ask()).await);
    subject.advance(subject.margin()).await;
    assert_eq!(subject.claim().await.record.attempt, 3);
}

/// Abandoned is as good as lapsed, without the wait.
pub async fn an_abandoned_claim_is_taken_over_at_once(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let first = subject.claim().await;
    subject.settled(&first, Settlement::Abandon).await;
    assert_eq!(subject.stored().await, Some(first.record), "an abandoned claim is remembered");

    let (second, origin) = subject.claim_as(&ask()).await;
    assert_eq!((second.record.attempt, second.record.earlier_unknown, origin), (2, true, Origin::TakenOver));
}

/// The stricter guarantee wins: whoever must not run twice is not run twice by another, nor runs what another has begun.
pub async fn a_lapse_is_held_if_the_record_or_the_caller_says_so(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for (owner, caller) in [(ask_once(), ask_once()), (ask_once(), ask()), (ask(), ask_once())] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&owner).await;
        subject.advance_almost(LEASE).await;
        assert_busy(subject.acquire(&caller).await);
        subject.advance(subject.margin()).await;

        let caller = Acquire { at_ms: 5, ..caller };
        let held = Acquired::Held { held: Held::Lapsed, since_ms: 5 };
        assert_eq!(subject.acquire(&caller).await, held);
        let stored = Record { state: State::Held(Held::Lapsed), since_ms: 5, ..ticket.record };
        assert_eq!(subject.stored().await, Some(stored));

        // From here on it makes no difference who asks, when, or how often.
        for caller in [caller, Acquire { at_ms: 6, ..ask() }, Acquire { at_ms: 6, ..ask_once() }] {
            assert_eq!(subject.acquire(&caller).await, held);
        }
    }
}

/// An abandoned claim is one whose lease has lapsed: the stricter guarantee wins.
pub async fn an_abandoned_claim_is_held_if_the_record_or_the_caller_says_so(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for (owner, caller) in [(ask_once(), ask()), (ask(), ask_once())] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&owner).await;
        subject.settled(&ticket, Settlement::Abandon).await;
        assert_held(subject.acquire(&caller).await, Held::Lapsed);
        assert_held(subject.acquire(&ask()).await, Held::Lapsed);
    }
}

/// The attempt is a fence: it rises with each claim, through releases and lapses alike.
pub async fn an_attempt_never_falls(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let mut ticket = subject.claim_twice().await;
    for attempt in 3..9 {
        match attempt % 3 {
            0 => subject.settled(&ticket, Settlement::Release).await,
            1 => subject.settled(&ticket, Settlement::Abandon).await,
            _ => subject.advance(LEASE).await,
        }
        ticket = subject.claim().await;
        assert_eq!(ticket.record.attempt, attempt);
        assert!(ticket.record.earlier_unknown, "the first attempt's outcome stays unknown");
    }
}
