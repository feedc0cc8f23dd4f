//! Make repetition harmless: a Tower layer and a guard for functions that let a repeated request take effect once.
//!
//! - [`middleware`]: the [`IdempotencyLayer`] for any `http` service, with its key sources, replays and answers.
//! - [`function`]: functions that take effect once, with `#[idempotent]` or without.
//! - [`guard`]: the [`Guard`] behind it, usable by hand, made with the guarantee that it keeps.
//! - [`store`]: where records live, and how to write a store.
//! - [`protocol`]: what idempotency is, without IO: identity, record, the table of transitions.
//!
//! The README tells the story from the outside, `docs/design.md` from the inside.
//!
//! # Features
//!
//! Each adds API; none changes behaviour but `axum`, which lets targets see through nested routers.
//!
//! | feature | adds |
//! |---|---|
//! | `http` (default) | [`middleware`] |
//! | `memory` (default) | [`MemoryStore`] |
//! | `macros` (default) | `#[idempotent]` |
//! | `redis` | `RedisStore` |
//! | `axum` | the `Idempotency` extractor, `into_axum_body`, targets under `Router::nest` |
//! | `testing` | `store_tests!`, `FaultyStore` |

pub mod clock;
pub mod function;
pub mod guard;
#[cfg(feature = "http")]
pub mod middleware;
pub mod protocol;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use function::{Failure, Refused};
pub use guard::Guard;
#[cfg(feature = "macros")]
pub use idem_macros::idempotent;
#[cfg(feature = "http")]
pub use middleware::{Idempotency, IdempotencyLayer};
pub use protocol::Policy;
#[cfg(feature = "memory")]
pub use store::MemoryStore;
#[cfg(feature = "redis")]
pub use store::RedisStore;

/// The cause of an error, whatever it is.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
