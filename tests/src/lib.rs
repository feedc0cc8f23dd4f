//! Support for tests against real parts: servers and clients over real sockets, gates that hold a step until it is let go.

pub mod gate;
pub mod http;
