//! What must hold across processes: the service `payments`, its ledger and a Redis, with crashes, outages and clients that
//! leave.

use std::path::Path;
use std::time::Duration;

use idem_tests::{Call, Client, Process, RedisServer, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinHandle, JoinSet};

/// A ledger file that processes share.
struct Ledger(TempDir);

impl Ledger {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> String {
        self.0.path().join("ledger.jsonl").to_str().expect("a path of text").to_owned()
    }

    /// The whole file, read without the service's help.
    fn effects(&self) -> Vec<Value> {
        let text = if Path::new(&self.path()).exists() {
            std::fs::read_to_string(self.path()).expect("the ledger")
        } else {
            String::new()
        };
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// Waits until a handler has got as far as its effect.
    async fn effects_reach(&self, count: usize) {
        while self.effects().len() < count {
            pause().await;
        }
    }
}

/// Between two looks at something that another process does.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

fn pay(client: Client, key: &str) -> Call {
    client.post("/payments").key(key).json(&json!({"order_no": "A-1", "amount": 1250, "currency": "EUR"}))
}

/// What a client gets who does as he is told: comes back while the first runs, and while the store is down.
async fn answer(call: &Call) -> Reply {
    loop {
        let reply = call.clone().send().await;
        match &*reply.code() {
            "in-progress" | "store-unavailable" => pause().await,
            _ => return reply,
        }
    }
}

/// Sends a call without waiting for it, and returns when its handler has begun: when a copy is told that it is in progress.
async fn begin(call: &Call, faults: &str) -> JoinHandle<anyhow::Result<Reply>> {
    let send = || tokio::spawn(call.clone().header("x-fault", faults).try_send());
    let mut first = send();
    // A copy that comes before it runs itself, without an effect, and frees the key.
    while call.clone().header("x-fault", "no-effect,status=503").send().await.code() != "in-progress" {
        if first.is_finished() {
            first = send();
        }
        pause().await;
    }
    first
}

/// Sends all at once and asserts that exactly one was executed and nobody was told anything but its answer or to come back.
async fn one_of(calls: impl IntoIterator<Item = Call>) {
    let mut sending = JoinSet::new();
    for call in calls {
        sending.spawn(call.send());
    }
    let replies = sending.join_all().await;
    let executed: Vec<_> = replies.iter().filter(|reply| reply.status == 201 && !reply.replayed()).collect();
    assert_eq!(executed.len(), 1);
    for reply in &replies {
        match reply.status.as_u16() {
            201 => assert_eq!(reply.body, executed[0].body),
            409 => assert_eq!((&*reply.code(), reply.header("retry-after")), ("in-progress", Some("1"))),
            _ => panic!("{reply:?}"),
        }
    }
}

#[tokio::test]
async fn of_fifty_copies_at_once_one_is_executed() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let ledger = Ledger::new();
        let service = Process::payments(&["--store", store, "--ledger", &ledger.path(), "--faults"]).await;
        one_of((0..50).map(|_| pay(service.client(), "k-1").header("x-fault", "before=50"))).await;
        assert_eq!(ledger.effects().len(), 1, "{store}");
    }
}

#[tokio::test]
async fn of_two_hundred_copies_over_two_processes_one_is_executed() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let arguments = ["--store", &redis.url(), "--ledger", &ledger.path(), "--faults"];
    let (mut a, b) = (Process::payments(&arguments).await, Process::payments(&arguments).await);
    let clients = [a.client(), b.client()];
    one_of((0..200).map(|i| pay(clients[i % 2], "k-1").header("x-fault", "before=50"))).await;
    assert_eq!(ledger.effects().len(), 1);

    // What one process has stored, the other replays, also when the first is gone.
    let stored = pay(a.client(), "k-1").send().await;
    a.kill9().await;
    let replayed = pay(b.client(), "k-1").send().await;
    assert!(replayed.replayed());
    assert_eq!(
        (replayed.body, replayed.headers.get("location")),
        (stored.body.clone(), stored.headers.get("location"))
    );
}

