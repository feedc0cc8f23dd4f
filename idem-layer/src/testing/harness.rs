use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

#[cfg(feature = "memory")]
use crate::clock::Clock;
use crate::protocol::Identity;
#[cfg(feature = "memory")]
use crate::store::MemoryStore;
use crate::store::SharedStore;

/// A store under test, and the power over its time.
pub trait StoreHarness: Send + Sync + 'static {
    /// The store: the same records at each call.
    fn store(&self) -> SharedStore;

    /// Moves the store's time on, by whole milliseconds. A store whose clock cannot be moved shortens the life of all its
    /// records instead, and drops those whose life is over.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Puts these bytes where the record of `identity` would be, to stay. `false` for a store that keeps no bytes.
    fn plant(&self, identity: &Identity, bytes: Bytes) -> impl Future<Output = bool> + Send;

    /// The most that the store's time may move by itself in the course of one test. Boundaries are tested with this margin:
    /// to the millisecond where it is zero, as with a manual clock. At most 30 s.
    fn drift(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// A [`MemoryStore`] with a clock that stands still.
#[cfg(feature = "memory")]
#[derive(Clone, Debug)]
pub struct MemoryHarness {
    clock: Clock,
    store: MemoryStore,
}

#[cfg(feature = "memory")]
impl MemoryHarness {
    /// An empty store.
    pub fn new() -> Self {
        let clock = Clock::manual();
        Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
    }
}

#[cfg(feature = "memory")]
impl Default for MemoryHarness {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "memory")]
impl StoreHarness for MemoryHarness {
    fn store(&self) -> SharedStore {
        SharedStore::new(self.store.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn plant(&self, _: &Identity, _: Bytes) -> bool {
        false
    }

    fn drift(&self) -> Duration {
        Duration::ZERO
    }
}
