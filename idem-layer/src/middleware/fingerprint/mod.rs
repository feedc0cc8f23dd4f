//! What may not change under one key: by default the target, the query and the body.
//!
//! A key that comes back with another request is a mistake of its client, and answered with the first request's response it
//! would look like success. So a digest of the request, its *fingerprint*, is stored with the claim and compared before any
//! answer.
//!
//! It covers the target (method and path as the client sent them), the query as it was sent, and the body:
//!
//! | content type | compared as |
//! |---|---|
//! | `application/json`, `…+json` | the JSON value: white space, the order of members and escapes do not matter, numbers are their text |
//! | the same, where a name occurs twice in an object, more than 128 arrays and objects lie inside each other, or it is not JSON | bytes, as received |
//! | `multipart/…` | not at all: the boundary is another one on each attempt |
//! | any other, several, none | bytes, as received: a compressed body is compared compressed |
//!
//! The default needs no word of it: a route's layer compares, and refuses what differs with 422.
//!
//! ```
//! use idem_layer::middleware::IdempotencyLayer;
//! use idem_layer::{Guard, MemoryStore};
//!
//! let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "payments.create").unscoped().build()?;
//! # Ok::<(), idem_layer::middleware::LayerError>(())
//! ```
//!
//! Customised: clients that stamp each attempt, and an API whose versions read one body differently. Then a webhook whose
//! sender cannot correct itself, of which two members decide.
//!
//! ```
//! use idem_layer::middleware::{IdempotencyLayer, fingerprint, key};
//! use idem_layer::{Guard, MemoryStore};
//!
//! let guard = Guard::at_least_once(MemoryStore::new());
//! let orders = IdempotencyLayer::builder(guard.clone(), "orders.create")
//!     .unscoped()
//!     .fingerprint(fingerprint::enforced().without(["/sent_at", "/client/attempt"]).header("x-api-version"))
//!     .build()?;
//! let callbacks = IdempotencyLayer::builder(guard, "callbacks.pay")
//!     .unscoped()
//!     .key(key::json("/event_id"))
//!     .fingerprint(fingerprint::observed().only(["/order_no", "/amount"]))
//!     .build()?;
//! # Ok::<(), idem_layer::middleware::LayerError>(())
//! ```
//!
//! 1. One of [`raw`](FingerprintRules::raw), [`only`](FingerprintRules::only) and [`without`](FingerprintRules::without) says
//!    how bodies are compared, none of them is the table above. Two of them are an error of the layer's `build`.
//! 2. `only` and `without` choose among the members of JSON bodies. Every other body counts whole, as in the table: nothing
//!    that cannot be read is left out of the comparison.
//! 3. [`header`](FingerprintRules::header) goes with any of them, for bodies of every kind.
//! 4. Members and header fields are sets: the order in which they are named does not matter, nor how often.
//! 5. Of JSON bodies, digests of different selections are never equal; a body that counts as bytes has one digest whatever
//!    the selection. So changing a route's selection makes repeats of JSON requests from before the change mismatches, and
//!    changing its header fields those of all, until their records expire. Where that hurts, let the route [observe](observed)
//!    for so long.
//!
//! Leave out only what a handler does not act on. Two requests that differ in nothing else are one: the second gets the
//! first one's response.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use super::error::LayerError;
use crate::protocol::json::{self, JsonError, Pointers};
use crate::protocol::{Digester, Fingerprint, Target};

/// How many pointers, and how many header fields, one fingerprint may name.
const MAX_NAMED: usize = 32;

/// How the repeats of a route are compared with its first requests. Cheap to clone; see the [module docs](self).
#[derive(Clone)]
#[must_use]
pub struct FingerprintRules {
    mode: Mode,
    selected: Arc<Selected>,
    mistake: Option<LayerError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Enforced,
    Observed,
    Off,
}

/// The parts of a request that count, beside its target and query.
#[derive(Clone, Default)]
struct Selected {
    body: BodyRule,
    /// In alphabetical order, each once.
    headers: Vec<HeaderName>,
}

#[derive(Clone, Debug, Default)]
enum BodyRule {
    #[default]
    ByType,
    Raw,
    Only(Pointers),
    Without(Pointers),
}

/// Stored and compared; another request under the same key is refused (422). The default of every route.
pub fn enforced() -> FingerprintRules {
    FingerprintRules::new(Mode::Enforced)
}

/// Stored and compared; a difference is an event and never a refusal. For webhooks, whose sender cannot correct itself.
pub fn observed() -> FingerprintRules {
    FingerprintRules::new(Mode::Observed)
}

/// Neither made nor compared: the key alone decides.
///
/// It takes no rules; one with rules is an error of the layer's `build`.
pub fn off() -> FingerprintRules {
    FingerprintRules::new(Mode::Off)
}

impl FingerprintRules {
    /// Bodies count as bytes, whatever their content type: those of JSON, whose members then have to come in the same order,
    /// and of `multipart/…`, whose boundary then has to be the same, too.
    pub fn raw(mut self) -> Self {
        let selected = Arc::make_mut(&mut self.selected);
        match selected.body {
            BodyRule::ByType | BodyRule::Raw => selected.body = BodyRule::Raw,
            BodyRule::Only(_) | BodyRule::Without(_) => self.mistaken(LayerError::TwoSelections),
        }
        self
    }

