//! What a route asks of its keys beyond what every key must be.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use thiserror::Error;

use super::super::error::LayerError;
use super::{KeySource, Kind};
use crate::protocol::Key;

/// What narrows a source down. A rule holds for the key of its source, composed or not, and a source can have several. A key
/// that breaks one is answered 400 `key-malformed`; the answer says what is expected, and not what has come.
impl KeySource {
    /// Only the quoted form of a header field (an RFC 9651 string, as the `Idempotency-Key` draft asks for): a bare value is
    /// [`Unquoted`](crate::protocol::KeyError::Unquoted). Of a composed source it is asked of all its headers.
    ///
    /// On a source without a header, it is an error of the layer's `build`.
    pub fn quoted(self) -> Self {
        if self.has_header() { self.with_quotes() } else { LayerError::QuotedWithoutHeader.into() }
    }

    /// Only keys of so many bytes, all parts together: of its text, as it was sent, without what joins its parts. A key that is a digest alone has none that could be wrong. Short keys
    /// can be guessed: ask for 16 bytes or more where callers are not told apart by anything else.
    ///
    /// A range that is empty or goes beyond 255, the longest key, is an error of the layer's `build`.
    pub fn length(self, bytes: impl RangeBounds<usize>) -> Self {
        self.with_rule(Rule::length(&bytes))
    }

    /// Only UUIDs in their textual form (RFC 9562, section 4), in upper or lower case and of any version. The key stays as it
    /// was sent: upper and lower case are two keys. Of a composed source it is asked of each part.
    pub fn uuid(self) -> Self {
        self.with_rule(Ok(Rule::Uuid))
    }

    /// Only keys whose every character is allowed. `expected` tells clients which are, in words that go on from "the key must
    /// be made of", such as "letters and digits". Of a composed source it is asked of each part.
    ///
    /// An empty description is an error of the layer's `build`.
    pub fn chars(self, expected: &'static str, allowed: impl Fn(char) -> bool + Send + Sync + 'static) -> Self {
        self.with_rule(Rule::chars(expected, allowed))
    }

    fn with_quotes(mut self) -> Self {
        let each = |sources: Arc<[Self]>| sources.iter().cloned().map(Self::with_quotes).collect();
        self.kind = match self.kind {
            Kind::Header { name, .. } => Kind::Header { name, quoted: true },
            Kind::AllOf(sources) => Kind::AllOf(each(sources)),
            Kind::FirstOf(sources) => Kind::FirstOf(each(sources)),
            Kind::Optional(source) => Kind::Optional(Arc::new(Self::clone(&source).with_quotes())),
            other => other,
        };
        self
    }

    fn with_rule(mut self, rule: Result<Rule, LayerError>) -> Self {
        match rule {
            Ok(_) if !self.has_text() => LayerError::RuleOnDigest.into(),
            Ok(rule) => {
                self.rules.push(rule);
                self
            }
            Err(mistake) => mistake.into(),
        }
    }

    /// A mistaken source counts, so that its own mistake is the one that is reported. So in the next.
    fn has_header(&self) -> bool {
        match &self.kind {
            Kind::Mistaken(_) | Kind::Header { .. } => true,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().any(Self::has_header),
            Kind::Optional(source) => source.has_header(),
            _ => false,
        }
    }

    /// Whether anything in its keys is somebody's choice. A digest is none.
    fn has_text(&self) -> bool {
        match &self.kind {
            Kind::Digest(_) => false,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.is_empty() || sources.iter().any(Self::has_text),
            Kind::Optional(source) => source.has_text(),
            _ => true,
        }
    }
}

#[derive(Clone)]
pub(super) enum Rule {
    Length { least: usize, most: usize },
    Uuid,
    Chars { expected: &'static str, allowed: Arc<dyn Fn(char) -> bool + Send + Sync> },
}

/// What a key should have been, as its client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(in crate::middleware) enum Expected {
    #[error("{0} bytes long")]
    Length(usize),
    #[error("{0} to {1} bytes long")]
    LengthBetween(usize, usize),
    #[error("a UUID")]
    Uuid,
    #[error("made of {0}")]
    Chars(&'static str),
}

impl Rule {
    pub(super) fn length(range: &impl RangeBounds<usize>) -> Result<Self, LayerError> {
        let least = match range.start_bound() {
            Bound::Included(least) => *least,
            Bound::Excluded(below) => below.saturating_add(1),
            Bound::Unbounded => 1,
        };
        let most = match range.end_bound() {
            Bound::Included(most) => *most,
            Bound::Excluded(above) => above.saturating_sub(1),
            Bound::Unbounded => Key::MAX_BYTES,
        };
        // No key is empty, so that a range which begins at zero begins at one.
        let least = least.max(1);
        if least <= most && most <= Key::MAX_BYTES {
            Ok(Self::Length { least, most })
        } else {
            Err(LayerError::KeyLength)
        }
    }

    pub(super) fn chars(
        expected: &'static str,
        allowed: impl Fn(char) -> bool + Send + Sync + 'static,
    ) -> Result<Self, LayerError> {
        match expected {
            "" => Err(LayerError::EmptyName("what a key's characters are")),
            _ => Ok(Self::Chars { expected, allowed: Arc::new(allowed) }),
        }
    }

