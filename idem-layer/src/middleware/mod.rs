//! A Tower layer for services of [`http`] requests.
//!
//! A request on its way in:
//!
//! 1. Safe methods, and requests without a key where none is required, pass untouched.
//! 2. The [scope] says whose request it is, the [key] source which operation it is. Either may refuse.
//! 3. The body is read, under a limit, before anything is claimed. A body that breaks off claims nothing.
//! 4. The claim: identity and [fingerprint](FingerprintMode) go to the store in one step.
//! 5. Whoever has the claim runs the handler. Every other gets the stored response, or a [`Rejection`].
//! 6. The [`Verdict`] on the response settles the claim: stored, released, or unknown.
//!
//! # What a replay is
//!
//! The same status, end-to-end header fields in order with their bytes, the same body and trailers, and
//! `Idempotent-Replayed: true`. Not stored, and so not replayed: fields of the connection and those that `Connection`
//! names, `Date`, cookies, authentication fields. `Content-Length` is counted anew.
//!
//! # Order on a stack
//!
//! Compression, timeouts and authentication outside; then this layer; rate limits and validation inside. So a repeat costs
//! no quota, a timeout does not cut off a handler that is half-way, and the scope is known.
#![allow(dead_code, reason = "the service that puts the parts together comes next")]

mod classify;
mod error;
mod fingerprint;
mod json;
pub mod key;
mod rejection;
pub mod scope;
mod snapshot;

pub use classify::Verdict;
pub use error::LayerError;
pub use fingerprint::FingerprintMode;
pub use key::KeySource;
pub use rejection::{Rejection, RejectionKind};
pub use scope::ScopeSource;
