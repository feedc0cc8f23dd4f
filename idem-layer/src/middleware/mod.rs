//! The Tower layer.
#![allow(dead_code, reason = "the service that puts the parts together comes next")]

mod error;
mod json;

pub use error::LayerError;
