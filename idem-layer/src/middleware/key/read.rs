//! How each source reads a request.

use http::header::HeaderName;
use http::request::Parts;
use thiserror::Error;

use super::form::{self, FormError};
use super::rule::Expected;
use crate::protocol::json::{Found, JsonError, Pointer, canonical_digest};
use crate::protocol::{Key, KeyError};

/// Why a request has no key that can be used, though it is not simply without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(in crate::middleware) enum ExtractError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key is neither a string nor a number")]
    NotAKey,
    #[error("the {0} has a malformed percent escape")]
    Escape(&'static str),
    #[error("the key must be {0}")]
    Unexpected(#[from] Expected),
    #[error("the body is not JSON")]
    NotJson,
    #[error("the body is not a form")]
    NotAForm,
}

pub(super) fn field(parts: &Parts, name: &HeaderName, quoted: bool) -> Result<Option<Key>, ExtractError> {
    let mut lines = parts.headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(KeyError::Repeated.into());
    }
    let read = if quoted { Key::from_quoted_field_value } else { Key::from_field_value };
    let key = read(line.as_bytes())?;
    // Only a quoted value can be nothing but spaces.
    if key.text().trim().is_empty() { Err(KeyError::Empty.into()) } else { Ok(Some(key)) }
}

pub(super) fn member(body: &[u8], pointer: &Pointer) -> Result<Option<Key>, ExtractError> {
    match pointer.find(body)? {
        Found::Absent | Found::Null => Ok(None),
        Found::Number(digits) => Ok(Some(Key::new(digits)?)),
        Found::String(string) => Ok(Some(text(string.as_bytes())?)),
        Found::Bool | Found::Container => Err(ExtractError::NotAKey),
    }
}

pub(super) fn parameter(parts: &Parts, name: &str) -> Result<Option<Key>, ExtractError> {
    let Some(query) = parts.uri.query() else { return Ok(None) };
    pair(query.as_bytes(), name, ExtractError::Escape("query"))
}

pub(super) fn form_field(body: &[u8], name: &str) -> Result<Option<Key>, ExtractError> {
    pair(body, name, ExtractError::NotAForm)
}

fn pair(pairs: &[u8], name: &str, malformed: ExtractError) -> Result<Option<Key>, ExtractError> {
    match form::value(pairs, name) {
        Ok(value) => Ok(value.map(|value| text(&value)).transpose()?),
        Err(FormError::Malformed) => Err(malformed),
        Err(FormError::Repeated) => Err(KeyError::Repeated.into()),
    }
}

/// A pointer is digested with what it finds, so that it counts which member has which value.
pub(super) fn digest(body: &[u8], pointers: &[(Box<str>, Pointer)]) -> Result<Option<Key>, ExtractError> {
    let mut found = Vec::with_capacity(pointers.len());
    for (text, pointer) in pointers {
        // The others are looked for even where one is absent: a name that is there twice is an error.
        if let Some(value) = pointer.locate(body)?.map(|place| &body[place]).filter(|value| *value != b"null") {
            found.push((text.as_bytes(), canonical_digest(value)?));
        }
    }
    let whole = found.len() == pointers.len();
    Ok(whole.then(|| Key::digest(found.iter().flat_map(|(text, value)| [*text, value]))))
}

/// A key that is text, from wherever it comes. Text of nothing but spaces is as empty as a header field of them. Control
/// characters would reach other services' headers with the key.
pub(super) fn text(bytes: &[u8]) -> Result<Key, KeyError> {
    let text = std::str::from_utf8(bytes).map_err(|_| KeyError::Character)?;
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    if text.contains(char::is_control) {
        return Err(KeyError::Character);
    }
    Key::new(text)
}

impl From<JsonError> for ExtractError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::DuplicateName => Self::Key(KeyError::Repeated),
            JsonError::Invalid | JsonError::TooDeep => Self::NotJson,
        }
    }
}
