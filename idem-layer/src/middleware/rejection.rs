//! The layer's own answers, as problem details (RFC 9457).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode, Uri};
use serde::Serialize;

use super::builder::Settings;
use super::key::ExtractError;
use super::scope::ScopeError;
use crate::store::{StoreError, StoreErrorKind};

/// An answer that the layer gives instead of the handler.
///
/// It is sent as `application/problem+json` (RFC 9457) with the members `type`, `title`, `status`, `detail` and `code`, and
/// with `Retry-After` (whole seconds) where waiting helps. The type is `urn:idem:problem:` and the code: a stable name,
/// not an address. `docs/problems.md` says of each code what a client should do.
///
/// Where the route has a [documentation](super::LayerBuilder::documentation), a member of that name and a `Link` field with
/// the relation `describedby` (RFC 8288) lead there.
///
/// What a client reads names no key, nothing that is stored and nothing of the inside. The same value is in the
/// response's extensions, so that layers further out can count what was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    status: StatusCode,
    detail: Cow<'static, str>,
    retry_after_s: Option<u64>,
    documentation: Option<Documentation>,
}

/// Which case it is. Every case has a code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// 400: the route requires a key and the request has none.
    KeyMissing,
    /// 400: the request's key is empty, too long, given twice or otherwise none.
    KeyMalformed,
    /// 400: the key is in the body, and the body is not the JSON or the form that the route reads.
    BodyMalformed,
    /// 400: the body broke off before its end.
    BodyIncomplete,
    /// 413: the body is larger than the route allows.
    BodyTooLarge,
    /// 408: the body did not arrive in time.
    BodyTimeout,
    /// 503: more bodies are being read than the server may hold at once.
    Overloaded,
    /// 400: the request does not say whose it is. 500: the layer that should know is missing.
    ScopeMissing,
    /// 400: what says whose request it is, is empty, too long, given twice or has characters that are not allowed.
    ScopeMalformed,
    /// 422: the key was used with another request.
    Mismatch,
    /// 409: the first request with this key is still running.
    InProgress,
    /// 409: an earlier request with this key ended without a known outcome, and is held until somebody decides.
    OutcomeUnknown,
    /// 409: the request took effect, and the route refuses repeats.
    AlreadyDone,
    /// 403: the request took effect, but the route does not give its answer to this caller.
    ReplayRefused,
    /// 409: the request took effect, but its answer could not be kept.
    NotReplayable,
    /// 410: the request took effect, and its answer is no longer kept.
    Gone,
    /// 503: the store does not answer, so that it is not known whether this is a repeat.
    StoreUnavailable,
    /// 503: what the store holds for this key cannot be read by this version of the server.
    RecordUnreadable,
}

impl Rejection {
    /// What `Retry-After` asks for, where nothing else is configured.
    pub(super) const RETRY_AFTER: Duration = crate::guard::RETRY_AFTER;

