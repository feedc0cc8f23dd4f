use std::fmt;
use std::sync::Arc;

use super::room::{OnPressure, Pressure, Room};
use super::{Inner, MemoryStore};
use crate::clock::Clock;

/// Builds a [`MemoryStore`].
#[must_use]
pub struct MemoryStoreBuilder {
    capacity_bytes: usize,
    clock: Clock,
    on_pressure: Option<OnPressure>,
}

impl MemoryStoreBuilder {
    /// Many more than cores, so that two requests seldom meet at a lock; a power of two.
    const SHARDS: usize = 64;

    pub(super) fn new() -> Self {
        Self { capacity_bytes: MemoryStore::DEFAULT_CAPACITY_BYTES, clock: Clock::system(), on_pressure: None }
    }

    /// Sets how many bytes the records may take together, by the store's own count: each record with its identity and what
    /// is needed to find and to expire it (a few hundred bytes), and its snapshot or progress. A bound below that of one
    /// record refuses every claim.
    pub fn capacity_bytes(mut self, capacity_bytes: usize) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    /// Sets the clock that decides about leases and expiry. The system's, if not set.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Calls `hook` each time that the records come to take 80 % of the bound, after having taken less than 70 % before.
    /// The same moment is a `tracing` warning. It runs inside the command that crossed the line and must not block.
    pub fn on_pressure(mut self, hook: impl Fn(Pressure) + Send + Sync + 'static) -> Self {
        self.on_pressure = Some(Box::new(hook));
        self
    }

    /// The store.
    pub fn build(self) -> MemoryStore {
        let room = Room::new(self.capacity_bytes, self.on_pressure);
        MemoryStore(Arc::new(Inner::new(self.clock, room, Self::SHARDS)))
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
