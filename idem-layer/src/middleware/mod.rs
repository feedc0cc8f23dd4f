//! A Tower layer for services of [`http`] requests.
//!
//! A request on its way in:
//!
//! 1. Methods that the route does not guard (by default all but POST, PUT, PATCH and DELETE), and requests without a key where
//!    none is required or made, pass untouched.
//! 2. The [scope] says whose request it is, the [key] source which operation it is. Either may refuse.
//! 3. The body is read, under limits of size, time and [memory](Budget), before anything is claimed. A body that breaks off
//!    claims nothing.
//! 4. The claim: identity and [fingerprint] go to the store in one step.
//! 5. Whoever has the claim runs the handler. Every other gets the stored response, or a [`Rejection`]; where the policy says
//!    so, a repeat of a running operation waits for it first.
//! 6. The [`Verdict`] on the response settles the claim: stored, released, or unknown.
//!
//! # What a replay is
//!
//! The same status, end-to-end header fields in order with their bytes, the same body and trailers, and
//! `Idempotent-Replayed: true`. Not stored, and so not replayed: fields of the connection and those that `Connection`
//! names, `Date`, cookies, authentication fields. `Content-Length` is counted anew.
//!
//! A route can [keep](LayerBuilder::keep) other fields, [look through](LayerBuilder::on_replay) each replay for the caller
//! who asks, or give [something else](Repeats) than a replay.
//!
//! # Order on a stack
//!
//! Compression, timeouts and authentication outside; then this layer; rate limits and validation inside. So a repeat costs
//! no quota, a timeout does not cut off a handler that is half-way, and the scope is known.
//!
//! # Two services
//!
//! The default: the key from `Idempotency-Key`, whose scope is the caller that an authentication layer further out has found.
//!
//! ```
//! use idem_layer::middleware::{IdempotencyLayer, scope};
//! use idem_layer::{Guard, MemoryStore};
//!
//! #[derive(Clone)]
//! struct User { id: String }
//!
//! let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "payments.create")
//!     .scope(scope::extension(|user: &User| Some(user.id.clone())))
//!     .build()?;
//! # Ok::<(), idem_layer::middleware::LayerError>(())
//! ```
//!
//! Customised: a webhook whose sender names each event in the body and comes back on 503.
//!
//! ```
//! use idem_layer::middleware::{IdempotencyLayer, fingerprint, key};
//! use idem_layer::{Guard, MemoryStore};
//!
//! let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "callbacks.pay")
//!     .unscoped()
//!     .webhook()
//!     .key(key::all_of([key::json("/order_no"), key::json("/event_type")]))
//!     .key_required()
//!     .fingerprint(fingerprint::observed().without(["/sent_at"]))
//!     .build()?;
//! # Ok::<(), idem_layer::middleware::LayerError>(())
//! ```

#[cfg(feature = "axum")]
mod axum;
mod body;
mod budget;
mod builder;
mod capture;
mod classify;
mod error;
mod extract;
pub mod fingerprint;
mod flow;
mod handle;
mod kept;
pub mod key;
mod layer;
mod marks;
mod rejection;
mod repeats;
pub mod scope;
mod service;
mod settle;
mod snapshot;

use crate::BoxError;

#[cfg(feature = "axum")]
pub use self::axum::{NotGuarded, into_axum_body};
pub use body::{RequestBody, ResponseBody};
pub use budget::Budget;
pub use builder::{LayerBuilder, ScopeChosen, ScopeMissing};
pub use classify::Verdict;
pub use error::LayerError;
pub use fingerprint::FingerprintRules;
pub use handle::Idempotency;
pub use kept::KeptHeaders;
pub use key::KeySource;
pub use layer::IdempotencyLayer;
pub use rejection::{Rejection, RejectionKind};
pub use repeats::{Repeats, ReplayTrailers};
pub use scope::ScopeSource;
pub use service::{IdempotencyService, ResponseFuture};
