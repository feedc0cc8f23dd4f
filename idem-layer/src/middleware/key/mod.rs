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
//! | source | reads | absent when |
//! |---|---|---|
//! | [`header`] | the one field line of this name, quoted or bare | there is no such field |
//! | [`query`] | the one parameter of this name in the query | there is no such parameter |
//! | [`path`] | the segments of the path that a template captures | the path has another form |
//! | [`json`] | the string or number at a pointer into the body | nothing or `null` is there |
//! | [`form`] | the one field of this name in the body | there is no such field |
//! | [`digest`] | the values at several pointers into the body, of any type | nothing or `null` is at one of them |
//! | [`extension`] | what another layer has found out | there is no such extension, or it has no key |
//! | [`from_fn`] | head and body, by code | the code says so |
//! | [`all_of`] | several sources, for the parts of one key | one of them is, and is not [`optional`] |
//! | [`first_of`] | several sources, for the whole key | each of them is |
//!
//! Each of them can be narrowed down: [`length`](KeySource::length), [`uuid`](KeySource::uuid),
//! [`chars`](KeySource::chars), and for headers [`quoted`](KeySource::quoted).
//!
//! 1. *Absent* and *empty* are different things. A request without a key is none of the layer's business (or is refused,
//!    where the route requires one); one with an empty or malformed key is refused, so that no two callers ever share a
//!    key that neither of them chose.
//! 2. A key is never made from half of its parts, and never from the time.
//! 3. What is given twice is refused, even with equal values: the handler might read the other one.
//! 4. A key that is text is UTF-8 without control characters, and not only white space. It has 1 to 255 bytes, all parts
//!    together, and is compared byte for byte. The same text is the same key, wherever it was read.
//! 5. Different parts never make the same key, whatever bytes they have, and whichever of them are absent.
//! 6. A source only reads. What it reads is part of the stored identity: changing a route's source forgets its keys.
//!
//! Try a source on a request with [`KeySource::find`]:
//!
//! ```
//! use bytes::Bytes;
//! use http::Request;
//! use idem_layer::middleware::key;
//!
//! // Forms of a shop that names its orders itself, and numbers its attempts where it wants to pay an order twice.
//! let source = key::all_of([
//!     key::path("/shops/{shop}/payments"),
//!     key::form("order_no").length(8..=32).chars("digits", |c| c.is_ascii_digit()),
//!     key::optional(key::form("attempt")),
//! ]);
//! let (head, ()) = Request::post("/shops/acme/payments").body(())?.into_parts();
//!
//! let key = source.find(&head, &Bytes::from("order_no=20240001&amount=5")).expect("well-formed");
//! assert_eq!(key.expect("present").text(), "acme,20240001,~");
//! let refused = source.find(&head, &Bytes::from("order_no=no-1")).unwrap_err();
//! assert_eq!(refused.code(), "key-malformed");
//! # Ok::<(), http::Error>(())
//! ```

mod form;
mod path;
mod percent;
mod read;
mod rule;
#[cfg(test)]
mod tests;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;

use self::path::Template;
use self::rule::Rule;
use super::error::LayerError;
use super::layer::path_as_sent;
use super::rejection::Rejection;
use crate::protocol::json::Pointer;
use crate::protocol::{Key, KeyError, KeyParts};

pub(super) use self::read::ExtractError;
#[cfg(test)]
pub(super) use self::rule::Expected;

/// Finds a request's key. Cheap to clone; see the [module docs](self).
#[derive(Clone)]
#[must_use]
pub struct KeySource {
    kind: Kind,
    rules: Vec<Rule>,
}

