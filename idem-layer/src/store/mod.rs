//! Where records live.
//!
//! A store does three things, each one atomic step by its own clock: [`acquire`](Store::acquire), [`renew`](Store::renew),
//! [`settle`](Store::settle). There is no get and no set: a look before a write is a race. What each step decides is written
//! down once, in [`protocol::transition`](crate::protocol::transition); a store applies it to what it holds and makes the
//! write conditional on what it read.
//!
//! # Writing a store
//!
//! This is a complete one. It keeps everything under one lock, which makes each step atomic, and never forgets, which makes
//! it useless for anything but reading it:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! use idem_layer::clock::{Clock, Moment};
//! use idem_layer::protocol::*;
//! use idem_layer::store::{Inspect, Store, StoreError};
//!
//! #[derive(Default)]
//! struct OneLock {
//!     clock: Clock,
//!     records: Mutex<HashMap<[u8; 32], (Record, Option<Moment>)>>,
//! }
//!
//! impl OneLock {
//!     fn step(&self, identity: &Identity, command: &Command) -> Answer {
//!         let mut records = self.records.lock().unwrap();
//!         let now = self.clock.now();
//!         let seen = records.get(identity.digest()).map(|(record, active_until)| {
//!             let phase = match active_until.map_or(Duration::MAX, |until| until.since(now)) {
//!                 Duration::ZERO => Phase::Tail,
//!                 left => Phase::Active { left },
//!             };
//!             Seen::new(record.clone(), phase)
//!         });
//!         let step = transition(seen.as_ref(), identity, command);
//!         match step.write {
//!             Write::Keep => {}
//!             Write::Delete => drop(records.remove(identity.digest())),
//!             Write::Put(record, Life::Forever) => drop(records.insert(*identity.digest(), (record, None))),
//!             Write::Put(record, Life::Timed { active, .. }) => {
//!                 records.insert(*identity.digest(), (record, Some(now.plus(active))));
//!             }
//!         }
//!         step.answer
//!     }
//! }
//!
//! impl Store for OneLock {
//!     async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
//!         Ok(self.step(identity, &Command::Acquire(acquire.clone())).into_acquired())
//!     }
//!
//!     async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
//!         Ok(self.step(&ticket.identity, &Command::Renew(renew.clone())).into_owned())
//!     }
//!
//!     async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
//!         Ok(self.step(&ticket.identity, &Command::Settle(settle.clone())).into_owned())
//!     }
//! }
//! ```
//!
//! Then let [`store_tests!`](crate::store_tests) show that it holds.

mod error;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "redis")]
pub mod redis;
mod shared;

use std::future::Future;

use crate::protocol::{Acquire, Acquired, Identity, Owned, Renew, Seen, Settle, Ticket};

#[cfg(feature = "memory")]
pub use self::memory::{MemoryStore, MemoryStoreBuilder, Pressure};
#[cfg(feature = "redis")]
pub use self::redis::{RedisConnection, RedisPrefixError, RedisStore};
pub use error::{StoreError, StoreErrorKind};
pub use shared::SharedStore;

/// Keeps records. See the [module docs](self).
///
/// The engine limits how long it waits for each call and repeats a call whose reply got lost; a store needs no timeouts of
/// its own. A call that is dropped half-way may or may not have been applied.
pub trait Store: Send + Sync + 'static {
    /// Asks for the right to run.
    ///
    /// *Precondition*: none. *Atomicity*: of any number of concurrent calls for one identity at most one is answered
    /// [`Acquired::Claimed`] with [`Origin`](crate::protocol::Origin) other than `Repeated`. *Clock*: the store's. *A
    /// repeated command* (same token) is granted again with the same attempt.
    ///
    /// # Errors
    ///
    /// When the store does not know: unreachable, full, or holding something that it cannot read. Never for an answer of
    /// the protocol.
    fn acquire(
        &self,
        identity: &Identity,
        acquire: &Acquire,
    ) -> impl Future<Output = Result<Acquired, StoreError>> + Send;

    /// Prolongs a claim and records its progress.
    ///
    /// *Precondition*: the ticket came from this store. *Atomicity*: one conditional write; [`Owned::Lost`] wrote nothing.
    /// *Clock*: the store's; the new lease counts from when the store applies it. *A repeated command* is done again.
    ///
    /// A store without room for the progress fails as [`StoreErrorKind::Full`]: the claim then stands as it was, with the lease
    /// and the progress that it had, and can be renewed without.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Store::acquire).
    fn renew(&self, ticket: &Ticket, renew: &Renew) -> impl Future<Output = Result<Owned, StoreError>> + Send;

    /// Ends a claim.
    ///
    /// *Precondition*: the ticket came from this store. *Atomicity*: one conditional write; [`Owned::Lost`] wrote nothing. A
    /// lapsed or held claim can still be settled by its token. *Clock*: the store's; retention counts from when the store
    /// applies it. *A repeated command* is answered [`Owned::Done`] and changes nothing.
    ///
    /// Where the identity is remembered behind the retention, it outlives the outcome: the store drops the snapshot when the
    /// retention is over and keeps [what is left](crate::protocol::Record::without_snapshot).
    ///
    /// A store without room for the snapshot completes the record as
    /// [`NotReplayable::NoRoom`](crate::protocol::NotReplayable::NoRoom) instead of failing.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Store::acquire).
    fn settle(&self, ticket: &Ticket, settle: &Settle) -> impl Future<Output = Result<Owned, StoreError>> + Send;
}

/// Reads records without changing them: for people and tools, never for deciding whether to run.
pub trait Inspect: Store {
    /// What is stored for this identity now, if anything.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`].
    fn read(&self, identity: &Identity) -> impl Future<Output = Result<Option<Seen>, StoreError>> + Send;
}
