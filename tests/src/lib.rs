//! What the tests stand on: real servers and processes, started privately; clients over real sockets; gates that hold a step
//! until it is let go.

mod client;
pub mod gate;
pub mod http;
mod process;
mod redis_server;

pub use client::{Call, Client, Reply};
pub use process::Process;
pub use redis_server::RedisServer;

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
