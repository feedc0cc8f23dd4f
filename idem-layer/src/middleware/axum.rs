//! What axum's users need beside the layer. Feature `axum`.

use ::axum::body::Body;
use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
use ::axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Request, StatusCode};

use super::BoxError;
use super::body::RequestBody;
use super::handle::Idempotency;

/// For `axum::middleware::from_fn` *inside* the layer, which wants axum's own body type:
///
/// ```
/// use axum::extract::Request;
/// use axum::middleware::{Next, from_fn};
/// use axum::response::Response;
/// use axum::{Router, routing::post};
/// use idem_layer::guard::Guard;
/// use idem_layer::middleware::{IdempotencyLayer, into_axum_body};
/// use idem_layer::store::MemoryStore;
/// use tower::ServiceBuilder;
///
/// async fn inside(request: Request, next: Next) -> Response {
///     next.run(request).await
/// }
///
/// let idempotency = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "notes.create").unscoped().build()?;
/// let app: Router = Router::new().route("/notes", post(|| async { "noted" })).layer(
///     ServiceBuilder::new().layer(idempotency).map_request(into_axum_body).layer(from_fn(inside)),
/// );
/// # Ok::<(), idem_layer::middleware::LayerError>(())
/// ```
pub fn into_axum_body<B>(request: Request<RequestBody<B>>) -> Request<Body>
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    request.map(Body::new)
}

/// The handler wants to know of its run, but the request is not guarded: no layer, no key, or a safe method.
#[derive(Clone, Copy, Debug)]
pub struct NotGuarded(());

impl std::fmt::Display for NotGuarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request is not guarded: take `Option<Idempotency>` where that may be")
    }
}

impl std::error::Error for NotGuarded {}

impl IntoResponse for NotGuarded {
    fn into_response(self) -> Response {
        tracing::error!(target: "idem", error = %self, "a handler takes `Idempotency`");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = NotGuarded;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotGuarded> {
        parts.extensions.get::<Self>().cloned().ok_or(NotGuarded(()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Idempotency {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}