#[tokio::test]
async fn with_wait_copies_over_two_processes_all_get_the_answer() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let arguments = ["--store", &redis.url(), "--ledger", &ledger.path(), "--faults", "--wait", "30s"];
    let (a, b) = (Process::payments(&arguments).await, Process::payments(&arguments).await);
    let clients = [a.client(), b.client()];
    let mut sending = JoinSet::new();
    for i in 0..60 {
        sending.spawn(pay(clients[i % 2], "k-1").header("x-fault", "before=100").send());
    }
    let replies = sending.join_all().await;
    assert!(replies.iter().all(|reply| reply.status == 201 && reply.body == replies[0].body), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
    assert_eq!(ledger.effects().len(), 1);

    // The owner dies: exactly one of those who wait in the other process takes over when its lease lapses.
    let short = [&arguments[..], &["--lease", "300ms"]].concat();
    let (mut dying, heir) = (Process::payments(&short).await, Process::payments(&short).await);
    let first = tokio::spawn(pay(dying.client(), "k-2").header("x-fault", "after=60000").try_send());
    ledger.effects_reach(2).await;
    let waiting: Vec<_> = (0..8).map(|_| tokio::spawn(pay(heir.client(), "k-2").send())).collect();
    dying.kill9().await;
    assert!(first.await.unwrap().is_err());
    let mut fresh = 0;
    for reply in waiting {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
        fresh += usize::from(!reply.replayed());
    }
    assert_eq!((fresh, ledger.effects().len()), (1, 3));
}

#[tokio::test]
async fn after_a_kill_at_least_once_runs_a_second_attempt_and_says_so() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let arguments = ["--store", &redis.url(), "--ledger", &ledger.path(), "--lease", "500ms", "--faults"];
    let (mut a, b) = (Process::payments(&arguments).await, Process::payments(&arguments).await);

    let killed = tokio::spawn(pay(a.client(), "k-1").header("x-fault", "after=600000").try_send());
    ledger.effects_reach(1).await;
    a.kill9().await;
    assert!(killed.await.unwrap().is_err());
    redis.advance(Duration::from_millis(500)).await;

    let second = pay(b.client(), "k-1").send().await;
    assert_eq!((second.status.as_u16(), second.replayed()), (201, false), "{second:?}");
    assert_eq!(second.json()["attempt"], 2);
    let attempts: Vec<_> = ledger.effects().iter().map(|effect| effect["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2]);
    assert!(pay(b.client(), "k-1").send().await.replayed());
}

#[tokio::test]
async fn after_a_kill_at_most_once_holds_for_good() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let store = redis.url();
    let path = ledger.path();
    let arguments =
        ["--store", &store, "--ledger", &path, "--lease", "500ms", "--guarantee", "at-most-once", "--faults"];
    let (mut a, b) = (Process::payments(&arguments).await, Process::payments(&arguments).await);

    let killed = tokio::spawn(pay(a.client(), "k-1").header("x-fault", "after=600000").try_send());
    ledger.effects_reach(1).await;
    a.kill9().await;
    assert!(killed.await.unwrap().is_err());

    for later in [Duration::from_millis(500), Duration::from_secs(60), Duration::from_secs(30 * 24 * 60 * 60)] {
        redis.advance(later).await;
        let held = pay(b.client(), "k-1").send().await;
        assert_eq!((held.status.as_u16(), &*held.code()), (409, "outcome-unknown"), "{held:?}");
    }
    assert_eq!(ledger.effects().len(), 1);
}

#[tokio::test]
async fn a_handler_whose_client_leaves_finishes_and_the_retry_gets_its_answer() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let ledger = Ledger::new();
        let service = Process::payments(&["--store", store, "--ledger", &ledger.path(), "--faults"]).await;
        let call = pay(service.client(), "k-1");
        let leaving = begin(&call, "before=300").await;
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());

        let retry = answer(&call).await;
        assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true), "{store}: {retry:?}");
        assert_eq!(ledger.effects().len(), 1, "{store}");
    }
}

#[tokio::test]
async fn a_handler_longer_than_three_leases_is_renewed() {
    let redis = RedisServer::start();
    for store in ["memory:", &redis.url()] {
        let ledger = Ledger::new();
        let arguments = ["--store", store, "--ledger", &ledger.path(), "--lease", "500ms", "--faults"];
        let service = Process::payments(&arguments).await;
        let call = pay(service.client(), "k-1");
        let first = begin(&call, "after=2000").await;
        let copy = answer(&call).await;
        let first = first.await.unwrap().unwrap();
        assert_eq!(
            (first.json()["attempt"].clone(), copy.replayed(), &copy.body),
            (1.into(), true, &first.body),
            "{store}"
        );
        assert_eq!(ledger.effects().len(), 1, "{store}");
    }
}

