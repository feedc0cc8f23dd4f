//! Responses as they are stored, and back.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};

use super::classify::is_grpc;
use super::kept::{KeptHeaders, is_of_one_message};
use super::marks::{Marker, without};
use crate::protocol::{Content, ResponseSnapshot, Snapshot, SnapshotError};

/// The most that is stored of fields, in bytes of their names and values as HTTP/1.1 writes them. Several times what clients
/// and proxies take.
pub(super) const FIELDS_LIMIT: usize = 64 * 1024;

/// What is stored of a response: everything that the route keeps and that is meant for the client for good. `None` where its
/// fields are too large to be kept.
pub(super) fn capture(
    kept: &KeptHeaders,
    marker: &Marker,
    parts: &Parts,
    body: Bytes,
    trailers: Option<&HeaderMap>,
) -> Option<ResponseSnapshot> {
    let Fields { headers, trailers } = Fields::kept(kept, marker, parts, trailers)?;
    let body = if has_content(parts.status) { body } else { Bytes::new() };
    Some(ResponseSnapshot {
        status: parts.status.as_u16(),
        headers: owned(headers),
        body,
        trailers: trailers.map(owned),
    })
}

/// The fields of a response that are stored.
pub(super) struct Fields<'a> {
    headers: Vec<Field<'a>>,
    trailers: Option<Vec<Field<'a>>>,
}

type Field<'a> = (&'a HeaderName, &'a HeaderValue);

impl<'a> Fields<'a> {
    /// `None` where they are too large to be kept. Not stored are
    /// - what [`KeptHeaders`] leaves out;
    /// - the fields that `Connection` names (RFC 9110, section 7.6.1);
    /// - a mark of a replay.
    ///
    /// `Trailer` is stored only with trailers: HTTP/1.1 does not send them without it. A status without content (204, 205,
    /// 304) is stored without any.
    pub(super) fn kept(
        kept: &KeptHeaders,
        marker: &Marker,
        parts: &'a Parts,
        trailers: Option<&'a HeaderMap>,
    ) -> Option<Self> {
        let keeps = |name: &HeaderName| kept.keeps(name) && *name != marker.name;
        let trailers = trailers.filter(|_| has_content(parts.status));
        let trailers: Vec<Field<'a>> = trailers.into_iter().flatten().filter(|(name, _)| keeps(name)).collect();
        let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
        let hop = named_by_connection(&parts.headers);
        let stays = |name: &HeaderName| trailers.is_some() || *name != header::TRAILER;
        let headers = parts.headers.iter().filter(|(name, _)| keeps(name) && !hop.contains(name) && stays(name));
        let headers: Vec<Field<'a>> = headers.collect();

        let fields = headers.iter().chain(trailers.iter().flatten());
        let length: usize = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
        (length <= FIELDS_LIMIT).then_some(Self { headers, trailers })
    }
}

fn owned(fields: Vec<Field<'_>>) -> Vec<(String, Bytes)> {
    let copied = |(name, value): Field<'_>| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()));
    fields.into_iter().map(copied).collect()
}

/// A response, ready to be sent again.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) response: Response<Bytes>,
    /// Trailers, to be sent behind the body.
    pub(super) trailers: Option<HeaderMap>,
}

/// Reads a stored response: same status, fields in order with their bytes, body and trailers.
///
/// # Errors
///
/// When the snapshot is not of a response, or of one that HTTP does not know.
pub(super) fn read(snapshot: &Snapshot) -> Result<Replay, SnapshotError> {
    let Content::Response(stored) = snapshot.decode()? else { return Err(SnapshotError::OtherKind) };
    let status = StatusCode::from_u16(stored.status).map_err(|_| SnapshotError::Damaged)?;
    if status.is_informational() {
        return Err(SnapshotError::Damaged);
    }
    let mut response = Response::new(stored.body);
    *response.status_mut() = status;
    *response.headers_mut() = rebuilt(stored.headers)?;
    Ok(Replay { response, trailers: stored.trailers.map(rebuilt).transpose()? })
}

