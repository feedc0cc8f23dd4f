//! Repeats that wait for a run of another process, on a Redis that both share.

use std::sync::Arc;
use std::time::Duration;

use idem_layer::Guard;
use idem_layer::guard::{Admission, Claim, Event, EventKind, Repeat, Settled};
use idem_layer::protocol::{Acquire, Acquired, Identity, Key, OnLapse, Operation, Policy, Scope, Snapshot, Token};
use idem_layer::store::{RedisStore, Store, StoreError};
use idem_tests::RedisServer;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(600);

/// A process as far as the other can tell: a guard with a connection of its own.
struct Process {
    guard: Guard,
    waiting: Arc<Semaphore>,
}

impl Process {
    async fn start(server: &RedisServer, make: fn(RedisStore) -> Guard) -> Self {
        let waiting = Arc::new(Semaphore::new(0));
        let policy = Policy::builder().lease(LEASE).wait(Duration::from_secs(60)).build().unwrap();
        let guard = make(RedisStore::connect(server.url()).await.unwrap()).with_policy(policy).observed_by({
            let waiting = waiting.clone();
            move |event: &Event<'_>| waiting.add_permits(usize::from(event.kind == EventKind::Waiting))
        });
        Self { guard, waiting }
    }

    async fn claim(&self) -> Claim {
        match self.guard.claim(identity()).await.unwrap() {
            Admission::Claimed(claim) => claim,
            Admission::Repeat(repeat) => panic!("not claimed: {repeat:?}"),
        }
    }

    /// So many repeats that wait.
    async fn waiting(&self, repeats: u32) -> Vec<JoinHandle<Result<Admission, StoreError>>> {
        let waiting = (0..repeats).map(|_| tokio::spawn(self.guard.claim(identity()))).collect();
        self.waiting.acquire_many(repeats).await.unwrap().forget();
        waiting
    }
}

fn identity() -> Identity {
    Identity::new(Operation::new("test").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
}

/// Completes whatever is claimed, and counts it; everybody else must be told the same.
async fn all_end_with(value: u32, waiting: Vec<JoinHandle<Result<Admission, StoreError>>>) -> usize {
    let mut claims = 0;
    let ended = waiting.into_iter().map(|waiting| async move {
        match waiting.await.unwrap().unwrap() {
            Admission::Claimed(claim) => {
                assert_eq!(claim.complete(&value).await, Settled::Stored);
                1
            }
            Admission::Repeat(repeat) => {
                let json = value.to_string();
                assert_eq!(repeat, Repeat::Replay(Snapshot::value(json.as_bytes())));
                0
            }
        }
    });
    let ended: Vec<_> = ended.map(tokio::spawn).collect();
    for ended in ended {
        claims += ended.await.unwrap();
    }
    claims
}

#[tokio::test]
async fn a_run_that_another_process_completes_ends_the_wait() {
    let server = RedisServer::start();
    let (here, there) =
        tokio::join!(Process::start(&server, Guard::at_least_once), Process::start(&server, Guard::at_most_once));
    let claim = there.claim().await;
    let waiting = here.waiting(10).await;
    assert_eq!(claim.complete(&7).await, Settled::Stored);
    assert_eq!(all_end_with(7, waiting).await, 0);
}

#[tokio::test]
async fn a_run_that_another_process_releases_is_taken_over_by_one_of_all_who_wait() {
    let server = RedisServer::start();
    let (here, there) =
        tokio::join!(Process::start(&server, Guard::at_most_once), Process::start(&server, Guard::at_most_once));
    let claim = there.claim().await;
    let mut waiting = here.waiting(10).await;
    waiting.extend(there.waiting(10).await);
    assert_eq!(claim.release().await, Settled::Stored);
    assert_eq!(all_end_with(8, waiting).await, 1);
}

#[tokio::test]
async fn a_process_that_dies_is_succeeded_by_one_who_waits() {
    let server = RedisServer::start();
    let here = Process::start(&server, Guard::at_least_once).await;
    let acquire = Acquire {
        token: Token::mint(),
        fingerprint: None,
        observed: false,
        on_lapse: OnLapse::RunAgain,
        lease: LEASE,
        retention: LEASE,
        held_limit: None,
        at_ms: 0,
    };
    let dies = RedisStore::connect(server.url()).await.unwrap();
    assert!(matches!(dies.acquire(&identity(), &acquire).await.unwrap(), Acquired::Claimed(..)));
    let waiting = here.waiting(10).await;
    server.advance(LEASE).await;
    assert_eq!(all_end_with(9, waiting).await, 1);
}