    /// Which case it is.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The status that it is answered with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The case as clients read it, such as `in-progress`. Never changes.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// How long the client should wait before it tries again, in whole seconds of one or more; nothing where trying again
    /// does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_s.map(Duration::from_secs)
    }

    /// The answer as it is sent.
    pub(super) fn response(&self) -> Response<Bytes> {
        self.response_with(self.status)
    }

    /// The answer with another status, in its head and in its body: for
    /// [`on_rejection`](super::LayerBuilder::on_rejection), where a sender reads statuses in a way of its own. A 503 asks it
    /// to come back in a second, where nothing else is asked.
    pub fn response_with(&self, status: StatusCode) -> Response<Bytes> {
        let problem = Problem {
            kind: format!("urn:idem:problem:{}", self.code()),
            title: self.kind.title(),
            status: status.as_u16(),
            detail: &self.detail,
            code: self.code(),
            documentation: self.documentation.as_ref().map(Documentation::as_str),
        };
        let body = Bytes::from(serde_json::to_vec(&problem).expect("texts and a number always encode"));
        let mut response = Response::builder()
            .status(status)
            .header(CONTENT_TYPE, "application/problem+json")
            .header(CONTENT_LENGTH, body.len())
            // It says how things stand now. A cache that kept it would go on saying so.
            .header(CACHE_CONTROL, "no-store")
            .extension(self.clone())
            .body(body)
            .expect("the fields are well-formed");
        if let Some(documentation) = &self.documentation {
            response.headers_mut().insert(LINK, documentation.link());
        }
        let come_back = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(Self::RETRY_AFTER.as_secs());
        if let Some(seconds) = self.retry_after_s.or(come_back) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    pub(super) fn key_missing() -> Self {
        Self::new(RejectionKind::KeyMissing)
    }

    pub(super) fn body_incomplete() -> Self {
        Self::new(RejectionKind::BodyIncomplete)
    }

    pub(super) fn body_too_large() -> Self {
        Self::new(RejectionKind::BodyTooLarge)
    }

    pub(super) fn body_timeout() -> Self {
        Self::new(RejectionKind::BodyTimeout)
    }

    pub(super) fn overloaded() -> Self {
        Self::new(RejectionKind::Overloaded).retry_in(Self::RETRY_AFTER)
    }

    pub(super) fn mismatch() -> Self {
        Self::new(RejectionKind::Mismatch)
    }

    /// `wanted` is what the configuration asks clients to wait, `left` what is left of the running claim's lease.
    pub(super) fn in_progress(wanted: Duration, left: Duration) -> Self {
        Self::new(RejectionKind::InProgress).retry_in(wanted.min(left))
    }

    pub(super) fn outcome_unknown() -> Self {
        Self::new(RejectionKind::OutcomeUnknown)
    }

    pub(super) fn already_done() -> Self {
        Self::new(RejectionKind::AlreadyDone)
    }

    pub(super) fn replay_refused() -> Self {
        Self::new(RejectionKind::ReplayRefused)
    }

    pub(super) fn not_replayable() -> Self {
        Self::new(RejectionKind::NotReplayable)
    }

    pub(super) fn gone() -> Self {
        Self::new(RejectionKind::Gone)
    }

    /// The store gave no answer, or one that cannot be read.
    pub(super) fn store(error: &StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Unreadable => Self::record_unreadable(),
            _ => Self::new(RejectionKind::StoreUnavailable).retry_in(Self::RETRY_AFTER),
        }
    }

    /// A record, or the response in it, that this code cannot read.
    pub(super) fn record_unreadable() -> Self {
        Self::new(RejectionKind::RecordUnreadable).retry_in(Self::RETRY_AFTER)
    }

    fn new(kind: RejectionKind) -> Self {
        Self { kind, status: kind.status(), detail: kind.detail().into(), retry_after_s: None, documentation: None }
    }

    /// With what the route says about its answers.
    pub(super) fn on(mut self, settings: &Settings) -> Self {
        // A server that is at fault says so, whatever the route answers those who have not said who they are.
        let chosen = settings.statuses.iter().rev().find(|(kind, _)| *kind == self.kind);
        if let Some((_, status)) = chosen.filter(|_| self.status == self.kind.status()) {
            self.status = *status;
        }
        self.documentation.clone_from(&settings.documentation);
        match (self.kind, self.status) {
            // Not past the lease, which it knows.
            (RejectionKind::InProgress, _) => self,
            (RejectionKind::StoreUnavailable | RejectionKind::RecordUnreadable | RejectionKind::Overloaded, _)
            | (_, StatusCode::SERVICE_UNAVAILABLE) => self.retry_in(settings.retry_after),
            _ => self,
        }
    }

    /// Rounded up, so that nobody is asked to come too early by a part of a second.
    fn retry_in(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
        self.retry_after_s = Some(seconds.max(1));
        self
    }
}

impl From<ExtractError> for Rejection {
    fn from(error: ExtractError) -> Self {
        match error {
            ExtractError::NotJson => Self::new(RejectionKind::BodyMalformed),
            ExtractError::NotAForm => Self {
                detail: "The idempotency key is in the request's body, which is not a well-formed form \
                         (application/x-www-form-urlencoded). Nothing was executed."
                    .into(),
                ..Self::new(RejectionKind::BodyMalformed)
            },
            ExtractError::Key(_) | ExtractError::NotAKey | ExtractError::Escape(_) | ExtractError::Unexpected(_) => {
                Self {
                    detail: format!("The request's idempotency key cannot be used: {error}.").into(),
                    ..Self::new(RejectionKind::KeyMalformed)
                }
            }
        }
    }
}

