//! What a response says about what happened.

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use http::response::Parts;

/// What becomes of the claim when the handler has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It took effect, or it is final for another reason: the response is stored, repeats get it.
    Complete,
    /// Nothing took effect: the key is free again, a retry runs.
    Release,
    /// Nobody knows whether it took effect: by the guarantee, a retry runs as the next attempt or the key is held.
    Unknown,
    /// Nobody knows, and nobody may run it again until a person or a reconciler decides. The reason is for them, it is
    /// never sent to a client.
    Hold(String),
}

impl Verdict {
    /// What the layer decides by itself.
    ///
    /// | response | verdict |
    /// |---|---|
    /// | 1xx that ends the exchange (an upgrade), 2xx, 3xx | [`Complete`](Self::Complete) |
    /// | 408 (a timeout layer answers it with the handler half-way) | [`Unknown`](Self::Unknown) |
    /// | other 4xx | [`Release`](Self::Release) |
    /// | 503 | [`Release`](Self::Release) |
    /// | other 5xx, and whatever is not a status of HTTP | [`Unknown`](Self::Unknown) |
    ///
    /// A handler that answers 4xx or 503 *after* an effect must say so itself, through [`Idempotency`](super::Idempotency).
    ///
    /// Of a successful response of content type `application/grpc` (with any suffix), the `grpc-status` decides. It is
    /// read from the trailers or, where the response has none, from the headers:
    ///
    /// | grpc-status | verdict |
    /// |---|---|
    /// | OK | [`Complete`](Self::Complete) |
    /// | CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, DATA_LOSS; missing, repeated or not one of gRPC's | [`Unknown`](Self::Unknown) |
    /// | any other | [`Release`](Self::Release) |
    ///
    /// gRPC-Web writes its status into the body, where this does not look: put the layer inside of the one that translates.
    pub fn by_default(parts: &Parts, trailers: Option<&HeaderMap>) -> Self {
        if parts.status.is_success() && is_grpc(&parts.headers) {
            return Self::of_grpc(trailers.filter(|trailers| !trailers.is_empty()).unwrap_or(&parts.headers));
        }
        match parts.status {
            StatusCode::REQUEST_TIMEOUT => Self::Unknown,
            StatusCode::SERVICE_UNAVAILABLE => Self::Release,
            status => match status.as_u16() {
                100..=399 => Self::Complete,
                400..=499 => Self::Release,
                _ => Self::Unknown,
            },
        }
    }

    /// What a handler answers is final, failures too, as for Stripe's API (<https://docs.stripe.com/api/idempotent_requests>):
    /// repeats get it, and a new attempt needs a new key.
    ///
    /// Released are only 401, 409, 425 and 429: who is calling, a conflict with another request and a rate limit are looked
    /// at before execution. A handler whose own validation refuses a request says [`release`](super::Idempotency::release).
    pub fn stripe(parts: &Parts, _: Option<&HeaderMap>) -> Self {
        match parts.status.as_u16() {
            401 | 409 | 425 | 429 => Self::Release,
            _ => Self::Complete,
        }
    }

    /// Only what succeeds is kept (2xx, 3xx, `grpc-status` OK); after anything else the next repeat runs.
    ///
    /// For handlers whose failures leave no effect behind, whatever their status: one in a transaction that is rolled back.
    /// Others repeat their effects under it.
    pub fn only_success(parts: &Parts, trailers: Option<&HeaderMap>) -> Self {
        match Self::by_default(parts, trailers) {
            Self::Complete => Self::Complete,
            _ => Self::Release,
        }
    }

    /// The codes of <https://grpc.io/docs/guides/status-codes/>.
    fn of_grpc(fields: &HeaderMap) -> Self {
        let mut statuses = fields.get_all(GRPC_STATUS).iter();
        let (Some(status), None) = (statuses.next(), statuses.next()) else { return Self::Unknown };
        match status.as_bytes() {
            b"0" => Self::Complete,
            b"3" | b"5" | b"6" | b"7" | b"8" | b"9" | b"10" | b"11" | b"12" | b"14" | b"16" => Self::Release,
            _ => Self::Unknown,
        }
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Whether a message is one of gRPC's.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
    })
}

