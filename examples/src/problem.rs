use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An answer that is a problem, as RFC 9457 writes it: `application/problem+json` with a stable `type` and a `code`.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of this status and code; `detail` tells a person what is wrong with this one request.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), header: None }
    }

    /// Adds a header field to the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "type": format!("https://example.com/problems/{}", self.code),
            "title": self.code.replace('-', " "),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let mut response = (self.status, body.to_string()).into_response();
        response.headers_mut().extend([content_type].into_iter().chain(self.header));
        response
    }
}
