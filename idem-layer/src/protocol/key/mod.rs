mod item;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
#[cfg(feature = "http")]
use std::fmt::Write as _;

use super::error::KeyError;
use super::identity::{escape_into, unescape};

/// What the caller repeats on every retry of one operation.
///
/// One or more parts, each of any bytes (sources narrow this down: a header's key is printable ASCII). Keys are
/// case-sensitive and compared byte for byte; nothing is trimmed or normalised.
///
/// ```
/// use idem_layer::protocol::Key;
///
/// let key = Key::new("8e03978e-40d5-43dd-bc93-6894a57f9324")?;
/// let composed = Key::all_of([Key::new("wx-1")?, Key::new("7773749793478223190")?])?;
/// assert_eq!(composed.text(), "wx-1,7773749793478223190");
/// # Ok::<(), idem_layer::protocol::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The parts as they appear in an identity, joined by `,`. A part is an escaped text, `#` and the digits of a digest, `~`
    /// where an optional one is absent, or several parts in a bracket.
    encoded: Box<str>,
    /// Bytes of all parts before escaping.
    length: usize,
}

impl Key {
    /// The longest key, all parts together, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// A key of one part.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`] and [`KeyError::TooLong`] (above [`Key::MAX_BYTES`]).
    pub fn new(part: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let part = part.as_ref();
        if part.is_empty() {
            return Err(KeyError::Empty);
        }
        if part.len() > Self::MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        let mut encoded = String::with_capacity(part.len());
        escape_into(&mut encoded, part);
        Ok(Self { encoded: encoded.into(), length: part.len() })
    }

    /// One key of several, in order. `(a, b)` and `(b, a)` are different keys, and so are `("a,b")` and `("a", "b")`.
    ///
    /// # Errors
    ///
    /// [`KeyError::Empty`] without any part, [`KeyError::TooLong`] when all together are above [`Key::MAX_BYTES`].
    pub fn all_of(parts: impl IntoIterator<Item = Key>) -> Result<Self, KeyError> {
        let mut all = KeyParts::default();
        parts.into_iter().for_each(|part| all.add(&part));
        all.finish()?.ok_or(KeyError::Empty)
    }

    /// The key that stands for these values: for a caller who sends no key of his own, made of the fields that say which
    /// business event it is. Each value is told apart from its neighbours by its length. Never make the time a part of it.
    ///
    /// It is the key `#` and 64 hexadecimal digits. No text can become the same key, not even that one: in a key of text,
    /// `#` is escaped.
    ///
    /// ```
    /// use idem_layer::protocol::Key;
    ///
    /// let key = Key::digest(["acme", "order.paid", "o-1"]);
    /// assert_eq!(key.text().len(), 65);
    /// assert_ne!(key, Key::new(key.text().as_bytes())?);
    /// # Ok::<(), idem_layer::protocol::KeyError>(())
    /// ```
    pub fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("idem key v1");
        for part in parts {
            let part = part.as_ref();
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let encoded = format!("#{}", hasher.finalize().to_hex());
        Self { length: encoded.len(), encoded: encoded.into() }
    }

