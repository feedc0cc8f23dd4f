use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How many settlings may be waiting for the store at once. One more is left to its lease, and counted.
pub(super) const RETRY_SLOTS: usize = 1024;

/// How many claims that were perhaps granted may be looked for at once. One more is left to its lease.
pub(super) const SEARCH_SLOTS: usize = 1024;

/// Counts what is open on a guard: claims, futures handed over, settlings being retried.
#[derive(Debug)]
pub(super) struct Tracker {
    open: AtomicUsize,
    idle: Notify,
    draining: AtomicBool,
    drain: Notify,
    retries: Arc<Semaphore>,
    /// Of their own: claims that were perhaps granted come in crowds while a store is silent, and must not take the place
    /// of an outcome.
    searches: Arc<Semaphore>,
}

/// What a [`Guard::drain`](super::Guard::drain) has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// How many claims, handed-over calls and retried settlings were still open at the limit. Zero: everything has ended.
    pub open: usize,
}

/// Counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Tracked(Arc<Tracker>);

/// The right to go on with one settling, or one search for a claim, in the background.
#[derive(Debug)]
pub(super) struct Slot {
    _tracked: Tracked,
    _permit: OwnedSemaphorePermit,
}

impl Tracker {
    pub(super) fn track(self: &Arc<Self>) -> Tracked {
        self.open.fetch_add(1, Ordering::Relaxed);
        Tracked(Arc::clone(self))
    }

    pub(super) fn retry_slot(self: &Arc<Self>) -> Option<Slot> {
        self.slot(&self.retries)
    }

    pub(super) fn search_slot(self: &Arc<Self>) -> Option<Slot> {
        self.slot(&self.searches)
    }

    fn slot(self: &Arc<Self>, slots: &Arc<Semaphore>) -> Option<Slot> {
        let permit = Arc::clone(slots).try_acquire_owned().ok()?;
        Some(Slot { _tracked: self.track(), _permit: permit })
    }

    pub(super) async fn drain(&self, limit: Duration) -> Drained {
        self.draining.store(true, Ordering::SeqCst);
        self.drain.notify_waiters();
        let idle = async {
            loop {
                let mut idle = std::pin::pin!(self.idle.notified());
                // Registered before the count is read, so that the last one to close cannot be missed.
                idle.as_mut().enable();
                if self.open.load(Ordering::SeqCst) == 0 {
                    return;
                }
                idle.await;
            }
        };
        let _ = tokio::time::timeout(limit, idle).await;
        Drained { open: self.open.load(Ordering::SeqCst) }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Waits for so long, or until draining begins.
    pub(super) async fn pause(&self, pause: Duration) {
        let mut drain = std::pin::pin!(self.drain.notified());
        drain.as_mut().enable();
        if !self.is_draining() {
            let _ = tokio::time::timeout(pause, drain).await;
        }
    }
}

impl Default for Tracker {
    fn default() -> Self {
        Self {
            open: AtomicUsize::new(0),
            idle: Notify::new(),
            draining: AtomicBool::new(false),
            drain: Notify::new(),
            retries: Arc::new(Semaphore::new(RETRY_SLOTS)),
            searches: Arc::new(Semaphore::new(SEARCH_SLOTS)),
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
