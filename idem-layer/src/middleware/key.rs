//! Where a request's key comes from.
//!
//! A source is a value: build it once, give it to the layer, use another one on another route.
//!
//! ```
//! use idem_layer::middleware::key;
//!
//! // The header that clients of an API send.
//! let api = key::header("idempotency-key");
//! // The header, or the field that older clients put into the body. Both name the same key.
//! let either = key::first_of([key::header("idempotency-key"), key::json("/request_id")]);
//! // A webhook without an id of its own: the business object and what happened to it.
//! let webhook = key::all_of([key::json("/order_no"), key::json("/event_type")]);
//! # let _ = (api, either, webhook);
//! ```
//!
//! 1. *Absent* and *empty* are different things. A request without a key is none of the layer's business (or is refused,
//!    where the route requires one); one with an empty or malformed key is refused, so that no two callers ever share a
//!    key that neither of them chose.
//! 2. A key is never made from half of its parts, and never from the time or the body's bytes.
//! 3. A source only reads. What it reads is part of the stored identity: changing a route's source forgets its keys.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use thiserror::Error;

use super::error::LayerError;
use crate::protocol::json::{Found, JsonError, Pointer};
use crate::protocol::{Key, KeyError};

/// Finds a request's key. Cheap to clone; see the [module docs](self).
#[derive(Clone)]
pub struct KeySource(Kind);

#[derive(Clone)]
enum Kind {
    Header(Result<HeaderName, LayerError>),
    Json(Result<Arc<Pointer>, LayerError>),
    AllOf(Arc<[KeySource]>),
    FirstOf(Arc<[KeySource]>),
    Custom(Arc<Custom>),
}

type Custom = dyn Fn(&Parts, &Bytes) -> Result<Option<Key>, KeyError> + Send + Sync;

/// The value of a header field, quoted or bare: see [`Key::from_field_value`].
///
/// Absent when there is no such field. More than one field line is [`KeyError::Repeated`], even with equal values: somebody
/// on the way has added one.
///
/// A name that no field can have is an error of the layer's `build`.
pub fn header(name: impl AsRef<str>) -> KeySource {
    let name = name.as_ref();
    KeySource(Kind::Header(name.parse().map_err(|_| LayerError::HeaderName(name.to_owned()))))
}

/// The string or number at a JSON pointer (RFC 6901) in the body, such as `/request_id` or `/data/0/id`. The body's content
/// type is not asked: many webhooks send JSON under another name.
///
/// | at the pointer | key |
/// |---|---|
/// | nothing, or `null` | absent |
/// | a string | its characters, unescaped: 1 to 255 bytes of UTF-8, no control characters, not only white space |
/// | a number | its digits as they are written, however many; `7` and `"7"` are one key, `7` and `7.0` are two |
/// | a boolean, array or object | refused |
///
/// A body that is not JSON is refused, and so is one in which a name of the pointer occurs twice: the handler might read
/// the other one.
///
/// A pointer that is not well-formed is an error of the layer's `build`.
pub fn json(pointer: impl AsRef<str>) -> KeySource {
    let pointer = pointer.as_ref();
    let parsed = Pointer::parse(pointer).map(Arc::new);
    KeySource(Kind::Json(parsed.ok_or_else(|| LayerError::Pointer(pointer.to_owned()))))
}

/// One key of all these parts, in this order.
///
/// Absent when any part is: the parts that are there may be shared by many events that are not repeats of each other (one
/// sender, one second, one event type), and a key made of them would drop real events. A malformed part is an error even
/// when another is absent. A part that is itself composed adds its parts, without a bracket around them.
pub fn all_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    KeySource(Kind::AllOf(sources.into_iter().collect()))
}

/// The key of the first source that has one. The same text through a header or through the body is the same key.
///
/// A malformed key is an error and not a reason to try the next source: a client that retries must not end up under
/// another key than before because one of the two places was damaged on the way.
pub fn first_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    KeySource(Kind::FirstOf(sources.into_iter().collect()))
}

