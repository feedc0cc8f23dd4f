//! What may not change under one key: target, query and body.

use std::fmt;

use bytes::Bytes;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::request::Parts;

use crate::protocol::json;
use crate::protocol::{Fingerprint, Target};

/// What is done with a request's fingerprint.
///
/// It covers the target (method and path as the client sent them), the query as it was sent, and the body:
///
/// | content type | compared as |
/// |---|---|
/// | `application/json`, `…+json` | the JSON value: white space, the order of members and escapes do not matter, numbers are their text. Bytes, where a name occurs twice or it is not JSON |
/// | `multipart/…` | not at all: the boundary is another one on each attempt |
/// | any other, none | bytes, as received: a compressed body is compared compressed |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FingerprintMode {
    /// Stored and compared; another request under the same key is refused (422).
    #[default]
    Enforced,
    /// Stored and compared; a difference is an event and never a refusal. For webhooks, whose sender cannot correct itself.
    Observed,
    /// Neither made nor compared.
    Off,
}

/// A request's parts that a fingerprint is made of, kept so that it can be made again by the rules of another version.
#[derive(Clone)]
pub(super) struct Fingerprinted {
    target: Target,
    uri: Uri,
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
    /// `target` is what the client asked for, where a router has changed the path in `parts`.
    pub(super) fn new(target: Target, parts: &Parts, body: Bytes) -> Self {
        Self { target, uri: parts.uri.clone(), form: Form::of(&parts.headers), body }
    }

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
        match self.form {
            Form::Multipart => digester.part("multipart"),
            Form::Bytes => digester.part("bytes").part(&self.body),
            Form::Json => match json::canonical_digest(&self.body) {
                Ok(digest) => digester.part("json").part(digest),
                Err(_) => digester.part("bytes").part(&self.body),
            },
        }
        .finish()
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
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    const JSON: &str = "application/json";
    const TEXT: &str = "text/plain";