    /// Of JSON bodies exactly the values at these JSON pointers (RFC 6901) count, each as the JSON value that it is, with
    /// everything in it. That there is none is a value of its own, and not `null`.
    ///
    /// Called again, it adds pointers. None at all, more than 32, or one that is not well-formed is an error of the layer's
    /// `build`.
    pub fn only(mut self, pointers: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let selected = Arc::make_mut(&mut self.selected);
        if let BodyRule::ByType = selected.body {
            selected.body = BodyRule::Only(Pointers::default());
        }
        let result = match &mut selected.body {
            BodyRule::Only(named) => add(named, pointers),
            _ => Err(LayerError::TwoSelections),
        };
        self.keep(result)
    }

    /// Of JSON bodies everything counts but what stands at these JSON pointers (RFC 6901). A body that has nothing there
    /// equals one that has anything there.
    ///
    /// A pointer such as `/lines/0/note` leads to a member of an array's first element; one that ends in an index leaves out
    /// that element.
    ///
    /// Called again, it adds pointers. None at all, more than 32, one that is not well-formed, or the empty one, at which the
    /// whole body stands, is an error of the layer's `build`.
    pub fn without(mut self, pointers: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let selected = Arc::make_mut(&mut self.selected);
        if let BodyRule::ByType = selected.body {
            selected.body = BodyRule::Without(Pointers::default());
        }
        let result = match &mut selected.body {
            BodyRule::Without(named) => add(named, pointers),
            _ => Err(LayerError::TwoSelections),
        };
        self.keep(result)
    }

    /// The values of this header field count, too: all of its lines, in order, each byte for byte. That there is no such field
    /// is a value of its own, and not an empty line.
    ///
    /// For what changes the meaning of a request, such as a version of the API. Not for what is new on each attempt (a date, a
    /// trace) or can be renewed between two (a credential): honest repeats would differ.
    ///
    /// Called again, it adds a field. More than 32, or a name that no field can have, is an error of the layer's `build`.
    pub fn header(mut self, name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        let Ok(name) = name.parse::<HeaderName>() else {
            return self.keep(Err(LayerError::HeaderName(name.to_owned())));
        };
        let headers = &mut Arc::make_mut(&mut self.selected).headers;
        if let Err(at) = headers.binary_search_by(|other| other.as_str().cmp(name.as_str())) {
            headers.insert(at, name);
        }
        self
    }

    /// The fingerprint of a request by these rules, nothing where it is [`off`]. What a layer with these rules stores and
    /// compares; public so that a test can show which requests are one.
    ///
    /// `target` is what the client asked for, `head` has the query and the header fields, `body` is the whole body as received.
    ///
    /// Of rules that no layer can be built with, those that are in order apply.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use idem_layer::middleware::fingerprint;
    /// use idem_layer::protocol::Target;
    ///
    /// let rules = fingerprint::enforced().without(["/sent_at"]);
    /// let target = Target::new("POST", "/orders");
    /// let (head, ()) = Request::post("/orders").header("content-type", "application/json").body(())?.into_parts();
    /// let of = |body| rules.of(&target, &head, &Bytes::from_static(body));
    ///
    /// assert_eq!(of(br#"{"total":1,"sent_at":"9:00"}"#), of(br#"{"sent_at":"9:05","total":1}"#));
    /// assert_ne!(of(br#"{"total":1,"sent_at":"9:00"}"#), of(br#"{"total":2,"sent_at":"9:00"}"#));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn of(&self, target: &Target, head: &Parts, body: &Bytes) -> Option<Fingerprint> {
        Fingerprinted::new(self, target.clone(), head, body.clone())?.digest(Fingerprint::VERSION)
    }

    /// Whether a difference is reported and not refused.
    pub(super) fn is_observed(&self) -> bool {
        self.mode == Mode::Observed
    }

    /// Reports what is wrong with the rules.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        let Selected { body, headers } = &*self.selected;
        if self.mode == Mode::Off && !(headers.is_empty() && matches!(body, BodyRule::ByType)) {
            return Err(LayerError::OffWithRules);
        }
        if headers.len() > MAX_NAMED {
            return Err(LayerError::TooManyNamed { what: "header fields", limit: MAX_NAMED });
        }
        match body {
            BodyRule::ByType | BodyRule::Raw => Ok(()),
            BodyRule::Only(pointers) | BodyRule::Without(pointers) if pointers.len() == 0 => Err(LayerError::NoPointer),
            BodyRule::Only(pointers) | BodyRule::Without(pointers) if pointers.len() > MAX_NAMED => {
                Err(LayerError::TooManyNamed { what: "pointers", limit: MAX_NAMED })
            }
            BodyRule::Without(pointers) if pointers.has_whole() => Err(LayerError::WithoutBody),
            BodyRule::Only(_) | BodyRule::Without(_) => Ok(()),
        }
    }

    fn new(mode: Mode) -> Self {
        Self { mode, selected: Arc::default(), mistake: None }
    }

    fn keep(mut self, result: Result<(), LayerError>) -> Self {
        if let Err(mistake) = result {
            self.mistaken(mistake);
        }
        self
    }

    /// The first mistake is the one that is reported.
    fn mistaken(&mut self, mistake: LayerError) {
        self.mistake.get_or_insert(mistake);
    }
}