impl From<ScopeError> for Rejection {
    fn from(error: ScopeError) -> Self {
        match error {
            ScopeError::Missing => Self::new(RejectionKind::ScopeMissing),
            ScopeError::Malformed => Self::new(RejectionKind::ScopeMalformed),
            ScopeError::NoExtension | ScopeError::Unusable => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                detail: "The server could not find out whose request it is. Nothing was executed.".into(),
                ..Self::new(RejectionKind::ScopeMissing)
            },
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status.as_u16(), self.code())
    }
}

impl RejectionKind {
    /// The case as clients read it, such as `in-progress`. Never changes.
    pub const fn code(self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyMalformed => "key-malformed",
            Self::BodyMalformed => "body-malformed",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyTimeout => "body-timeout",
            Self::Overloaded => "overloaded",
            Self::ScopeMissing => "scope-missing",
            Self::ScopeMalformed => "scope-malformed",
            Self::Mismatch => "mismatch",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::AlreadyDone => "already-done",
            Self::ReplayRefused => "replay-refused",
            Self::NotReplayable => "not-replayable",
            Self::Gone => "gone",
            Self::StoreUnavailable => "store-unavailable",
            Self::RecordUnreadable => "record-unreadable",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing
            | Self::KeyMalformed
            | Self::BodyMalformed
            | Self::BodyIncomplete
            | Self::ScopeMissing
            | Self::ScopeMalformed => StatusCode::BAD_REQUEST,
            Self::InProgress | Self::OutcomeUnknown | Self::AlreadyDone | Self::NotReplayable => StatusCode::CONFLICT,
            Self::ReplayRefused => StatusCode::FORBIDDEN,
            Self::Gone => StatusCode::GONE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::StoreUnavailable | Self::RecordUnreadable | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "Idempotency key is missing",
            Self::KeyMalformed => "Idempotency key is malformed",
            Self::BodyMalformed => "Request body is malformed",
            Self::BodyIncomplete => "Request body is incomplete",
            Self::BodyTooLarge => "Request body is too large",
            Self::BodyTimeout => "Request body did not arrive in time",
            Self::Overloaded => "Too many requests at once",
            Self::ScopeMissing => "Caller is not known",
            Self::ScopeMalformed => "Caller's name is malformed",
            Self::Mismatch => "Idempotency key was used with another request",
            Self::InProgress => "Request is in progress",
            Self::OutcomeUnknown => "Outcome is not known",
            Self::AlreadyDone => "Request was executed before",
            Self::ReplayRefused => "Answer is not given to this caller",
            Self::NotReplayable => "Answer was not kept",
            Self::Gone => "Answer is no longer kept",
            Self::StoreUnavailable => "Repeats cannot be recognised at the moment",
            Self::RecordUnreadable => "Earlier answer cannot be read at the moment",
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Self::KeyMissing => "This request must carry an idempotency key. Nothing was executed.",
            Self::KeyMalformed => "The request's idempotency key cannot be used. Nothing was executed.",
            Self::BodyMalformed => {
                "The idempotency key is in the request's body, which is not well-formed JSON. Nothing was executed."
            }
            Self::BodyIncomplete => "The request's body broke off before its end. Nothing was executed.",
            Self::BodyTooLarge => "The request's body is larger than this route accepts. Nothing was executed.",
            Self::BodyTimeout => "The request's body did not arrive in time. Nothing was executed.",
            Self::Overloaded => {
                "The server is reading as many request bodies as it may. This copy was not executed: send it again later with \
                 the same key."
            }
            Self::ScopeMissing => "The request does not say whose it is. Nothing was executed.",
            Self::ScopeMalformed => "What says whose request this is cannot be used. Nothing was executed.",
            Self::Mismatch => {
                "Another request was sent with this idempotency key. Send the same request, or this one with a new key."
            }
            Self::InProgress => {
                "A request with this idempotency key is still running. Send it again a little later to get its answer."
            }
            Self::OutcomeUnknown => {
                "An earlier request with this idempotency key ended without a known outcome. It will not run again until \
                 somebody has found out. Sending it with a new key could execute it twice."
            }
            Self::AlreadyDone => {
                "The request with this idempotency key was executed before, and is not answered twice. It will not run again."
            }
            Self::ReplayRefused => {
                "The request with this idempotency key was executed, but its answer is not given to this caller. It will not \
                 run again."
            }
            Self::NotReplayable => {
                "The request with this idempotency key was executed, but its answer was not kept. It will not run again."
            }
            Self::Gone => {
                "The request with this idempotency key was executed, and its answer is no longer kept. It will not run again."
            }
            Self::StoreUnavailable => {
                "It cannot be said whether this request is a repeat, so this copy was not executed. Send it again later with \
                 the same key."
            }
            Self::RecordUnreadable => {
                "Something is stored for this idempotency key that cannot be read at the moment. Send the request again later \
                 with the same key."
            }
        }
    }
}