/// Whether a successful gRPC response has yet to say how the call ended.
pub(super) fn is_grpc_without_status(parts: &Parts) -> bool {
    parts.status.is_success() && is_grpc(&parts.headers) && !parts.headers.contains_key(GRPC_STATUS)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Response};

    use super::Verdict::{Complete, Release, Unknown};
    use super::*;

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn parts(status: u16, headers: &[(&'static str, &str)]) -> Parts {
        let mut response = Response::builder().status(status).body(()).unwrap();
        *response.headers_mut() = fields(headers);
        response.into_parts().0
    }

    #[test]
    fn a_status_decides() {
        for (statuses, verdict) in [
            (&[101, 200, 201, 202, 204, 206, 299, 300, 301, 303, 304, 308, 399][..], Complete),
            (&[400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 418, 422, 425, 429, 451, 499], Release),
            (&[503], Release),
            (&[408, 500, 501, 502, 504, 507, 599, 600, 999], Unknown),
        ] {
            for status in statuses {
                assert_eq!(Verdict::by_default(&parts(*status, &[]), None), verdict, "{status}");
            }
        }
    }

    #[test]
    fn other_readings_of_a_status() {
        for status in [200, 201, 302, 400, 403, 404, 408, 422, 500, 502, 503, 504] {
            assert_eq!(Verdict::stripe(&parts(status, &[]), None), Complete, "{status}");
        }
        for status in [401, 409, 425, 429] {
            assert_eq!(Verdict::stripe(&parts(status, &[]), None), Release, "{status}");
        }
        for (status, verdict) in [(201, Complete), (303, Complete), (400, Release), (408, Release), (500, Release)] {
            assert_eq!(Verdict::only_success(&parts(status, &[]), None), verdict, "{status}");
        }
    }

    #[test]
    fn a_grpc_status_decides_for_grpc() {
        for code in 0..=20 {
            let verdict = match code {
                0 => Complete,
                1 | 2 | 4 | 13 | 15 | 17.. => Unknown,
                _ => Release,
            };
            let code = code.to_string();
            for content_type in ["application/grpc", "application/grpc+proto", "Application/gRPC; x=1"] {
                let trailers = fields(&[("grpc-status", &code)]);
                let head = parts(200, &[("content-type", content_type)]);
                assert_eq!(Verdict::by_default(&head, Some(&trailers)), verdict, "{code}");
                let trailers_only = parts(200, &[("content-type", content_type), ("grpc-status", &code)]);
                assert_eq!(Verdict::by_default(&trailers_only, None), verdict, "{code}");
                assert_eq!(Verdict::by_default(&trailers_only, Some(&HeaderMap::new())), verdict, "{code}");
            }
        }
    }

    #[test]
    fn a_grpc_response_without_a_clear_status_is_unknown() {
        let head = |headers: &[_]| parts(200, &[&[("content-type", "application/grpc")], headers].concat());
        for trailers in [
            None,
            Some(fields(&[])),
            Some(fields(&[("grpc-message", "x")])),
            Some(fields(&[("grpc-status", "")])),
            Some(fields(&[("grpc-status", "00")])),
            Some(fields(&[("grpc-status", "OK")])),
            Some(fields(&[("grpc-status", "0"), ("grpc-status", "0")])),
        ] {
            assert_eq!(Verdict::by_default(&head(&[]), trailers.as_ref()), Unknown, "{trailers:?}");
        }
        // What the trailers do not say, the headers cannot have known.
        let late = fields(&[("x", "y")]);
        assert_eq!(Verdict::by_default(&head(&[("grpc-status", "0")]), Some(&late)), Unknown);
    }

    #[test]
    fn only_a_successful_grpc_response_has_a_grpc_status() {
        let proxied = parts(503, &[("content-type", "application/grpc"), ("grpc-status", "0")]);
        assert_eq!(Verdict::by_default(&proxied, None), Release);
        let json = parts(200, &[("content-type", "application/json"), ("grpc-status", "13")]);
        assert_eq!(Verdict::by_default(&json, None), Complete);
        assert_eq!(Verdict::by_default(&parts(200, &[("content-type", "application/gr")]), None), Complete);
    }
}