#[derive(Clone)]
enum Kind {
    /// No source, but what is wrong with its description.
    Mistaken(LayerError),
    Header {
        name: HeaderName,
        quoted: bool,
    },
    Query(Arc<str>),
    Path(Arc<Template>),
    Json(Arc<Pointer>),
    Form(Arc<str>),
    Digest(Arc<[(Box<str>, Pointer)]>),
    Extension(Arc<FromExtension>, &'static str),
    Custom(Arc<Custom>),
    AllOf(Arc<[KeySource]>),
    FirstOf(Arc<[KeySource]>),
    Optional(Arc<KeySource>),
}

type FromExtension = dyn Fn(&Parts) -> Result<Option<Key>, KeyError> + Send + Sync;
type Custom = dyn Fn(&Parts, &Bytes) -> Result<Option<Key>, KeyError> + Send + Sync;

/// The value of a header field, quoted or bare: see [`Key::from_field_value`], and [`KeySource::quoted`] for the quoted
/// form alone.
///
/// Absent when there is no such field. More than one field line is [`KeyError::Repeated`], even with equal values: somebody
/// on the way has added one.
///
/// A name that no field can have is an error of the layer's `build`.
pub fn header(name: impl AsRef<str>) -> KeySource {
    let name = name.as_ref();
    match name.parse() {
        Ok(name) => Kind::Header { name, quoted: false }.into(),
        Err(_) => LayerError::HeaderName(name.to_owned()).into(),
    }
}

/// The value of a parameter in the query, decoded as `application/x-www-form-urlencoded` (WHATWG URL, section 5.1): `+` is a
/// space, `%` and two hexadecimal digits are a byte.
///
/// Absent when no parameter has this name; names are compared decoded. Given twice, it is [`KeyError::Repeated`]; without a
/// value (`?id=`, `?id`), [`KeyError::Empty`].
///
/// A `%` without its two digits is refused (400 `key-malformed`) wherever it stands in the query, in front of other names,
/// too. There is no one reading of such a query: what this source took for another parameter, the handler could take for
/// this one.
///
/// An empty name is an error of the layer's `build`.
pub fn query(name: impl AsRef<str>) -> KeySource {
    match name.as_ref() {
        "" => LayerError::EmptyName("the name of a query parameter").into(),
        name => Kind::Query(name.into()).into(),
    }
}

/// The value of a field of a form in the body. The rules are those of [`query`], except that a malformed escape is answered
/// 400 `body-malformed`. The body's content type is not asked; a body without pairs has no key.
///
/// An empty name is an error of the layer's `build`.
pub fn form(name: impl AsRef<str>) -> KeySource {
    match name.as_ref() {
        "" => LayerError::EmptyName("the name of a form field").into(),
        name => Kind::Form(name.into()).into(),
    }
}

/// The segments of the path that a template captures, such as `order_no` of `/orders/{order_no}/pay`. Several are the parts
/// of one key, in the order of the path, as in [`all_of`]; their names are for people.
///
/// The path is the one that the client sent, with the prefix of a nested router: under axum's `Router::nest` that takes the
/// feature `axum`. It fits when it has as many segments as the template and the others are equal, byte for byte: upper
/// case, a trailing slash and percent-encoding matter there. A path that does not fit has no key.
///
/// A captured segment is percent-decoded; `+` is a plus sign. An empty one is [`KeyError::Empty`], one with a malformed
/// escape is refused (400 `key-malformed`).
///
/// A template that is malformed, or captures nothing, is an error of the layer's `build`.
pub fn path(template: impl AsRef<str>) -> KeySource {
    match Template::parse(template.as_ref()) {
        Ok(template) => Kind::Path(Arc::new(template)).into(),
        Err(mistake) => mistake.into(),
    }
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
    match parse(pointer.as_ref()) {
        Ok(pointer) => Kind::Json(Arc::new(pointer)).into(),
        Err(mistake) => mistake.into(),
    }
}

/// A key that stands for the values at these JSON pointers in the body, of any type: for callers who send no key of their
/// own. Choose the fields that say which business event it is.
///
/// Values count as JSON: white space, the order of members and escapes do not matter. Numbers are their text, and `7` and
/// `"7"` are two values here. It also counts which pointer has which value, and the order of the pointers.
///
/// Absent when at any pointer there is nothing, or `null`. A body that is not JSON is refused, and so is one in which a
/// name occurs twice where it is read: on the way of a pointer, or anywhere in the values.
///
/// The key is [`Key::digest`]. Whatever is not digested does not matter, the time least of all: two requests with the same
/// values are one operation for as long as its record is kept. Where two truly separate ones can be equal (the same order,
/// twice), let clients tell them apart by a factor of their own:
///
/// ```
/// use idem_layer::middleware::key;
///
/// let source = key::all_of([
///     key::digest(["/customer", "/items", "/amount"]),
///     key::optional(key::header("x-factor")),
/// ]);
/// # let _ = source;
/// ```
///
/// No pointer, or one that is not well-formed, is an error of the layer's `build`.
pub fn digest(pointers: impl IntoIterator<Item = impl AsRef<str>>) -> KeySource {
    let parsed = |pointer: &str| Ok((pointer.into(), parse(pointer)?));
    let pointers: Result<Arc<[_]>, LayerError> = pointers.into_iter().map(|pointer| parsed(pointer.as_ref())).collect();
    match pointers {
        Ok(pointers) if pointers.is_empty() => LayerError::NoPointer.into(),
        Ok(pointers) => Kind::Digest(pointers).into(),
        Err(mistake) => mistake.into(),
    }
}

/// The key that an extension of the request has: something that another layer, further out on the stack, has inserted, such
/// as the id in a verified token.
///
/// Absent when the request has no such extension, or `key_of` finds nothing in it. Its bytes may be any, but not none:
/// that is [`KeyError::Empty`].
///
/// ```
/// use idem_layer::middleware::key;
///
/// #[derive(Clone)]
/// struct VerifiedEvent {
///     id: String,
/// }
///
/// let source = key::extension(|event: &VerifiedEvent| Some(event.id.clone()));
/// # let _ = source;
/// ```
pub fn extension<T, K, F>(key_of: F) -> KeySource
where
    T: Send + Sync + 'static,
    K: AsRef<[u8]>,
    F: Fn(&T) -> Option<K> + Send + Sync + 'static,
{
    let find = move |parts: &Parts| parts.extensions.get::<T>().and_then(&key_of).map(Key::new).transpose();
    Kind::Extension(Arc::new(find), type_name::<T>()).into()
}

/// A key by code. It gets the head and the whole body of the request.
///
/// ```
/// use idem_layer::middleware::key;
/// use idem_layer::protocol::Key;
///
/// // The part of an opaque id that stays the same on each delivery.
/// let delivery = key::from_fn(|parts, _body| match parts.headers.get("x-delivery").map(|id| id.as_bytes()) {
///     Some(id) => Key::new(id.split(|byte| *byte == b'.').next().unwrap_or_default()).map(Some),
///     None => Ok(None),
/// });
/// # let _ = delivery;
/// ```
///
/// As a part of [`all_of`] it must always find keys of the same number of parts.
pub fn from_fn<F>(find: F) -> KeySource
where
    F: Fn(&Parts, &Bytes) -> Result<Option<Key>, KeyError> + Send + Sync + 'static,
{
    Kind::Custom(Arc::new(find)).into()
}

/// One key of all these parts, in this order.
///
/// Absent when any part is, unless that part is [`optional`]: the parts that are there may be shared by many events that
/// are not repeats of each other (one sender, one second, one event type), and a key made of them would drop real events.
/// A malformed part is an error even when another is absent. A part that is itself composed adds its parts, without a
/// bracket around them; those of an optional one, or of a [`first_of`] whose sources have different numbers of parts, stand
/// in a bracket.
///
/// Without any source, it is an error of the layer's `build`.
pub fn all_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    Kind::AllOf(sources.into_iter().collect()).into()
}

