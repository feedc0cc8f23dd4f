use super::*;

/// The first to ask for a key runs it, as attempt 1.
pub async fn a_fresh_key_is_claimed_at_attempt_one(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    assert_eq!(subject.stored().await, None);

    let acquire = ask_with(fingerprint("x"));
    let (ticket, origin) = subject.claim_as(&acquire).await;

    assert_eq!(origin, Origin::Fresh);
    let expected = Record {
        identity: *subject.identity.digest(),
        token: acquire.token,
        attempt: 1,
        earlier_unknown: false,
        since_ms: acquire.at_ms,
        retention_ms: RETENTION.as_millis() as u64,
        fingerprint: acquire.fingerprint,
        progress: None,
        state: State::InFlight { on_lapse: OnLapse::RunAgain },
    };
    assert_eq!(ticket.record, expected);
    assert_eq!(subject.stored().await, Some(expected));
}

/// The command repeated, because its answer got lost, is the same claim: while the lease runs and after it lapsed.
pub async fn a_repeated_acquire_is_granted_again(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let acquire = ask();
    let (first, _) = subject.claim_as(&acquire).await;

    assert_eq!(subject.claim_as(&acquire).await, (first.clone(), Origin::Repeated));
    subject.advance(LEASE).await;
    assert_eq!(subject.claim_as(&acquire).await, (first.clone(), Origin::Repeated));
    subject.settled(&first, Settlement::Abandon).await;

    let again = ask();
    let (second, origin) = subject.claim_as(&again).await;
    assert_eq!((second.record.attempt, origin), (2, Origin::TakenOver));
    assert_eq!(subject.claim_as(&again).await, (second, Origin::Repeated));
}

/// Asking again with the same token is no renewal: a lost reply cannot keep a claim alive.
pub async fn a_repeated_acquire_prolongs_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let acquire = ask();
    subject.claim_as(&acquire).await;
    subject.advance_almost(LEASE).await;
    subject.claim_as(&acquire).await;
    subject.advance(subject.margin()).await;

    assert_eq!(subject.claim_as(&ask()).await.1, Origin::TakenOver);
}

/// While one runs, every other is told so, and how long that may last.
pub async fn a_live_claim_keeps_others_out(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    subject.claim().await;
    let passed = LEASE / 4;
    subject.advance(passed).await;

    for acquire in [ask(), ask_once(), Acquire { lease: LEASE * 10, ..ask() }] {
        let answer = subject.acquire(&Acquire { at_ms: 99, ..acquire }).await;
        let Acquired::Busy { since_ms, left, differs } = answer else { panic!("not busy, but {answer:?}") };
        assert_eq!((since_ms, differs), (1, false));
        assert!(left <= LEASE - passed, "{left:?} is more than the lease has left");
        assert!(left + subject.harness.drift() >= LEASE - passed, "{left:?} is less than the lease has left");
    }
}

/// A refusal holds nothing that it could give back, and writes nothing.
pub async fn a_refused_repeat_changes_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (ticket, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
    let repeats = [ask_with(fingerprint("x")), ask_with(fingerprint("y")), ask_once()];

    let running = subject.stored().await;
    for repeat in &repeats {
        subject.acquire(repeat).await;
        // Who was refused has no claim: what it sends all the same is refused.
        let foreign = Ticket { record: Record { token: repeat.token, ..ticket.record.clone() }, ..ticket.clone() };
        for settlement in settlements() {
            assert!(matches!(subject.settle(&foreign, settlement).await, Owned::Lost(Some(_))));
        }
    }
    assert_eq!(subject.stored().await, running);

    subject.settled(&ticket, complete(b"done")).await;
    let completed = subject.stored().await;
    for repeat in &repeats {
        subject.acquire(repeat).await;
    }
    assert_eq!(subject.stored().await, completed);
}

