//! The promises of a store, one function each: what [`store_tests!`](crate::store_tests) calls.
//!
//! Each function takes a harness of its own and panics where the promise is broken. Identities are made up afresh, so that
//! several harnesses may share one server.
//!
//! Time moves only by [`StoreHarness::advance`]; what a boundary is tested with is the harness's
//! [`drift`](StoreHarness::drift), so that a server whose clock runs on by itself is held to the same promises.

mod asking;
mod damage;
mod identity;
mod lapsing;
mod owning;
mod racing;
mod renewing;
mod retaining;
mod settling;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::StoreHarness;
use crate::protocol::{
    Acquire, Acquired, Completion, Fingerprint, Held, Identity, Key, OnLapse, Operation, Origin, Owned, Record, Renew,
    Scope, Settle, Settlement, Snapshot, State, Ticket, Token,
};
use crate::store::{Inspect, SharedStore, Store};

pub use self::asking::*;
pub use self::damage::*;
pub use self::identity::*;
pub use self::lapsing::*;
pub use self::owning::*;
pub use self::racing::*;
pub use self::renewing::*;
pub use self::retaining::*;
pub use self::settling::*;

const LEASE: Duration = Duration::from_secs(60);
const RETENTION: Duration = Duration::from_secs(60 * 60);
const REMEMBER: Duration = Duration::from_secs(2 * 60 * 60);
const A_LONG_TIME: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// One key of a store under test.
struct Subject<H> {
    harness: Arc<H>,
    store: SharedStore,
    identity: Identity,
}

impl<H: StoreHarness> Subject<H> {
    fn new(harness: H) -> Self {
        let drift = harness.drift();
        assert!(drift <= LEASE / 2, "a harness may drift by at most {:?}, not {drift:?}", LEASE / 2);
        Self { store: harness.store(), harness: Arc::new(harness), identity: fresh_identity() }
    }

    /// Another key of the same store.
    fn another(&self) -> Self {
        self.of(fresh_identity())
    }

    fn of(&self, identity: Identity) -> Self {
        Self { harness: Arc::clone(&self.harness), store: self.store.clone(), identity }
    }

    async fn acquire(&self, acquire: &Acquire) -> Acquired {
        self.store.acquire(&self.identity, acquire).await.expect("the store answers an acquire")
    }

    /// A claim that must be granted.
    async fn claim_as(&self, acquire: &Acquire) -> (Ticket, Origin) {
        match self.acquire(acquire).await {
            Acquired::Claimed(ticket, origin) => {
                assert_eq!(ticket.identity, self.identity);
                assert_eq!(ticket.record.identity, *self.identity.digest());
                assert_eq!(ticket.record.token, acquire.token);
                assert!(matches!(ticket.record.state, State::InFlight { .. }));
                (ticket, origin)
            }
            other => panic!("not claimed, but {other:?}"),
        }
    }

    async fn claim(&self) -> Ticket {
        self.claim_as(&ask()).await.0
    }

    async fn renew(&self, ticket: &Ticket, lease: Duration, progress: Option<&'static [u8]>) -> Owned {
        let renew = Renew { token: ticket.record.token, lease, progress: progress.map(Bytes::from_static) };
        self.store.renew(ticket, &renew).await.expect("the store answers a renew")
    }

    async fn settle(&self, ticket: &Ticket, settlement: Settlement) -> Owned {
        let settle = Settle { token: ticket.record.token, settlement, at_ms: 2 };
        self.store.settle(ticket, &settle).await.expect("the store answers a settle")
    }

    /// A settlement that must be accepted.
    async fn settled(&self, ticket: &Ticket, settlement: Settlement) {
        assert_eq!(self.settle(ticket, settlement).await, Owned::Done);
    }

    async fn stored(&self) -> Option<Record> {
        self.store.read(&self.identity).await.expect("the store can be read").map(|seen| seen.record)
    }

    /// A record on attempt 2, in flight.
    async fn claim_twice(&self) -> Ticket {
        let first = self.claim().await;
        self.settled(&first, Settlement::Abandon).await;
        let second = self.claim().await;
        assert_eq!(second.record.attempt, 2);
        second
    }

    async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
    }

    /// To just before `end`, counted from now, by no more than is needed not to reach it.
    async fn advance_almost(&self, end: Duration) {
        self.advance(end - self.margin()).await;
    }

    /// What [`advance_almost`](Self::advance_almost) leaves.
    fn margin(&self) -> Duration {
        self.harness.drift().max(Duration::from_millis(1))
    }
}

fn fresh_identity() -> Identity {
    named(Key::new(Token::mint().as_bytes()).expect("16 bytes are a key"))
}

fn named(key: Key) -> Identity {
    Identity::new(Operation::new("conformance").expect("a name"), None, Scope::unscoped(), key)
}

/// A request of someone new, who may run again what lapsed.
fn ask() -> Acquire {
    Acquire {
        token: Token::mint(),
        fingerprint: None,
        observed: false,
        on_lapse: OnLapse::RunAgain,
        lease: LEASE,
        retention: RETENTION,
        held_limit: None,
        at_ms: 1,
    }
}

/// A request of someone new, who must not run again what lapsed.
fn ask_once() -> Acquire {
    Acquire { on_lapse: OnLapse::Hold, ..ask() }
}

fn ask_with(fingerprint: Fingerprint) -> Acquire {
    Acquire { fingerprint: Some(fingerprint), ..ask() }
}

fn fingerprint(body: &str) -> Fingerprint {
    Fingerprint::digester().part(body).finish()
}

fn replayable(bytes: &'static [u8]) -> Completion {
    Completion::Replayable(Snapshot::from_bytes(Bytes::from_static(bytes)))
}

/// Completed, to replay for the retention and to be forgotten then.
fn complete(bytes: &'static [u8]) -> Settlement {
    Settlement::Complete { completion: replayable(bytes), retention: RETENTION, remember: Duration::ZERO }
}

/// Completed, to replay for the retention and to be remembered for longer.
fn complete_and_remember(bytes: &'static [u8]) -> Settlement {
    Settlement::Complete { completion: replayable(bytes), retention: RETENTION, remember: REMEMBER }
}

fn hold() -> Settlement {
    Settlement::Hold { held: Held::because("as tested"), limit: None }
}

/// Each way to settle.
fn settlements() -> [Settlement; 5] {
    [complete(b"late"), complete_and_remember(b"late"), Settlement::Release, Settlement::Abandon, hold()]
}

#[track_caller]
fn assert_busy(answer: Acquired) {
    assert!(matches!(answer, Acquired::Busy { .. }), "not busy, but {answer:?}");
}

#[track_caller]
fn assert_held(answer: Acquired, why: Held) {
    assert!(matches!(&answer, Acquired::Held { held, .. } if *held == why), "not held by {why:?}, but {answer:?}");
}

#[track_caller]
fn assert_replays(answer: Acquired, bytes: &'static [u8]) {
    let expected = replayable(bytes);
    assert!(
        matches!(&answer, Acquired::Replay { completion, .. } if *completion == expected),
        "not the replay, but {answer:?}"
    );
}