/// The key of the first source that has one. The same text through a header or through the body is the same key.
///
/// A malformed key is an error and not a reason to try the next source: a client that retries must not end up under
/// another key than before because one of the two places was damaged on the way.
///
/// Without any source, it is an error of the layer's `build`.
pub fn first_of(sources: impl IntoIterator<Item = KeySource>) -> KeySource {
    Kind::FirstOf(sources.into_iter().collect()).into()
}

/// A part of [`all_of`] that may be absent. It has a position of its own, so that a key without it is never a key with
/// another part: `(a, absent)`, `(absent, a)` and `(a)` are three keys. Where all parts are absent, so is the key.
///
/// Only say so of a part whose absence means something: two requests that differ in nothing but what is absent from both
/// are one operation.
///
/// Elsewhere than directly in [`all_of`] it is an error of the layer's `build`.
pub fn optional(source: KeySource) -> KeySource {
    Kind::Optional(Arc::new(source)).into()
}

impl KeySource {
    /// The key that this request has, as the layer finds it; nothing if it has none. For tests, and for whoever looks for a
    /// request's record by hand.
    ///
    /// A source whose description is mistaken finds nothing: the layer's `build` says what is wrong with it.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use idem_layer::middleware::key;
    ///
    /// let source = key::query("request_id");
    /// let find = |uri: &str| source.find(&Request::post(uri).body(()).unwrap().into_parts().0, &Bytes::new());
    /// assert_eq!(find("/orders?request_id=a%20b")?.expect("a key").text(), "a b");
    /// assert_eq!(find("/orders")?, None);
    /// assert_eq!(find("/orders?request_id=").unwrap_err().to_string(), "400 key-malformed");
    /// # Ok::<(), idem_layer::middleware::Rejection>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The [`Rejection`] that the request would be answered with: its key or body is malformed.
    pub fn find(&self, head: &Parts, body: &Bytes) -> Result<Option<Key>, Rejection> {
        Ok(self.extract(head, Some(body))?)
    }

