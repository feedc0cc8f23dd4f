use axum::body::Bytes;
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use idem_layer::middleware::{Rejection, RejectionKind};

/// What a webhook's sender is told, for the `on_rejection` of its layer.
///
/// Senders come back after a 5xx, and take some 4xx for the end of the matter. So a message that is still being worked on,
/// or of which nobody knows what became, is answered 503. One that took effect, but whose answer could not be kept, is
/// acknowledged: the answer is the same for all of them.
pub fn webhook_answer(
    acknowledgement: fn() -> Response<Bytes>,
) -> impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static {
    move |rejection, response| match rejection.kind() {
        RejectionKind::InProgress | RejectionKind::OutcomeUnknown => come_back_later(response),
        RejectionKind::NotReplayable | RejectionKind::Gone => acknowledgement(),
        _ => response,
    }
}

fn come_back_later(response: Response<Bytes>) -> Response<Bytes> {
    let (mut head, mut body) = response.into_parts();
    head.status = StatusCode::SERVICE_UNAVAILABLE;
    head.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // The problem repeats its status in the body.
    if let Ok(Value::Object(mut problem)) = serde_json::from_slice(&body) {
        problem.insert("status".into(), head.status.as_u16().into());
        body = Value::from(problem).to_string().into();
        head.headers.insert(CONTENT_LENGTH, body.len().into());
    }
    Response::from_parts(head, body)
}
