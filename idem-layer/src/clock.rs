//! The one place that reads a clock.
//!
//! Decisions about a record use the clock of its store. A process needs its own for three things: the leases of a
//! [`MemoryStore`](crate::store::MemoryStore), an owner's own deadline, and timestamps for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads the time. Cheap to clone; clones of a manual clock are one clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    /// Milliseconds since the clock was made.
    Manual(Arc<AtomicU64>),
}

/// A point in time of one [`Clock`]. Never stored: it means nothing to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `later` than this one.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// How long it is from `earlier` to this moment; zero if that has not come yet.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Clock {
    /// The machine's clocks. Under a paused tokio runtime, that runtime's time.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until it is told to [`advance`](Clock::advance).
    pub fn manual() -> Self {
        Self(Source::Manual(Arc::default()))
    }

    /// Moves a manual clock on.
    ///
    /// # Panics
    ///
    /// On the system's clock, which moves by itself.
    pub fn advance(&self, by: Duration) {
        let Source::Manual(elapsed_ms) = &self.0 else { panic!("only a manual clock can be advanced") };
        elapsed_ms.fetch_add(u64::try_from(by.as_millis()).expect("a test's time"), Ordering::SeqCst);
    }

    /// Now, monotonic.
    #[expect(clippy::disallowed_methods, reason = "this is the place that the ban names")]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => {
                static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();
                let now = tokio::time::Instant::now();
                // Far in the past of any paused test clock, so that no moment is ever before the origin.
                let origin = *ORIGIN.get_or_init(|| now);
                Moment(
                    Duration::from_secs(1 << 32) + now.saturating_duration_since(origin)
                        - origin.saturating_duration_since(now),
                )
            }
            Source::Manual(elapsed_ms) => Moment(Duration::from_millis(elapsed_ms.load(Ordering::SeqCst))),
        }
    }

    /// Milliseconds since the epoch, for people. Zero before 1970.
    #[expect(clippy::disallowed_methods, reason = "this is the place that the ban names")]
    pub fn epoch_ms(&self) -> u64 {
        match &self.0 {
            Source::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
            Source::Manual(elapsed_ms) => elapsed_ms.load(Ordering::SeqCst),
        }
    }
}
