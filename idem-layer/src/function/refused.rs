use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::BoxError;
use crate::guard::{RETRY_AFTER, Repeat};
use crate::protocol::Operation;
use crate::store::{StoreError, StoreErrorKind};

/// Why a guarded function was not run, and has no stored outcome to return either.
///
/// Returned by the function as its own error, through `From<Refused>`. [`kind`](Refused::kind) says what to do about it.
pub struct Refused {
    kind: RefusedKind,
    operation: Operation,
    retry_after: Option<Duration>,
    source: Option<BoxError>,
}

/// Why a guarded function was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedKind {
    /// The first call is still running. Its outcome is there when it has ended.
    InProgress,
    /// The key was used with another fingerprint. It never becomes right by waiting.
    Mismatch,
    /// An earlier call ended, or vanished, without a known outcome, and the guarantee forbids to run again. A person or a
    /// reconciler decides.
    OutcomeUnknown,
    /// It took effect, but its outcome was not kept.
    NotReplayable,
    /// It took effect so long ago that its outcome is no longer kept.
    Gone,
    /// The store cannot say whether it may run.
    StoreUnavailable,
    /// What is stored under the key is not a record, or not a version of it, that this code can read.
    RecordUnreadable,
    /// The stored outcome does not fit the function's return type (any more). It took effect; it is not run again.
    Undecodable,
    /// The key is empty or too long.
    InvalidKey,
    /// The scope is empty or too long.
    InvalidScope,
    /// A part of the fingerprint cannot be serialised.
    InvalidFingerprint,
    /// The times given as `lease` and `retention` do not fit together.
    InvalidPolicy,
}

impl Refused {
    pub(super) fn new(kind: RefusedKind, operation: &Operation) -> Self {
        let retry_after = match kind {
            RefusedKind::InProgress | RefusedKind::StoreUnavailable | RefusedKind::RecordUnreadable => {
                Some(RETRY_AFTER)
            }
            _ => None,
        };
        Self { kind, operation: operation.clone(), retry_after, source: None }
    }

    pub(super) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(super) fn of_store(error: StoreError, operation: &Operation) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::Unreadable => RefusedKind::RecordUnreadable,
            _ => RefusedKind::StoreUnavailable,
        };
        Self::new(kind, operation).because(error)
    }

    /// A repeat that brings no outcome along. `Replay` is the caller's to decode.
    pub(super) fn of_repeat(repeat: &Repeat, operation: &Operation) -> Self {
        let kind = match repeat {
            Repeat::Replay(_) => RefusedKind::Undecodable,
            Repeat::NotReplayable(_) => RefusedKind::NotReplayable,
            Repeat::Busy { .. } => RefusedKind::InProgress,
            Repeat::Held { .. } => RefusedKind::OutcomeUnknown,
            Repeat::Mismatch => RefusedKind::Mismatch,
            Repeat::Gone => RefusedKind::Gone,
        };
        Self::new(kind, operation)
    }

    /// Why.
    pub fn kind(&self) -> RefusedKind {
        self.kind
    }

    /// The operation that was not run.
    pub fn operation(&self) -> &str {
        self.operation.as_str()
    }

    /// After how long the same call is worth repeating, if waiting helps at all.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("kind", &self.kind)
            .field("operation", &self.operation())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            RefusedKind::InProgress => "a call with this key is still running",
            RefusedKind::Mismatch => "the key was used for a different call",
            RefusedKind::OutcomeUnknown => "the outcome of an earlier call with this key is unknown",
            RefusedKind::NotReplayable => "it has been done, but its outcome was not kept",
            RefusedKind::Gone => "it was done so long ago that its outcome is no longer kept",
            RefusedKind::StoreUnavailable => "the store cannot say whether it may run",
            RefusedKind::RecordUnreadable => "the stored record cannot be read",
            RefusedKind::Undecodable => "it has been done, but its stored outcome does not fit the return type",
            RefusedKind::InvalidKey => "the key is not valid",
            RefusedKind::InvalidScope => "the scope is not valid",
            RefusedKind::InvalidFingerprint => "a part of the fingerprint cannot be serialised",
            RefusedKind::InvalidPolicy => "its lease, retention and run ceiling do not fit together",
        };
        write!(f, "{} was not run: {why}", self.operation())
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_operation_and_says_when_to_come_back() {
        let refused = Refused::new(RefusedKind::InProgress, &Operation::new("orders.pay").unwrap());
        assert_eq!(refused.to_string(), "orders.pay was not run: a call with this key is still running");
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(Refused::new(RefusedKind::Mismatch, &Operation::new("a").unwrap()).retry_after(), None);
    }
}
