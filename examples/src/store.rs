use std::fmt;
use std::str::FromStr;

use anyhow::Context;

use idem_layer::store::{MemoryStore, RedisStore, SharedStore};

/// Where records live, as a command line says it: `memory:` or `redis://HOST:PORT[/DB]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    Redis(String),
}

/// A text that is no [`StoreUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUrlError;

impl StoreUrl {
    /// The store inside this process.
    pub const MEMORY: Self = Self(Kind::Memory);

    /// `REDIS_URL` if it is set, else the store inside this process.
    ///
    /// # Errors
    ///
    /// When `REDIS_URL` is set to something else.
    pub fn from_env() -> Result<Self, StoreUrlError> {
        match std::env::var("REDIS_URL") {
            Ok(url) => url.parse(),
            Err(_) => Ok(Self::MEMORY),
        }
    }

    /// Opens the store. Redis need not be there yet: a service starts without it and answers 503 until it is.
    ///
    /// # Errors
    ///
    /// When the URL of a Redis cannot be understood.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn open(&self) -> anyhow::Result<SharedStore> {
        match &self.0 {
            Kind::Memory => Ok(SharedStore::new(MemoryStore::new())),
            Kind::Redis(url) => {
                let store = RedisStore::connect_lazy(url.as_str()).with_context(|| format!("cannot use {self}"))?;
                Ok(SharedStore::new(store))
            }
        }
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(url: &str) -> Result<Self, StoreUrlError> {
        match url {
            "memory:" => Ok(Self::MEMORY),
            url if url.strip_prefix("redis://").is_some_and(|rest| !rest.is_empty()) => {
                Ok(Self(Kind::Redis(url.into())))
            }
            _ => Err(StoreUrlError),
        }
    }
}

impl fmt::Display for StoreUrl {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Memory => f.write_str("memory:"),
            Kind::Redis(url) => {
                let rest = url.trim_start_matches("redis://");
                write!(f, "redis://{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place))
            }
        }
    }
}

impl fmt::Display for StoreUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store is `memory:` or `redis://HOST:PORT[/DB]`")
    }
}

impl std::error::Error for StoreUrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_url_is_memory_or_redis() {
        assert_eq!("memory:".parse(), Ok(StoreUrl::MEMORY));
        for bad in ["", "memory", "memory:x", "redis://", "redis:6379", "postgres://localhost", "http://localhost"] {
            assert_eq!(bad.parse::<StoreUrl>(), Err(StoreUrlError), "{bad}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let url: StoreUrl = "redis://user:p@ss@localhost:6379/1".parse().unwrap();
        assert_eq!(url.to_string(), "redis://localhost:6379/1");
    }
}