#[tokio::test]
async fn while_redis_is_down_nothing_is_executed_and_afterwards_everything_works() {
    let mut redis = RedisServer::start();
    let ledger = Ledger::new();
    let service = Process::payments(&["--store", &redis.url(), "--ledger", &ledger.path()]).await;
    let unavailable = |reply: Reply| {
        assert_eq!((reply.status.as_u16(), &*reply.code()), (503, "store-unavailable"), "{reply:?}");
        assert_eq!(reply.header("retry-after"), Some("1"));
    };
    assert_eq!(pay(service.client(), "k-1").send().await.status, 201);

    redis.stop();
    unavailable(pay(service.client(), "k-2").send().await);
    unavailable(pay(service.client(), "k-1").send().await);
    assert_eq!(ledger.effects().len(), 1);
    redis.restart();
    assert!(!answer(&pay(service.client(), "k-2")).await.replayed());

    // Connected, but silent.
    redis.pause();
    unavailable(pay(service.client(), "k-3").send().await);
    assert_eq!(ledger.effects().len(), 2);
    redis.resume();
    // The claim that got no reply may have been applied: it must not stand in the way.
    let third = answer(&pay(service.client(), "k-3")).await;
    assert_eq!((third.status.as_u16(), third.json()["attempt"].clone()), (201, 1.into()));
    assert_eq!(ledger.effects().len(), 3);
}

#[tokio::test]
async fn a_service_starts_before_its_redis() {
    let mut redis = RedisServer::start();
    redis.stop();
    let service = Process::payments(&["--store", &redis.url()]).await;
    assert_eq!(pay(service.client(), "k-1").send().await.status, 503);
    redis.restart();
    assert_eq!(answer(&pay(service.client(), "k-1")).await.status, 201);
}

#[tokio::test]
async fn an_outcome_that_could_not_be_stored_reaches_its_caller_and_is_stored_later() {
    let mut redis = RedisServer::start_durable();
    let ledger = Ledger::new();
    let service = Process::payments(&["--store", &redis.url(), "--ledger", &ledger.path(), "--faults"]).await;
    for (key, kill, effects) in [("silent", false, 1), ("killed", true, 2)] {
        let call = pay(service.client(), key);
        let first = tokio::spawn(call.clone().header("x-fault", "after=1000").send());
        ledger.effects_reach(effects).await;
        if kill {
            redis.stop()
        } else {
            redis.pause()
        }
        let first = first.await.unwrap();
        assert_eq!(first.status, 201, "{key}");
        if kill {
            redis.restart()
        } else {
            redis.resume()
        }

        let retry = answer(&call).await;
        assert!(retry.replayed(), "{key}: {retry:?}");
        assert_eq!(retry.body, first.body, "{key}");
        assert_eq!(ledger.effects().len(), effects, "{key}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_record_are_refused_and_left_alone() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let service = Process::payments(&["--store", &redis.url(), "--ledger", &ledger.path()]).await;
    let mut raw = redis.raw().await;
    let name = "idem:payments.create:POST+/payments:public:k-1";
    pay(service.client(), "k-1").send().await;
    let existed: bool = redis::cmd("EXISTS").arg(name).query_async(&mut raw).await.unwrap();
    assert!(existed, "the record is stored under its readable name");

    let garbage = b"\x00\xffgarbage".to_vec();
    let _: () = redis::cmd("SET").arg(name).arg(&garbage).query_async(&mut raw).await.unwrap();
    let reply = pay(service.client(), "k-1").send().await;
    assert_eq!((reply.status.as_u16(), &*reply.code()), (503, "record-unreadable"), "{reply:?}");
    let left: Vec<u8> = redis::cmd("GET").arg(name).query_async(&mut raw).await.unwrap();
    assert_eq!(left, garbage);
    assert_eq!(ledger.effects().len(), 1);
}

#[tokio::test]
async fn a_process_told_to_end_stores_what_its_gone_client_started() {
    let redis = RedisServer::start();
    let ledger = Ledger::new();
    let arguments = ["--store", &redis.url(), "--ledger", &ledger.path(), "--faults"];
    let (mut a, b) = (Process::payments(&arguments).await, Process::payments(&arguments).await);
    let leaving = begin(&pay(a.client(), "k-1"), "before=500").await;
    leaving.abort();
    a.terminate();
    assert_eq!(a.ended().await.code(), Some(0));
    let retry = pay(b.client(), "k-1").send().await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true), "{retry:?}");
    assert_eq!(ledger.effects().len(), 1);
}
