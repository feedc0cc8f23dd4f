//! Make repetition harmless.

pub mod clock;
pub mod guard;
pub mod protocol;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
