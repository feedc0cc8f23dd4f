//! The layer's promises over real sockets, on the embedded store.

mod rig;

mod bodies;
mod concurrency;
mod failures;
mod leaving;
mod replays;
mod stacks;
