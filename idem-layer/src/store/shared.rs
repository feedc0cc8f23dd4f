use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Inspect, Store, StoreError};
use crate::protocol::{Acquire, Acquired, Identity, Owned, Renew, Seen, Settle, Ticket};

/// Any store, shared. What a guard holds, so that guards, layers and claims are not generic over their store.
#[derive(Clone)]
pub struct SharedStore(Arc<dyn Erased>);

impl SharedStore {
    /// Shares a store.
    pub fn new(store: impl Inspect) -> Self {
        Self(Arc::new(store))
    }
}

impl Store for SharedStore {
    async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
        self.0.acquire(identity, acquire).await
    }

    async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
        self.0.renew(ticket, renew).await
    }

    async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
        self.0.settle(ticket, settle).await
    }
}

impl Inspect for SharedStore {
    async fn read(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        self.0.read(identity).await
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStore")
    }
}

type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The traits with their futures boxed.
trait Erased: Send + Sync {
    fn acquire<'a>(&'a self, identity: &'a Identity, acquire: &'a Acquire) -> Reply<'a, Acquired>;
    fn renew<'a>(&'a self, ticket: &'a Ticket, renew: &'a Renew) -> Reply<'a, Owned>;
    fn settle<'a>(&'a self, ticket: &'a Ticket, settle: &'a Settle) -> Reply<'a, Owned>;
    fn read<'a>(&'a self, identity: &'a Identity) -> Reply<'a, Option<Seen>>;
}

impl<S: Inspect> Erased for S {
    fn acquire<'a>(&'a self, identity: &'a Identity, acquire: &'a Acquire) -> Reply<'a, Acquired> {
        Box::pin(Store::acquire(self, identity, acquire))
    }

    fn renew<'a>(&'a self, ticket: &'a Ticket, renew: &'a Renew) -> Reply<'a, Owned> {
        Box::pin(Store::renew(self, ticket, renew))
    }

    fn settle<'a>(&'a self, ticket: &'a Ticket, settle: &'a Settle) -> Reply<'a, Owned> {
        Box::pin(Store::settle(self, ticket, settle))
    }

    fn read<'a>(&'a self, identity: &'a Identity) -> Reply<'a, Option<Seen>> {
        Box::pin(Inspect::read(self, identity))
    }
}
