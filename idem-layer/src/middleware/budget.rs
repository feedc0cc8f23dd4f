use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes of bodies may be held at once, over all requests of the layers that share it.
///
/// Counted are request bodies, from their first byte until the handler has answered, and responses while they are kept to be
/// stored. A request that does not fit is refused with 503 `overloaded` before anything is claimed; a response that does not
/// fit reaches its client, and is completed as one that cannot be replayed. Cheap to clone; clones share the count.
///
/// ```
/// use idem_layer::middleware::{Budget, IdempotencyLayer};
/// use idem_layer::{Guard, MemoryStore};
///
/// let budget = Budget::new(64 * 1024 * 1024);
/// let guard = Guard::at_least_once(MemoryStore::new());
/// let payments = IdempotencyLayer::builder(guard.clone(), "payments.create").unscoped().budget(budget.clone()).build()?;
/// let refunds = IdempotencyLayer::builder(guard, "refunds.create").unscoped().budget(budget.clone()).build()?;
/// assert_eq!(budget.held(), 0);
/// # let _ = (payments, refunds);
/// # Ok::<(), idem_layer::middleware::LayerError>(())
/// ```
#[derive(Clone)]
pub struct Budget(Arc<Count>);

struct Count {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Count { limit: bytes, held: AtomicUsize::new(0) }))
    }

    /// How many bytes may be held at once.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many bytes are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// A share of the budget, of nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

/// 256 MiB.
impl Default for Budget {
    fn default() -> Self {
        Self::new(256 * 1024 * 1024)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).field("held", &self.held()).finish()
    }
}

/// What one body takes of a budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Share {
    /// Makes the share at least this large; false, and as it was, if the budget has no room for that.
    #[must_use]
    pub(super) fn raise_to(&mut self, bytes: usize) -> bool {
        let Count { limit, held } = &*self.budget.0;
        let more = bytes.saturating_sub(self.bytes);
        let room = |held: usize| held.checked_add(more).filter(|sum| sum <= limit);
        if more > 0 && held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_into_their_budget_and_are_given_back() {
        let budget = Budget::new(10);
        let (mut a, mut b) = (budget.share(), budget.share());
        assert!(a.raise_to(6) && a.raise_to(3) && a.raise_to(6));
        assert_eq!(budget.held(), 6);
        assert!(!b.raise_to(5) && !b.raise_to(usize::MAX));
        assert_eq!(budget.held(), 6);
        assert!(b.raise_to(4));
        drop(a);
        assert_eq!(budget.held(), 4);
        assert!(b.raise_to(10) && !b.raise_to(11));
        drop(b);
        assert_eq!(budget.held(), 0);
    }
}
