use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, request, response};
use tower_layer::Layer;

use super::builder::{LayerBuilder, ScopeMissing, Settings};
use super::classify::Verdict;
use super::rejection::Rejection;
use super::scope::ScopeSource;
use super::service::IdempotencyService;
use super::snapshot;
use crate::guard::Guard;
use crate::protocol::{Operation, Target};

/// Guards the services it is put around. See the [module docs](super).
///
/// Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer(Arc<Config>);

/// What one layer does, decided once.
pub(super) struct Config {
    pub(super) guard: Guard,
    pub(super) operation: Operation,
    pub(super) scope: ScopeSource,
    pub(super) settings: Settings,
}

impl IdempotencyLayer {
    /// Starts a layer for one operation. Whose keys these are must be said next: [`LayerBuilder::scope`] or, by name,
    /// [`LayerBuilder::unscoped`].
    pub fn builder(guard: Guard, operation: impl Into<Cow<'static, str>>) -> LayerBuilder<ScopeMissing> {
        LayerBuilder::new(guard, operation.into())
    }

    pub(super) fn new(config: Config) -> Self {
        Self(Arc::new(config))
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService::new(inner, Arc::clone(&self.0))
    }
}

impl Config {
    pub(super) fn target(&self, head: &request::Parts) -> Target {
        match &self.settings.target {
            Some(target) => target(head),
            None => Target::new(head.method.as_str(), path_as_sent(head)),
        }
    }

    pub(super) fn classify(&self, head: &response::Parts, trailers: Option<&HeaderMap>) -> Verdict {
        match &self.settings.classifier {
            Some(classifier) => classifier(head, trailers),
            None => Verdict::by_default(head, trailers),
        }
    }

    pub(super) fn reject(&self, rejection: Rejection) -> Response<Bytes> {
        let rejection = rejection.on(&self.settings);
        let response = rejection.response();
        let response = match &self.settings.on_rejection {
            Some(on_rejection) => on_rejection(&rejection, response),
            None => response,
        };
        // A status that ends no exchange is no answer.
        let response = if response.status().is_informational() { rejection.response() } else { response };
        let mut response = snapshot::reframed(response);
        response.extensions_mut().insert(rejection);
        response
    }
}

/// The path that the client asked for.
pub(super) fn path_as_sent(head: &request::Parts) -> &str {
    // Inside a nested router the request's own path has lost its prefix; the original is kept beside it.
    #[cfg(feature = "axum")]
    if let Some(original) = head.extensions.get::<axum::extract::OriginalUri>() {
        return original.0.path();
    }
    head.uri.path()
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("operation", &self.operation)
            .field("key", &self.settings.key)
            .field("scope", &self.scope)
            .field("fingerprint", &self.settings.fingerprint)
            .finish_non_exhaustive()
    }
}
