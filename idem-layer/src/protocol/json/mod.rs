//! A strict reader of JSON text (RFC 8259) for three questions: do two bodies say the same, do they say the same
//! in these places (or apart from them), and what stands at a pointer.
//!
//! This is not left to a general JSON library, because the answers end up in the store and in decisions that must not
//! change from one build to the next:
//!
//! 1. `serde_json` answers differently when any crate of the program switches on `preserve_order`, `arbitrary_precision`
//!    or `float_roundtrip`. What one build has stored, another would not recognise.
//! 2. It reads numbers into 64 bits, so that `1` and `1.0`, or two long ids, can become equal. Here a number is its text.
//! 3. Of a name that occurs twice in an object it keeps the last. Here that is an error: the handler's parser may choose
//!    another one than we do.
//!
//! One pass over the bytes, no recursion and no tree: a stack of open arrays and objects, limited to [`MAX_DEPTH`].

mod digest;
#[cfg(feature = "http")]
mod pointer;
#[cfg(feature = "http")]
mod pointers;
mod scan;
#[cfg(all(test, feature = "http"))]
mod tests;

pub(crate) use digest::canonical_digest;
#[cfg(feature = "http")]
pub(crate) use digest::{digest_without, digests_at};
#[cfg(feature = "http")]
pub(crate) use pointer::{Found, Pointer};
#[cfg(feature = "http")]
pub(crate) use pointers::Pointers;

/// How many arrays and objects may be open at once. No document that `serde_json` reads by default is too deep.
pub(crate) const MAX_DEPTH: usize = 128;

/// Why a text gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonError {
    /// Not JSON: another grammar, not UTF-8, a byte order mark, half a surrogate pair.
    Invalid,
    /// More than [`MAX_DEPTH`] arrays and objects inside each other.
    TooDeep,
    /// A name occurs twice where it matters, so that the document means two things.
    DuplicateName,
}