    pub(super) fn check(&self, key: &Key) -> Result<(), Expected> {
        let holds = match self {
            // What nobody has chosen has no length to be wrong.
            Self::Length { least, most } => key.texts().next().is_none() || (*least..=*most).contains(&key.length()),
            Self::Uuid => key.texts().all(|text| is_uuid(text.as_bytes())),
            Self::Chars { allowed, .. } => key.texts().all(|text| text.chars().all(|c| allowed(c))),
        };
        if holds { Ok(()) } else { Err(self.expected()) }
    }

    fn expected(&self) -> Expected {
        match self {
            Self::Length { least, most } if least == most => Expected::Length(*most),
            Self::Length { least, most } => Expected::LengthBetween(*least, *most),
            Self::Uuid => Expected::Uuid,
            Self::Chars { expected, .. } => Expected::Chars(expected),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.expected())
    }
}

/// The textual form of RFC 9562, section 4: digits of either case in groups of 8, 4, 4, 4 and 12.
fn is_uuid(text: &[u8]) -> bool {
    let groups = [8, 4, 4, 4, 12].into_iter();
    text.len() == 36
        && text.split(|byte| *byte == b'-').map(<[u8]>::len).eq(groups)
        && text.iter().all(|byte| *byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &Result<Rule, LayerError>, text: &str) -> Result<(), Expected> {
        rule.as_ref().unwrap().check(&Key::new(text).unwrap())
    }

    #[test]
    fn a_length_is_counted_in_bytes_and_both_ends_belong_to_it() {
        let rule = Rule::length(&(2..=4));
        for (text, holds) in [("a", false), ("ab", true), ("abcd", true), ("abcde", false), ("€", true), ("€€", false)]
        {
            let expected = if holds { Ok(()) } else { Err(Expected::LengthBetween(2, 4)) };
            assert_eq!(check(&rule, text), expected, "{text}");
        }
        let key = Key::all_of(["ab", "c,"].map(|part| Key::new(part).unwrap())).unwrap();
        assert_eq!(rule.unwrap().check(&key), Ok(()));
        assert_eq!(Rule::length(&(2..=4)).unwrap().check(&Key::digest(["ab"])), Ok(()));
        assert_eq!(check(&Rule::length(&(3..4)), "ab"), Err(Expected::Length(3)));
        assert_eq!(check(&Rule::length(&(..=4)), "a"), Ok(()));
        assert_eq!(check(&Rule::length(&(0..=4)), "a"), Ok(()));
        assert_eq!(check(&Rule::length(&(16..)), &"a".repeat(255)), Ok(()));
        assert_eq!(
            check(&Rule::length(&(Bound::Excluded(1), Bound::Unbounded)), "a"),
            Err(Expected::LengthBetween(2, 255))
        );
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "that is the mistake")]
    fn a_length_that_no_key_has_is_a_mistake() {
        let refused = |range: Result<Rule, LayerError>| assert_eq!(range.map(drop), Err(LayerError::KeyLength));
        refused(Rule::length(&(5..=4)));
        refused(Rule::length(&(5..5)));
        refused(Rule::length(&(..1)));
        refused(Rule::length(&(0..=0)));
        refused(Rule::length(&(1..=256)));
        refused(Rule::length(&(256..)));
        refused(Rule::length(&(Bound::Excluded(usize::MAX), Bound::Unbounded)));
        assert!(Rule::length(&(1..256)).is_ok());
    }

    #[test]
    fn a_uuid_has_one_form_in_either_case() {
        for uuid in ["8e03978e-40d5-43dd-bc93-6894a57f9324", "8E03978E-40d5-43DD-BC93-6894A57F9324", &"0-".repeat(18)] {
            let is_one = !uuid.ends_with('-');
            assert_eq!(check(&Ok(Rule::Uuid), uuid).is_ok(), is_one, "{uuid}");
        }
        for other in [
            "8e03978e40d543ddbc936894a57f9324",
            "{8e03978e-40d5-43dd-bc93-6894a57f9324}",
            "urn:uuid:8e03978e-40d5-43dd-bc93-6894a57f9324",
            "8e03978e-40d5-43dd-bc93-6894a57f932",
            "8e03978e-40d5-43dd-bc93-6894a57f9324 ",
            "8e03978e-40d5-43dd-bc9-36894a57f9324",
            "8e03978e-40d5-43dd-bc93-6894a57f932g",
            "8e03978e-40d5-43dd-bc93-6894a57f93é",
        ] {
            assert_eq!(check(&Ok(Rule::Uuid), other), Err(Expected::Uuid), "{other}");
        }
    }

    #[test]
    fn characters_are_asked_of_each_part_and_not_of_what_joins_them() {
        let rule = Rule::chars("letters", char::is_alphabetic);
        assert_eq!(check(&rule, "aé"), Ok(()));
        assert_eq!(check(&rule, "a1"), Err(Expected::Chars("letters")));
        assert_eq!(check(&rule, "a,b"), Err(Expected::Chars("letters")));
        let composed = Key::all_of(["a", "é"].map(|part| Key::new(part).unwrap())).unwrap();
        assert_eq!(rule.unwrap().check(&composed), Ok(()));
        assert_eq!(Rule::chars("", |_| true).map(drop), Err(LayerError::EmptyName("what a key's characters are")));
    }
}
