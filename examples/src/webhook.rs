use axum::body::Bytes;
use axum::http::Response;

use idem_layer::middleware::{Rejection, RejectionKind};

/// What a webhook's sender is told of a message that took effect, but whose answer could not be kept, or is kept no longer: the
/// acknowledgement, which is the same for every message. For the `on_rejection` of its layer.
pub fn acknowledge_what_is_done(
    acknowledgement: fn() -> Response<Bytes>,
) -> impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static {
    move |rejection, response| match rejection.kind() {
        RejectionKind::NotReplayable | RejectionKind::Gone => acknowledgement(),
        _ => response,
    }
}
