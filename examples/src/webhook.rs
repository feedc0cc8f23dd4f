use axum::body::Bytes;
use axum::http::{Response, StatusCode};

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
        RejectionKind::InProgress | RejectionKind::OutcomeUnknown => {
            rejection.response_with(StatusCode::SERVICE_UNAVAILABLE)
        }
        RejectionKind::NotReplayable | RejectionKind::Gone => acknowledgement(),
        _ => response,
    }
}
