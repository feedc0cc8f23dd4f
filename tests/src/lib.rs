//! What the tests stand on: real servers, started privately; clients over real sockets; gates that hold a step until it is
//! let go.

pub mod gate;
pub mod http;
mod redis_server;

pub use redis_server::RedisServer;
