use super::*;
use crate::protocol::NotReplayable;

/// Whatever bytes the outcome has, repeats get exactly them.
pub async fn a_completed_outcome_replays_byte_for_byte(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let every_byte: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    for bytes in [Vec::new(), vec![0], b"{\"id\":1}\r\n\0".to_vec(), every_byte, large] {
        let subject = subject.another();
        let (ticket, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
        let completion = Completion::Replayable(Snapshot::from_bytes(bytes.into()));
        let settlement =
            Settlement::Complete { completion: completion.clone(), retention: RETENTION, remember: Duration::ZERO };
        subject.settled(&ticket, settlement).await;

        for _ in 0..2 {
            let answer = subject.acquire(&ask_with(fingerprint("x"))).await;
            assert_eq!(answer, Acquired::Replay { completion: completion.clone(), since_ms: 2, differs: false });
        }
        let stored = subject.stored().await.expect("a completed record");
        let expected = Record {
            since_ms: 2,
            progress: None,
            state: State::Completed { completion, remember_ms: 0 },
            ..ticket.record
        };
        assert_eq!(stored, expected);
    }
}

/// An outcome that says nothing is an outcome: the empty snapshot, an empty body, `null`.
pub async fn presence_decides_never_the_value(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for value in [&b""[..], b"\x01V", b"\x01Vnull", b"\x01Vfalse", b"\0"] {
        let subject = subject.another();
        let ticket = subject.claim().await;
        subject.settled(&ticket, complete(value)).await;
        assert_replays(subject.acquire(&ask()).await, value);
    }
}

/// Done, but not kept: repeats are told that it took effect and why there is nothing to replay.
pub async fn a_completion_without_snapshot_is_told_from_a_replay(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for why in [NotReplayable::TooLarge, NotReplayable::Stream, NotReplayable::NoRoom] {
        let subject = subject.another();
        let ticket = subject.claim().await;
        let completion = Completion::NotReplayable(why);
        let settlement =
            Settlement::Complete { completion: completion.clone(), retention: RETENTION, remember: Duration::ZERO };
        subject.settled(&ticket, settlement).await;
        assert_eq!(
            subject.acquire(&ask()).await,
            Acquired::Replay { completion, since_ms: 2, differs: false },
            "{why:?}"
        );
    }
}

/// Nothing took effect and nothing came before: the key is as if it had never been seen, for any request.
pub async fn a_first_attempt_released_leaves_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (ticket, _) = subject.claim_as(&ask_with(fingerprint("x"))).await;
    subject.settled(&ticket, Settlement::Release).await;
    assert_eq!(subject.stored().await, None);

    let (ticket, origin) = subject.claim_as(&ask_with(fingerprint("y"))).await;
    assert_eq!((ticket.record.attempt, ticket.record.earlier_unknown, origin), (1, false, Origin::Fresh));
}

/// Attempts that came before are not forgotten by a release.
pub async fn a_later_attempt_released_is_remembered(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let second = subject.claim_twice().await;
    subject.settled(&second, Settlement::Release).await;
    let freed = Record { state: State::Freed, since_ms: 2, ..second.record };
    assert_eq!(subject.stored().await, Some(freed));

    let (third, origin) = subject.claim_as(&ask_once()).await;
    assert_eq!((third.record.attempt, third.record.earlier_unknown, origin), (3, true, Origin::Freed));
    assert_eq!(third.record.state, State::InFlight { on_lapse: OnLapse::Hold });
}

