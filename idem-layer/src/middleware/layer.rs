use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, request, response};
use tower_layer::Layer;

use super::classify::Verdict;
use super::fingerprint::FingerprintMode;
use super::key::KeySource;
use super::rejection::Rejection;
use super::scope::ScopeSource;
use super::service::IdempotencyService;
use super::{LayerError, key};
use crate::guard::Guard;
use crate::protocol::{Operation, Policy, Target};

const MEBIBYTE: usize = 1024 * 1024;

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
    pub(super) key: KeySource,
    pub(super) key_required: bool,
    pub(super) fingerprint: FingerprintMode,
    pub(super) request_limit: usize,
    pub(super) snapshot_limit: usize,
    target: Option<TargetFn>,
    classifier: Option<Classifier>,
    on_rejection: Option<OnRejection>,
}

type TargetFn = Arc<dyn Fn(&request::Parts) -> Target + Send + Sync>;
type Classifier = Arc<dyn Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync>;
type OnRejection = Arc<dyn Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

impl IdempotencyLayer {
    /// Starts a layer for one operation. Whose keys these are must be said next: [`LayerBuilder::scope`] or, by name,
    /// [`LayerBuilder::unscoped`].
    pub fn builder(guard: Guard, operation: impl Into<Cow<'static, str>>) -> LayerBuilder<ScopeMissing> {
        LayerBuilder {
            guard,
            operation: operation.into(),
            scope: ScopeMissing(()),
            key: key::header("idempotency-key"),
            key_required: false,
            fingerprint: FingerprintMode::default(),
            request_limit: MEBIBYTE,
            snapshot_limit: MEBIBYTE,
            target: None,
            classifier: None,
            on_rejection: None,
        }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService::new(inner, Arc::clone(&self.0))
    }
}

/// Builds an [`IdempotencyLayer`]. `Scope` is [`ScopeMissing`] until the scope is chosen.
#[derive(Clone)]
#[must_use]
pub struct LayerBuilder<Scope> {
    guard: Guard,
    operation: Cow<'static, str>,
    scope: Scope,
    key: KeySource,
    key_required: bool,
    fingerprint: FingerprintMode,
    request_limit: usize,
    snapshot_limit: usize,
    target: Option<TargetFn>,
    classifier: Option<Classifier>,
    on_rejection: Option<OnRejection>,
}

/// Nobody has said yet whose keys these are.
#[derive(Clone, Debug)]
pub struct ScopeMissing(());

/// It has been said whose keys these are.
#[derive(Clone, Debug)]
pub struct ScopeChosen(ScopeSource);

impl LayerBuilder<ScopeMissing> {
    /// Whose key it is, from each request. Two callers with the same key never meet. A request for which the source finds
    /// nothing is refused.
    pub fn scope(self, scope: ScopeSource) -> LayerBuilder<ScopeChosen> {
        self.with_scope(scope)
    }

    /// All callers share their keys: one caller's key replays another caller's response. Right only where one party makes all
    /// the keys, such as a webhook provider.
    pub fn unscoped(self) -> LayerBuilder<ScopeChosen> {
        self.with_scope(ScopeSource::unscoped())
    }

    fn with_scope(self, scope: ScopeSource) -> LayerBuilder<ScopeChosen> {
        LayerBuilder {
            guard: self.guard,
            operation: self.operation,
            scope: ScopeChosen(scope),
            key: self.key,
            key_required: self.key_required,
            fingerprint: self.fingerprint,
            request_limit: self.request_limit,
            snapshot_limit: self.snapshot_limit,
            target: self.target,
            classifier: self.classifier,
            on_rejection: self.on_rejection,
        }
    }
}

impl<Scope> LayerBuilder<Scope> {
    /// Where the key comes from. Default: the `Idempotency-Key` header.
    pub fn key(mut self, key: KeySource) -> Self {
        self.key = key;
        self
    }

    /// Refuses guarded requests without a key with 400. Default: they pass unguarded.
    pub fn key_required(mut self) -> Self {
        self.key_required = true;
        self
    }

    /// How a repeat is compared with the first request. Default: [`FingerprintMode::Enforced`].
    pub fn fingerprint(mut self, mode: FingerprintMode) -> Self {
        self.fingerprint = mode;
        self
    }

    /// How the outcome is read from a response's head and trailers, where the handler has not said it. Default:
    /// [`Verdict::by_default`], which a classifier can fall back on.
    pub fn classify(
        mut self,
        classifier: impl Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.classifier = Some(Arc::new(classifier));
        self
    }

    /// Other times than the guard's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.guard = self.guard.with_policy(policy);
        self
    }

    /// The largest request body, in bytes. It is read before the claim; a larger one is refused with 413. Default: 1 MiB.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.request_limit = bytes;
        self
    }

    /// The largest response body that is kept, in bytes. A larger one reaches its client; repeats are told that it cannot be
    /// replayed. Default: 1 MiB.
    pub fn snapshot_limit(mut self, bytes: usize) -> Self {
        self.snapshot_limit = bytes;
        self
    }

    /// What the client asked for, where the request's own method and path do not say it: behind a rewrite, or in a nested
    /// router without the feature `axum`.
    pub fn target(mut self, target: impl Fn(&request::Parts) -> Target + Send + Sync + 'static) -> Self {
        self.target = Some(Arc::new(target));
        self
    }

    /// A last word on the answers that the layer gives itself: it gets the default one and returns what is sent.
    ///
    /// The default one's body repeats its status, as RFC 9457 asks: change both with [`Rejection::response_with`], or send a
    /// body of your own.
    pub fn on_rejection(
        mut self,
        rejection: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.on_rejection = Some(Arc::new(rejection));
        self
    }
}

impl LayerBuilder<ScopeChosen> {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// One [`LayerError`] for each mistake.
    pub fn build(self) -> Result<IdempotencyLayer, LayerError> {
        self.key.check()?;
        self.scope.0.check()?;
        if self.request_limit == 0 {
            return Err(LayerError::ZeroLimit("the request limit"));
        }
        if self.snapshot_limit == 0 {
            return Err(LayerError::ZeroLimit("the snapshot limit"));
        }
        Ok(IdempotencyLayer(Arc::new(Config {
            guard: self.guard,
            operation: Operation::new(self.operation)?,
            scope: self.scope.0,
            key: self.key,
            key_required: self.key_required,
            fingerprint: self.fingerprint,
            request_limit: self.request_limit,
            snapshot_limit: self.snapshot_limit,
            target: self.target,
            classifier: self.classifier,
            on_rejection: self.on_rejection,
        })))
    }
}

impl Config {
    pub(super) fn target(&self, head: &request::Parts) -> Target {
        match &self.target {
            Some(target) => target(head),
            None => Target::new(head.method.as_str(), path_as_sent(head)),
        }
    }

    pub(super) fn classify(&self, head: &response::Parts, trailers: Option<&HeaderMap>) -> Verdict {
        match &self.classifier {
            Some(classifier) => classifier(head, trailers),
            None => Verdict::by_default(head, trailers),
        }
    }

    pub(super) fn reject(&self, rejection: Rejection) -> Response<Bytes> {
        let response = rejection.response();
        let mut response = match &self.on_rejection {
            Some(on_rejection) => on_rejection(&rejection, response),
            None => return response,
        };
        response.extensions_mut().insert(rejection);
        response
    }
}

fn path_as_sent(head: &request::Parts) -> &str {
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
            .field("key", &self.key)
            .field("scope", &self.scope)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl<Scope: fmt::Debug> fmt::Debug for LayerBuilder<Scope> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder")
            .field("operation", &self.operation)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
