//! What the examples share: a store by its URL, serving until a signal, answers of one's own, new ids.

mod problem;
mod serve;
mod store;
mod webhook;

use std::fmt::Write as _;

pub use problem::Problem;
pub use serve::{SHUTDOWN_LIMIT, serve};
pub use store::{StoreUrl, StoreUrlError};
pub use webhook::acknowledge_what_is_done;

/// An id that nothing else has: the prefix, `_`, and 96 random bits as hexadecimal digits.
///
/// # Panics
///
/// When the operating system has no random numbers to give.
pub fn new_id(prefix: &str) -> String {
    let mut random = [0; 12];
    getrandom::fill(&mut random).expect("random numbers from the operating system");
    let mut id = format!("{prefix}_");
    for byte in random {
        write!(id, "{byte:02x}").expect("writing to a string");
    }
    id
}

/// Sends the library's events to stderr. `RUST_LOG` chooses which; without it `default` does, such as `warn`.
pub fn log_to_stderr(default: &str) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
