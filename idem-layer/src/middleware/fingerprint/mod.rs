//! What may not change under one key.
//!
//! A fingerprint is stored with the record and compared before anything else is decided: another request under the same key
//! is refused with 422 and never answered with the response of the first.
//!
//! ```
//! use idem_layer::middleware::fingerprint;
//!
//! // The default: target, query and the whole body.
//! let strict = fingerprint::enforced();
//! // A sender that stamps each attempt: the stamp does not count, and a difference is told instead of refused.
//! let webhook = fingerprint::observed().without(["/sent_at", "/attempt"]);
//! // Nothing of the body counts but the money; the version of the API does.
//! let payment = fingerprint::enforced().only(["/amount", "/currency"]).header("x-api-version");
//! # let _ = (strict, webhook, payment);
//! ```
//!
//! It covers the target (method and path as the client sent them), the query as it was sent, the values of the header fields
//! that are [named](FingerprintRules::header), and the body:
//!
//! | content type | compared as |
//! |---|---|
//! | `application/json`, `…+json` | the JSON value: white space, the order of members and escapes do not matter, numbers are their text. Bytes, where a name occurs twice or it is not JSON |
//! | `multipart/…` | not at all: the boundary is another one on each attempt |
//! | any other, none | bytes, as received: a compressed body is compared compressed |
//!
//! 1. Members are chosen or left out of JSON bodies alone. What is not JSON, whatever it calls itself, counts as a whole: nothing
//!    is left out by mistake.
//! 2. Records outlive a release. Other rules on a route make other fingerprints, so that keys whose first request came before
//!    and whose retry comes after the change are refused: change them by way of [`observed`].

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;

use super::error::LayerError;
use crate::protocol::json::{self, JsonError, Pointer};
use crate::protocol::{Digester, Fingerprint, Target};

/// Stored and compared; another request under the same key is refused (422).
pub fn enforced() -> FingerprintRules {
    FingerprintRules::new(Mode::Enforced)
}

/// Stored and compared; a difference is an [event](crate::guard::EventKind::Differs) and never a refusal. For webhooks, whose
/// sender cannot correct itself.
pub fn observed() -> FingerprintRules {
    FingerprintRules::new(Mode::Observed)
}

/// Neither made nor compared: whatever comes under a key is a repeat of the first.
pub fn off() -> FingerprintRules {
    FingerprintRules::new(Mode::Off)
}

/// What of a request may not change under one key, and what is done where it does. Cheap to clone; see the
/// [module docs](self).
#[derive(Clone)]
pub struct FingerprintRules {
    mode: Mode,
    raw: bool,
    members: Members,
    headers: Arc<[HeaderName]>,
    /// What `build` will say.
    mistake: Option<LayerError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Enforced,
    Observed,
    Off,
}

/// Which members of a JSON body count.
#[derive(Clone)]
enum Members {
    All,
    Only(Arc<[Member]>),
    Without(Arc<[Member]>),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    name: Box<str>,
    pointer: Pointer,
}

impl FingerprintRules {
    /// How many members may be chosen or left out: each is one more pass over the body.
    pub const MAX_MEMBERS: usize = 32;

    fn new(mode: Mode) -> Self {
        Self { mode, raw: false, members: Members::All, headers: Arc::default(), mistake: None }
    }

