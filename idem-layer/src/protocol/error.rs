use thiserror::Error;

/// Why bytes cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Present, but empty. Absent is not the same as empty.
    #[error("the key is empty")]
    Empty,
    /// Longer than [`Key::MAX_BYTES`](super::Key::MAX_BYTES), all parts together.
    #[error("the key is longer than 255 bytes")]
    TooLong,
    /// A byte that this source does not allow.
    #[error("the key has a character that is not allowed")]
    Character,
    /// Begins like an RFC 9651 string but does not parse as one.
    #[error("the key is not a well-formed string")]
    Malformed,
    /// A bare value where the RFC 9651 string is asked for.
    #[error("the key is not in double quotes, as an RFC 9651 string is")]
    Unquoted,
    /// More than one value where exactly one is expected.
    #[error("the key is given more than once")]
    Repeated,
}

/// Why an operation, target or scope cannot be part of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// An operation is 1 to 64 of `A-Z a-z 0-9 . _ - /`.
    #[error("an operation is named by 1 to 64 of the characters A-Z a-z 0-9 . _ - /")]
    Operation,
    /// A scope is 1 to 255 bytes; "no scope" is said by name.
    #[error("a scope is 1 to 255 bytes long")]
    Scope,
}

/// A configuration that cannot hold what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A time of zero.
    #[error("{0} must be longer than zero")]
    Zero(&'static str),
    /// Longer than a hundred years, which no store's clock arithmetic is tested for.
    #[error("{0} must be at most 100 years")]
    TooLong(&'static str),
    /// Shorter than a millisecond, the unit in which stores count.
    #[error("{0} must be at least one millisecond")]
    TooShort(&'static str),
    /// The run ceiling is shorter than one lease.
    #[error("the run ceiling must not be shorter than the lease")]
    CeilingBelowLease,
    /// Repeats would wait longer than [`Policy::LONGEST_WAIT`](super::Policy::LONGEST_WAIT).
    #[error("the wait must be at most 60 s")]
    WaitTooLong,
    /// Nobody could wait.
    #[error("at least one repeat must be allowed to wait")]
    NoWaiters,
}

/// Why stored bytes are not a record that this code may act on. Never a miss: a miss would run the operation again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes were not written by this library.
    #[error("the stored bytes are not a record")]
    NotARecord,
    /// Written by a newer (or unknown) version of the library.
    #[error("the record has version {0}, which this code does not know")]
    UnknownVersion(u8),
    /// A record whose inside does not decode.
    #[error("the record is damaged")]
    Damaged,
    /// A record, but of another identity: a reply that belongs to someone else, or a copied key.
    #[error("the record belongs to another identity")]
    OtherIdentity,
}

/// Why a stored outcome cannot be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Written by a newer (or unknown) version of the library.
    #[error("the snapshot has version {0}, which this code does not know")]
    UnknownVersion(u8),
    /// The bytes do not decode.
    #[error("the snapshot is damaged")]
    Damaged,
    /// A snapshot of another kind: a value where a response is expected, or the reverse.
    #[error("the snapshot is of another kind than expected")]
    OtherKind,
}
