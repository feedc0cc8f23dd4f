//! What the tests stand on: real servers, started privately.

mod redis_server;

pub use redis_server::RedisServer;