impl Replay {
    /// The response as it is sent: with the length that it has now, where it may, and the mark of a replay.
    pub(super) fn marked(mut self, marker: &Marker) -> Self {
        let status = self.response.status();
        if !has_content(status) {
            *self.response.body_mut() = Bytes::new();
            self.trailers = None;
        }
        let (length, headers) = (self.response.body().len(), self.response.headers_mut());
        let unsendable =
            |name: &HeaderName| is_of_one_message(name) || (*name == header::TRAILER && self.trailers.is_none());
        if headers.keys().any(unsendable) {
            *headers = without(headers, unsendable);
        }
        // With a length, HTTP/1.1 has no place for trailers. gRPC frames its own messages.
        if may_have_length(status) && self.trailers.is_none() && !is_grpc(headers) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        headers.insert(marker.name.clone(), marker.value.clone());
        self
    }
}

/// Whether a response of this status may have a body (RFC 9110, sections 6.4.1 and 15.3.6).
pub(super) fn has_content(status: StatusCode) -> bool {
    !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether a response of this status to a request that is guarded may tell its length (RFC 9110, section 8.6): after 205
/// HTTP/1.1 expects to be told that there is none.
fn may_have_length(status: StatusCode) -> bool {
    has_content(status) || status == StatusCode::RESET_CONTENT
}

/// Takes the framing of a body out of a head that has none. Some handlers declare one, and what follows on the connection
/// would be taken for it. A 304 may tell the length of the body that it does not send.
pub(super) fn unframe(head: &mut Parts) {
    let framing = |name: &HeaderName| matches!(*name, header::CONTENT_LENGTH | header::TRANSFER_ENCODING);
    let frameless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    if frameless && head.headers.keys().any(framing) {
        head.headers = without(&head.headers, framing);
    }
}

/// Corrects a length that is declared, and is not the one of a body that has been read. The body is sent as one of known
/// length, and servers do not compare: what is missing or over would be waited for, or taken for the next answer.
pub(super) fn correct_length(headers: &mut HeaderMap, length: usize) {
    let length = HeaderValue::from(length);
    let mut declared = headers.get_all(header::CONTENT_LENGTH).iter();
    let is_right = declared.next().is_none_or(|first| *first == length) && declared.next().is_none();
    if !is_right {
        headers.insert(header::CONTENT_LENGTH, length);
    }
}

/// An answer of ours as a hook has left it, with the framing that its status and its body have.
pub(super) fn reframed(response: Response<Bytes>) -> Response<Bytes> {
    let (mut head, mut body) = response.into_parts();
    if has_content(head.status) {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        head.headers.remove(header::TRANSFER_ENCODING);
    } else {
        unframe(&mut head);
        head.headers.remove(header::CONTENT_LENGTH);
        body = Bytes::new();
    }
    Response::from_parts(head, body)
}

/// The fields that the sender meant for the next hop only (RFC 9110, section 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

fn rebuilt(fields: Vec<(String, Bytes)>) -> Result<HeaderMap, SnapshotError> {
    // More names than any snapshot of ours has; a map would still hold them and what a replay adds.
    const MOST_NAMES: usize = 16 * 1024;
    let mut headers = HeaderMap::with_capacity(fields.len().min(64) + 2);
    for (name, value) in fields {
        let name = HeaderName::try_from(name).map_err(|_| SnapshotError::Damaged)?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| SnapshotError::Damaged)?;
        headers.try_append(name, value).map_err(|_| SnapshotError::Damaged)?;
        if headers.keys_len() > MOST_NAMES {
            return Err(SnapshotError::Damaged);
        }
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

    fn stored(
        kept: &KeptHeaders,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        trailers: Option<&HeaderMap>,
    ) -> Option<ResponseSnapshot> {
        let mut response = Response::builder().status(status).body(()).unwrap();
        *response.headers_mut() = headers.clone();
        kept.check(&Marker::default().name).unwrap();
        capture(kept, &Marker::default(), &response.into_parts().0, Bytes::copy_from_slice(body), trailers)
    }

    fn through(status: u16, headers: &HeaderMap, body: &[u8], trailers: Option<&HeaderMap>) -> Replay {
        let stored = stored(&KeptHeaders::all(), status, headers, body, trailers).unwrap();
        read(&Snapshot::response(&stored)).unwrap().marked(&Marker::default())
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
            let body = if status == 205 { "ignored" } else { "" };
            let replay = through(status, &HeaderMap::new(), body.as_bytes(), None);
            assert!(replay.response.body().is_empty());
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
            read(&Snapshot::response(&ResponseSnapshot { status, headers, trailers, body: Bytes::new() })).unwrap_err()
        };
        assert_eq!(response(99, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(1000, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(101, vec![], None), SnapshotError::Damaged);
        assert_eq!(response(200, field("a b", b""), None), SnapshotError::Damaged);
        assert_eq!(response(200, field("a", b"\n"), None), SnapshotError::Damaged);
        assert_eq!(response(200, vec![], Some(field("", b""))), SnapshotError::Damaged);
        assert_eq!(read(&Snapshot::value(b"1")).unwrap_err(), SnapshotError::OtherKind);
        assert_eq!(
            read(&Snapshot::from_bytes(Bytes::from_static(b"\x63R"))).unwrap_err(),
            SnapshotError::UnknownVersion(99)
        );
    }

    #[test]
    fn a_field_with_several_lines_keeps_them_all_in_order_with_their_bytes() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", &b"<a>"[..]),
            ("set-cookie", b"a=\xe9"),
            ("link", b"<b>; rel=\"\xff\""),
            ("set-cookie", b"b=2"),
            ("etag", b"\"1\""),
            ("set-cookie", b"a=\xe9"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let stored = stored(&KeptHeaders::all().with(["set-cookie"]), 200, &headers, b"", None).unwrap();
        let replay = read(&Snapshot::response(&stored)).unwrap();
        assert_eq!(replay.response.headers(), &headers);
        assert_eq!(fields(replay.response.headers()), fields(&headers));
        let cookies: Vec<_> =
            replay.response.headers().get_all("set-cookie").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(cookies, [&b"a=\xe9"[..], b"b=2", b"a=\xe9"]);
    }

    #[test]
    fn fields_are_kept_up_to_their_limit() {
        let room = FIELDS_LIMIT - "etag: \r\n1x-a: \r\n".len();
        let headers = |length| {
            let mut headers = map(&plain(&[("etag", "1")]));
            headers.insert("x-a", "x".repeat(length).parse().unwrap());
            headers
        };
        let keeps = |headers: &HeaderMap, trailers| stored(&KeptHeaders::all(), 200, headers, b"", trailers).is_some();
        assert!(keeps(&headers(room), None));
        assert!(!keeps(&headers(room + 1), None));
        let trailers = map(&plain(&[("x-b", "")]));
        let room = room - "x-b: \r\n".len();
        assert!(keeps(&headers(room), Some(&trailers)));
        assert!(!keeps(&headers(room + 1), Some(&trailers)));
        // Only what would be stored counts.
        let cookie = map(&[("set-cookie".parse().unwrap(), "x".repeat(2 * FIELDS_LIMIT).parse().unwrap())].into());
        assert!(keeps(&cookie, Some(&cookie)));
    }

    /// A map that was asked for room for more names than it can hold panicked.
    #[test]
    fn a_snapshot_with_more_fields_than_a_map_holds_is_damaged() {
        let response = |headers| ResponseSnapshot { status: 200, headers, ..ResponseSnapshot::default() };
        let named = |name: fn(usize) -> String| (0..40_000).map(|n| (name(n), Bytes::new())).collect::<Vec<_>>();
        for many in [16_385, 24_576, 40_000] {
            let mut many_names = named(|n| format!("x-{n}"));
            many_names.truncate(many);
            assert_eq!(read(&Snapshot::response(&response(many_names))).unwrap_err(), SnapshotError::Damaged);
        }
        let lines = Snapshot::response(&response(named(|_| "x-a".into())));
        assert_eq!(read(&lines).unwrap().response.headers().len(), 40_000);
    }

    fn any_kept() -> impl Strategy<Value = (KeptHeaders, Vec<&'static str>, Vec<&'static str>, bool)> {
        let listed = prop::sample::subsequence(
            vec!["etag", "link", "location", "x-a", "cache-control", "set-cookie", "www-authenticate"],
            0..7,
        );
        (any::<bool>(), listed.clone(), listed).prop_map(|(only, with, without)| {
            let base = if only { KeptHeaders::only([""; 0]) } else { KeptHeaders::all() };
            (base.with(&with).without(&without), with, without, only)
        })
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
                "content-type",
                "retry-after",
                "www-authenticate"
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
            status in prop_oneof![200_u16..1000, Just(204), Just(205), Just(304)], headers in any_fields(),
            trailers in prop::option::of(any_fields()), body in prop::collection::vec(any::<u8>(), 0..64),
            (kept, with, without, only) in any_kept()
        ) {
            let (headers, trailers) = (map(&headers), trailers.as_ref().map(map));
            let snapshot = stored(&kept, status, &headers, &body, trailers.as_ref()).unwrap();
            let replay = read(&Snapshot::response(&snapshot)).unwrap().marked(&Marker::default());
            let bodyless = matches!(status, 204 | 205 | 304);
            let chosen = |name: &str| match name {
                "connection" | "date" | "content-length" | "upgrade" => false,
                "content-encoding" | "content-type" | "trailer" => true,
                _ if without.contains(&name) => false,
                _ if with.contains(&name) => true,
                "set-cookie" | "www-authenticate" => false,
                _ => !only,
            };
            let expected = |of: &HeaderMap, beside: &[HeaderName]| -> Fields {
                fields(of).into_iter().filter(|(name, _)| chosen(name.as_str()) && !beside.contains(name)).collect()
            };

            let expected_trailers = expected(&trailers.unwrap_or_default(), &[]);
            let expected_trailers = if bodyless { Vec::new() } else { expected_trailers };
            let mut hop = named_by_connection(&headers);
            if expected_trailers.is_empty() {
                hop.push(header::TRAILER);
            }
            let mark = HeaderName::from_static("idempotent-replayed");
            let added = [header::CONTENT_LENGTH, mark.clone()];
            let replayed = fields(replay.response.headers());
            let (replayed, replays_own): (Fields, Fields) = replayed.into_iter().partition(|(name, _)| !added.contains(name));
            prop_assert_eq!(replayed, expected(&headers, &hop));
            let length = match status {
                204 | 304 => None,
                205 => Some(0),
                _ => expected_trailers.is_empty().then_some(body.len()),
            };
            let length = length.filter(|_| !is_grpc(&headers)).map(HeaderValue::from);
            let length = length.map(|length| (header::CONTENT_LENGTH, length));
            prop_assert_eq!(replays_own, length.into_iter().chain([(mark, "true".parse().unwrap())]).collect::<Fields>());
            prop_assert_eq!(fields(&replay.trailers.unwrap_or_default()), expected_trailers);
            prop_assert_eq!(replay.response.status(), status);
            prop_assert_eq!(&replay.response.body()[..], if bodyless { &[][..] } else { &body });
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..100)) {
            bytes[..2].copy_from_slice(b"\x01R");
            let _ = read(&Snapshot::from_bytes(bytes.into()));
        }
    }
}
