//! What idempotency *is*, without IO, clock, runtime or HTTP.
//!
//! An [`Identity`] names one thing that may take effect once. The store holds a [`Record`] for it. [`transition()`] says,
//! for every state of that record and every command, what is answered and what is written: it is the one place where this
//! is decided, for every store.
//!
//! 1. Time enters as a [`Phase`]: the store says whether the record's lease (or replay time) is over, by its own clock.
//! 2. Every later command of an owner is conditional on the [`Token`] of its claim.
//! 3. The fingerprint is compared before anything is replayed, in every state.
//! 4. Presence decides, never a value: an empty snapshot replays like any other.
//! 5. What is stored carries its version, its own identity and, in its first bytes, its state and token, so that a store
//!    which can only compare bytes (a Lua script) can still write conditionally.

mod error;
mod fingerprint;
mod identity;
pub(crate) mod json;
mod key;
mod policy;
mod record;
mod snapshot;
mod token;
mod transition;

pub use error::{IdentityError, KeyError, PolicyError, RecordError, SnapshotError};
pub use fingerprint::{Digester, Fingerprint};
pub use identity::{Identity, KeyHash, Operation, Scope, Target};
pub use key::Key;
#[cfg(feature = "http")]
pub(crate) use key::KeyParts;
pub use policy::{Policy, PolicyBuilder};
pub use record::{Completion, Held, NotReplayable, OnLapse, Record, State};
pub use snapshot::{Content, ResponseSnapshot, Snapshot};
pub use token::Token;
pub(crate) use transition::is_of_another_request;
pub use transition::{
    Acquire, Acquired, Answer, Command, Life, Operate, Origin, Owned, Phase, Renew, Resolution, Seen, Settle,
    Settlement, Step, Tag, Ticket, Write, transition,
};
