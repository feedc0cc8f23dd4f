use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, request, response};

use super::classify::Verdict;
use super::fingerprint::FingerprintMode;
use super::kept::KeptHeaders;
use super::key::KeySource;
use super::layer::{Config, IdempotencyLayer};
use super::marks::Marker;
use super::rejection::Rejection;
use super::repeats::Repeats;
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

    /// Which fields of a response, and of its trailers, are stored. Default: [`KeptHeaders::all`].
    ///
    /// Of fields at most 64 KiB are stored, beside the body. A response with more of them reaches its client; repeats are told
    /// that it cannot be replayed.
    pub fn keep(mut self, kept: KeptHeaders) -> Self {
        self.settings.keep = kept;
        self
    }

    /// The field that marks a replay. Default: `Idempotent-Replayed: true`.
    ///
    /// A first answer never has it: one that comes from further inside is taken out, and is not stored either. Under another
    /// name, `Idempotent-Replayed` is a field like any other.
    ///
    /// A name that no field can have or that has a meaning of its own (`Date`, `Content-Type`), and a value that is empty or
    /// not visible ASCII, is an error of `build`.
    pub fn replay_marker(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.settings.marker = Marker::new(name.as_ref(), value.as_ref());
        self
    }

    /// Says until when repeats get the answer, in a field `Idempotency-Expires` whose value is an HTTP date (RFC 9110,
    /// section 5.6.7): now and the policy's retention, rounded down to seconds. Default: it is not said.
    ///
    /// It is on first answers that will be kept, and on their replays as it was first sent, whatever
    /// [`keep`](Self::keep) lists. An answer whose length is not known is judged by its head: its trailers may still decide
    /// otherwise, and it may turn out to be too large. One that comes from further inside is taken out.
    pub fn idempotency_expires(mut self) -> Self {
        self.settings.expires = true;
        self
    }

    /// Looks through each replay before it is sent, for the caller who asks now: perhaps he may see less than the one who
    /// asked first.
    ///
    /// The hook gets the head of the present request and the stored response, and returns what is sent. `None` refuses: 403
    /// `replay-refused`, and nothing of what is stored. The length is counted and the mark of a replay set after it; fields of
    /// the connection that it adds are taken out. The body has whatever `Content-Encoding` it was stored with. Trailers are in
    /// the response's extensions, as [`ReplayTrailers`](super::ReplayTrailers), and are not sent unless the hook lets them
    /// pass.
    ///
    /// It is asked, too, where an owner who has lost his claim gets the answer of another run. It is not asked for the fixed
    /// answers of [`Repeats`]: nothing of them is stored.
    ///
    /// ```
    /// use http::header::HeaderName;
    /// use idem_layer::middleware::{IdempotencyLayer, scope};
    /// use idem_layer::{Guard, MemoryStore};
    ///
    /// #[derive(Clone)]
    /// struct User { account: String, may_see_balance: bool }
    ///
    /// let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "payments.create")
    ///     .scope(scope::extension(|user: &User| Some(user.account.clone())))
    ///     .on_replay(|head, mut replay| {
    ///         if !head.extensions.get::<User>()?.may_see_balance {
    ///             replay.headers_mut().remove(HeaderName::from_static("x-balance"));
    ///         }
    ///         Some(replay)
    ///     })
    ///     .build()?;
    /// # Ok::<(), idem_layer::middleware::LayerError>(())
    /// ```
    pub fn on_replay(
        mut self,
        look: impl Fn(&request::Parts, Response<Bytes>) -> Option<Response<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.on_replay = Some(Arc::new(look));
        self
    }

    /// What a repeat of a completed operation gets. Default: [`Repeats::replay`].
    pub fn repeats(mut self, repeats: Repeats) -> Self {
        self.settings.repeats = repeats;
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
    pub(super) keep: KeptHeaders,
    pub(super) marker: Marker,
    pub(super) expires: bool,
    pub(super) on_replay: Option<OnReplay>,
    pub(super) repeats: Repeats,
    pub(super) target: Option<TargetFn>,
    pub(super) classifier: Option<Classifier>,
    pub(super) on_rejection: Option<OnRejection>,
}

pub(super) type TargetFn = Arc<dyn Fn(&request::Parts) -> Target + Send + Sync>;
pub(super) type Classifier = Arc<dyn Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync>;
pub(super) type OnReplay = Arc<dyn Fn(&request::Parts, Response<Bytes>) -> Option<Response<Bytes>> + Send + Sync>;
pub(super) type OnRejection = Arc<dyn Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            key: key::header("idempotency-key"),
            key_required: false,
            fingerprint: FingerprintMode::default(),
            request_limit: MEBIBYTE,
            snapshot_limit: MEBIBYTE,
            keep: KeptHeaders::default(),
            marker: Marker::default(),
            expires: false,
            on_replay: None,
            repeats: Repeats::default(),
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
        self.marker.check()?;
        self.keep.check(&self.marker.name)?;
        self.repeats.check()?;
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