/// One key for two requests is noticed in flight, lapsed, completed and held, before anything is replayed or taken over.
pub async fn another_fingerprint_is_a_mismatch_in_every_state(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (x, y) = (fingerprint("x"), fingerprint("y"));
    let mismatches = async |why: &str| {
        for acquire in [ask_with(y), Acquire { fingerprint: Some(y), ..ask_once() }] {
            assert_eq!(subject.acquire(&acquire).await, Acquired::Mismatch, "{why}");
        }
    };

    let (ticket, _) = subject.claim_as(&ask_with(x)).await;
    mismatches("in flight").await;
    subject.advance(LEASE).await;
    mismatches("lapsed").await;
    subject.settled(&ticket, hold()).await;
    mismatches("held").await;

    let subject = subject.another();
    let (ticket, _) = subject.claim_as(&ask_with(x)).await;
    subject.settled(&ticket, complete_and_remember(b"x's")).await;
    assert_eq!(subject.acquire(&ask_with(y)).await, Acquired::Mismatch, "completed");
    assert_replays(subject.acquire(&ask_with(x)).await, b"x's");
    subject.advance(RETENTION).await;
    assert_eq!(subject.acquire(&ask_with(y)).await, Acquired::Mismatch, "gone");
    assert_eq!(subject.acquire(&ask_with(x)).await, Acquired::Gone);
}

/// A fingerprint is compared only with one.
pub async fn no_fingerprint_compares_equal(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (ticket, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
    assert_busy(subject.acquire(&ask()).await);
    subject.settled(&ticket, complete(b"done")).await;
    assert_replays(subject.acquire(&ask()).await, b"done");

    let subject = subject.another();
    let ticket = subject.claim().await;
    assert_busy(subject.acquire(&ask_with(fingerprint("x"))).await);
    subject.settled(&ticket, complete(b"done")).await;
    assert_replays(subject.acquire(&ask_with(fingerprint("x"))).await, b"done");
}

/// Where fingerprints are only observed, another one is told, and the repeat is answered like any other.
pub async fn an_observed_difference_is_reported_and_refuses_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let observing = |body| Acquire { observed: true, ..ask_with(fingerprint(body)) };
    let (ticket, _) = subject.claim_as(&observing("x")).await;
    assert!(matches!(subject.acquire(&observing("x")).await, Acquired::Busy { differs: false, .. }));
    assert!(matches!(subject.acquire(&observing("y")).await, Acquired::Busy { differs: true, .. }));
    let newer = Acquire { fingerprint: Some(Fingerprint::from_parts(200, [1; 32])), ..observing("x") };
    assert_busy(subject.acquire(&newer).await);

    subject.settled(&ticket, complete(b"done")).await;
    assert!(matches!(subject.acquire(&observing("x")).await, Acquired::Replay { differs: false, .. }));
    assert!(matches!(subject.acquire(&observing("y")).await, Acquired::Replay { differs: true, .. }));
}

/// Fingerprints of two versions are never compared: the caller learns which to make.
pub async fn a_fingerprint_of_another_version_is_named(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let of = |version| Fingerprint::from_parts(version, [1; 32]);
    let acquire = ask_with(of(7));
    let (ticket, _) = subject.claim_as(&acquire).await;

    assert_eq!(subject.acquire(&ask_with(of(8))).await, Acquired::OtherVersion(7));
    assert_busy(subject.acquire(&ask_with(of(7))).await);
    // The owner's own repeated command is not compared at all.
    let repeated = Acquire { fingerprint: Some(of(8)), ..acquire };
    assert_eq!(subject.claim_as(&repeated).await.1, Origin::Repeated);

    subject.advance(LEASE).await;
    assert_eq!(subject.acquire(&ask_with(of(6))).await, Acquired::OtherVersion(7));
    subject.settled(&ticket, complete(b"done")).await;
    assert_eq!(subject.acquire(&ask_with(of(8))).await, Acquired::OtherVersion(7));
    assert_replays(subject.acquire(&ask_with(of(7))).await, b"done");
}