    /// Method and target, content type, body.
    type Vector<'a> = (&'a str, &'a str, &'a [u8]);

    fn fingerprinted((line, content_type, body): Vector<'_>) -> Fingerprinted {
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
        if !content_type.is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        }
        let target = Target::new(method, request.uri().path());
        Fingerprinted::new(target, &request.into_parts().0, Bytes::copy_from_slice(body))
    }

    fn fingerprint(vector: Vector<'_>) -> Fingerprint {
        fingerprinted(vector).digest(Fingerprint::VERSION).unwrap()
    }

    #[test]
    fn equal_requests_have_equal_fingerprints() {
        let pairs: &[(Vector<'_>, Vector<'_>)] = &[
            (("POST /x?a=1&b=2", TEXT, b"hi"), ("POST /x?a=1&b=2", TEXT, b"hi")),
            // Member order at depth, white space, escapes.
            (
                ("POST /x", JSON, br#"{"a":1,"b":{"c":1,"d":2}}"#),
                ("POST /x", JSON, b"{ \"b\":{\"d\":2,\"c\":1}, \"a\":1}\n"),
            ),
            (("POST /x", JSON, br#""\u00e9""#), ("POST /x", JSON, "\"é\"".as_bytes())),
            // Parameters and case of the content type; types that are JSON by their suffix.
            (("POST /x", JSON, b"[1]"), ("POST /x", "Application/JSON; charset=utf-8", b"[ 1 ]")),
            (("POST /x", JSON, b"[1]"), ("POST /x", "application/cloudevents+json", b"[ 1 ]")),
            // An upload that is retried has another boundary.
            (
                ("POST /x", "multipart/form-data; boundary=a", b"--a\r\n\r\nx\r\n--a--"),
                ("POST /x", "Multipart/Form-Data; boundary=b", b"--b\r\n\r\nx\r\n--b--"),
            ),
            // What is not JSON counts as bytes, whatever it calls itself.
            (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", TEXT, b"{\"a\":1,\"a\":2}")),
            (("POST /x", TEXT, b"a"), ("POST /x", "application/octet-stream", b"a")),
            (("POST /x", "", b"a"), ("POST /x", TEXT, b"a")),
            (("POST /x", JSON, b""), ("POST /x", "", b"")),
        ];
        for (a, b) in pairs {
            assert_eq!(fingerprint(*a), fingerprint(*b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn different_requests_have_different_fingerprints() {
        let deep = |depth: usize, leaf: &str| format!("{}{leaf}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
        let (deep_1, deep_2) = (deep(10_000, "1"), deep(10_000, " 1"));
        let pairs: &[(Vector<'_>, Vector<'_>)] = &[
            // Target.
            (("POST /x", TEXT, b"a"), ("PUT /x", TEXT, b"a")),
            (("POST /x", TEXT, b"a"), ("POST /y", TEXT, b"a")),
            (("POST /x", TEXT, b"a"), ("POST /x/", TEXT, b"a")),
            (("POST /x%41", TEXT, b"a"), ("POST /xA", TEXT, b"a")),
            // Query: there or not, order of names, order of a repeated name.
            (("POST /x?dry=1", TEXT, b"a"), ("POST /x", TEXT, b"a")),
            (("POST /x?", TEXT, b"a"), ("POST /x", TEXT, b"a")),
            (("POST /x?a=1&b=2", TEXT, b"a"), ("POST /x?b=2&a=1", TEXT, b"a")),
            (("POST /x?a=1&a=2", TEXT, b"a"), ("POST /x?a=2&a=1", TEXT, b"a")),
            (("POST /x?a=1", TEXT, b"b"), ("POST /x", TEXT, b"a=1b")),
            // JSON: a leaf, array order, number literals, 64-bit numbers, Unicode spellings.
            (("POST /x", JSON, b"{\"a\":1}"), ("POST /x", JSON, b"{\"a\":2}")),
            (("POST /x", JSON, b"[1,2]"), ("POST /x", JSON, b"[2,1]")),
            (("POST /x", JSON, b"1"), ("POST /x", JSON, b"1.0")),
            (("POST /x", JSON, b"1e0"), ("POST /x", JSON, b"1")),
            (("POST /x", JSON, b"0"), ("POST /x", JSON, b"-0")),
            (("POST /x", JSON, b"9007199254740993"), ("POST /x", JSON, b"9007199254740992")),
            (("POST /x", JSON, b"1E400"), ("POST /x", JSON, b"1E401")),
            (("POST /x", JSON, "\"\u{e9}\"".as_bytes()), ("POST /x", JSON, "\"e\u{301}\"".as_bytes())),
            // Not JSON: a changed byte counts. Duplicate names, half a surrogate pair, byte order mark, depth.
            (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", JSON, b"{\"a\":2,\"a\":1}")),
            (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", JSON, b"{\"a\":2}")),
            (("POST /x", JSON, b"\"\\ud800\""), ("POST /x", JSON, b"\"\\uD800\"")),
            (("POST /x", JSON, b"\xef\xbb\xbf1"), ("POST /x", JSON, b"\xef\xbb\xbf 1")),
            (("POST /x", JSON, b"\xef\xbb\xbf1"), ("POST /x", JSON, b"1")),
            (("POST /x", JSON, &deep_1), ("POST /x", JSON, &deep_2)),
            // Bytes.
            (("POST /x", TEXT, b"[1]"), ("POST /x", TEXT, b"[ 1]")),
            (("POST /x", TEXT, b"[1]"), ("POST /x", JSON, b"[1]")),
            (("POST /x", "text/json", b"[1]"), ("POST /x", "text/json", b"[ 1]")),
            (("POST /x", TEXT, b""), ("POST /x", "multipart/mixed; boundary=a", b"")),
        ];
        for (a, b) in pairs {
            assert_ne!(fingerprint(*a), fingerprint(*b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_part_cannot_pass_for_its_neighbour() {
        let target = |path: &str| {
            let request = Request::builder().uri("/x?q").body(()).unwrap();
            Fingerprinted::new(Target::new("POST", path), &request.into_parts().0, Bytes::new()).digest(1).unwrap()
        };
        assert_ne!(target("/a"), target("/b"), "the target is the client's, not the router's");
        assert_ne!(fingerprint(("POST /x?bytes", "", b"")), fingerprint(("POST /x", "", b"bytes")));
    }

    /// Fingerprints are stored: another digest for the same request is a new version.
    #[test]
    fn digests_never_change() {
        let hex = |vector| blake3::Hash::from(*fingerprint(vector).digest()).to_hex().to_string();
        assert_eq!(
            hex(("POST /x?a=1", JSON, br#"{"a":[1,"x"]}"#)),
            "7cd78c02943578f4bf823cef6410ff2657e3e8a9dde6451b4a57041c49722bf3"
        );
        assert_eq!(hex(("POST /x", TEXT, b"hi")), "b7de8e8dbf18a6e96869c30cd864f3c99e68ce22b4411f767312eec0c446ab8c");
        assert_eq!(
            hex(("POST /x", "multipart/mixed", b"hi")),
            "b20bc216e967f3e28ccce05d088c658cc550765239875e55f666fec099f2e24b"
        );
    }

    #[test]
    fn an_unknown_version_has_no_digest_here() {
        let request = fingerprinted(("POST /x", TEXT, b"a"));
        assert_eq!(request.digest(Fingerprint::VERSION).unwrap().version(), Fingerprint::VERSION);
        assert_eq!(request.digest(0), None);
        assert_eq!(request.digest(Fingerprint::VERSION + 1), None);
        assert_eq!(format!("{request:?}"), "Fingerprinted(Bytes, 1 bytes)");
    }
}
