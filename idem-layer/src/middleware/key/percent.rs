//! Percent-encoding (RFC 3986, section 2.1), read strictly: a `%` without two hexadecimal digits is an error and is not left
//! as it is, because the handler may leave it, drop it or refuse it.

use std::borrow::Cow;

/// A `%` that is followed by something else than two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEscape;

/// Where percent-encoded text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// A path: `+` is a plus sign.
    Path,
    /// `application/x-www-form-urlencoded`: `+` is a space.
    Form,
}

impl Rules {
    /// Checks all escapes of a text.
    pub(super) fn check(self, text: &[u8]) -> Result<(), BadEscape> {
        let mut behind = text.split(|byte| *byte == b'%').skip(1);
        let is_escape = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
        if behind.all(is_escape) { Ok(()) } else { Err(BadEscape) }
    }

    /// The bytes that a checked text stands for, borrowed where they are as they were sent.
    pub(super) fn decode(self, text: &[u8]) -> Cow<'_, [u8]> {
        if text.iter().any(|byte| *byte == b'%' || (*byte == b'+' && self == Self::Form)) {
            Cow::Owned(self.bytes(text).collect())
        } else {
            Cow::Borrowed(text)
        }
    }

    /// Whether a checked text stands for these bytes.
    pub(super) fn stands_for(self, text: &[u8], bytes: &[u8]) -> bool {
        self.bytes(text).eq(bytes.iter().copied())
    }

    fn bytes(self, text: &[u8]) -> impl Iterator<Item = u8> {
        let mut rest = text.iter().copied();
        std::iter::from_fn(move || {
            Some(match rest.next()? {
                b'%' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
                b'+' if self == Self::Form => b' ',
                byte => byte,
            })
        })
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
