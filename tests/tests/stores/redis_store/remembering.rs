//! An identity that is remembered behind its retention: what Redis keeps of it, and for how long.

use super::*;

const MARK: &[u8] = b"card 4111 1111 1111 1111";

/// A response that is told from everything else that is stored, with every byte in it.
fn response(bytes: usize) -> Snapshot {
    let body = (0..=255).cycle().take(bytes);
    Snapshot::from_bytes(MARK.iter().copied().chain(body).collect())
}

fn apart(key: &str) -> String {
    format!("idem:{{{}}}:snapshot", name(key))
}

/// What is stored, key by key.
async fn everything(server: &RedisServer) -> Vec<(String, Vec<u8>)> {
    let mut raw = server.raw().await;
    let mut keys: Vec<String> = raw.keys("*").await.unwrap();
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let value = raw.get(&key).await.unwrap();
        all.push((key, value));
    }
    all
}

fn is_in(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}

/// How long a key has to live.
async fn left(server: &RedisServer, key: &str) -> Duration {
    let left_ms: u64 = server.raw().await.pttl(key).await.unwrap();
    Duration::from_millis(left_ms)
}

#[track_caller]
fn assert_about(left: Duration, expected: Duration) {
    assert!(left <= expected && left > expected - Duration::from_secs(25), "{left:?} of {expected:?}");
}

#[track_caller]
fn assert_replays(answer: Acquired, expected: &Snapshot) {
    let Acquired::Replay { completion: Completion::Replayable(snapshot), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(snapshot.as_bytes(), expected.as_bytes());
}

async fn ask(store: &impl Store, key: &str) -> Acquired {
    store.acquire(&identity(key), &acquire()).await.unwrap()
}

#[tokio::test]
async fn behind_the_retention_no_key_holds_a_byte_of_the_response() {
    for size in [0, 300, 100_000] {
        let server = RedisServer::start();
        let store = RedisStore::connect(server.url()).await.unwrap();
        let ticket = claim(&store, "k").await;
        end(&store, &ticket, remembered(response(size))).await;
        assert_replays(ask(&store, "k").await, &response(size));
        assert_replays(ask(&store, "k").await, &response(size));
        assert!(everything(&server).await.iter().any(|(_, value)| is_in(value, MARK)));

        server.advance(RETENTION).await;
        let left_over = everything(&server).await;
        let [(key, value)] = &left_over[..] else { panic!("{left_over:?}") };
        assert_eq!(*key, name("k"));
        assert!(value.len() < 128 && !is_in(value, MARK) && !is_in(value, &MARK[..8]), "{value:?}");
        assert_about(left(&server, key).await, REMEMBER);
        assert_eq!(ask(&store, "k").await, Acquired::Gone);
        end(&store, &ticket, remembered(response(size))).await;
        assert_eq!(everything(&server).await, left_over, "a repeated command brings nothing back");

        server.advance(REMEMBER).await;
        assert_eq!(everything(&server).await, []);
        assert_eq!(claim(&store, "k").await.record.attempt, 1);
    }
}

/// What an earlier release has stored must be read for ever.
#[tokio::test]
async fn a_response_that_its_record_outlives_lies_apart_and_expires_with_its_retention() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let ticket = claim(&store, "k").await;
    end(&store, &ticket, remembered(response(300))).await;

    let token = ticket.record.token;
    let reference = Completion::Replayable(Snapshot::from_bytes(Bytes::from_static(b"\0")));
    let state = State::Completed { completion: reference, remember_ms: REMEMBER.as_millis() as u64 };
    let value = Record { state, since_ms: 1_800_000_001_000, ..ticket.record }.encode().to_vec();
    let snapshot = [token.as_bytes(), &response(300).as_bytes()[..]].concat();
    assert_eq!(everything(&server).await, [(name("k"), value), (apart("k"), snapshot)]);
    assert_about(left(&server, &name("k")).await, RETENTION + REMEMBER);
    assert_about(left(&server, &apart("k")).await, RETENTION);
    let shown = record(&store, "k").await;
    assert!(
        matches!(shown.state, State::Completed { completion: Completion::Replayable(s), .. } if s == response(300))
    );

    let other = claim(&store, "other").await;
    end(&store, &other, completed(100_000)).await;
    assert_eq!(everything(&server).await.len(), 3, "what nothing outlives lies with its record");
}

