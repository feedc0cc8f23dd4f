use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::{Acquire, Acquired, Identity, Owned, Renew, Seen, Settle, Ticket};
use crate::store::{Inspect, SharedStore, Store, StoreError, StoreErrorKind};

/// A store that fails by script. Clones share records and script.
///
/// A call of a verb takes the fault that was scripted for it with [`next`](Self::next), in order, else the one of
/// [`always`](Self::always), else none. Which fault it takes is decided when the call is first polled.
#[derive(Clone)]
pub struct FaultyStore {
    store: SharedStore,
    script: Arc<Mutex<HashMap<Verb, Lines>>>,
}

/// What a store can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Store::acquire`].
    Acquire,
    /// [`Store::renew`].
    Renew,
    /// [`Store::settle`].
    Settle,
    /// [`Inspect::read`].
    Read,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is sent; fails with [`StoreErrorKind::Unavailable`].
    FailBefore,
    /// Nothing is sent; fails with this kind.
    FailWith(StoreErrorKind),
    /// It is applied, and fails with [`StoreErrorKind::TimedOut`], its outcome unknown.
    LoseReply,
    /// It is applied at once; the reply comes so much later.
    Delay(Duration),
    /// It is applied only so much later, then answered.
    ApplyLate(Duration),
    /// Nothing is sent, and no answer comes.
    Hang,
    /// It is applied, and no answer comes.
    HangAfter,
}

#[derive(Default)]
struct Lines {
    next: VecDeque<Fault>,
    always: Option<Fault>,
    calls: u64,
    applied: u64,
}

impl FaultyStore {
    /// Decorates a store; without a script it changes nothing.
    pub fn new(store: impl Inspect) -> Self {
        Self { store: SharedStore::new(store), script: Arc::default() }
    }

    /// Scripts the next call of `verb` that has none scripted yet.
    pub fn next(&self, verb: Verb, fault: Fault) -> &Self {
        self.lines(verb, |lines| lines.next.push_back(fault));
        self
    }

    /// Scripts all calls of `verb` that have nothing of their own, until told otherwise.
    pub fn always(&self, verb: Verb, fault: Fault) -> &Self {
        self.lines(verb, |lines| lines.always = Some(fault));
        self
    }

    /// Clears the script. Calls that hang go on hanging.
    pub fn heal(&self) -> &Self {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        for lines in script.values_mut() {
            lines.next.clear();
            lines.always = None;
        }
        drop(script);
        self
    }

    /// How often `verb` was called, failed calls included.
    pub fn calls(&self, verb: Verb) -> u64 {
        self.lines(verb, |lines| lines.calls)
    }

    /// How many calls of `verb` came through to the store, whatever became of their reply.
    pub fn applied(&self, verb: Verb) -> u64 {
        self.lines(verb, |lines| lines.applied)
    }

    fn lines<T>(&self, verb: Verb, change: impl FnOnce(&mut Lines) -> T) -> T {
        change(self.script.lock().unwrap_or_else(PoisonError::into_inner).entry(verb).or_default())
    }

    async fn call<T>(&self, verb: Verb, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let fault = self.lines(verb, |lines| {
            lines.calls += 1;
            lines.next.pop_front().or(lines.always)
        });
        let apply = async {
            let reply = call.await;
            self.lines(verb, |lines| lines.applied += 1);
            reply
        };
        match fault {
            None => apply.await,
            Some(Fault::FailBefore) => Err(StoreError::new(StoreErrorKind::Unavailable).because("as scripted")),
            Some(Fault::FailWith(kind)) => Err(StoreError::new(kind).because("as scripted")),
            Some(Fault::LoseReply) => {
                apply.await?;
                Err(StoreError::new(StoreErrorKind::TimedOut).because("as scripted").with_unknown_outcome())
            }
            Some(Fault::Delay(delay)) => {
                let reply = apply.await;
                tokio::time::sleep(delay).await;
                reply
            }
            Some(Fault::ApplyLate(delay)) => {
                tokio::time::sleep(delay).await;
                apply.await
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::HangAfter) => {
                let _unseen = apply.await;
                pending().await
            }
        }
    }
}

impl Store for FaultyStore {
    async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
        self.call(Verb::Acquire, self.store.acquire(identity, acquire)).await
    }

    async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
        self.call(Verb::Renew, self.store.renew(ticket, renew)).await
    }

    async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
        self.call(Verb::Settle, self.store.settle(ticket, settle)).await
    }
}

impl Inspect for FaultyStore {
    async fn read(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        self.call(Verb::Read, self.store.read(identity)).await
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}