impl fmt::Debug for FingerprintRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.mode)?;
        let Selected { body, headers } = &*self.selected;
        if !matches!(body, BodyRule::ByType) {
            write!(f, ".{body:?}")?;
        }
        headers.iter().try_for_each(|name| write!(f, ".Header({name:?})"))
    }
}

fn add(pointers: &mut Pointers, texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), LayerError> {
    texts.into_iter().try_for_each(|text| match text.as_ref() {
        text if pointers.add(text) => Ok(()),
        text => Err(LayerError::Pointer(text.to_owned())),
    })
}

/// A request's parts that a fingerprint is made of, kept so that it can be made again by the rules of another version.
#[derive(Clone)]
pub(super) struct Fingerprinted {
    selected: Arc<Selected>,
    target: Target,
    uri: Uri,
    /// The values of each selected field, in the order of the selected names.
    fields: Box<[Box<[HeaderValue]>]>,
    form: Form,
    body: Bytes,
}

/// How the body is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Multipart,
    Bytes,
}

impl Fingerprinted {
    /// Nothing where no fingerprint is made. `target` is what the client asked for, where a router has changed the path in
    /// `head`.
    pub(super) fn new(rules: &FingerprintRules, target: Target, head: &Parts, body: Bytes) -> Option<Self> {
        if rules.mode == Mode::Off {
            return None;
        }
        let selected = Arc::clone(&rules.selected);
        let values = |name| head.headers.get_all(name).iter().cloned().collect();
        let fields = selected.headers.iter().map(values).collect();
        let form = match selected.body {
            BodyRule::Raw => Form::Bytes,
            BodyRule::ByType | BodyRule::Only(_) | BodyRule::Without(_) => Form::of(&head.headers),
        };
        Some(Self { selected, target, uri: head.uri.clone(), fields, form, body })
    }

    /// The fingerprint by the rules of a version, nothing if this code does not know them.
    pub(super) fn digest(&self, version: u8) -> Option<Fingerprint> {
        match version {
            1 => Some(self.digest_v1()),
            _ => None,
        }
    }

    /// Lists of parts are equal only where all parts are, so each way to compare has a first part of its own, and what may
    /// occur more or less often is preceded by its number.
    fn digest_v1(&self) -> Fingerprint {
        let digester = Fingerprint::digester().part("http").part(self.target.as_str());
        let digester = match self.uri.query() {
            Some(query) => digester.part("query").part(query),
            None => digester.part("no query"),
        };
        let digester = match self.form {
            Form::Multipart => digester.part("multipart"),
            Form::Bytes => digester.part("bytes").part(&self.body),
            Form::Json => match self.selected.body.add_json(digester.clone(), &self.body) {
                Ok(digester) => digester,
                Err(_) => digester.part("bytes").part(&self.body),
            },
        };
        let fields = self.selected.headers.iter().zip(&self.fields);
        fields
            .fold(digester, |digester, (name, values)| {
                let digester = digester.part("header").part(name.as_str()).part(number(values.len()));
                values.iter().fold(digester, Digester::part)
            })
            .finish()
    }
}

impl BodyRule {
    /// Adds what counts of a JSON body.
    fn add_json(&self, digester: Digester, json: &[u8]) -> Result<Digester, JsonError> {
        Ok(match self {
            Self::ByType | Self::Raw => digester.part("json").part(json::canonical_digest(json)?),
            Self::Without(pointers) => {
                let left = json::digest_without(json, pointers)?;
                let digester = digester.part("json without").part(number(pointers.len()));
                pointers.texts().fold(digester, Digester::part).part(left)
            }
            Self::Only(pointers) => {
                let values = json::digests_at(json, pointers)?;
                let digester = digester.part("json only").part(number(pointers.len()));
                pointers.texts().zip(values).fold(digester, |digester, (pointer, value)| match value {
                    Some(value) => digester.part(pointer).part("value").part(value),
                    None => digester.part(pointer).part("absent"),
                })
            }
        })
    }
}

fn number(count: usize) -> [u8; 8] {
    (count as u64).to_le_bytes()
}

impl fmt::Debug for Fingerprinted {
    /// Redacted: it is somebody's request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprinted({:?}, {} bytes)", self.form, self.body.len())
    }
}

impl Form {
    fn of(headers: &HeaderMap) -> Self {
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let (Some(content_type), None) = (types.next(), types.next()) else { return Self::Bytes };
        let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii().to_ascii_lowercase();
        if essence.starts_with(b"multipart/") {
            Self::Multipart
        } else if essence == b"application/json" || essence.ends_with(b"+json") {
            Self::Json
        } else {
            Self::Bytes
        }
    }
}

#[cfg(test)]
mod tests;
