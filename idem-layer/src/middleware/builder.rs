use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request, response};

use super::budget::Budget;
use super::classify::Verdict;
use super::fingerprint::FingerprintRules;
use super::kept::KeptHeaders;
use super::key::KeySource;
use super::layer::{Config, IdempotencyLayer};
use super::marks::Marker;
use super::rejection::{Documentation, Rejection, RejectionKind};
use super::repeats::Repeats;
use super::scope::ScopeSource;
use super::snapshot::has_content;
use super::{LayerError, fingerprint, key};
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
        self.settings.key_missing = KeyMissing::Refuse;
        self
    }

    /// Gives guarded requests without a key one of 128 random bits: 32 lower-case hexadecimal digits. The handler sees it in the
    /// request, in the header field that the whole key would have come from, the client in the same field of the response:
    /// with it, it can ask for the answer again. Where no header field has the whole key, that field is `Idempotency-Key`, which
    /// is then read whenever the route's own source has found nothing. Default: such requests pass unguarded. In shadow mode none
    /// is given.
    ///
    /// A source that would refuse such a key, or has `Idempotency-Key` for a part of its own, is an error of
    /// [`build`](Self::build).
    ///
    /// It is no substitute for a client's own key: a client that lost the answer has lost the key with it.
    pub fn key_generated(mut self) -> Self {
        self.settings.key_missing = KeyMissing::Generate;
        self
    }

    /// How a repeat is compared with the first request. Default:
    /// [`fingerprint::enforced`].
    pub fn fingerprint(mut self, rules: FingerprintRules) -> Self {
        self.settings.fingerprint = rules;
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
    ///
    /// Zero is an error of [`build`](Self::build).
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.settings.request_limit = bytes;
        self
    }

    /// The largest response body that is kept, in bytes. A larger one reaches its client; repeats are told that it cannot be
    /// replayed. Default: 1 MiB.
    ///
    /// Zero is an error of [`build`](Self::build).
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

    /// Leaves the target out of the identity: a key that comes again on another path or with another method is not another
    /// operation but a mismatch. Where the fingerprint is off it is a repeat like any other, and where it is observed a repeat
    /// whose difference is told: it gets the other endpoint's answer. Default: method and path are part of the identity.
    pub fn without_target(mut self) -> Self {
        self.settings.target_in_identity = false;
        self
    }

    /// Which methods are guarded; any other passes untouched. Default: POST, PATCH, PUT, DELETE.
    ///
    /// None at all, or a safe method, is an error of [`build`](Self::build).
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// What the bodies of all requests may take of memory at once, in bytes. Shared with every layer that is given a clone.
    /// A body larger than the whole budget is refused with 413, whatever [`request_limit`](Self::request_limit) says. Default:
    /// one of 256 MiB for this layer.
    ///
    /// One of zero is an error of [`build`](Self::build).
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self
    }

    /// How long a request's body may take to arrive, before the request is refused with 408. Default: one minute.
    ///
    /// Zero is an error of [`build`](Self::build).
    pub fn request_time_limit(mut self, limit: Duration) -> Self {
        self.settings.request_time_limit = limit;
        self
    }

    /// What `Retry-After` asks for, where coming back helps: a running repeat is asked to wait so long or until the lease ends,
    /// whichever is sooner. Whole seconds, rounded up, at least one. Default: one second.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.settings.retry_after = wait;
        self
    }

    /// Where clients can read how this route wants its keys: an absolute address. Every answer of the layer's own links there
    /// (draft-ietf-httpapi-idempotency-key-header-07, section 2.7).
    ///
    /// An address that is not absolute, or cannot stand in a `Link` field, is an error of [`build`](Self::build).
    pub fn documentation(mut self, address: impl Into<String>) -> Self {
        let address = address.into();
        match Documentation::at(&address) {
            Some(documentation) => {
                self.settings.documentation = Some(documentation);
                self.settings.mistake = None;
            }
            None => self.settings.mistake = Some(LayerError::Documentation(address)),
        }
        self
    }

    /// Answers one kind of rejection with another status: for senders who read statuses in a way of their own. The last one
    /// said for a kind counts. A 503 asks for a [retry](Self::retry_after). Where the server is to blame for a missing scope, 500
    /// remains.
    ///
    /// A status that ends no exchange (1xx) or has no body (204, 205, 304) is an error of [`build`](Self::build).
    pub fn status(mut self, kind: RejectionKind, status: StatusCode) -> Self {
        self.settings.statuses.push((kind, status));
        self
    }

    /// Shadow mode, for a route that is to be guarded later: nothing is refused, nothing replayed, every request reaches the
    /// handler. What would have happened is told: repeats, conflicts and mismatches are [events](crate::guard::Event) marked as
    /// shadow, refused requests a line in the log. Records are kept as usual, in the guard's store.
    ///
    /// Two things are as behind a layer that guards: the handler begins when the whole body is there, and one whose request has
    /// the claim runs on when its client leaves. A shadow in front of another guard on the same store needs an operation of
    /// its own, else its claims are in the way of that guard's.
    pub fn shadow(mut self) -> Self {
        self.settings.shadow = true;
        self
    }

    /// A last word on the answers that the layer gives itself: it gets the default one and returns what is sent.
    ///
    /// The default one's body repeats its status, as RFC 9457 asks: change both with [`status`](Self::status) or
    /// [`Rejection::response_with`], or send a body of your own. Its `Content-Length` is counted; an informational status is
    /// replaced by the default answer.
    pub fn on_rejection(
        mut self,
        rejection: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.settings.on_rejection = Some(Arc::new(rejection));
        self
    }
}

