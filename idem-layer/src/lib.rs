//! Make repetition harmless.

pub mod clock;
#[cfg(feature = "http")]
pub mod middleware;
pub mod protocol;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
