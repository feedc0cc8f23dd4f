use std::collections::BTreeSet;

#[test]
fn every_promise_is_on_the_list_of_the_macro() {
    let sources = [
        include_str!("conformance/asking.rs"),
        include_str!("conformance/damage.rs"),
        include_str!("conformance/identity.rs"),
        include_str!("conformance/lapsing.rs"),
        include_str!("conformance/owning.rs"),
        include_str!("conformance/racing.rs"),
        include_str!("conformance/renewing.rs"),
        include_str!("conformance/retaining.rs"),
        include_str!("conformance/settling.rs"),
    ];
    let declared = sources.iter().flat_map(|source| source.split("\npub async fn ").skip(1));
    let declared: BTreeSet<_> = declared.map(|rest| rest.split('(').next().unwrap()).collect();
    let list =
        include_str!("mod.rs").split("$crate::__store_tests! { $harness;").nth(1).unwrap().split('}').next().unwrap();
    assert_eq!(list.split_whitespace().collect::<BTreeSet<_>>(), declared);
}

#[cfg(feature = "memory")]
mod memory {
    crate::store_tests!(crate::testing::MemoryHarness::new());
}

#[cfg(feature = "memory")]
mod faulty {
    use std::time::Duration;

    use crate::protocol::{
        Acquire, Acquired, Identity, Key, OnLapse, Operation, Owned, Scope, Settle, Settlement, Token,
    };
    use crate::store::{Inspect, MemoryStore, Store, StoreErrorKind};
    use crate::testing::{Fault, FaultyStore, Verb};

    fn identity() -> Identity {
        Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
    }

    fn ask() -> Acquire {
        Acquire {
            token: Token::mint(),
            fingerprint: None,
            observed: false,
            on_lapse: OnLapse::RunAgain,
            lease: Duration::from_secs(1),
            retention: Duration::from_secs(1),
            held_limit: None,
            at_ms: 0,
        }
    }

    #[tokio::test]
    async fn what_fails_before_was_never_sent_and_what_loses_its_reply_was_applied() {
        let store = FaultyStore::new(MemoryStore::new());
        let (identity, acquire) = (identity(), ask());

        store.next(Verb::Acquire, Fault::FailBefore).next(Verb::Acquire, Fault::FailWith(StoreErrorKind::Full));
        for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Full] {
            let error = store.acquire(&identity, &acquire).await.unwrap_err();
            assert_eq!((error.kind(), error.is_outcome_unknown()), (kind, false));
        }
        assert_eq!(store.read(&identity).await.unwrap(), None);

        store.next(Verb::Acquire, Fault::LoseReply);
        let error = store.acquire(&identity, &acquire).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::TimedOut, true));
        let Acquired::Claimed(ticket, _) = store.acquire(&identity, &acquire).await.unwrap() else {
            panic!("not mine")
        };

        store.always(Verb::Settle, Fault::FailBefore);
        let settle = Settle { token: acquire.token, settlement: Settlement::Release, at_ms: 0 };
        for _ in 0..3 {
            store.settle(&ticket, &settle).await.unwrap_err();
        }
        store.heal();
        assert_eq!(store.settle(&ticket, &settle).await.unwrap(), Owned::Done);
        assert_eq!((store.calls(Verb::Acquire), store.applied(Verb::Acquire)), (4, 2));
        assert_eq!((store.calls(Verb::Settle), store.applied(Verb::Settle)), (4, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_reply_was_applied_at_once_and_a_late_command_only_then() {
        let store = FaultyStore::new(MemoryStore::new());
        let identity = identity();
        let second = Duration::from_millis(500);

        for (fault, applied) in [
            (Fault::Delay(second), true),
            (Fault::HangAfter, true),
            (Fault::ApplyLate(second), false),
            (Fault::Hang, false),
        ] {
            store.next(Verb::Acquire, fault);
            let acquire = ask();
            let mut call = tokio_test::task::spawn(store.acquire(&identity, &acquire));
            assert!(call.poll().is_pending());
            assert_eq!(store.read(&identity).await.unwrap().is_some(), applied, "{fault:?}");
            tokio::time::advance(second).await;
            assert_eq!(call.poll().is_ready(), matches!(fault, Fault::Delay(_) | Fault::ApplyLate(_)), "{fault:?}");
            drop(call);
            tokio::time::advance(second * 4).await;
        }
    }
}
