use thiserror::Error;

use crate::protocol::IdentityError;

/// A layer that cannot be built as it is described. Found once, when the program starts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The operation's name has another form than [`Operation`](crate::protocol::Operation) asks for.
    #[error("the operation has no valid name")]
    Operation(#[from] IdentityError),
    /// Not the name of a header field (RFC 9110, section 5.1).
    #[error("`{0}` is not the name of a header field")]
    HeaderName(String),
    /// Not the value of a header field, or an empty one.
    #[error("`{0}` is not the value of a header field")]
    HeaderValue(String),
    /// A field that every message or connection has of its own. No replay can carry that of another message.
    #[error("the field `{0}` belongs to one message or connection, and is never kept")]
    NeverKept(String),
    /// A field without which the stored bytes would be read as something else.
    #[error("the field `{0}` says how the body is read, and is always kept")]
    AlwaysKept(String),
    /// A field that cannot be the mark of a replay.
    #[error("the field `{0}` has a meaning of its own, and cannot mark replays")]
    Marker(String),
    /// A fixed answer that cannot be sent.
    #[error("an acknowledgement cannot have {0}")]
    Acknowledgement(&'static str),
    /// Not a JSON pointer in its string form (RFC 6901, section 3): it begins with `/`, and `~` stands before `0` or `1`.
    #[error("`{0}` is not a JSON pointer")]
    Pointer(String),
    /// `all_of` or `first_of` without any source.
    #[error("a key needs at least one source")]
    NoKeySource,
    /// Not an absolute address that can stand in a `Link` field (RFC 8288, section 3).
    #[error("`{0}` is not an absolute address")]
    Documentation(String),
    /// A status that ends no exchange, or has no body.
    #[error("a rejection cannot be answered {0}")]
    RejectionStatus(http::StatusCode),
    /// A safe method (RFC 9110, section 9.2.1) has no effect to repeat, and its answers must not be stored as one.
    #[error("{0} is a safe method, which is not guarded")]
    SafeMethod(http::Method),
    /// A layer that guards no method guards nothing.
    #[error("a layer needs at least one method to guard")]
    NoMethod,
    /// Two of `raw`, `only` and `without`.
    #[error("the bodies of a fingerprint are compared by one of `raw`, `only` and `without`, not by two of them")]
    TwoSelections,
    /// `without` the empty pointer, at which the whole body stands.
    #[error("a fingerprint `without` the whole body compares none")]
    WithoutBody,
    /// More pointers or header fields than a fingerprint may name.
    #[error("a fingerprint names at most {limit} {what}")]
    TooManyNamed {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// Rules for a fingerprint that is neither made nor compared.
    #[error("a fingerprint that is off takes no rules")]
    OffWithRules,
    /// Not a template of [`key::path`](super::key::path): it begins with `/`, and each of its segments is either text of a
    /// path or one `{name}` of letters, digits and `_`, each name once.
    #[error("`{0}` is not a path template")]
    PathTemplate(String),
    /// A template of [`key::path`](super::key::path) that captures nothing: all requests of a route would have one key.
    #[error("the path template `{0}` captures no segment")]
    NoCapture(String),
    /// A name or description without a character.
    #[error("{0} must not be empty")]
    EmptyName(&'static str),
    /// Members of a JSON body are chosen, for a digest or a fingerprint, but none is named.
    #[error("members are chosen by at least one pointer")]
    NoPointer,
    /// [`quoted`](super::KeySource::quoted) on a source that reads no header field.
    #[error("only the key of a header field can be quoted")]
    QuotedWithoutHeader,
    /// A range of [`length`](super::KeySource::length) that is empty, or goes beyond what a key can be.
    #[error("the length of a key is a range within 1 to 255 bytes")]
    KeyLength,
    /// A rule about the text of a key on a source whose keys have none.
    #[error("the key of a digest has no text that could be checked")]
    RuleOnDigest,
    /// [`optional`](super::key::optional) elsewhere than directly in [`all_of`](super::key::all_of), where alone it says
    /// something.
    #[error("only a part of `all_of` can be optional")]
    MisplacedOptional,
    /// [`key_generated`](super::LayerBuilder::key_generated) with a key source that does not take a generated key back.
    #[error(
        "a generated key could not be sent again: the key source would refuse it, or take it for a part of another"
    )]
    GeneratedKey,
    /// A limit that nothing can keep.
    #[error("{0} must be larger than zero")]
    ZeroLimit(&'static str),
}