#[tokio::test]
async fn remembering_takes_no_round_trip_more() {
    let (server, wire, store) = wired().await;
    for size in [10, 100_000] {
        let key = size.to_string();
        let ticket = claim_as(&store, &key, &Acquire { fingerprint: fingerprint("x"), ..acquire() }).await;
        end(&store, &ticket, remembered(response(size))).await;
        assert_eq!(wire.sent(), ["SET", "EVALSHA"]);
        assert_replays(ask(&store, &key).await, &response(size));
        assert_eq!(wire.sent(), ["SET", "EVALSHA"], "whether it is gone depends on the time left");
        end(&store, &ticket, remembered(response(size))).await;
        assert_eq!(wire.sent(), ["EVALSHA"], "a repeated command");
        let differing = Acquire { fingerprint: fingerprint("y"), ..acquire() };
        assert_eq!(store.acquire(&ticket.identity, &differing).await.unwrap(), Acquired::Mismatch);
        assert_eq!(wire.sent(), ["SET"]);
        server.advance(RETENTION).await;
        assert_eq!(ask(&store, &key).await, Acquired::Gone);
        assert_eq!(wire.sent(), ["SET", "EVALSHA"]);
        assert_eq!(store.acquire(&ticket.identity, &differing).await.unwrap(), Acquired::Mismatch);
        assert_eq!(wire.sent(), ["SET"]);
    }
}

fn fingerprint(body: &str) -> Option<Fingerprint> {
    Some(Fingerprint::digester().part(body).finish())
}

/// Wrong order: A is claimed and stalls, its lease lapses, B takes over and completes, A completes. Had A's response replaced
/// B's, or moved its end, B's record would answer with what nobody was told, or with nothing.
#[tokio::test]
async fn a_stale_owner_cannot_touch_the_response_of_its_successor() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let stale = claim(&store, "k").await;
    server.advance(LEASE).await;
    let successor = claim(&store, "k").await;

    let late = store.settle(&stale, &settle(&stale, remembered(response(9_000)))).await.unwrap();
    assert!(matches!(late, Owned::Lost(Some(record)) if record == successor.record));
    assert_eq!(everything(&server).await.len(), 1, "what is lost leaves nothing behind");

    end(&store, &successor, remembered(response(500))).await;
    let before = everything(&server).await;
    server.advance(RETENTION / 2).await;
    for snapshot in [response(9_000), response(500)] {
        let late = store.settle(&stale, &settle(&stale, remembered(snapshot))).await.unwrap();
        let Owned::Lost(Some(Record { token, state, .. })) = late else { panic!("{late:?}") };
        assert_eq!(token, successor.record.token);
        let State::Completed { completion, .. } = state else { panic!("{state:?}") };
        assert_eq!(completion, Completion::Replayable(response(500)), "it sends what the key holds");
    }
    assert_eq!(everything(&server).await, before);
    assert_about(left(&server, &apart("k")).await, RETENTION / 2);
    assert_replays(ask(&store, "k").await, &response(500));
}

/// A server that evicts, or somebody who deletes, takes the response before its time. It has taken effect all the same.
#[tokio::test]
async fn a_response_that_is_missing_or_of_another_claim_is_gone_and_never_a_miss() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let mut raw = server.raw().await;
    for (key, planted) in [("evicted", None), ("foreign", Some(&[8; 500][..])), ("cut", Some(b"short"))] {
        let ticket = claim(&store, key).await;
        end(&store, &ticket, remembered(response(500))).await;
        match planted {
            None => raw.del::<_, ()>(apart(key)).await.unwrap(),
            Some(bytes) => raw.set::<_, _, ()>(apart(key), bytes).await.unwrap(),
        }
        for asked in [acquire(), at_most_once()] {
            assert_eq!(store.acquire(&identity(key), &asked).await.unwrap(), Acquired::Gone, "{key}");
        }
        let seen = store.read(&identity(key)).await.unwrap().unwrap();
        let gone = Completion::NotReplayable(NotReplayable::Gone);
        assert_eq!(seen.phase, Phase::Tail);
        assert!(matches!(seen.record.state, State::Completed { completion, .. } if completion == gone));
        end(&store, &ticket, remembered(response(500))).await;
        let late = store.settle(&ticket, &settle(&ticket, Settlement::Release)).await.unwrap();
        assert!(matches!(late, Owned::Lost(Some(_))));
        assert_eq!(ask(&store, key).await, Acquired::Gone, "{key}");
    }
}

