//! Responses as they are stored, and back.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};

use super::classify::is_grpc;
use crate::protocol::{Content, ResponseSnapshot, Snapshot, SnapshotError};

/// Marks a replay. One that comes from further inside is not stored, and does not belong on a first answer either.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What is stored of a response: everything that is meant for the client for good.
///
/// Not stored are
/// - fields of the connection (RFC 9110, section 7.6.1), and those that `Connection` names;
/// - `Date`, and `Content-Length`, which a replay has of its own;
/// - cookies and authentication fields: they belong to the moment, and perhaps to a session that has ended since;
/// - a mark of a replay.
///
/// `Trailer` is stored only with trailers: HTTP/1.1 does not send them without it. A status without content (204, 304) is
/// stored without any.
pub(super) fn capture(parts: &Parts, body: Bytes, trailers: Option<&HeaderMap>) -> ResponseSnapshot {
    let (body, trailers) = if has_content(parts.status) { (body, trailers) } else { (Bytes::new(), None) };
    let trailers = trailers.map(|trailers| stored(trailers, &[])).filter(|trailers| !trailers.is_empty());
    let mut unstored = named_by_connection(&parts.headers);
    if trailers.is_none() {
        unstored.push(header::TRAILER);
    }
    ResponseSnapshot { status: parts.status.as_u16(), headers: stored(&parts.headers, &unstored), body, trailers }
}

/// A stored response, ready to be sent again.
#[derive(Debug)]
pub(super) struct Replay {
    /// Head and body. Has its `Content-Length`, where it may, and the mark of a replay.
    pub(super) response: Response<Bytes>,
    /// Trailers, to be sent behind the body.
    pub(super) trailers: Option<HeaderMap>,
}

/// Builds a stored response again.
///
/// Same status, fields in order with their bytes, body and trailers.
///
/// # Errors
///
/// When the snapshot is not of a response, or of one that HTTP does not know.
pub(super) fn replay(snapshot: &Snapshot) -> Result<Replay, SnapshotError> {
    let Content::Response(stored) = snapshot.decode()? else { return Err(SnapshotError::OtherKind) };
    let status = StatusCode::from_u16(stored.status).map_err(|_| SnapshotError::Damaged)?;
    if status.is_informational() {
        return Err(SnapshotError::Damaged);
    }
    let mut headers = rebuilt(stored.headers)?;
    let trailers = stored.trailers.map(rebuilt).transpose()?;
    // With a length, HTTP/1.1 has no place for trailers. gRPC frames its own messages.
    if has_content(status) && trailers.is_none() && !is_grpc(&headers) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(stored.body.len()));
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));

    let mut response = Response::new(stored.body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Replay { response, trailers })
}

/// Whether a response of this status may have a body, and so its length (RFC 9110, section 6.4.1).
pub(super) fn has_content(status: StatusCode) -> bool {
    !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The fields of the connection, of authentication, of the moment.
fn is_unstored(name: &HeaderName) -> bool {
    const OTHERS: [&str; 9] = [
        "authentication-info",
        "authorization",
        "idempotent-replayed",
        "keep-alive",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "set-cookie2",
        "upgrade",
    ];
    matches!(
        *name,
        header::CONNECTION
            | header::CONTENT_LENGTH
            | header::DATE
            | header::PROXY_AUTHENTICATE
            | header::SET_COOKIE
            | header::TE
            | header::TRANSFER_ENCODING
            | header::WWW_AUTHENTICATE
    ) || OTHERS.contains(&name.as_str())
}

/// The fields that the sender meant for the next hop only (RFC 9110, section 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

fn stored(fields: &HeaderMap, unstored: &[HeaderName]) -> Vec<(String, Bytes)> {
    let stored = fields.iter().filter(|(name, _)| !is_unstored(name) && !unstored.contains(name));
    stored.map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()))).collect()
}

