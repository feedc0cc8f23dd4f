//! The stores against real servers: the conformance suite, and what is promised of one of them only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod waiting;

/// What is promised of every store.
mod redis_conforms {
    use std::time::Duration;

    use bytes::Bytes;
    use redis::AsyncCommands;

    use idem_layer::protocol::Identity;
    use idem_layer::store::{RedisStore, SharedStore};
    use idem_layer::testing::StoreHarness;
    use idem_tests::RedisServer;

    struct RedisHarness {
        server: RedisServer,
        store: SharedStore,
    }

    impl RedisHarness {
        async fn start() -> Self {
            let server = RedisServer::start();
            let store = RedisStore::connect(server.url()).await.unwrap();
            Self { server, store: SharedStore::new(store) }
        }
    }

    impl StoreHarness for RedisHarness {
        fn store(&self) -> SharedStore {
            self.store.clone()
        }

        async fn advance(&self, by: Duration) {
            self.server.advance(by).await;
        }

        async fn plant(&self, identity: &Identity, bytes: Bytes) -> bool {
            let key = format!("idem:{}", identity.name());
            let _: () = self.server.raw().await.set(key, &bytes[..]).await.unwrap();
            true
        }
    }

    idem_layer::store_tests!(RedisHarness::start().await);
}

mod redis_store {
    //! Round trips, layout, full memory, broken connections: what only Redis can do or suffer.

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use bytes::Bytes;
    use redis::aio::{ConnectionLike, MultiplexedConnection};
    use redis::{AsyncCommands, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, Value, parse_redis_value};

    use idem_layer::protocol::*;
    use idem_layer::store::{Inspect, RedisStore, SharedStore, Store, StoreError, StoreErrorKind};
    use idem_tests::RedisServer;

    mod remembering;

    const LEASE: Duration = Duration::from_secs(30);
    const RETENTION: Duration = Duration::from_secs(3600);
    const REMEMBER: Duration = Duration::from_secs(7 * 86_400);

    fn identity(key: &str) -> Identity {
        Identity::new(
            Operation::new("payments.create").unwrap(),
            Some(Target::new("POST", "/payments")),
            Scope::new("user:alice").unwrap(),
            Key::new(key).unwrap(),
        )
    }

    fn acquire() -> Acquire {
        Acquire {
            token: Token::mint(),
            fingerprint: None,
            observed: false,
            on_lapse: OnLapse::RunAgain,
            lease: LEASE,
            retention: RETENTION,
            held_limit: None,
            at_ms: 1_800_000_000_000,
        }
    }

    fn at_most_once() -> Acquire {
        Acquire { on_lapse: OnLapse::Hold, ..acquire() }
    }

    fn settle(ticket: &Ticket, settlement: Settlement) -> Settle {
        Settle { token: ticket.record.token, settlement, at_ms: 1_800_000_001_000 }
    }

    fn snapshot(bytes: usize) -> Snapshot {
        Snapshot::from_bytes(vec![b'x'; bytes].into())
    }

    fn completed(bytes: usize) -> Settlement {
        let completion = Completion::Replayable(snapshot(bytes));
        Settlement::Complete { completion, retention: RETENTION, remember: Duration::ZERO }
    }

    fn remembered(snapshot: Snapshot) -> Settlement {
        let completion = Completion::Replayable(snapshot);
        Settlement::Complete { completion, retention: RETENTION, remember: REMEMBER }
    }

    fn renew(ticket: &Ticket, progress: Option<&'static [u8]>) -> Renew {
        Renew { token: ticket.record.token, lease: LEASE, progress: progress.map(Bytes::from_static) }
    }

    async fn claim(store: &impl Store, key: &str) -> Ticket {
        claim_as(store, key, &acquire()).await
    }

    async fn claim_as(store: &impl Store, key: &str, acquire: &Acquire) -> Ticket {
        match store.acquire(&identity(key), acquire).await.unwrap() {
            Acquired::Claimed(ticket, _) => ticket,
            other => panic!("not claimed: {other:?}"),
        }
    }

    async fn end(store: &impl Store, ticket: &Ticket, settlement: Settlement) {
        assert_eq!(store.settle(ticket, &settle(ticket, settlement)).await.unwrap(), Owned::Done);
    }

    async fn record(store: &impl Inspect, key: &str) -> Record {
        store.read(&identity(key)).await.unwrap().unwrap().record
    }

