//! The layer's promises over real sockets, on the embedded store.

mod rig;

mod concurrency;
mod failures;
mod leaving;