/// Presets. Each is no more than a few of the settings above, and what is said after it counts more.
impl<Scope> LayerBuilder<Scope> {
    /// By draft-ietf-httpapi-idempotency-key-header-07: an `Idempotency-Key` in its quoted form (section 2.1) is required,
    /// another payload under the same key is a mismatch.
    ///
    /// The draft wants the answer to a missing key to link to the route's documentation: name it with
    /// [`documentation`](Self::documentation).
    pub fn ietf(self) -> Self {
        self.key(key::header("idempotency-key").quoted()).key_required().fingerprint(fingerprint::enforced())
    }

    /// By what Stripe documents of its API (<https://docs.stripe.com/api/idempotent_requests>): POST alone is guarded, a key
    /// is optional, a key that comes again on another endpoint or with other parameters is an error (400), and whatever a handler has
    /// answered is final: [`Verdict::stripe`].
    pub fn stripe(self) -> Self {
        self.key(key::header("idempotency-key"))
            .methods([Method::POST])
            .without_target()
            .fingerprint(fingerprint::enforced())
            .status(RejectionKind::Mismatch, StatusCode::BAD_REQUEST)
            .classify(Verdict::stripe)
    }

    /// For webhooks: a difference from the first delivery is told and never refused, for a sender cannot correct itself, and what
    /// is not over yet is answered 503 instead of 409, for many senders take a 4xx for the end and all come back after a 503.
    ///
    /// Where the key is depends on the sender: [`key`](Self::key). So does what it wants to read:
    /// [`repeats`](Self::repeats).
    pub fn webhook(self) -> Self {
        self.fingerprint(fingerprint::observed())
            .status(RejectionKind::InProgress, StatusCode::SERVICE_UNAVAILABLE)
            .status(RejectionKind::OutcomeUnknown, StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl LayerBuilder<ScopeChosen> {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// One [`LayerError`] for each mistake.
    pub fn build(mut self) -> Result<IdempotencyLayer, LayerError> {
        self.scope.0.check()?;
        self.settings.check()?;
        if self.settings.key_missing == KeyMissing::Generate {
            // Of all characters that such a key can have.
            let sample = HeaderValue::from_static("\"0123456789abcdef0123456789abcdef\"");
            self.settings.key = self.settings.key.generated(&sample)?;
        }
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
    pub(super) key_missing: KeyMissing,
    pub(super) methods: Vec<Method>,
    pub(super) target_in_identity: bool,
    pub(super) fingerprint: FingerprintRules,
    pub(super) request_limit: usize,
    pub(super) request_time_limit: Duration,
    pub(super) snapshot_limit: usize,
    pub(super) budget: Budget,
    pub(super) retry_after: Duration,
    pub(super) documentation: Option<Documentation>,
    pub(super) statuses: Vec<(RejectionKind, StatusCode)>,
    pub(super) shadow: bool,
    /// What is wrong with the documentation's address, the last one that was said.
    pub(super) mistake: Option<LayerError>,
    pub(super) keep: KeptHeaders,
    pub(super) marker: Marker,
    pub(super) expires: bool,
    pub(super) on_replay: Option<OnReplay>,
    pub(super) repeats: Repeats,
    pub(super) target: Option<TargetFn>,
    pub(super) classifier: Option<Classifier>,
    pub(super) on_rejection: Option<OnRejection>,
}

/// What becomes of a guarded request without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyMissing {
    Pass,
    Refuse,
    Generate,
}

pub(super) type TargetFn = Arc<dyn Fn(&request::Parts) -> Target + Send + Sync>;
pub(super) type Classifier = Arc<dyn Fn(&response::Parts, Option<&HeaderMap>) -> Verdict + Send + Sync>;
pub(super) type OnReplay = Arc<dyn Fn(&request::Parts, Response<Bytes>) -> Option<Response<Bytes>> + Send + Sync>;
pub(super) type OnRejection = Arc<dyn Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            key: key::header("idempotency-key"),
            key_missing: KeyMissing::Pass,
            methods: vec![Method::POST, Method::PATCH, Method::PUT, Method::DELETE],
            target_in_identity: true,
            fingerprint: fingerprint::enforced(),
            request_limit: MEBIBYTE,
            request_time_limit: Duration::from_secs(60),
            snapshot_limit: MEBIBYTE,
            budget: Budget::default(),
            retry_after: Rejection::RETRY_AFTER,
            documentation: None,
            statuses: Vec::new(),
            shadow: false,
            mistake: None,
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
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        self.key.check()?;
        self.fingerprint.check()?;
        if self.methods.is_empty() {
            return Err(LayerError::NoMethod);
        }
        if let Some(safe) = self.methods.iter().find(|method| method.is_safe()) {
            return Err(LayerError::SafeMethod(safe.clone()));
        }
        if self.request_time_limit.is_zero() {
            return Err(LayerError::ZeroLimit("the request time limit"));
        }
        if self.budget.limit() == 0 {
            return Err(LayerError::ZeroLimit("the budget"));
        }
        if self.request_limit == 0 {
            return Err(LayerError::ZeroLimit("the request limit"));
        }
        if self.snapshot_limit == 0 {
            return Err(LayerError::ZeroLimit("the snapshot limit"));
        }
        if let Some((_, status)) = self.statuses.iter().find(|(_, status)| !can_tell(*status)) {
            return Err(LayerError::RejectionStatus(*status));
        }
        self.marker.check()?;
        self.keep.check(&self.marker.name)?;
        self.repeats.check()?;
        Ok(())
    }
}

/// Whether a problem can be sent with this status.
fn can_tell(status: StatusCode) -> bool {
    !status.is_informational() && has_content(status)
}

impl<Scope: fmt::Debug> fmt::Debug for LayerBuilder<Scope> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder")
            .field("operation", &self.operation)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