/// A corrected request may run; one that has half happened may not become another.
pub async fn a_freed_key_may_change_its_request_unless_half_done(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let (x, y) = (fingerprint("x"), fingerprint("y"));
    for progress in [None, Some(&b"step 1"[..]), Some(b"")] {
        let subject = subject.another();
        let (first, _) = subject.claim_as(&ask_with(x)).await;
        assert_eq!(subject.renew(&first, LEASE, progress).await, Owned::Done);
        subject.settled(&first, Settlement::Abandon).await;
        let (second, _) = subject.claim_as(&ask_with(x)).await;
        subject.settled(&second, Settlement::Release).await;

        let stored = subject.stored().await.expect("a freed record");
        assert_eq!(stored.fingerprint, progress.map(|_| x));
        if progress.is_some() {
            assert_eq!(subject.acquire(&ask_with(y)).await, Acquired::Mismatch);
            assert_eq!(subject.claim_as(&ask_with(x)).await.0.record.fingerprint, Some(x));
        } else {
            assert_eq!(subject.claim_as(&ask_with(y)).await.0.record.fingerprint, Some(y));
        }
    }
}

/// A held key runs for nobody, whatever his guarantee, and says why.
pub async fn a_held_key_keeps_everybody_out(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for why in [Held::Unknown, Held::because("the bank did not answer: \u{1f4b6}\0")] {
        for acquire in [ask(), ask_once()] {
            let subject = subject.another();
            let (ticket, _) = subject.claim_as(&acquire).await;
            subject.settled(&ticket, Settlement::Hold { held: why.clone(), limit: None }).await;
            for repeat in [ask(), ask_once(), acquire] {
                assert_eq!(subject.acquire(&repeat).await, Acquired::Held { held: why.clone(), since_ms: 2 });
            }
            let held = Record { state: State::Held(why.clone()), since_ms: 2, ..ticket.record };
            assert_eq!(subject.stored().await, Some(held));
        }
    }
}

/// A settle whose answer got lost is sent again: it is done, and neither adds to nor takes from what the first one did.
pub async fn a_repeated_settle_is_done_and_changes_nothing(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    for settlement in settlements() {
        for attempt in [1, 2] {
            let subject = subject.another();
            let ticket = if attempt == 1 { subject.claim().await } else { subject.claim_twice().await };
            subject.settled(&ticket, settlement.clone()).await;
            let stored = subject.stored().await;
            for _ in 0..3 {
                subject.settled(&ticket, settlement.clone()).await;
                assert_eq!(subject.stored().await, stored, "{settlement:?} at attempt {attempt}");
            }
        }
    }

    // Sent again later, it does not count its retention again.
    let ticket = subject.claim().await;
    subject.settled(&ticket, complete(b"done")).await;
    subject.advance(RETENTION / 2).await;
    subject.settled(&ticket, complete(b"done")).await;
    subject.advance(RETENTION / 2).await;
    assert_eq!(subject.stored().await, None);
}

/// Who has settled has decided: another decision by the same token is not stored, and not said to be.
pub async fn a_second_decision_is_lost(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let first = [complete(b"first"), hold(), Settlement::Release];
    for (at, decision) in first.iter().enumerate() {
        let subject = subject.another();
        let ticket = subject.claim_twice().await;
        subject.settled(&ticket, decision.clone()).await;
        let stored = subject.stored().await;
        assert!(stored.is_some());

        let others = first.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other.clone());
        for other in others.chain([Settlement::Abandon]) {
            assert_eq!(subject.settle(&ticket, other.clone()).await, Owned::Lost(stored.clone()), "{other:?}");
        }
        assert_eq!(subject.renew(&ticket, LEASE, Some(b"more")).await, Owned::Lost(stored.clone()));
        assert_eq!(subject.stored().await, stored, "after {decision:?}");
    }

    let ticket = subject.claim().await;
    subject.settled(&ticket, complete(b"first")).await;
    let stored = subject.stored().await;
    assert_eq!(subject.settle(&ticket, complete(b"second")).await, Owned::Lost(stored), "another outcome");
    assert_replays(subject.acquire(&ask()).await, b"first");
}

/// The record that a release would remove may be gone already: that is what was wanted.
pub async fn releasing_nothing_is_done(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let ticket = subject.claim().await;
    subject.settled(&ticket, Settlement::Release).await;
    subject.settled(&ticket, Settlement::Release).await;
    assert_eq!(subject.stored().await, None);
}
