use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, request, response};

use super::classify::Verdict;
use super::fingerprint::FingerprintMode;
use super::key::KeySource;
use super::layer::{Config, IdempotencyLayer};
use super::rejection::Rejection;
use super::scope::ScopeSource;
use super::{LayerError, key};
use crate::guard::Guard;
use crate::protocol::{Operation, Policy, Target};

const MEBIBYTE: usize = 1024 * 1024;

/// Builds an [`IdempotencyLayer`]. `Scope` is [`ScopeMissing`] until the scope is chosen.
#[derive(Clone)]
#[must_use]
pub struct LayerBuilder<Scope> {
    guard: Guard,
    operation: Cow<'static, str>,
    scope: Scope,
    settings: Settings,
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

    pub(super) fn new(guard: Guard, operation: Cow<'static, str>) -> Self {
        Self { guard, operation, scope: ScopeMissing(()), settings: Settings::default() }
    }

    fn with_scope(self, scope: ScopeSource) -> LayerBuilder<ScopeChosen> {
        let Self { guard, operation, scope: _, settings } = self;
        LayerBuilder { guard, operation, scope: ScopeChosen(scope), settings }
    }
}

impl<Scope> LayerBuilder<Scope> {
    /// Where the key comes from. Default: the `Idempotency-Key` header.
    pub fn key(mut self, key: KeySource) -> Self {
        self.settings.key = key;
        self
    }

    /// Refuses guarded requests without a key with 400. Default: they pass unguarded.
    pub fn key_required(mut self) -> Self {
        self.settings.key_required = true;
        self
    }

    /// How a repeat is compared with the first request. Default: [`FingerprintMode::Enforced`].
    pub fn fingerprint(mut self, mode: FingerprintMode) -> Self {
        self.settings.fingerprint = mode;
        self
    }

    /// How the outcome is read from a response's head and trailers, where the handler has not said it. Default:
    /// [`Verdict::by_default`], which a classifier can fall back on.
    pub fn classify(
        mut self,
        classifier: impl Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.settings.classifier = Some(Arc::new(classifier));
        self
    }

    /// Other times than the guard's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.guard = self.guard.with_policy(policy);
        self
    }

    /// The largest request body, in bytes. It is read before the claim; a larger one is refused with 413. Default: 1 MiB.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.settings.request_limit = bytes;
        self
    }

    /// The largest response body that is kept, in bytes. A larger one reaches its client; repeats are told that it cannot be
    /// replayed. Default: 1 MiB.
    pub fn snapshot_limit(mut self, bytes: usize) -> Self {
        self.settings.snapshot_limit = bytes;
        self
    }

    /// What the client asked for, where the request's own method and path do not say it: behind a rewrite, or in a nested
    /// router without the feature `axum`.
    pub fn target(mut self, target: impl Fn(&request::Parts) -> Target + Send + Sync + 'static) -> Self {
        self.settings.target = Some(Arc::new(target));
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
        self.settings.on_rejection = Some(Arc::new(rejection));
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
        self.scope.0.check()?;
        self.settings.check()?;
        Ok(IdempotencyLayer::new(Config {
            guard: self.guard,
            operation: Operation::new(self.operation)?,
            scope: self.scope.0,
            settings: self.settings,
        }))
    }
}

/// What a route decides about its layer, apart from whose keys these are.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) key: KeySource,
    pub(super) key_required: bool,
    pub(super) fingerprint: FingerprintMode,
    pub(super) request_limit: usize,
    pub(super) snapshot_limit: usize,
    pub(super) target: Option<TargetFn>,
    pub(super) classifier: Option<Classifier>,
    pub(super) on_rejection: Option<OnRejection>,
}

pub(super) type TargetFn = Arc<dyn Fn(&request::Parts) -> Target + Send + Sync>;
pub(super) type Classifier = Arc<dyn Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync>;
pub(super) type OnRejection = Arc<dyn Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
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

impl Settings {
    fn check(&self) -> Result<(), LayerError> {
        self.key.check()?;
        if self.request_limit == 0 {
            return Err(LayerError::ZeroLimit("the request limit"));
        }
        if self.snapshot_limit == 0 {
            return Err(LayerError::ZeroLimit("the snapshot limit"));
        }
        Ok(())
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
