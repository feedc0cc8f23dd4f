//! The layer's promises over real sockets, on the embedded store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

mod bodies;
mod concurrency;
mod failures;
mod fingerprints;
mod framing;
mod hostile;
mod kept;
mod keys;
mod leaving;
mod limits;
mod promises;
mod repeats;
mod replays;
mod settings;
mod shadow;
mod stacks;
mod standard;
mod waiting;