    /// The value of an `Idempotency-Key` field: an RFC 9651 string (`"abc"`, printable ASCII, section 3.3.3), whose
    /// parameters are checked and ignored, or bare visible ASCII (`abc`). Both name the same key. Spaces and tabs around the
    /// value are not part of it (RFC 9110, section 5.5).
    ///
    /// # Errors
    ///
    /// One for each way in which the field is not exactly one key; see [`KeyError`].
    pub fn from_field_value(value: &[u8]) -> Result<Self, KeyError> {
        let value = trim_field_value(value);
        match value.first() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::new(item::string(value)?),
            Some(_) if value.iter().all(u8::is_ascii_graphic) => Self::new(value),
            Some(_) => Err(KeyError::Character),
        }
    }

    /// The same, of the RFC 9651 string alone, as the `Idempotency-Key` draft (draft-ietf-httpapi-idempotency-key-header,
    /// section 2.1) has it.
    ///
    /// # Errors
    ///
    /// [`KeyError::Unquoted`] for a bare value, else as [`from_field_value`](Self::from_field_value).
    pub fn from_quoted_field_value(value: &[u8]) -> Result<Self, KeyError> {
        let value = trim_field_value(value);
        match value.first() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::new(item::string(value)?),
            Some(_) => Err(KeyError::Unquoted),
        }
    }

    /// The key as text for people and for services further down: a single part as it came, several joined by `,` with
    /// their own commas escaped. Bytes that are not UTF-8 are replaced. A digest is `#` and 64 hexadecimal digits; in a key
    /// of several parts, `~` is an optional one that is absent.
    ///
    /// To compare keys, compare the keys: the text `a,b` can be of one part or of two.
    pub fn text(&self) -> Cow<'_, str> {
        match self.is_composed() {
            true => Cow::Borrowed(&self.encoded),
            false => unescape(&self.encoded),
        }
    }

    pub(super) fn encoded(&self) -> &str {
        &self.encoded
    }

    fn is_composed(&self) -> bool {
        self.encoded.contains(',')
    }
}

#[cfg(feature = "http")]
impl Key {
    /// Bytes of all parts together, as they came. A digest has the 65 of its text.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The parts that somebody has chosen: all but digests and absent ones. Bytes that are not UTF-8 are replaced.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let parts = self.encoded.split(',').map(|part| part.trim_matches(['(', ')']));
        parts.filter(|part| *part != ABSENT && !part.starts_with('#')).map(unescape)
    }
}

/// Stands for an optional part that is absent. Texts have this character escaped.
#[cfg(feature = "http")]
const ABSENT: &str = "~";

/// Collects the parts of a key in their order.
///
/// Whoever reads the parts back must know which is which. So a part that may be absent, or consist of another number of
/// parts from one request to the next, always takes one position: a `~`, a text, or a bracket.
#[derive(Default)]
pub(crate) struct KeyParts {
    encoded: String,
    length: usize,
    positions: usize,
}

impl KeyParts {
    /// Adds a part that is always there; one that is itself composed adds all of its own.
    pub(crate) fn add(&mut self, part: &Key) {
        self.separate();
        self.encoded.push_str(&part.encoded);
        self.length += part.length;
    }

    /// Adds a part that takes one position, whatever it is in this request.
    #[cfg(feature = "http")]
    pub(crate) fn add_varying(&mut self, part: Option<&Key>) {
        match part {
            Some(part) if part.is_composed() => {
                self.separate();
                write!(self.encoded, "({})", part.encoded).expect("writing to a string");
                self.length += part.length;
            }
            Some(part) => self.add(part),
            None => {
                self.separate();
                self.encoded.push_str(ABSENT);
            }
        }
    }

    /// The key of all parts, nothing where each of them is absent, or there is none.
    ///
    /// # Errors
    ///
    /// [`KeyError::TooLong`].
    pub(crate) fn finish(self) -> Result<Option<Key>, KeyError> {
        match self.length {
            0 => Ok(None),
            1..=Key::MAX_BYTES => Ok(Some(Key { encoded: self.encoded.into(), length: self.length })),
            _ => Err(KeyError::TooLong),
        }
    }

    fn separate(&mut self) {
        if self.positions > 0 {
            self.encoded.push(',');
        }
        self.positions += 1;
    }
}

/// A field value without the spaces and tabs that may stand around it.
fn trim_field_value(value: &[u8]) -> &[u8] {
    let is_content = |byte: &u8| !b" \t".contains(byte);
    let start = value.iter().position(is_content).unwrap_or(value.len());
    let end = value.iter().rposition(is_content).map_or(start, |last| last + 1);
    &value[start..end]
}

impl fmt::Debug for Key {
    /// Redacted: whoever knows a caller's key gets the response that is stored for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