    fn name(key: &str) -> String {
        format!("idem:payments.create:POST+/payments:user%3Aalice:{key}")
    }

    /// A connection that writes down what it is asked, and can lose replies.
    #[derive(Clone)]
    struct Wire {
        connection: MultiplexedConnection,
        sent: Arc<Mutex<Vec<String>>>,
        lost: Arc<AtomicUsize>,
        /// What the caller sees of a lost reply.
        seen_as: std::io::ErrorKind,
    }

    impl Wire {
        async fn to(server: &RedisServer) -> Self {
            let connection = server.raw().await;
            Self { connection, sent: Arc::default(), lost: Arc::default(), seen_as: std::io::ErrorKind::TimedOut }
        }

        /// The commands since it was last asked.
        fn sent(&self) -> Vec<String> {
            std::mem::take(&mut self.sent.lock().unwrap())
        }

        fn lose_next(&self, replies: usize) {
            self.lost.store(replies, Ordering::SeqCst);
        }
    }

    impl ConnectionLike for Wire {
        fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
            let name = cmd.args_iter().next().map(|arg| match arg {
                redis::Arg::Simple(name) => String::from_utf8_lossy(name).into_owned(),
                _ => unreachable!("a command begins with its name"),
            });
            self.sent.lock().unwrap().extend(name);
            Box::pin(async move {
                let reply = self.connection.req_packed_command(cmd).await;
                match self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lost| lost.checked_sub(1)) {
                    Ok(_) => Err(RedisError::from(std::io::Error::from(self.seen_as))),
                    Err(_) => reply,
                }
            })
        }

        fn req_packed_commands<'a>(&'a mut self, _: &'a Pipeline, _: usize, _: usize) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("the store sends single commands")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    /// A server that has its scripts, a store, and the wire between them.
    async fn wired() -> (RedisServer, Wire, RedisStore<Wire>) {
        let server = RedisServer::start();
        let wire = Wire::to(&server).await;
        let store = RedisStore::new(wire.clone());
        let ticket = claim(&store, "warm-up").await;
        end(&store, &ticket, completed(1)).await;
        let ticket = claim(&store, "warm-up-large").await;
        end(&store, &ticket, completed(10_000)).await;
        let _ = store.read(&identity("warm-up")).await.unwrap();
        wire.sent();
        (server, wire, store)
    }

    #[tokio::test]
    async fn a_fresh_request_is_two_round_trips_and_a_replay_one() {
        let (_server, wire, store) = wired().await;
        for size in [10, 100_000] {
            let key = size.to_string();
            let ticket = claim(&store, &key).await;
            end(&store, &ticket, completed(size)).await;
            assert_eq!(wire.sent(), ["SET", "EVALSHA"]);
            let again = store.acquire(&identity(&key), &acquire()).await.unwrap();
            assert!(
                matches!(again, Acquired::Replay { completion: Completion::Replayable(s), .. } if s == snapshot(size))
            );
            assert_eq!(wire.sent(), ["SET"]);
        }
        let ticket = claim(&store, "released").await;
        end(&store, &ticket, Settlement::Release).await;
        assert_eq!(wire.sent(), ["SET", "EVALSHA"]);
    }

    #[tokio::test]
    async fn only_what_depends_on_the_time_left_takes_a_second_round_trip() {
        let (server, wire, store) = wired().await;
        let first = acquire();
        let ticket = claim_as(&store, "k", &first).await;
        wire.sent();
        claim_as(&store, "k", &first).await;
        assert_eq!(wire.sent(), ["SET"], "a repeated command");
        let busy = store.acquire(&identity("k"), &acquire()).await.unwrap();
        assert!(matches!(busy, Acquired::Busy { left, .. } if left <= LEASE && left > LEASE / 2));
        assert_eq!(wire.sent(), ["SET", "EVALSHA"], "a claim that stands");
        server.advance(LEASE).await;
        let second = claim(&store, "k").await;
        assert_eq!(second.record.attempt, 2);
        assert_eq!(wire.sent(), ["SET", "EVALSHA"], "a claim that has lapsed");
        assert!(matches!(store.renew(&ticket, &renew(&ticket, None)).await.unwrap(), Owned::Lost(Some(_))));
        assert_eq!(wire.sent(), ["EVALSHA"], "a stale owner");
        end(&store, &second, Settlement::Hold { held: Held::Unknown, limit: None }).await;
        wire.sent();
        assert!(matches!(store.acquire(&identity("k"), &acquire()).await.unwrap(), Acquired::Held { .. }));
        assert_eq!(wire.sent(), ["SET"], "a held record");
    }

    #[tokio::test]
    async fn the_key_is_readable_and_its_value_begins_with_state_and_token() {
        let (server, _, store) = wired().await;
        let ticket = claim(&store, "{k} 1").await;
        let value: Vec<u8> = server.raw().await.get(name("%7Bk%7D+1")).await.unwrap();
        assert_eq!(&value[..6], b"idem\x01I");
        assert_eq!(value[6..22], *ticket.record.token.as_bytes());

        let other = store.clone().with_prefix("shop:idem:").unwrap();
        claim(&other, "{k} 1").await;
        let keys: Vec<String> = server.raw().await.keys("shop:*").await.unwrap();
        assert_eq!(keys, ["shop:idem:payments.create:POST+/payments:user%3Aalice:%7Bk%7D+1"]);
    }

    /// A18: a claim whose expiry is a second command would stay for ever if that command never came.
    #[tokio::test]
    async fn every_write_carries_its_expiry_but_that_of_a_held_record() {
        let (server, _, store) = wired().await;
        let mut raw = server.raw().await;
        let mut expires_in = async |key: &str, expected: Duration| {
            let left: i64 = raw.pttl(name(key)).await.unwrap();
            let expected = expected.as_millis() as i64;
            assert!(left <= expected && left > expected - 25_000, "{left} of {expected}");
        };

        let ticket = claim(&store, "k").await;
        expires_in("k", LEASE + RETENTION).await;
        server.advance(LEASE).await;
        store.renew(&ticket, &renew(&ticket, Some(b"half-way"))).await.unwrap();
        expires_in("k", LEASE + RETENTION).await;
        end(&store, &ticket, Settlement::Abandon).await;
        expires_in("k", RETENTION).await;
        let ticket = claim(&store, "k").await;
        expires_in("k", LEASE + RETENTION).await;
        end(&store, &ticket, Settlement::Release).await;
        expires_in("k", RETENTION).await;
        let ticket = claim(&store, "k").await;
        let limit = Duration::from_secs(7 * 3600);
        end(&store, &ticket, Settlement::Hold { held: Held::Unknown, limit: Some(limit) }).await;
        expires_in("k", limit).await;

        let ticket = claim(&store, "done").await;
        let completion = Completion::Replayable(snapshot(1));
        end(&store, &ticket, Settlement::Complete { completion, retention: RETENTION, remember: LEASE }).await;
        expires_in("done", RETENTION + LEASE).await;

        claim_as(&store, "lapsed", &at_most_once()).await;
        server.advance(LEASE).await;
        assert!(matches!(store.acquire(&identity("lapsed"), &acquire()).await.unwrap(), Acquired::Held { .. }));
        let left: i64 = server.raw().await.pttl(name("lapsed")).await.unwrap();
        assert_eq!(left, -1);
    }

    /// Completion first, then a renewal that was on its way all the while.
    #[tokio::test]
    async fn a_renewal_after_completion_leaves_the_retention_alone() {
        let (server, _, store) = wired().await;
        let ticket = claim(&store, "k").await;
        end(&store, &ticket, completed(5)).await;
        server.advance(RETENTION / 2).await;
        let late = store.renew(&ticket, &renew(&ticket, Some(b"late"))).await.unwrap();
        assert!(matches!(late, Owned::Lost(Some(record)) if matches!(record.state, State::Completed { .. })));
        let left: u64 = server.raw().await.pttl(name("k")).await.unwrap();
        assert!(Duration::from_millis(left) <= RETENTION / 2);
    }

    /// Progress is recorded by one command, and the next is sent by somebody whose ticket does not know of it.
    #[tokio::test]
    async fn progress_that_a_ticket_does_not_know_of_is_kept() {
        let (server, _, store) = wired().await;
        let ticket = claim(&store, "k").await;
        store.renew(&ticket, &renew(&ticket, Some(b"step 1"))).await.unwrap();
        store.renew(&ticket, &renew(&ticket, None)).await.unwrap();
        assert_eq!(record(&store, "k").await.progress.as_deref(), Some(&b"step 1"[..]));
        store.renew(&ticket, &renew(&ticket, Some(b"step 2"))).await.unwrap();
        end(&store, &ticket, Settlement::Release).await;
        let freed = record(&store, "k").await;
        assert_eq!((freed.state, freed.progress.as_deref()), (State::Freed, Some(&b"step 2"[..])));

        let ticket = claim(&store, "k").await;
        assert_eq!(ticket.record.progress.as_deref(), Some(&b"step 2"[..]));
        store.renew(&ticket, &renew(&ticket, Some(b"step 3"))).await.unwrap();
        server.advance(LEASE).await;
        assert_eq!(claim(&store, "k").await.record.progress.as_deref(), Some(&b"step 3"[..]));
    }

    #[tokio::test]
    async fn scripts_that_the_server_has_forgotten_are_sent_again() {
        let (server, wire, store) = wired().await;
        let flush = async || {
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut server.raw().await).await.unwrap();
        };
        let ticket = claim(&store, "k").await;
        wire.sent();
        flush().await;
        store.renew(&ticket, &renew(&ticket, None)).await.unwrap();
        assert_eq!(wire.sent(), ["EVALSHA", "EVAL"]);
        store.renew(&ticket, &renew(&ticket, None)).await.unwrap();
        assert_eq!(wire.sent(), ["EVALSHA"]);
        flush().await;
        end(&store, &ticket, completed(10_000)).await;
        assert_eq!(wire.sent(), ["EVALSHA", "EVAL"]);
        flush().await;
        assert!(matches!(record(&store, "k").await.state, State::Completed { .. }));
        assert_eq!(wire.sent(), ["EVALSHA", "EVAL"]);
    }

    /// Of twenty who all find the same lease over, the first write makes it live again.
    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_many_takes_a_lapsed_claim_over() {
        let server = RedisServer::start();
        let store = RedisStore::connect(server.url()).await.unwrap();
        let others = RedisStore::connect(server.url()).await.unwrap();
        let first = claim(&store, "k").await;
        server.advance(LEASE).await;
        let asks: Vec<_> = (0..20)
            .map(|n| {
                let store = if n % 2 == 0 { store.clone() } else { others.clone() };
                tokio::spawn(async move { store.acquire(&identity("k"), &acquire()).await.unwrap() })
            })
            .collect();
        let mut claimed = 0;
        for ask in asks {
            match ask.await.unwrap() {
                Acquired::Claimed(ticket, Origin::TakenOver) => {
                    claimed += 1;
                    assert_eq!(ticket.record.attempt, 2);
                }
                Acquired::Busy { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(claimed, 1);
        let late = store.settle(&first, &settle(&first, completed(1))).await.unwrap();
        assert!(matches!(late, Owned::Lost(Some(record)) if record.attempt == 2));
    }

    /// A reply gets lost, and the same command is sent again: by the engine after a time limit, by the store itself after a
    /// dropped connection.
    #[tokio::test]
    async fn a_command_whose_reply_got_lost_is_answered_as_done_when_it_is_repeated() {
        let (_server, wire, timing_out) = wired().await;
        let dropping = RedisStore::new(Wire { seen_as: std::io::ErrorKind::ConnectionReset, ..wire.clone() });
        let ask = acquire();
        wire.lose_next(1);
        let error = timing_out.acquire(&identity("k"), &ask).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::TimedOut, true));
        let again = timing_out.acquire(&identity("k"), &ask).await.unwrap();
        let Acquired::Claimed(ticket, Origin::Repeated) = again else { panic!("{again:?}") };
        assert_eq!(ticket.record.attempt, 1);

        wire.lose_next(1);
        end(&dropping, &ticket, completed(3)).await;
        wire.lose_next(1);
        let other = claim(&dropping, "other").await;
        wire.lose_next(1);
        end(&dropping, &other, Settlement::Release).await;
        wire.sent();

        wire.lose_next(2);
        let error = dropping.acquire(&identity("third"), &ask).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::Unavailable, true));
        assert_eq!(wire.sent(), ["SET", "SET"], "once more, and not for ever");
    }

    /// Commands that are given up while the server does not answer must not shift the replies of those that follow (X9).
    #[tokio::test]
    async fn a_server_that_does_not_answer_costs_time_but_mixes_nothing_up() {
        let server = RedisServer::start();
        let store = RedisStore::connect(server.url()).await.unwrap();
        for key in ["a", "b"] {
            let ticket = claim(&store, key).await;
            end(&store, &ticket, Settlement::Hold { held: Held::because(key), limit: None }).await;
        }
        server.pause();
        let error = store.acquire(&identity("a"), &acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::TimedOut, true));
        server.resume();
        for key in ["b", "a", "b"] {
            let found = store.acquire(&identity(key), &acquire()).await.unwrap();
            assert!(matches!(found, Acquired::Held { held, .. } if held == Held::because(key)));
        }
    }

    #[tokio::test]
    async fn a_restarted_server_is_found_again_with_what_it_has_kept() {
        let mut server = RedisServer::start_durable();
        let store = RedisStore::connect(server.url()).await.unwrap();
        let ticket = claim(&store, "k").await;
        server.restart();
        end(&store, &ticket, completed(7)).await;

        server.stop();
        let error = store.acquire(&identity("k"), &acquire()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let error = store.acquire(&identity("k"), &acquire()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (StoreErrorKind::Unavailable, false),
            "it was never sent"
        );
        server.restart();
        assert!(matches!(store.acquire(&identity("k"), &acquire()).await.unwrap(), Acquired::Replay { .. }));
    }

    #[tokio::test]
    async fn connecting_says_that_there_is_no_server_unless_it_is_to_be_lazy() {
        let mut server = RedisServer::start();
        server.stop();
        let error = RedisStore::connect(server.url()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::Unavailable, false));
        let lazy = RedisStore::connect_lazy(server.url()).unwrap();
        assert_eq!(lazy.read(&identity("k")).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
        server.restart();
        claim(&lazy, "k").await;

        let error = RedisStore::connect_lazy("http://user:secret@localhost").unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        assert!(!format!("{error:?}").contains("secret"));
    }

    /// A server over its `maxmemory`, with what was stored before it was full.
    async fn full(keys: &[&str]) -> (RedisServer, RedisStore<MultiplexedConnection>, Vec<Ticket>) {
        let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
        let mut raw = server.raw().await;
        let store = RedisStore::new(raw.clone());
        let mut tickets = Vec::new();
        for key in keys {
            tickets.push(claim_as(&store, key, &at_most_once()).await);
        }
        let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1mb"]).query_async(&mut raw).await.unwrap();
        let mut filling = 0;
        while raw.set::<_, _, ()>(format!("filling:{filling}"), vec![0; 100_000]).await.is_ok() {
            filling += 1;
        }
        (server, store, tickets)
    }

    #[tokio::test]
    async fn a_full_server_refuses_new_claims_and_answers_repeats() {
        let (server, store, tickets) = full(&["running", "lapsed"]).await;
        let error = store.acquire(&identity("new"), &acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_passing()), (StoreErrorKind::Full, true));
        let running = store.acquire(&identity("running"), &acquire()).await.unwrap();
        assert!(matches!(running, Acquired::Busy { left, .. } if left <= LEASE));
        server.advance(LEASE).await;
        assert!(matches!(store.acquire(&identity("lapsed"), &acquire()).await.unwrap(), Acquired::Held { .. }));
        end(&store, &tickets[1], completed(3)).await;
        let done = store.acquire(&identity("lapsed"), &acquire()).await.unwrap();
        assert!(matches!(done, Acquired::Replay { completion: Completion::Replayable(s), .. } if s == snapshot(3)));
    }

    #[tokio::test]
    async fn a_full_server_lets_open_claims_end() {
        let keys = ["large", "small", "released", "abandoned", "held", "renewed", "repeated"];
        let (server, store, tickets) = full(&keys).await;
        end(&store, &tickets[0], completed(100_000)).await;
        // A repeated command must not lower what is stored, nor take the mark for somebody else's decision.
        end(&store, &tickets[0], completed(100_000)).await;
        end(&store, &tickets[1], completed(100)).await;
        end(&store, &tickets[2], Settlement::Release).await;
        end(&store, &tickets[3], Settlement::Abandon).await;
        end(&store, &tickets[4], Settlement::Hold { held: Held::because("x".repeat(256)), limit: None }).await;
        assert_eq!(store.renew(&tickets[5], &renew(&tickets[5], Some(b"half-way"))).await.unwrap(), Owned::Done);

        let repeat = async |key| match store.acquire(&identity(key), &acquire()).await.unwrap() {
            Acquired::Replay { completion, .. } => completion,
            other => panic!("{other:?}"),
        };
        assert_eq!(repeat("large").await, Completion::NotReplayable(NotReplayable::NoRoom));
        assert_eq!(repeat("small").await, Completion::Replayable(snapshot(100)));
        assert_eq!(store.read(&identity("released")).await.unwrap(), None);
        assert!(matches!(record(&store, "held").await.state, State::Held(_)));

        // Stored while there was room; its reply got lost, and there is none for the repeated command.
        let relieve = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).to_owned();
        let _: () = relieve.query_async(&mut server.raw().await).await.unwrap();
        end(&store, &tickets[6], completed(1000)).await;
        let press = redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1mb"]).to_owned();
        let _: () = press.query_async(&mut server.raw().await).await.unwrap();
        end(&store, &tickets[6], completed(1000)).await;
        assert_eq!(repeat("repeated").await, Completion::Replayable(snapshot(1000)));

        let large: &'static [u8] = &[0; 10_000];
        let error = store.renew(&tickets[5], &renew(&tickets[5], Some(large))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full);
        assert_eq!(record(&store, "renewed").await.progress.as_deref(), Some(&b"half-way"[..]));
    }

    /// C3: whatever lies under the key, it is never taken for "nothing stored".
    #[tokio::test]
    async fn what_is_no_record_is_unreadable_to_every_command() {
        let (server, _, store) = wired().await;
        let mut raw = server.raw().await;
        let mut newer = claim(&store, "newer").await.record.encode().to_vec();
        newer[4] = 2;
        let foreign = claim(&store, "foreign").await.record.encode().to_vec();
        let values = [b"".to_vec(), b"garbage".to_vec(), b"idem\x01I".to_vec(), newer, foreign];
        for (n, value) in values.into_iter().enumerate() {
            let key = format!("k-{n}");
            let ticket = claim(&store, &key).await;
            let _: () = raw.set(name(&key), value).await.unwrap();
            all_unreadable(&store, &ticket).await;
        }
        let ticket = claim(&store, "list").await;
        let _: () = raw.del(name("list")).await.unwrap();
        let _: () = raw.rpush(name("list"), "x").await.unwrap();
        all_unreadable(&store, &ticket).await;
    }

    async fn all_unreadable(store: &RedisStore<Wire>, ticket: &Ticket) {
        let identity = &ticket.identity;
        let errors: [StoreError; 5] = [
            store.acquire(identity, &acquire()).await.unwrap_err(),
            store.renew(ticket, &renew(ticket, None)).await.unwrap_err(),
            store.settle(ticket, &settle(ticket, completed(1))).await.unwrap_err(),
            store.settle(ticket, &settle(ticket, Settlement::Release)).await.unwrap_err(),
            store.read(identity).await.unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == StoreErrorKind::Unreadable), "{errors:?}");
    }

    /// D19: the server evicts a running claim, and its owner comes to complete it.
    #[tokio::test]
    async fn an_owner_whose_record_was_evicted_is_told() {
        let (server, _, store) = wired().await;
        let ticket = claim(&store, "k").await;
        let _: () = server.raw().await.del(name("k")).await.unwrap();
        assert_eq!(store.settle(&ticket, &settle(&ticket, completed(1))).await.unwrap(), Owned::Lost(None));
        assert_eq!(store.read(&identity("k")).await.unwrap(), None, "nothing is made anew");
    }

    #[tokio::test]
    async fn a_server_that_became_a_replica_is_unavailable() {
        let (server, _, _) = wired().await;
        let store = RedisStore::connect(server.url()).await.unwrap();
        let ticket = claim(&store, "k").await;
        let nobody = server.port().to_string();
        let demote = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(nobody).to_owned();
        let _: () = demote.query_async(&mut server.raw().await).await.unwrap();
        let error = store.acquire(&identity("k-2"), &acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (StoreErrorKind::Unavailable, false));
        let error = store.settle(&ticket, &settle(&ticket, completed(1))).await.unwrap_err();
        assert_eq!((error.kind(), error.is_passing()), (StoreErrorKind::Unavailable, true));
    }

    #[tokio::test]
    async fn a_user_needs_no_more_than_the_commands_that_the_docs_name() {
        let (server, _, _) = wired().await;
        let rules = "on >secret ~idem:* resetchannels -@all +set +get +getrange +pttl +del +eval +evalsha";
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg("idem").arg(rules.split(' ').collect::<Vec<_>>());
        let _: () = acl.query_async(&mut server.raw().await).await.unwrap();
        let address = |user: &str| server.url().replace("redis://", &format!("redis://{user}@"));
        let store = RedisStore::connect(address("idem:secret")).await.unwrap();
        let ticket = claim(&store, "k").await;
        store.renew(&ticket, &renew(&ticket, None)).await.unwrap();
        end(&store, &ticket, completed(10_000)).await;
        let _ = record(&store, "k").await;
        let ticket = claim(&store, "released").await;
        end(&store, &ticket, Settlement::Release).await;
        let ticket = claim(&store, "remembered").await;
        end(&store, &ticket, remembered(snapshot(10_000))).await;
        let _ = record(&store, "remembered").await;

        let elsewhere = store.with_prefix("other:").unwrap();
        let error = elsewhere.acquire(&identity("k"), &acquire()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        let error = RedisStore::connect(address("idem:wrong")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        assert!(!format!("{error:?}").contains("wrong"));
    }

    /// The password is changed and changed back, or the server has no room for another client: that passes, and so must the
    /// errors.
    #[tokio::test]
    async fn a_connection_that_was_not_accepted_for_a_while_comes_back() {
        let server = RedisServer::start();
        let mut raw = server.raw().await;
        let mut admin = async |command: &str| -> Value {
            let mut words = command.split(' ');
            let mut cmd = redis::cmd(words.next().unwrap());
            cmd.arg(words.collect::<Vec<_>>()).query_async(&mut raw).await.unwrap()
        };
        admin("ACL SETUSER idem on >secret ~* +@all").await;
        let address = server.url().replace("redis://", "redis://idem:secret@");
        let store = RedisStore::connect(address).await.unwrap();
        claim(&store, "k").await;
        for (shut, open) in [
            ("ACL SETUSER idem resetpass >other", "ACL SETUSER idem resetpass >secret"),
            ("CONFIG SET maxclients 1", "CONFIG SET maxclients 100"),
        ] {
            admin(shut).await;
            admin("CLIENT KILL USER idem").await;
            for _ in 0..3 {
                assert!(store.acquire(&identity("other"), &acquire()).await.is_err());
            }
            admin(open).await;
            assert!(
                matches!(store.acquire(&identity("k"), &acquire()).await.unwrap(), Acquired::Busy { .. }),
                "{open}"
            );
        }
    }

    #[tokio::test]
    async fn an_older_server_is_refused_by_name() {
        #[derive(Clone)]
        struct Older;
        impl ConnectionLike for Older {
            fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
                let reply = match cmd.args_iter().next() {
                    Some(redis::Arg::Simple(b"INFO")) => &b"+redis_version:6.2.14\r\n"[..],
                    _ => b"-ERR syntax error\r\n",
                };
                Box::pin(async move { parse_redis_value(reply) })
            }

            fn req_packed_commands<'a>(
                &'a mut self,
                _: &'a Pipeline,
                _: usize,
                _: usize,
            ) -> RedisFuture<'a, Vec<Value>> {
                Box::pin(async { Err(RedisError::from((ErrorKind::Client, "single commands only"))) })
            }

            fn get_db(&self) -> i64 {
                0
            }
        }
        let error = RedisStore::new(Older).acquire(&identity("k"), &acquire()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("Redis 7.0") && why.contains("Redis 6.2.14"), "{why}");
    }

    #[tokio::test]
    async fn it_runs_on_a_cluster() {
        let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
        let mut raw = server.raw().await;
        let mut cluster = async |arguments: &[&str]| -> Value {
            redis::cmd("CLUSTER").arg(arguments).query_async(&mut raw).await.unwrap()
        };
        cluster(&["ADDSLOTSRANGE", "0", "16383"]).await;
        while !format!("{:?}", cluster(&["INFO"]).await).contains("cluster_state:ok") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let client = redis::cluster::ClusterClient::new([server.url()]).unwrap();
        let store = SharedStore::new(RedisStore::new(client.get_async_connection().await.unwrap()));
        for key in ["a", "b", "c"] {
            let ticket = claim(&store, key).await;
            store.renew(&ticket, &renew(&ticket, None)).await.unwrap();
            assert!(matches!(store.acquire(&identity(key), &acquire()).await.unwrap(), Acquired::Busy { .. }));
            let settlement = if key == "a" { completed(10_000) } else { remembered(snapshot(10_000)) };
            end(&store, &ticket, settlement).await;
            assert!(matches!(store.acquire(&identity(key), &acquire()).await.unwrap(), Acquired::Replay { .. }));
        }
        let ticket = claim(&store, "released").await;
        end(&store, &ticket, Settlement::Release).await;
    }
}
