//! The layer's promises over real sockets, on the embedded store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

mod bodies;
mod concurrency;
mod failures;
mod kept;
mod leaving;
mod promises;
mod repeats;
mod replays;
mod stacks;