/// The members of RFC 9457, section 3.1, and our `code`.
#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation: Option<&'a str>,
}

/// Where a route's clients can read about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Documentation {
    /// `<address>; rel="describedby"`
    link: HeaderValue,
    length: usize,
}

impl Documentation {
    /// `None` where the address cannot stand in a `Link` field (RFC 8288, section 3): it is no absolute URI.
    pub(super) fn at(address: &str) -> Option<Self> {
        address.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() && !address.contains(['<', '>', '"']))?;
        let link = HeaderValue::try_from(format!("<{address}>; rel=\"describedby\"")).ok()?;
        Some(Self { link, length: address.len() })
    }

    fn as_str(&self) -> &str {
        self.link.to_str().map_or("", |link| &link[1..=self.length])
    }

    fn link(&self) -> HeaderValue {
        self.link.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::key::Expected;
    use super::*;
    use crate::protocol::{KeyError, RecordError};

    fn all() -> Vec<(Rejection, u16, &'static str, Option<u64>)> {
        let left = Duration::from_secs(30);
        let store = |kind| Rejection::store(&StoreError::new(kind));
        vec![
            (Rejection::key_missing(), 400, "key-missing", None),
            (ExtractError::Key(KeyError::Empty).into(), 400, "key-malformed", None),
            (ExtractError::NotAKey.into(), 400, "key-malformed", None),
            (ExtractError::Escape("query").into(), 400, "key-malformed", None),
            (ExtractError::Unexpected(Expected::Uuid).into(), 400, "key-malformed", None),
            (ExtractError::NotJson.into(), 400, "body-malformed", None),
            (ExtractError::NotAForm.into(), 400, "body-malformed", None),
            (Rejection::body_incomplete(), 400, "body-incomplete", None),
            (Rejection::body_too_large(), 413, "body-too-large", None),
            (Rejection::body_timeout(), 408, "body-timeout", None),
            (Rejection::overloaded(), 503, "overloaded", Some(1)),
            (ScopeError::Missing.into(), 400, "scope-missing", None),
            (ScopeError::NoExtension.into(), 500, "scope-missing", None),
            (ScopeError::Unusable.into(), 500, "scope-missing", None),
            (ScopeError::Malformed.into(), 400, "scope-malformed", None),
            (Rejection::mismatch(), 422, "mismatch", None),
            (Rejection::in_progress(Rejection::RETRY_AFTER, left), 409, "in-progress", Some(1)),
            (Rejection::outcome_unknown(), 409, "outcome-unknown", None),
            (Rejection::already_done(), 409, "already-done", None),
            (Rejection::replay_refused(), 403, "replay-refused", None),
            (Rejection::not_replayable(), 409, "not-replayable", None),
            (Rejection::gone(), 410, "gone", None),
            (store(StoreErrorKind::Unavailable), 503, "store-unavailable", Some(1)),
            (store(StoreErrorKind::TimedOut), 503, "store-unavailable", Some(1)),
            (store(StoreErrorKind::Full), 503, "store-unavailable", Some(1)),
            (store(StoreErrorKind::Unsupported), 503, "store-unavailable", Some(1)),
            (store(StoreErrorKind::Broken), 503, "store-unavailable", Some(1)),
            (Rejection::store(&RecordError::NotARecord.into()), 503, "record-unreadable", Some(1)),
            (Rejection::record_unreadable(), 503, "record-unreadable", Some(1)),
        ]
    }

    #[test]
    fn each_case_is_answered_with_its_status_and_code() {
        for (rejection, status, code, retry_after_s) in all() {
            assert_eq!(rejection.to_string(), format!("{status} {code}"));
            assert_eq!(rejection.retry_after(), retry_after_s.map(Duration::from_secs), "{code}");

            let response = rejection.response();
            let field = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(response.status(), status);
            assert_eq!(field(CONTENT_TYPE).as_deref(), Some("application/problem+json"));
            assert_eq!(field(CACHE_CONTROL).as_deref(), Some("no-store"));
            assert_eq!(field(CONTENT_LENGTH), Some(response.body().len().to_string()));
            assert_eq!(field(RETRY_AFTER), retry_after_s.map(|s| s.to_string()));
            assert_eq!(response.extensions().get::<Rejection>(), Some(&rejection));

            let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(problem["type"], format!("urn:idem:problem:{code}"));
            assert_eq!(problem["status"], status);
            assert_eq!(problem["code"], code);
            for text in ["title", "detail"] {
                assert!(problem[text].as_str().is_some_and(|text| text.len() > 10), "{code}");
            }
        }
    }

    #[test]
    fn a_problem_reads_the_same_for_good() {
        let body = Rejection::from(ExtractError::Key(KeyError::TooLong)).response().into_body();
        let golden = r#"{"type":"urn:idem:problem:key-malformed","title":"Idempotency key is malformed","status":400,"detail":"The request's idempotency key cannot be used: the key is longer than 255 bytes.","code":"key-malformed"}"#;
        assert_eq!(body, golden);
    }

    #[test]
    fn a_documentation_is_an_absolute_address_and_linked_from_head_and_body() {
        for bad in ["", "/docs", "docs", "https://example.org/<x>", "https://example.org/\"x", "https://example.org/ x"]
        {
            assert_eq!(Documentation::at(bad), None, "{bad}");
        }
        let documentation = Documentation::at("https://example.org/keys#twice").unwrap();
        let settings = Settings { documentation: Some(documentation), ..Settings::default() };
        let response = Rejection::key_missing().on(&settings).response();
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(problem["documentation"], "https://example.org/keys#twice");
        assert_eq!(response.headers()[LINK], "<https://example.org/keys#twice>; rel=\"describedby\"");
    }

    #[test]
    fn a_route_chooses_statuses_and_how_soon_clients_come_back() {
        let settings = Settings {
            statuses: vec![
                (RejectionKind::Mismatch, StatusCode::CONFLICT),
                (RejectionKind::Mismatch, StatusCode::BAD_REQUEST),
            ],
            retry_after: Duration::from_secs(7),
            ..Settings::default()
        };
        assert_eq!(Rejection::mismatch().on(&settings).to_string(), "400 mismatch");
        assert_eq!(Rejection::gone().on(&settings).to_string(), "410 gone");
        assert_eq!(Rejection::overloaded().on(&settings).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(Rejection::gone().on(&settings).retry_after(), None);
    }

    /// What is asked of the sender is what observers and `on_rejection` read.
    #[test]
    fn a_503_of_the_routes_choice_asks_to_come_back_when_the_route_says() {
        let seven = Duration::from_secs(7);
        let statuses = [RejectionKind::OutcomeUnknown, RejectionKind::InProgress];
        let settings = Settings {
            statuses: statuses.map(|kind| (kind, StatusCode::SERVICE_UNAVAILABLE)).to_vec(),
            retry_after: seven,
            ..Settings::default()
        };
        let held = Rejection::outcome_unknown().on(&settings);
        assert_eq!((held.to_string().as_str(), held.retry_after()), ("503 outcome-unknown", Some(seven)));
        assert_eq!(held.response().headers()[RETRY_AFTER], "7");
        let busy = Rejection::in_progress(seven, Duration::from_secs(2)).on(&settings);
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(2)), "not past the lease");
        let longest = Settings { retry_after: Duration::MAX, ..Settings::default() };
        assert_eq!(Rejection::overloaded().on(&longest).response().headers()[RETRY_AFTER], u64::MAX.to_string());
    }

    #[test]
    fn a_server_at_fault_is_not_hidden_behind_a_status_for_clients() {
        let statuses = vec![(RejectionKind::ScopeMissing, StatusCode::UNAUTHORIZED)];
        let settings = Settings { statuses, ..Settings::default() };
        let on = |error: ScopeError| Rejection::from(error).on(&settings).status().as_u16();
        let found = [ScopeError::Missing, ScopeError::NoExtension, ScopeError::Unusable].map(on);
        assert_eq!(found, [401, 500, 500]);
    }

    #[test]
    fn what_is_wrong_with_a_key_or_body_is_said_in_full() {
        let detail = |error: ExtractError| Rejection::from(error).detail.into_owned();
        let key = |what: &str| format!("The request's idempotency key cannot be used: {what}.");
        for (error, what) in [
            (ExtractError::Escape("query"), "the query has a malformed percent escape"),
            (ExtractError::Escape("path"), "the path has a malformed percent escape"),
            (Expected::Uuid.into(), "the key must be a UUID"),
            (Expected::Length(36).into(), "the key must be 36 bytes long"),
            (Expected::LengthBetween(16, 64).into(), "the key must be 16 to 64 bytes long"),
            (Expected::Chars("letters and digits").into(), "the key must be made of letters and digits"),
            (KeyError::Unquoted.into(), "the key is not in double quotes, as an RFC 9651 string is"),
        ] {
            assert_eq!(detail(error), key(what));
        }
        assert!(detail(ExtractError::NotJson).contains("JSON"));
        let form = detail(ExtractError::NotAForm);
        assert!(form.contains("application/x-www-form-urlencoded") && !form.contains("JSON"), "{form}");
    }

    #[test]
    fn each_code_is_in_the_docs() {
        let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/problems.md")).unwrap();
        for (.., code, _) in all() {
            assert!(docs.contains(&format!("\n## {code}\n")), "{code}");
            assert!(docs.contains(&format!("| [{code}](#{code}) |")), "{code}");
        }
    }

    #[test]
    fn different_cases_have_different_codes() {
        let kinds: HashSet<_> = all().iter().map(|(rejection, ..)| rejection.kind()).collect();
        let codes: HashSet<_> = kinds.iter().map(|kind| kind.code()).collect();
        let titles: HashSet<_> = kinds.iter().map(|kind| kind.title()).collect();
        let details: HashSet<_> = kinds.iter().map(|kind| kind.detail()).collect();
        assert_eq!([codes.len(), titles.len(), details.len()], [kinds.len(); 3]);
    }

    #[test]
    fn a_client_waits_whole_seconds_and_not_past_the_lease() {
        let wait = |wanted_ms, left_ms| {
            let [wanted, left] = [wanted_ms, left_ms].map(Duration::from_millis);
            Rejection::in_progress(wanted, left).retry_after().unwrap().as_secs()
        };
        assert_eq!(wait(1_000, 30_000), 1);
        assert_eq!(wait(1_000, 1), 1);
        assert_eq!(wait(1_000, 0), 1);
        assert_eq!(wait(0, 30_000), 1);
        assert_eq!(wait(1_001, 30_000), 2);
        assert_eq!(wait(10_000, 2_500), 3);
        assert_eq!(wait(10_000, 30_000), 10);
        let settings = Settings { retry_after: Duration::MAX, ..Settings::default() };
        let longest = Rejection::overloaded().on(&settings).retry_after();
        assert_eq!(longest, Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn another_status_stands_in_head_and_body_and_a_503_says_when_to_come_back() {
        let response = Rejection::outcome_unknown().response_with(StatusCode::SERVICE_UNAVAILABLE);
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!((response.status().as_u16(), &problem["status"]), (503, &503.into()));
        assert_eq!(problem["code"], "outcome-unknown");
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let length = response.body().len().to_string();
        assert_eq!(response.headers()[CONTENT_LENGTH], length);
    }
}