    /// The first header field that can have the whole key, if any.
    pub(super) fn header_name(&self) -> Option<&HeaderName> {
        match &self.kind {
            Kind::Header { name, .. } => Some(name),
            Kind::FirstOf(sources) => sources.iter().find_map(Self::header_name),
            _ => None,
        }
    }

    /// This source where requests without a key are given one, as a quoted value such as `sample`: one that finds such a key
    /// again when a client sends it. Where no header field has the whole key, `Idempotency-Key` is read behind the source.
    pub(super) fn generated(self, sample: &HeaderValue) -> Result<Self, LayerError> {
        let standard = HeaderName::from_static("idempotency-key");
        let source = match self.header_name() {
            Some(_) => self,
            // As a part of a key it would be half of it.
            None if self.reads_header(&standard) => return Err(LayerError::GeneratedKey),
            None => first_of([self, header(&standard)]),
        };
        let name = source.header_name().unwrap_or(&standard).clone();
        if source.takes(&name, sample) { Ok(source) } else { Err(LayerError::GeneratedKey) }
    }

    /// Whether the key of this field alone gets past all rules.
    fn takes(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        let Ok(key) = Key::from_field_value(value.as_bytes()) else { return false };
        self.rules.iter().all(|rule| rule.check(&key).is_ok())
            && match &self.kind {
                Kind::Header { .. } => self.header_name() == Some(name),
                Kind::FirstOf(sources) => {
                    sources.iter().find(|source| source.header_name().is_some()).is_some_and(|s| s.takes(name, value))
                }
                _ => false,
            }
    }

    fn reads_header(&self, name: &HeaderName) -> bool {
        match &self.kind {
            Kind::Header { name: read, .. } => read == name,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().any(|source| source.reads_header(name)),
            Kind::Optional(source) => source.reads_header(name),
            _ => false,
        }
    }

    /// Whether the body must have been read before a key can be found.
    pub(super) fn needs_body(&self) -> bool {
        match &self.kind {
            Kind::Json(_) | Kind::Form(_) | Kind::Digest(_) | Kind::Custom(_) => true,
            Kind::AllOf(sources) | Kind::FirstOf(sources) => sources.iter().any(Self::needs_body),
            Kind::Optional(source) => source.needs_body(),
            Kind::Mistaken(_) | Kind::Header { .. } | Kind::Query(_) | Kind::Path(_) | Kind::Extension(..) => false,
        }
    }