    /// Compares bodies as bytes, whatever their content type.
    ///
    /// Together with chosen members it is an error of the layer's `build`.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.raw = true;
        self
    }

    /// Of a JSON body, only the values at these JSON pointers (RFC 6901) count, in whatever order they are named. A member that
    /// is absent is a value of its own, other than `null`.
    ///
    /// A malformed pointer, more than [`MAX_MEMBERS`](Self::MAX_MEMBERS) of them, and members that are left out as well are errors
    /// of the layer's `build`.
    #[must_use]
    pub fn only<P: AsRef<str>>(self, members: impl IntoIterator<Item = P>) -> Self {
        self.choose(members, Members::Only)
    }

    /// Of a JSON body, everything counts but the values at these JSON pointers (RFC 6901): a body without the member equals one
    /// with any value of it.
    ///
    /// Mistakes as for [`only`](Self::only).
    #[must_use]
    pub fn without<P: AsRef<str>>(self, members: impl IntoIterator<Item = P>) -> Self {
        self.choose(members, Members::Without)
    }

    /// The values of this header field count, too: all its lines, in order. Absent is a value of its own. May be said several
    /// times, in whatever order.
    ///
    /// A name that no field can have is an error of the layer's `build`.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<str>) -> Self {
        match name.as_ref().parse::<HeaderName>() {
            Ok(name) => {
                let mut headers = [&*self.headers, &[name]].concat();
                headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
                headers.dedup();
                self.headers = headers.into();
            }
            Err(_) => self.mistake = Some(LayerError::HeaderName(name.as_ref().to_owned())),
        }
        self
    }

    fn choose<P: AsRef<str>>(
        mut self,
        members: impl IntoIterator<Item = P>,
        into: fn(Arc<[Member]>) -> Members,
    ) -> Self {
        if !matches!(self.members, Members::All) {
            self.mistake = Some(LayerError::FingerprintMembers("members are chosen twice"));
            return self;
        }
        let mut chosen = Vec::new();
        for name in members {
            match Pointer::parse(name.as_ref()) {
                Some(pointer) => chosen.push(Member { name: name.as_ref().into(), pointer }),
                None => self.mistake = Some(LayerError::Pointer(name.as_ref().to_owned())),
            }
        }
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.len() > Self::MAX_MEMBERS {
            self.mistake = Some(LayerError::FingerprintMembers("more than 32 members are chosen"));
        }
        self.members = into(chosen.into());
        self
    }

    /// Reports what was wrong with the description.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.raw && !matches!(self.members, Members::All) {
            return Err(LayerError::FingerprintMembers("bytes have no members to choose"));
        }
        Ok(())
    }

    /// A difference is reported and refuses nothing.
    pub(super) fn is_observed(&self) -> bool {
        self.mode == Mode::Observed
    }

    /// What a request is compared by, kept so that it can be digested by the rules of another version; nothing where it is not
    /// compared. `target` is what the client asked for, where a router has changed the path in `head`.
    pub(super) fn apply(&self, target: &Target, head: &Parts, body: &Bytes) -> Option<Fingerprinted> {
        if self.mode == Mode::Off {
            return None;
        }
        let fields = self.headers.iter().map(|name| head.headers.get_all(name).iter().cloned().collect()).collect();
        Some(Fingerprinted {
            target: target.clone(),
            uri: head.uri.clone(),
            form: if self.raw { Form::Bytes } else { Form::of(&head.headers) },
            body: body.clone(),
            members: self.members.clone(),
            headers: Arc::clone(&self.headers),
            fields,
        })
    }

    /// The fingerprint of a request, by the present version; nothing where these rules make none. For tests of one's own rules:
    /// two requests are the same under one key if their fingerprints are equal.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use idem_layer::middleware::fingerprint;
    /// use idem_layer::protocol::Target;
    ///
    /// let rules = fingerprint::enforced().without(["/sent_at"]);
    /// let (head, ()) = Request::post("/hooks").header("content-type", "application/json").body(())?.into_parts();
    /// let of = |body: &'static str| rules.of(&Target::new("POST", "/hooks"), &head, &Bytes::from(body));
    /// assert_eq!(of(r#"{"id":1,"sent_at":1}"#), of(r#"{"sent_at":2,"id":1}"#));
    /// assert_ne!(of(r#"{"id":1,"sent_at":1}"#), of(r#"{"id":2,"sent_at":1}"#));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn of(&self, target: &Target, head: &Parts, body: &Bytes) -> Option<Fingerprint> {
        self.apply(target, head, body)?.digest(Fingerprint::VERSION)
    }
}

/// [`enforced`].
impl Default for FingerprintRules {
    fn default() -> Self {
        enforced()
    }
}

impl fmt::Debug for FingerprintRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintRules")
            .field("mode", &self.mode)
            .field("raw", &self.raw)
            .field("members", &self.members)
            .field("headers", &self.headers)
            .finish()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, members) = match self {
            Self::All => return f.write_str("all"),
            Self::Only(members) => ("only", members),
            Self::Without(members) => ("without", members),
        };
        write!(f, "{name} ")?;
        f.debug_list().entries(members.iter().map(|member| &member.name)).finish()
    }
}

/// A request's parts that a fingerprint is made of.
#[derive(Clone)]
pub(super) struct Fingerprinted {
    target: Target,
    uri: Uri,
    form: Form,
    body: Bytes,
    members: Members,
    headers: Arc<[HeaderName]>,
    /// The values of each of `headers`.
    fields: Vec<Vec<HeaderValue>>,
}

/// How the body is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Multipart,
    Bytes,
}

impl Fingerprinted {
    /// The fingerprint by the rules of a version, nothing if this code does not know them.
    pub(super) fn digest(&self, version: u8) -> Option<Fingerprint> {
        match version {
            1 => Some(self.digest_v1()),
            _ => None,
        }
    }

    fn digest_v1(&self) -> Fingerprint {
        let digester = Fingerprint::digester().part("http").part(self.target.as_str());
        let digester = match self.uri.query() {
            Some(query) => digester.part("query").part(query),
            None => digester.part("no query"),
        };
        let digester = match self.form {
            Form::Multipart => digester.part("multipart"),
            Form::Bytes => digester.part("bytes").part(&self.body),
            Form::Json => self.json(digester.clone()).unwrap_or_else(|_| digester.part("bytes").part(&self.body)),
        };
        let fields = self.headers.iter().zip(&self.fields);
        fields
            .fold(digester, |digester, (name, values)| {
                let digester = digester.part("header").part(name).part((values.len() as u64).to_le_bytes());
                values.iter().fold(digester, |digester, value| digester.part(value))
            })
            .finish()
    }

    fn json(&self, digester: Digester) -> Result<Digester, JsonError> {
        match &self.members {
            Members::All => Ok(digester.part("json").part(json::canonical_digest(&self.body)?)),
            Members::Without(members) => {
                let pointers = members.iter().map(|member| &member.pointer);
                Ok(digester.part("json without").part(json::canonical_digest_without(&self.body, pointers)?))
            }
            Members::Only(members) => {
                let digester = digester.part("json only").part((members.len() as u64).to_le_bytes());
                members.iter().try_fold(digester, |digester, member| {
                    let digester = digester.part(&*member.name);
                    Ok(match member.pointer.locate(&self.body)? {
                        None => digester.part("absent"),
                        Some(place) => digester.part("value").part(json::canonical_digest(&self.body[place])?),
                    })
                })
            }
        }
    }
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