#[tokio::test]
async fn a_record_that_refers_to_something_unknown_is_unreadable() {
    let (server, _, store) = wired().await;
    let ticket = claim(&store, "k").await;
    end(&store, &ticket, remembered(response(500))).await;
    let mut raw = server.raw().await;
    let mut value: Vec<u8> = raw.get(name("k")).await.unwrap();
    assert_eq!(value.pop(), Some(0));
    for reference in [&b"\x05"[..], b"", b"\0\0"] {
        let _: () = raw.set(name("k"), [&value[..], reference].concat()).await.unwrap();
        all_unreadable(&store, &ticket).await;
    }
}

#[tokio::test]
async fn a_full_server_remembers_without_the_response() {
    let (server, store, tickets) = full(&["large", "small", "repeated"]).await;
    end(&store, &tickets[0], remembered(response(100_000))).await;
    end(&store, &tickets[0], remembered(response(100_000))).await;
    end(&store, &tickets[1], remembered(response(100))).await;
    let no_room = Completion::NotReplayable(NotReplayable::NoRoom);
    let told = ask(&store, "large").await;
    assert!(matches!(&told, Acquired::Replay { completion, .. } if *completion == no_room), "{told:?}");
    assert_replays(ask(&store, "small").await, &response(100));
    let exists: bool = server.raw().await.exists(apart("large")).await.unwrap();
    assert!(!exists);

    // Stored while there was room; its reply got lost, and there is none for the repeated command.
    let admin = async |setting: &str| {
        let set = redis::cmd("CONFIG").arg(&["SET", "maxmemory", setting]).to_owned();
        let _: () = set.query_async(&mut server.raw().await).await.unwrap();
    };
    admin("0").await;
    end(&store, &tickets[2], remembered(response(100_000))).await;
    admin("1mb").await;
    end(&store, &tickets[2], remembered(response(100_000))).await;
    assert_replays(ask(&store, "repeated").await, &response(100_000));

    server.advance(RETENTION).await;
    for key in ["large", "small", "repeated"] {
        assert_eq!(ask(&store, key).await, Acquired::Gone, "{key}");
    }
}

/// The first copy was applied, its reply got lost, and the store sends the command again: as the response is written first, a
/// second write of it would move its end past that of the replay.
#[tokio::test]
async fn a_completion_whose_reply_got_lost_is_done_when_it_is_repeated() {
    let (server, wire, _) = wired().await;
    let store = RedisStore::new(Wire { seen_as: std::io::ErrorKind::ConnectionReset, ..wire.clone() });
    let ticket = claim(&store, "k").await;
    wire.sent();
    wire.lose_next(1);
    end(&store, &ticket, remembered(response(9_000))).await;
    assert_eq!(wire.sent(), ["EVALSHA", "EVALSHA"]);
    server.advance(RETENTION / 2).await;
    end(&store, &ticket, remembered(response(9_000))).await;
    assert_about(left(&server, &apart("k")).await, RETENTION / 2);
    assert_replays(ask(&store, "k").await, &response(9_000));
}

/// A record was evicted before its response, and the key begins anew.
#[tokio::test]
async fn what_an_earlier_record_has_left_is_never_shown_and_goes_with_the_next() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let leave_a_response = async || {
        let ticket = claim(&store, "k").await;
        end(&store, &ticket, remembered(response(500))).await;
        let _: () = server.raw().await.del(name("k")).await.unwrap();
    };
    leave_a_response().await;
    let ticket = claim(&store, "k").await;
    assert!(matches!(ask(&store, "k").await, Acquired::Busy { .. }));
    end(&store, &ticket, Settlement::Release).await;
    assert_eq!(everything(&server).await, []);

    leave_a_response().await;
    let ticket = claim(&store, "k").await;
    end(&store, &ticket, remembered(response(9_000))).await;
    assert_replays(ask(&store, "k").await, &response(9_000));
}