    /// Reports what was wrong with the source's description.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        match &self.kind {
            Kind::Mistaken(mistake) => Err(mistake.clone()),
            Kind::Optional(_) => Err(LayerError::MisplacedOptional),
            Kind::AllOf(sources) | Kind::FirstOf(sources) if sources.is_empty() => Err(LayerError::NoKeySource),
            Kind::FirstOf(sources) => sources.iter().try_for_each(Self::check),
            Kind::AllOf(sources) => sources.iter().try_for_each(|source| match &source.kind {
                Kind::Optional(source) => source.check(),
                _ => source.check(),
            }),
            _ => Ok(()),
        }
    }

    /// The key of a request, nothing if it has none. `body` is the whole body; without one it counts as empty.
    pub(super) fn extract(&self, parts: &Parts, body: Option<&Bytes>) -> Result<Option<Key>, ExtractError> {
        let key = self.read(parts, body)?;
        if let Some(key) = &key {
            self.rules.iter().try_for_each(|rule| rule.check(key))?;
        }
        Ok(key)
    }

    fn read(&self, parts: &Parts, body: Option<&Bytes>) -> Result<Option<Key>, ExtractError> {
        let bytes = body.map_or(&[][..], |body| body);
        match &self.kind {
            // Does not get past `check`.
            Kind::Mistaken(_) => Ok(None),
            Kind::Header { name, quoted } => read::field(parts, name, *quoted),
            Kind::Query(name) => read::parameter(parts, name),
            Kind::Path(template) => template.key(path_as_sent(parts)),
            Kind::Json(pointer) => read::member(bytes, pointer),
            Kind::Form(name) => read::form_field(bytes, name),
            Kind::Digest(pointers) => read::digest(bytes, pointers),
            Kind::Extension(find, _) => Ok(find(parts)?),
            Kind::Custom(find) => Ok(find(parts, body.unwrap_or(&Bytes::new()))?),
            Kind::Optional(source) => source.extract(parts, body),
            Kind::FirstOf(sources) => {
                sources.iter().find_map(|source| source.extract(parts, body).transpose()).transpose()
            }
            Kind::AllOf(sources) => {
                let (mut all, mut whole) = (KeyParts::default(), true);
                // All are asked even when one is missed: a malformed part is an error even behind an absent one.
                for source in sources.iter() {
                    match source.extract(parts, body)? {
                        key if source.positions().is_none() => {
                            whole &= key.is_some() || source.is_optional();
                            all.add_varying(key.as_ref());
                        }
                        Some(key) => all.add(&key),
                        None => whole = false,
                    }
                }
                if whole { Ok(all.finish()?) } else { Ok(None) }
            }
        }
    }

    /// How many parts its keys have; nothing where that is not always the same number. One that is not gets one position in a
    /// composed key, so that what stands behind it cannot be taken for a part of it.
    fn positions(&self) -> Option<usize> {
        match &self.kind {
            Kind::Optional(_) => None,
            Kind::Path(template) => Some(template.captures()),
            Kind::AllOf(sources) => Some(sources.iter().map(|source| source.positions().unwrap_or(1)).sum()),
            Kind::FirstOf(sources) => {
                let mut all = sources.iter().map(Self::positions);
                let first = all.next()??;
                all.all(|positions| positions == Some(first)).then_some(first)
            }
            _ => Some(1),
        }
    }

    fn is_optional(&self) -> bool {
        matches!(self.kind, Kind::Optional(_))
    }
}

impl From<Kind> for KeySource {
    fn from(kind: Kind) -> Self {
        Self { kind, rules: Vec::new() }
    }
}

impl From<LayerError> for KeySource {
    fn from(mistake: LayerError) -> Self {
        Kind::Mistaken(mistake).into()
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Mistaken(mistake) => write!(f, "mistaken({mistake})"),
            Kind::Header { name, quoted: false } => write!(f, "header({name})"),
            Kind::Header { name, quoted: true } => write!(f, "header({name}).quoted()"),
            Kind::Query(name) => write!(f, "query({name})"),
            Kind::Path(template) => write!(f, "path({template:?})"),
            Kind::Json(pointer) => write!(f, "json({pointer:?})"),
            Kind::Form(name) => write!(f, "form({name})"),
            Kind::Digest(pointers) => {
                f.write_str("digest")?;
                f.debug_list().entries(pointers.iter().map(|(text, _)| text)).finish()
            }
            Kind::Extension(_, extension) => write!(f, "extension({extension})"),
            Kind::Custom(_) => f.write_str("from_fn(..)"),
            Kind::AllOf(sources) => f.debug_tuple("all_of").field(sources).finish(),
            Kind::FirstOf(sources) => f.debug_tuple("first_of").field(sources).finish(),
            Kind::Optional(source) => f.debug_tuple("optional").field(source).finish(),
        }?;
        self.rules.iter().try_for_each(|rule| write!(f, " {rule:?}"))
    }
}

fn parse(pointer: &str) -> Result<Pointer, LayerError> {
    Pointer::parse(pointer).ok_or_else(|| LayerError::Pointer(pointer.to_owned()))
}
