use std::error::Error;
use std::fmt;

use crate::BoxError;
use crate::protocol::RecordError;

/// Why a store could not answer.
pub struct StoreError {
    kind: StoreErrorKind,
    outcome_unknown: bool,
    source: Option<BoxError>,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not reachable, or not able to write at the moment.
    Unavailable,
    /// No answer within the limit of a store call.
    TimedOut,
    /// No room for a new claim.
    Full,
    /// What is stored under the identity's name is not a record that this code can act on.
    Unreadable,
    /// The server is too old or lacks something that the store needs, or the credentials do not suffice.
    Unsupported,
    /// The store answered something that its contract does not allow.
    Broken,
}

impl StoreError {
    /// An error of this kind, before anything was sent.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, outcome_unknown: false, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says that the command may have been applied all the same.
    #[must_use]
    pub fn with_unknown_outcome(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the command may have been applied all the same. Repeating it with the same token is safe and tells.
    pub fn is_outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }

    /// Whether the same command may succeed a moment later.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::TimedOut | StoreErrorKind::Full)
    }
}

impl From<RecordError> for StoreError {
    fn from(error: RecordError) -> Self {
        Self::new(StoreErrorKind::Unreadable).because(error)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError").field("kind", &self.kind).field("source", &self.source).finish_non_exhaustive()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is not available",
            StoreErrorKind::TimedOut => "the store did not answer in time",
            StoreErrorKind::Full => "the store has no room for another claim",
            StoreErrorKind::Unreadable => "the stored record cannot be read",
            StoreErrorKind::Unsupported => "the store's server does not support what is needed",
            StoreErrorKind::Broken => "the store broke its contract",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
