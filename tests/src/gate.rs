//! Steps that wait until a test lets them go: in place of sleeps.

use std::sync::{Arc, Mutex, PoisonError};

use idem_layer::protocol::{Acquire, Acquired, Identity, Owned, Renew, Seen, Settle, Ticket};
use idem_layer::store::{Inspect, SharedStore, Store, StoreError};
use idem_layer::testing::Verb;
use tokio::sync::Semaphore;

/// Holds whoever passes until it is opened. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waiting: Semaphore,
    places: Semaphore,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Inner { waiting: Semaphore::new(0), places: Semaphore::new(0) }))
    }

    /// Waits until there is a place.
    pub async fn pass(&self) {
        self.0.waiting.add_permits(1);
        self.0.places.acquire().await.expect("never closed").forget();
    }

    /// Waits until one more has come to the gate. Each arrival is seen once, also one that has passed already.
    pub async fn reached(&self) {
        self.0.waiting.acquire().await.expect("never closed").forget();
    }

    /// Lets one pass.
    pub fn open_once(&self) {
        self.0.places.add_permits(1);
    }

    /// Lets everybody pass, from now on.
    pub fn open(&self) {
        self.0.places.add_permits(1 << 20);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// A store whose replies can be withheld: the next call of a verb is applied at once, its reply waits at a gate.
#[derive(Clone, Debug)]
pub struct GatedStore {
    store: SharedStore,
    gates: Arc<Mutex<Vec<(Verb, Gate)>>>,
}

impl GatedStore {
    /// Decorates a store; without gates it changes nothing.
    pub fn new(store: impl Inspect) -> Self {
        Self { store: SharedStore::new(store), gates: Arc::default() }
    }

    /// Withholds the reply of the next call of `verb` that has no gate yet.
    pub fn withhold(&self, verb: Verb) -> Gate {
        let gate = Gate::new();
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).push((verb, gate.clone()));
        gate
    }

    async fn call<T>(&self, verb: Verb, call: impl Future<Output = T>) -> T {
        let gate = {
            let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            let first = gates.iter().position(|(gated, _)| *gated == verb);
            first.map(|at| gates.remove(at).1)
        };
        let reply = call.await;
        if let Some(gate) = gate {
            gate.pass().await;
        }
        reply
    }
}

impl Store for GatedStore {
    async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
        self.call(Verb::Acquire, self.store.acquire(identity, acquire)).await
    }

    async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
        self.call(Verb::Renew, self.store.renew(ticket, renew)).await
    }

    async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
        self.call(Verb::Settle, self.store.settle(ticket, settle)).await
    }
}

impl Inspect for GatedStore {
    async fn read(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        self.call(Verb::Read, self.store.read(identity)).await
    }
}
