//! The Tower layer.
#![allow(dead_code, reason = "the service that puts the parts together comes next")]

mod error;
mod fingerprint;
mod json;
pub mod key;
pub mod scope;

pub use error::LayerError;
pub use fingerprint::FingerprintMode;
