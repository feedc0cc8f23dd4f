//! Functions that take effect once: what `#[idempotent]` expands into, and the same without the macro.
//!
//! ```
//! use idem_layer::{Guard, Refused, idempotent, store::MemoryStore};
//!
//! struct Shop {
//!     guard: Guard,
//! }
//!
//! struct Order {
//!     id: String,
//!     tenant: String,
//!     amount: u64,
//! }
//!
//! impl Shop {
//!     #[idempotent(
//!         guard = self.guard,
//!         operation = "orders.pay",
//!         key = "{order.id}",
//!         scope = order.tenant,
//!         fingerprint(order.amount),
//!     )]
//!     async fn pay(&self, order: Order) -> Result<String, Refused> {
//!         Ok(format!("paid {}", order.amount))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Refused> {
//! let shop = Shop { guard: Guard::at_least_once(MemoryStore::new()) };
//! let order = |amount| Order { id: "o-1".into(), tenant: "acme".into(), amount };
//! assert_eq!(shop.pay(order(5)).await?, "paid 5");
//! assert_eq!(shop.pay(order(5)).await?, "paid 5"); // the stored value: nothing ran
//! assert!(shop.pay(order(6)).await.is_err()); // another amount under the same key
//! # Ok(()) }
//! ```
//!
//! By hand it is [`Guard::run`](crate::Guard::run) with an identity and any future:
//!
//! ```
//! use idem_layer::function::{Failure, Refused};
//! use idem_layer::protocol::{Identity, Key, Operation, Scope};
//! use idem_layer::{Guard, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let guard = Guard::at_most_once(MemoryStore::new());
//! let order = Identity::new(Operation::new("orders.pay")?, None, Scope::new("acme")?, Key::new("o-1")?);
//! let receipt: Result<u64, Refused> = guard.run(order, |_| Failure::Unknown, async { Ok(5) }).await;
//! assert_eq!(receipt?, 5);
//! # Ok(()) }
//! ```
//!
//! # What a call gets
//!
//! 1. Key, scope and fingerprint are looked at before the body takes the arguments. What is wrong with them is a
//!    [`Refused`], and nothing is claimed.
//! 2. The first call runs. `Ok(value)` is stored as JSON and returned. A value that cannot be encoded is returned all the
//!    same, and repeats are refused: it took effect.
//! 3. A repeat gets the stored value, whatever it is: `()`, `None` and `0` replay like any other. One that no longer fits `T`
//!    is refused and never run again.
//! 4. While the first call runs, on a mismatch, with an unknown outcome or a silent store, the call is [`Refused`], which
//!    becomes `E` by `From`. `anyhow::Error` has that as it is, an enum by `#[from]`.
//! 5. An `Err` of the body is classified by `failure`, see [`Failure`]. Without it the outcome is unknown.
//! 6. A future that is dropped before the body has returned, and a body that panics, have an unknown outcome. The call does
//!    not run on without its caller; a body that must is spawned.
//! 7. A caller who has lost his claim meanwhile gets what the key holds, not what his own body returned: one key, one
//!    answer. Where the store does not answer, he gets his own, and it is stored when the store is back.
//! 8. The body learns which attempt it is from [`Run::current`].
//!
//! # Keys
//!
//! A format string takes arguments and their fields, each with `Display`, and reads as it is written: `"{order.id}-{line}"`
//! makes `o-1-7`. A value that is empty is refused, so that no two calls meet in a key that lacks its middle. Where two
//! values could be told apart in more than one way (`a-b` and `c`, `a` and `b-c`), each becomes a part of its own
//! ([`Key::all_of`](crate::protocol::Key::all_of), each part beginning with the text before its value): two different
//! calls never share a key. In an expression, joining is up to you.
//!
//! Two functions share their records exactly if they share their operation.
//!
//! # Fingerprints
//!
//! Each part is serialised as JSON and compared as a JSON value: the order of a map does not matter, a number's digits do. A
//! `HashSet` becomes a list in an order of its own, which differs between equal sets: collect it into a `BTreeSet`.
//!
//! # Values
//!
//! What JSON cannot tell apart is replayed alike: `Some(())` and `Some(None)` come back as `None`, a `NaN` does not come
//! back as a number.

mod failure;
mod refused;
mod run;
#[doc(hidden)]
pub mod runtime;
mod source;

pub use failure::Failure;
pub use refused::{Refused, RefusedKind};
pub use run::Run;
pub use source::{ToKey, ToScope};
