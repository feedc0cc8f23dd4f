//! What the tests stand on: real servers, started privately.

mod http;
mod process;

pub use http::{Call, Client, Reply};
pub use process::Process;