/// A key by code. It gets the head and the whole body of the request.
///
/// ```
/// use idem_layer::middleware::key;
/// use idem_layer::protocol::Key;
///
/// let path = key::from_fn(|parts, _body| match parts.uri.path().rsplit_once('/') {
///     Some((_, id)) if !id.is_empty() => Key::new(id).map(Some),
///     _ => Ok(None),
/// });
/// # let _ = path;
/// ```
pub fn from_fn<F>(find: F) -> KeySource
where
    F: Fn(&Parts, &Bytes) -> Result<Option<Key>, KeyError> + Send + Sync + 'static,
{
    KeySource(Kind::Custom(Arc::new(find)))
}

impl KeySource {
    /// Whether the body must have been read before a key can be found.
    pub(super) fn needs_body(&self) -> bool {
        match &self.0 {
            Kind::Header(_) => false,
            Kind::Json(_) | Kind::Custom(_) => true,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().any(Self::needs_body),
        }
    }

    /// The first header field that is looked at, if any.
    pub(super) fn header_name(&self) -> Option<&HeaderName> {
        match &self.0 {
            Kind::Header(name) => name.as_ref().ok(),
            Kind::Json(_) | Kind::Custom(_) => None,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().find_map(Self::header_name),
        }
    }

    /// Reports what was wrong with the source's description.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        match &self.0 {
            Kind::Header(name) => name.clone().map(drop),
            Kind::Json(pointer) => pointer.clone().map(drop),
            Kind::Custom(_) => Ok(()),
            Kind::AllOf(sources) | Kind::FirstOf(sources) if sources.is_empty() => Err(LayerError::NoKeySource),
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().try_for_each(Self::check),
        }
    }

    /// The key of a request, nothing if it has none. `body` is the whole body; without one it counts as empty.
    pub(super) fn extract(&self, parts: &Parts, body: Option<&Bytes>) -> Result<Option<Key>, ExtractError> {
        match &self.0 {
            // A name or pointer that is none stands for nothing in any request, and does not get past `check`.
            Kind::Header(Err(_)) | Kind::Json(Err(_)) => Ok(None),
            Kind::Header(Ok(name)) => field(parts, name),
            Kind::Json(Ok(pointer)) => member(body.map_or(&[], |body| body), pointer),
            Kind::Custom(find) => Ok(find(parts, body.unwrap_or(&Bytes::new()))?),
            Kind::FirstOf(sources) => {
                sources.iter().find_map(|source| source.extract(parts, body).transpose()).transpose()
            }
            Kind::AllOf(sources) => {
                // All are asked before any is missed: a malformed part is an error even behind an absent one.
                let keys: Vec<_> =
                    sources.iter().map(|source| source.extract(parts, body)).collect::<Result<_, _>>()?;
                let all: Option<Vec<_>> = keys.into_iter().collect();
                Ok(all.map(Key::all_of).transpose()?)
            }
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Header(name) => f.debug_tuple("header").field(name).finish(),
            Kind::Json(pointer) => f.debug_tuple("json").field(pointer).finish(),
            Kind::AllOf(sources) => f.debug_tuple("all_of").field(sources).finish(),
            Kind::FirstOf(sources) => f.debug_tuple("first_of").field(sources).finish(),
            Kind::Custom(_) => f.write_str("from_fn(..)"),
        }
    }
}

/// Why a request has no key that can be used, though it is not simply without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ExtractError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key is neither a string nor a number")]
    NotAKey,
    #[error("the body is not JSON")]
    NotJson,
}

fn field(parts: &Parts, name: &HeaderName) -> Result<Option<Key>, ExtractError> {
    let mut lines = parts.headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(KeyError::Repeated.into());
    }
    Ok(Some(Key::from_field_value(line.as_bytes())?))
}

