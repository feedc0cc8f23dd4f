//! What the tests stand on: real servers, started privately.

mod http;
mod process;
mod redis_server;

pub use http::{Call, Client, Reply};
pub use process::Process;
pub use redis_server::RedisServer;
