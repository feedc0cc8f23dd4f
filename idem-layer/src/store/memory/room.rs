use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A store that fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// Bytes that the records take.
    pub used_bytes: usize,
    /// Bytes that they may take.
    pub capacity_bytes: usize,
}

pub(super) type OnPressure = Box<dyn Fn(Pressure) + Send + Sync>;

/// The bytes that all shards share.
pub(super) struct Room {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    under_pressure: AtomicBool,
    on_pressure: Option<OnPressure>,
}

impl Room {
    pub(super) fn new(capacity_bytes: usize, on_pressure: Option<OnPressure>) -> Self {
        Self { capacity_bytes, used_bytes: AtomicUsize::new(0), under_pressure: AtomicBool::new(false), on_pressure }
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Gives `before` back and takes `after`, or changes nothing and says no. Taking no more than is given back never fails.
    #[must_use]
    pub(super) fn exchange(&self, before: usize, after: usize) -> bool {
        let Some(more) = after.checked_sub(before) else {
            self.give(before - after);
            return true;
        };
        let taken = |used: usize| used.checked_add(more).filter(|used| more == 0 || *used <= self.capacity_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    pub(super) fn give(&self, bytes: usize) {
        if bytes > 0 {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Tells of the pressure when it begins. Not under a lock: the hook is somebody else's code.
    pub(super) fn report_pressure(&self) {
        let used_bytes = self.used_bytes();
        let percent = used_bytes as u128 * 100 / (self.capacity_bytes.max(1) as u128);
        match percent {
            // Below the line by some way, so that a store that hovers at it does not tell again and again.
            0..70 if self.under_pressure.load(Ordering::Relaxed) => self.under_pressure.store(false, Ordering::Relaxed),
            80.. if !self.under_pressure.swap(true, Ordering::Relaxed) => {
                let capacity_bytes = self.capacity_bytes;
                tracing::warn!(
                    target: "idem",
                    used_bytes,
                    capacity_bytes,
                    "the memory store fills up; when full it refuses new claims"
                );
                if let Some(hook) = &self.on_pressure {
                    hook(Pressure { used_bytes, capacity_bytes });
                }
            }
            _ => {}
        }
    }
}