fn member(body: &[u8], pointer: &Pointer) -> Result<Option<Key>, ExtractError> {
    match pointer.find(body) {
        Ok(Found::Absent | Found::Null) => Ok(None),
        Ok(Found::Number(text)) => Ok(Some(Key::new(text)?)),
        // A text of nothing but spaces is as empty as a header field of them. Control characters would reach other
        // services' headers with the key.
        Ok(Found::String(text)) if text.trim().is_empty() => Err(KeyError::Empty.into()),
        Ok(Found::String(text)) if text.contains(char::is_control) => Err(KeyError::Character.into()),
        Ok(Found::String(text)) => Ok(Some(Key::new(&*text)?)),
        Ok(Found::Bool | Found::Container) => Err(ExtractError::NotAKey),
        Err(JsonError::DuplicateName) => Err(KeyError::Repeated.into()),
        Err(JsonError::Invalid | JsonError::TooDeep) => Err(ExtractError::NotJson),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    type Extracted = Result<Option<Key>, ExtractError>;

    fn with(fields: &[(&'static str, &[u8])]) -> Parts {
        let mut request = Request::new(());
        for (name, value) in fields {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        request.into_parts().0
    }

    fn from_header(fields: &[(&'static str, &[u8])]) -> Extracted {
        header("Idempotency-Key").extract(&with(fields), None)
    }

    fn from_body(source: &KeySource, body: &str) -> Extracted {
        source.extract(&with(&[]), Some(&Bytes::copy_from_slice(body.as_bytes())))
    }

    fn key(text: &str) -> Extracted {
        Ok(Some(Key::new(text).unwrap()))
    }

    fn refused(error: KeyError) -> Extracted {
        Err(ExtractError::Key(error))
    }

    #[test]
    fn a_header_is_one_line_or_no_key() {
        assert_eq!(from_header(&[]), Ok(None));
        assert_eq!(from_header(&[("x-other", b"a")]), Ok(None));
        assert_eq!(from_header(&[("idempotency-key", b"abc")]), key("abc"));
        assert_eq!(from_header(&[("idempotency-key", b"\"abc\"")]), key("abc"));
        for (fields, error) in [
            (&[("idempotency-key", &b""[..])][..], KeyError::Empty),
            (&[("idempotency-key", b"  ")], KeyError::Empty),
            (&[("idempotency-key", b"\"\"")], KeyError::Empty),
            (&[("idempotency-key", &[b'k'; 256])], KeyError::TooLong),
            (&[("idempotency-key", b"caf\xc3\xa9")], KeyError::Character),
            (&[("idempotency-key", b"a, a")], KeyError::Character),
            (&[("idempotency-key", b"\"a")], KeyError::Malformed),
            (&[("idempotency-key", b"a"), ("idempotency-key", b"a")], KeyError::Repeated),
            (&[("idempotency-key", b""), ("idempotency-key", b"a")], KeyError::Repeated),
        ] {
            assert_eq!(from_header(fields), refused(error), "{fields:?}");
        }
    }

    #[test]
    fn a_json_key_is_a_string_or_the_digits_of_a_number() {
        let id = json("/id");
        for (body, expected) in [
            (r#"{"id":"a"}"#, key("a")),
            (r#"{"id":"\u0061"}"#, key("a")),
            (r#"{"id":"ключ 1"}"#, key("ключ 1")),
            (r#"{"id":7773749793478223190}"#, key("7773749793478223190")),
            (r#"{"id":"7773749793478223190"}"#, key("7773749793478223190")),
            (r#"{"id":123456789012345678901234567890}"#, key("123456789012345678901234567890")),
            (r#"{"id":0}"#, key("0")),
            (r#"{"id":1.0}"#, key("1.0")),
            (r#"{"id":1e2}"#, key("1e2")),
            (r#"{}"#, Ok(None)),
            (r#"[]"#, Ok(None)),
            (r#""id""#, Ok(None)),
            (r#"{"id":null}"#, Ok(None)),
            (r#"{"ID":"a"}"#, Ok(None)),
            (r#"{"id":""}"#, refused(KeyError::Empty)),
            (r#"{"id":" \t"}"#, refused(KeyError::Empty)),
            (r#"{"id":"a\r\nb"}"#, refused(KeyError::Character)),
            (r#"{"id":"a\u0000"}"#, refused(KeyError::Character)),
            (r#"{"id":"a","id":"b"}"#, refused(KeyError::Repeated)),
            (r#"{"id":true}"#, Err(ExtractError::NotAKey)),
            (r#"{"id":["a"]}"#, Err(ExtractError::NotAKey)),
            (r#"{"id":{}}"#, Err(ExtractError::NotAKey)),
            (r#"{"id":"a""#, Err(ExtractError::NotJson)),
            (r#"id=a"#, Err(ExtractError::NotJson)),
            ("", Err(ExtractError::NotJson)),
        ] {
            assert_eq!(from_body(&id, body), expected, "{body}");
        }
        assert_eq!(from_body(&id, &format!(r#"{{"id":"{}"}}"#, "€".repeat(86))), refused(KeyError::TooLong));
        assert_eq!(from_body(&id, &format!(r#"{{"id":{}}}"#, "9".repeat(256))), refused(KeyError::TooLong));
    }

    #[test]
    fn a_key_is_never_made_of_half_its_parts() {
        let source = all_of([json("/a"), json("/b")]);
        assert_eq!(from_body(&source, r#"{"a":"x"}"#), Ok(None));
        assert_eq!(from_body(&source, r#"{"b":"x"}"#), Ok(None));
        assert_eq!(from_body(&source, r#"{"a":null,"b":"x"}"#), Ok(None));
        assert_eq!(from_body(&source, r#"{}"#), Ok(None));
        assert_eq!(from_body(&source, r#"{"a":"x","b":""}"#), refused(KeyError::Empty));
        assert_eq!(from_body(&source, r#"{"b":""}"#), refused(KeyError::Empty));

        let whole = |body| from_body(&source, body).unwrap().unwrap();
        assert_eq!(whole(r#"{"a":"x","b":1}"#), whole(r#"{"b":"1","a":"x"}"#));
        assert_ne!(whole(r#"{"a":"x","b":"y"}"#), whole(r#"{"a":"y","b":"x"}"#));
        assert_ne!(whole(r#"{"a":"x,y","b":"z"}"#), whole(r#"{"a":"x","b":"y,z"}"#));
    }

    #[test]
    fn the_first_source_that_has_a_key_decides_and_a_broken_one_is_not_skipped() {
        let source = first_of([header("idempotency-key"), json("/id")]);
        let body = Some(Bytes::from_static(br#"{"id":"b"}"#));
        let extract = |fields: &[(&'static str, &[u8])]| source.extract(&with(fields), body.as_ref());
        assert_eq!(extract(&[("idempotency-key", b"a")]), key("a"));
        assert_eq!(extract(&[]), key("b"));
        assert_eq!(extract(&[("idempotency-key", b"b")]), extract(&[]));
        assert_eq!(extract(&[("idempotency-key", b"")]), refused(KeyError::Empty));
        assert_eq!(from_body(&source, r#"{"id":""}"#), refused(KeyError::Empty));
        assert_eq!(from_body(&source, "{}"), Ok(None));
        assert_eq!(
            source.extract(&with(&[("idempotency-key", b"a")]), Some(&Bytes::from_static(b"not json"))),
            key("a")
        );
    }

    #[test]
    fn code_can_be_a_source() {
        let source = from_fn(|parts, body| if parts.uri.path() == "/" { Key::new(body).map(Some) } else { Ok(None) });
        assert_eq!(from_body(&source, "k"), key("k"));
        assert_eq!(from_body(&source, ""), refused(KeyError::Empty));
        assert_eq!(
            from_body(&all_of([source, json("/id")]), r#"{"id":1}"#).unwrap().unwrap().text(),
            "%7B%22id%22%3A1%7D,1"
        );
    }

    #[test]
    fn a_source_says_whether_it_needs_the_body() {
        assert!(!header("a").needs_body());
        assert!(!first_of([header("a"), header("b")]).needs_body());
        assert!(json("/a").needs_body());
        assert!(from_fn(|_, _| Ok(None)).needs_body());
        assert!(all_of([header("a"), first_of([header("b"), json("/c")])]).needs_body());
        assert_eq!(json("/a").extract(&with(&[]), None), Err(ExtractError::NotJson));
    }

    #[test]
    fn mistakes_are_found_when_the_layer_is_built() {
        assert_eq!(header("x y").check(), Err(LayerError::HeaderName("x y".into())));
        assert_eq!(header("").check(), Err(LayerError::HeaderName(String::new())));
        assert_eq!(json("id").check(), Err(LayerError::Pointer("id".into())));
        assert_eq!(all_of([]).check(), Err(LayerError::NoKeySource));
        assert_eq!(
            first_of([header("a"), all_of([json("/a"), json("~")])]).check(),
            Err(LayerError::Pointer("~".into()))
        );
        assert_eq!(first_of([header("A-b"), all_of([json(""), json("/a/0")])]).check(), Ok(()));
    }
}
