//! Records in the memory of one process: see [`MemoryStore`].

mod builder;
mod room;
mod shard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::protocol::{
    Acquire, Acquired, Answer, Command, Completion, Held, Identity, NotReplayable, Owned, Renew, Seen, Settle,
    Settlement, Step, Ticket, Write, transition,
};
use crate::store::{Inspect, Store, StoreError, StoreErrorKind};

pub use self::builder::MemoryStoreBuilder;
pub use self::room::Pressure;
use self::room::Room;
use self::shard::Shard;

/// Keeps records in the memory of this process. Clones share them.
///
/// ```
/// use idem_layer::store::MemoryStore;
///
/// let store = MemoryStore::new();
/// let smaller = MemoryStore::builder()
///     .capacity_bytes(16 << 20)
///     .on_pressure(|pressure| eprintln!("{} of {} bytes", pressure.used_bytes, pressure.capacity_bytes))
///     .build();
/// ```
///
/// 1. Each step is [`transition`], run under the lock of one of a fixed number of shards. No lock is held across an await,
///    and there is none per key that a waiter could leave behind.
/// 2. A live record is never evicted. A full store first drops what has expired anywhere, then refuses new claims with
///    [`StoreErrorKind::Full`].
/// 3. Whoever has a claim can end it: room for that is part of the claim. A snapshot that does not fit is completed as
///    [`NotReplayable::NoRoom`], a reason for holding that does not fit becomes [`Held::Unknown`]. Only progress can be
///    refused; the claim then stays as it was.
/// 4. Every command drops a bounded number of expired records of its shard, more than it can add, so that memory follows
///    the load without a sweep. An idle store keeps expired records until its next commands.
/// 5. Where an identity is remembered behind its retention, it outlives its snapshot: that is dropped in the same way when
///    the retention is over, and is never given out again. What is left takes a few hundred bytes, as a claim does.
///
/// Deployment: another process, or the same one after a restart, knows nothing of these records. Behind a load balancer,
/// or where a repeat may come after a deploy, use a store that is shared.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    clock: Clock,
    room: Room,
    shards: Box<[Mutex<Shard>]>,
}

impl MemoryStore {
    /// The bound of a store that is not told another: 256 MiB.
    pub const DEFAULT_CAPACITY_BYTES: usize = 256 << 20;

    /// An empty store with the default bound.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts from the defaults.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// Bytes that its records take by now, those included that have expired and are not dropped yet. Never more than
    /// [`capacity_bytes`](Self::capacity_bytes).
    pub fn used_bytes(&self) -> usize {
        self.0.room.used_bytes()
    }

    /// Its bound.
    pub fn capacity_bytes(&self) -> usize {
        self.0.room.capacity_bytes()
    }

    /// How many records it holds, those included that have expired and are not dropped yet. Looks into each shard: for
    /// gauges, not for every request.
    pub fn records(&self) -> usize {
        (0..self.0.shards.len()).map(|at| self.0.lock(at).len()).sum()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("used_bytes", &self.used_bytes())
            .field("capacity_bytes", &self.capacity_bytes())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
        Ok(self.0.step(identity, &Command::Acquire(acquire.clone()))?.into_acquired())
    }

    async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
        Ok(self.0.step(&ticket.identity, &Command::Renew(renew.clone()))?.into_owned())
    }

    async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
        Ok(self.0.step(&ticket.identity, &Command::Settle(settle.clone()))?.into_owned())
    }
}

impl Inspect for MemoryStore {
    async fn read(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        let shard = self.0.shard(identity);
        let now = self.0.clock.now();
        Ok(shard.seen(identity.digest(), now))
    }
}

/// A write did not fit. Nothing was changed.
struct NoRoom;

impl Inner {
    /// How many expired records, and snapshots that outlived their retention, a command drops. Two are enough to be faster
    /// than claims are made and settled.
    const DROPPED_PER_COMMAND: usize = 4;

    fn new(clock: Clock, room: Room, shards: usize) -> Self {
        Self { clock, room, shards: (0..shards).map(|_| Mutex::default()).collect() }
    }

    fn step(&self, identity: &Identity, command: &Command) -> Result<Answer, StoreError> {
        let answer = self
            .apply(identity, command)
            .or_else(|NoRoom| {
                self.drop_expired();
                self.apply(identity, command)
            })
            .or_else(|NoRoom| self.apply(identity, &without_payload(command).ok_or(NoRoom)?))
            .map_err(|NoRoom| StoreError::new(StoreErrorKind::Full));
        self.room.report_pressure();
        answer
    }

    /// One atomic step. The clock is read under the lock: no step decides by an earlier time than the one before it.
    fn apply(&self, identity: &Identity, command: &Command) -> Result<Answer, NoRoom> {
        let digest = identity.digest();
        let mut shard = self.shard(identity);
        let now = self.clock.now();
        self.room.give(shard.drop_expired(now, Self::DROPPED_PER_COMMAND));

        let Step { answer, write } = transition(shard.seen(digest, now).as_ref(), identity, command);
        match write {
            Write::Keep => {}
            Write::Delete => self.room.give(shard.remove(digest)),
            Write::Put(record, life) => {
                let (before, after) = (shard.bytes(digest), Shard::bytes_for(&record));
                if !self.room.exchange(before, after) {
                    return Err(NoRoom);
                }
                shard.put(record, life, now);
            }
        }
        Ok(answer)
    }

    /// Drops everything that has expired, shard by shard. Only for a store that is full.
    fn drop_expired(&self) {
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at);
            let now = self.clock.now();
            self.room.give(shard.drop_expired(now, usize::MAX));
        }
    }

    fn shard(&self, identity: &Identity) -> MutexGuard<'_, Shard> {
        self.lock(usize::from(identity.digest()[0]) % self.shards.len())
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same decision in the room that the claim already has, where there is such a thing.
fn without_payload(command: &Command) -> Option<Command> {
    let Command::Settle(settle) = command else { return None };
    let settlement = match settle.settlement.clone() {
        Settlement::Complete { retention, remember, .. } => {
            Settlement::Complete { completion: Completion::NotReplayable(NotReplayable::NoRoom), retention, remember }
        }
        Settlement::Hold { limit, .. } => Settlement::Hold { held: Held::Unknown, limit },
        Settlement::Release | Settlement::Abandon => return None,
    };
    Some(Command::Settle(Settle { settlement, ..settle.clone() }))
}
