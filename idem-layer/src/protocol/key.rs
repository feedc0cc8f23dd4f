use std::borrow::Cow;
use std::fmt;

use super::error::KeyError;
use super::identity::escape_into;

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
    /// The parts as they appear in an identity, escaped and joined by `,`.
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
        let mut encoded = String::new();
        let mut length = 0;
        for part in parts {
            if length > 0 {
                encoded.push(',');
            }
            encoded.push_str(&part.encoded);
            length += part.length;
        }
        match length {
            0 => Err(KeyError::Empty),
            1..=Self::MAX_BYTES => Ok(Self { encoded: encoded.into(), length }),
            _ => Err(KeyError::TooLong),
        }
    }

    /// The value of an `Idempotency-Key` field: an RFC 9651 string (`"abc"`, printable ASCII, section 3.3.3), whose
    /// parameters are checked and ignored, or bare visible ASCII (`abc`). Both name the same key. Spaces around the value
    /// are not part of it (RFC 9110, section 5.5).
    ///
    /// # Errors
    ///
    /// One for each way in which the field is not exactly one key; see [`KeyError`].
    pub fn from_field_value(value: &[u8]) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        match value.first() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::new(structured_string(value)?),
            Some(_) if value.iter().all(u8::is_ascii_graphic) => Self::new(value),
            Some(_) => Err(KeyError::Character),
        }
    }

    /// The key as text for people and for services further down: a single part as it came, several joined by `,` with
    /// their own commas escaped. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        if self.encoded.contains(',') {
            return Cow::Borrowed(&self.encoded);
        }
        super::identity::unescape(&self.encoded)
    }

    pub(super) fn encoded(&self) -> &str {
        &self.encoded
    }
}

impl fmt::Debug for Key {
    /// Redacted: whoever knows a caller's key gets the response that is stored for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// RFC 9651, section 4.2.5, and parameters as of section 4.2.3.2. `value` begins with a quote.
fn structured_string(value: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (text, mut rest) = quoted(value)?;
    while let Some(parameter) = rest.strip_prefix(b";") {
        rest = skip_parameter(parameter)?;
    }
    if rest.is_empty() { Ok(text) } else { Err(KeyError::Malformed) }
}

/// A quoted string at the front of `value`, and what follows it.
fn quoted(value: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyError> {
    let mut text = Vec::with_capacity(value.len());
    let mut at = 1;
    loop {
        match (value.get(at), value.get(at + 1)) {
            (Some(b'"'), _) => return Ok((text, &value[at + 1..])),
            (Some(b'\\'), Some(&escaped @ (b'"' | b'\\'))) => {
                text.push(escaped);
                at += 2;
            }
            (Some(b'\\') | None, _) => return Err(KeyError::Malformed),
            (Some(&byte @ 0x20..=0x7e), _) => {
                text.push(byte);
                at += 1;
            }
            (Some(_), _) => return Err(KeyError::Character),
        }
    }
}

/// One parameter after its `;`: a name and, after `=`, a quoted or a bare value, which nobody reads.
fn skip_parameter(parameter: &[u8]) -> Result<&[u8], KeyError> {
    let parameter = parameter.trim_ascii_start();
    if !parameter.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'*') {
        return Err(KeyError::Malformed);
    }
    let in_name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(b);
    let rest = &parameter[parameter.iter().take_while(|b| in_name(b)).count()..];
    let Some(value) = rest.strip_prefix(b"=") else { return Ok(rest) };
    if value.first() == Some(&b'"') {
        return quoted(value).map(|(_, rest)| rest);
    }
    let length = value.iter().take_while(|b| b.is_ascii_graphic() && !b";,\"".contains(b)).count();
    if length == 0 { Err(KeyError::Malformed) } else { Ok(&value[length..]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(field: &str) -> Result<String, KeyError> {
        Key::from_field_value(field.as_bytes()).map(|key| key.text().into_owned())
    }

    #[test]
    fn quoted_and_bare_name_the_same_key() {
        assert_eq!(Key::from_field_value(b"\"abc\""), Key::from_field_value(b"  abc\t"));
        assert_eq!(parsed(r#""a\"b\\c d""#).as_deref(), Ok(r#"a"b\c d"#));
        assert_eq!(parsed(r#""abc";v=1; w="x;y";?"#), Err(KeyError::Malformed));
        assert_eq!(parsed(r#""abc";v=1; w="x;y";z"#).as_deref(), Ok("abc"));
        assert_ne!(Key::from_field_value(b"abc"), Key::from_field_value(b"ABC"));
    }

    #[test]
    fn each_malformed_field_has_its_own_error() {
        for (field, error) in [
            (&b""[..], KeyError::Empty),
            (b"   ", KeyError::Empty),
            (b"\"\"", KeyError::Empty),
            (b"\"abc", KeyError::Malformed),
            (b"\"abc\"x", KeyError::Malformed),
            (b"\"a\\b\"", KeyError::Malformed),
            (b"a b", KeyError::Character),
            (b"a\x07", KeyError::Character),
            (b"caf\xc3\xa9", KeyError::Character),
            (b"\"caf\xc3\xa9\"", KeyError::Character),
            (&[b'k'; 256], KeyError::TooLong),
        ] {
            assert_eq!(Key::from_field_value(field).unwrap_err(), error, "{}", field.escape_ascii());
        }
        assert!(Key::from_field_value(&[b'k'; 255]).is_ok());
    }

    #[test]
    fn position_and_grouping_tell_composed_keys_apart() {
        let part = |text: &str| Key::new(text).unwrap();
        let all = |parts: &[&str]| Key::all_of(parts.iter().map(|p| part(p))).unwrap();
        assert_ne!(all(&["a", "b"]), all(&["b", "a"]));
        assert_ne!(all(&["a,b"]), all(&["a", "b"]));
        assert_ne!(all(&["a%2Cb"]), all(&["a,b"]));
        assert_eq!(all(&["a,b"]).text(), "a,b");
        assert_eq!(Key::all_of([]), Err(KeyError::Empty));
        assert_eq!(Key::all_of([Key::new([7; 200]).unwrap(), Key::new([7; 56]).unwrap()]), Err(KeyError::TooLong));
    }

    #[test]
    fn debug_says_nothing() {
        assert_eq!(format!("{:?}", Key::new("secret").unwrap()), "Key(..)");
    }

    proptest! {
        #[test]
        fn reads_every_string_that_the_rfc_parser_reads(field in r#"[ -~]{0,12}"?"#, text in "[ -~]{1,40}") {
            use sfv::{BareItem, Item, ItemSerializer, Parser, StringRef};
            let serialized = ItemSerializer::new().bare_item(StringRef::from_str(&text).unwrap()).finish();
            prop_assert_eq!(parsed(&serialized), Ok(text));

            let quoted = format!("\"{field}");
            if let Ok(Item { bare_item: BareItem::String(expected), .. }) = Parser::new(&quoted).parse::<Item>() {
                let expected = if expected.as_str().is_empty() { Err(KeyError::Empty) } else { Ok(expected.as_str().to_owned()) };
                prop_assert_eq!(parsed(&quoted), expected);
            }
        }

        #[test]
        fn any_bytes_make_a_key_of_their_own(a in prop::collection::vec(any::<u8>(), 1..40), b in prop::collection::vec(any::<u8>(), 1..40)) {
            prop_assert_eq!(Key::new(&a).unwrap() == Key::new(&b).unwrap(), a == b);
        }
    }
}