fn rebuilt(fields: Vec<(String, Bytes)>) -> Result<HeaderMap, SnapshotError> {
    let mut headers = HeaderMap::with_capacity(fields.len() + 2);
    for (name, value) in fields {
        let name = HeaderName::try_from(name).map_err(|_| SnapshotError::Damaged)?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| SnapshotError::Damaged)?;
        headers.try_append(name, value).map_err(|_| SnapshotError::Damaged)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Fields = Vec<(HeaderName, HeaderValue)>;

    fn map(fields: &Fields) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name, value.clone());
        }
        map
    }

    fn fields(of: &HeaderMap) -> Fields {
        of.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn plain(fields: &[(&'static str, &'static str)]) -> Fields {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn through(status: u16, headers: &HeaderMap, body: &[u8], trailers: Option<&HeaderMap>) -> Replay {
        let mut response = Response::builder().status(status).body(()).unwrap();
        *response.headers_mut() = headers.clone();
        let stored = capture(&response.into_parts().0, Bytes::copy_from_slice(body), trailers);
        replay(&Snapshot::response(&stored)).unwrap()
    }

    #[test]
    fn what_belongs_to_the_moment_is_not_stored() {
        let headers = plain(&[
            ("location", "/payments/1"),
            ("connection", "close, X-Hop"),
            ("connection", "x-hop-2,,"),
            ("x-hop", "1"),
            ("x-hop-2", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-length", "999"),
            ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("set-cookie", "session=1"),
            ("set-cookie2", "session=1"),
            ("www-authenticate", "Basic"),
            ("proxy-authenticate", "Basic"),
            ("authentication-info", "x"),
            ("proxy-authentication-info", "x"),
            ("authorization", "Bearer x"),
            ("proxy-authorization", "Bearer x"),
            ("idempotent-replayed", "true"),
            ("etag", "\"1\""),
        ]);
        let replay = through(201, &map(&headers), b"hello", None);
        let expected =
            [("location", "/payments/1"), ("etag", "\"1\""), ("content-length", "5"), ("idempotent-replayed", "true")];
        assert_eq!(fields(replay.response.headers()), plain(&expected));
        assert_eq!(replay.response.status(), 201);
        assert_eq!(replay.response.body(), "hello");
        assert_eq!(replay.trailers, None);
    }

    #[test]
    fn a_status_without_a_body_has_no_framing() {
        for status in [204, 304] {
            let trailers = map(&plain(&[("x-sum", "1")]));
            let headers =
                map(&plain(&[("trailer", "x-sum"), ("content-length", "7"), ("etag", "\"1\""), ("x-a", "1")]));
            let replay = through(status, &headers, b"ignored", Some(&trailers));
            assert_eq!(
                fields(replay.response.headers()),
                plain(&[("etag", "\"1\""), ("x-a", "1"), ("idempotent-replayed", "true")])
            );
            assert!(replay.response.body().is_empty());
            assert_eq!(replay.trailers, None);
        }
        for status in [200, 205, 404] {
            let replay = through(status, &HeaderMap::new(), b"", None);
            assert_eq!(
                fields(replay.response.headers()),
                plain(&[("content-length", "0"), ("idempotent-replayed", "true")])
            );
        }
    }

    #[test]
    fn trailers_come_back_without_a_length_before_them() {
        let grpc = plain(&[("content-type", "application/grpc")]);
        let trailers = plain(&[("grpc-status", "0"), ("grpc-message", "")]);
        let replay = through(200, &map(&grpc), b"\0\0\0\0\0", Some(&map(&trailers)));
        assert_eq!(fields(replay.response.headers()), [grpc, plain(&[("idempotent-replayed", "true")])].concat());
        assert_eq!(fields(&replay.trailers.unwrap()), trailers);

        let chunked = map(&plain(&[("transfer-encoding", "chunked"), ("trailer", "x-sum")]));
        let sum = map(&plain(&[("x-sum", "1"), ("set-cookie", "a=b")]));
        let replay = through(200, &chunked, b"x", Some(&sum));
        assert_eq!(fields(replay.response.headers()), plain(&[("trailer", "x-sum"), ("idempotent-replayed", "true")]));
        assert_eq!(fields(&replay.trailers.unwrap()), plain(&[("x-sum", "1")]));
        let replay = through(200, &chunked, b"x", Some(&HeaderMap::new()));
        assert_eq!(
            fields(replay.response.headers()),
            plain(&[("content-length", "1"), ("idempotent-replayed", "true")])
        );

        let trailers_only = plain(&[("content-type", "application/grpc"), ("grpc-status", "5")]);
        let replay = through(200, &map(&trailers_only), b"", None);
        assert_eq!(
            fields(replay.response.headers()),
            [trailers_only, plain(&[("idempotent-replayed", "true")])].concat()
        );
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        let field = |name: &str, value: &'static [u8]| vec![(name.to_owned(), Bytes::from_static(value))];
        let response = |status, headers, trailers| {
            replay(&Snapshot::response(&ResponseSnapshot { status, headers, trailers, body: Bytes::new() }))
                .unwrap_err()
        };
        assert_eq!(response(99, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(1000, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(101, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(200, field("a b", b""), None), SnapshotError::Damaged);
        assert_eq!(response(200, field("a", b"\n"), None), SnapshotError::Damaged);
        assert_eq!(response(200, vec![], Some(field("", b""))), SnapshotError::Damaged);
        assert_eq!(replay(&Snapshot::value(b"1")).unwrap_err(), SnapshotError::OtherKind);
        assert_eq!(
            replay(&Snapshot::from_bytes(Bytes::from_static(b"\x63R"))).unwrap_err(),
            SnapshotError::UnknownVersion(99)
        );
    }

    fn any_fields() -> impl Strategy<Value = Fields> {
        let name = prop_oneof![
            prop::sample::select(vec![
                "etag",
                "link",
                "location",
                "x-a",
                "cache-control",
                "content-encoding",
                "retry-after"
            ])
            .prop_map(HeaderName::from_static),
            prop::sample::select(vec!["connection", "date", "set-cookie", "content-length", "trailer", "upgrade"])
                .prop_map(HeaderName::from_static),
            "[a-z0-9!#$%&'*+.^_`|~-]{1,12}".prop_map(|name| name.parse().unwrap()),
        ];
        let value = prop_oneof!["x-a", "[\t -~\u{a1}-\u{ff}]{0,12}"].prop_map(|value: String| {
            HeaderValue::from_bytes(&value.chars().map(|c| c as u8).collect::<Vec<_>>()).unwrap()
        });
        prop::collection::vec((name, value), 0..12)
    }

    proptest! {
        #[test]
        fn a_replay_equals_the_original_but_for_the_fields_of_the_moment(
            status in 200_u16..1000, headers in any_fields(), trailers in prop::option::of(any_fields()),
            body in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let (headers, trailers) = (map(&headers), trailers.as_ref().map(map));
            let replay = through(status, &headers, &body, trailers.as_ref());
            let bodyless = matches!(status, 204 | 304);
            let expected = |of: &HeaderMap, beside: &[HeaderName]| -> Fields {
                fields(of).into_iter().filter(|(name, _)| !is_unstored(name) && !beside.contains(name)).collect()
            };

            let expected_trailers = expected(&trailers.unwrap_or_default(), &[]);
            let expected_trailers = if bodyless { Vec::new() } else { expected_trailers };
            let mut hop = named_by_connection(&headers);
            if expected_trailers.is_empty() {
                hop.push(header::TRAILER);
            }
            let added = [header::CONTENT_LENGTH, REPLAYED];
            let replayed = fields(replay.response.headers());
            let (replayed, replays_own): (Fields, Fields) = replayed.into_iter().partition(|(name, _)| !added.contains(name));
            prop_assert_eq!(replayed, expected(&headers, &hop));
            let length = (!bodyless && expected_trailers.is_empty()).then(|| HeaderValue::from(body.len()));
            let length = length.map(|length| (header::CONTENT_LENGTH, length));
            prop_assert_eq!(replays_own, length.into_iter().chain([(REPLAYED, "true".parse().unwrap())]).collect::<Fields>());
            prop_assert_eq!(fields(&replay.trailers.unwrap_or_default()), expected_trailers);
            prop_assert_eq!(replay.response.status(), status);
            prop_assert_eq!(&replay.response.body()[..], if bodyless { &[][..] } else { &body });
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..100)) {
            bytes[..2].copy_from_slice(b"\x01R");
            let _ = replay(&Snapshot::from_bytes(bytes.into()));
        }
    }
}
