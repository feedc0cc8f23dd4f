//! The `#[idempotent]` attribute of `idem-layer`, which re-exports it: depend on that crate, not on this one.
//!
//! The attribute only rewrites the outside of a function. What it expands into is `idem_layer::function`, and everything
//! that decides anything lives there.

mod args;
mod check;
mod expand;
mod template;

use proc_macro2::TokenStream;
use quote::quote;

use crate::args::Args;
use crate::check::{Errors, Function};

/// Lets a repeated call of an `async fn` take effect once.
///
/// The function returns `Result<T, E>`. The first call with a key runs and its `Ok` value is stored; repeats get the stored
/// value. A call that may not run gets a `Refused`, made into `E` by `From`.
///
/// ```
/// use idem_layer::{Failure, Guard, Refused, idempotent};
/// # struct Shop { guard: Guard }
/// # struct Order { id: String, tenant: String, amount: u64, currency: String }
///
/// enum PayError {
///     Declined,
///     Timeout,
///     Refused(Refused),
/// }
///
/// impl From<Refused> for PayError {
///     fn from(refused: Refused) -> Self {
///         Self::Refused(refused)
///     }
/// }
///
/// fn classify(error: &PayError) -> Failure {
///     match error {
///         PayError::Declined => Failure::Safe,
///         PayError::Timeout | PayError::Refused(_) => Failure::Unknown,
///     }
/// }
///
/// impl Shop {
///     #[idempotent(
///         guard = self.guard,
///         operation = "orders.pay",
///         key = "{order.id}",
///         scope = order.tenant,
///         fingerprint(order.amount, order.currency),
///         failure = classify,
///     )]
///     async fn pay(&self, order: Order) -> Result<String, PayError> {
///         Ok(format!("paid {} {}", order.amount, order.currency))
///     }
/// }
/// ```
///
/// # Arguments
///
/// | argument | |
/// |---|---|
/// | `guard = <expression>` | **required**: a `Guard`, or a reference or smart pointer to one |
/// | `operation = "…"` | **required**: the stable name of what is executed once, 1 to 64 of `A-Z a-z 0-9 . _ - /` |
/// | `key = "…"` | **required**: a format string over the arguments and their fields: `"{order.id}/{line}"` |
/// | `key = <expression>` | or anything that is `ToKey`: a `Key`, or whatever has `Display` |
/// | `scope = "…"`, `scope = <expression>` | **required**, or `unscoped`: whose key it is. A `Scope`, or whatever has `Display` |
/// | `unscoped` | all callers share their keys |
/// | `fingerprint(a, b.c, …)` | what may not differ between two calls with one key; each `Serialize` |
/// | `retention = <Duration>` | how long the value is replayed, instead of what the guard's policy says |
/// | `lease = <Duration>` | how long a claim lives without renewal, instead of what the guard's policy says |
/// | `failure = <path or closure>` | `fn(&E) -> Failure`; a closure captures nothing. Without it the outcome of every `Err` is unknown |
/// | `errors = replay` | repeats get the error that `failure` calls `Failure::Final`; asks `E: Serialize + DeserializeOwned` |
/// | `crate = ::path` | where `idem_layer` is, if it is re-exported under another name |
///
/// All expressions are evaluated in the function, in the order guard, key, scope, fingerprint, retention, lease, before the
/// body takes its arguments. `?` works in them and returns before anything is claimed.
///
/// What each argument does is described in `idem_layer::function`.
///
/// # Where it works
///
/// Free functions, methods with any receiver, generic functions, any argument pattern, and native `async fn` in impls of
/// traits. Not under `#[async_trait]`, which has rewritten the function before this attribute sees it, and not with
/// `impl Trait` in the return type, which has no name to read it back into.
#[proc_macro_attribute]
pub fn idempotent(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    idempotent_item(args.into(), item.into()).into()
}

/// With any mistake the item is passed on as it came: what else uses the function then has no errors of its own.
fn idempotent_item(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let function = Function::parse(item.clone(), &mut errors);
    let complete = args.complete(&mut errors);
    match (errors.into_compile_errors(), complete, function) {
        (None, Some(complete), Some(function)) => expand::expand(&complete, &function),
        (errors, _, _) => {
            // What only the attribute uses is not unused.
            quote!(#errors #[allow(unused_variables)] #item)
        }
    }
}
