use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, response};

use super::classify::{Verdict, is_grpc_without_status};
use super::handle::Idempotency;
use super::layer::Config;
use super::marks::{IDEMPOTENCY_EXPIRES, expiry};
use super::snapshot::{self, Fields};
use crate::guard::{Claim, Settled};
use crate::protocol::{Completion, Held, NotReplayable, ResponseSnapshot, Snapshot};

/// Decides how a claim is settled once the response is whole: what the handler said, else what the route's classifier says.
pub(super) struct Judge {
    config: Arc<Config>,
    handle: Idempotency,
    head: response::Parts,
    /// Until when the client was told that repeats get the response.
    promised: Option<HeaderValue>,
}

/// The rest of a response, behind its head.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Judge {
    pub(super) fn new(config: Arc<Config>, handle: Idempotency, head: response::Parts) -> Self {
        Self { config, handle, head, promised: None }
    }

    /// Why the fields of the response cannot be kept, if they cannot.
    pub(super) fn too_large(&self, trailers: Option<&HeaderMap>) -> Option<NotReplayable> {
        let settings = &self.config.settings;
        let fields = Fields::kept(&settings.keep, &settings.marker, &self.head, trailers);
        fields.is_none().then_some(NotReplayable::TooLarge)
    }

    /// Says in the head until when repeats get this response, where the route says it and the response will be kept, as far
    /// as can be known by now.
    pub(super) fn promise(&mut self, head: &mut response::Parts, trailers: Option<&HeaderMap>) {
        if !self.config.settings.expires || self.config.settings.shadow {
            return;
        }
        let verdict = self.said_or(|| self.config.classify(&self.head, trailers));
        if verdict != Verdict::Complete || self.too_large(trailers).is_some() {
            return;
        }
        let guard = &self.config.guard;
        let until = expiry(guard.clock().epoch_ms(), guard.policy().retention());
        if head.headers.try_append(IDEMPOTENCY_EXPIRES, until.clone()).is_ok() {
            self.promised = Some(until);
        }
    }

    /// The response is whole: what the handler said decides, else what the response says.
    pub(super) async fn settle(self, claim: Claim, outcome: Outcome) -> Settled {
        let verdict = self.said_or(|| self.config.classify(&self.head, outcome.trailers.as_ref()));
        settle(&self.config, claim, verdict, || match self.capture(outcome.body, outcome.trailers.as_ref()) {
            Some(response) => Completion::Replayable(Snapshot::response(&response)),
            None => Completion::NotReplayable(NotReplayable::TooLarge),
        })
        .await
    }

    /// The response will not be kept, and is settled before its end. The status of a gRPC call is in its trailers: where it
    /// has not come yet, the call counts as one that took effect, for it must not run again.
    pub(super) async fn settle_early(self, claim: Claim, why: NotReplayable) -> Settled {
        let verdict = self.said_or(|| match is_grpc_without_status(&self.head) {
            true => Verdict::Complete,
            false => self.config.classify(&self.head, None),
        });
        settle(&self.config, claim, verdict, || Completion::NotReplayable(why)).await
    }

    /// The response broke off: its outcome is unknown, unless the handler has said it.
    pub(super) async fn settle_broken(self, claim: Claim) -> Settled {
        let verdict = self.said_or(|| Verdict::Unknown);
        settle(&self.config, claim, verdict, || Completion::NotReplayable(NotReplayable::BrokenOff)).await
    }

    fn capture(&self, body: Bytes, trailers: Option<&HeaderMap>) -> Option<ResponseSnapshot> {
        let settings = &self.config.settings;
        let mut response = snapshot::capture(&settings.keep, &settings.marker, &self.head, body, trailers)?;
        if let Some(until) = &self.promised {
            response.headers.push((IDEMPOTENCY_EXPIRES.as_str().to_owned(), Bytes::copy_from_slice(until.as_bytes())));
        }
        Some(response)
    }

    fn said_or(&self, otherwise: impl FnOnce() -> Verdict) -> Verdict {
        self.handle.said().unwrap_or_else(otherwise)
    }
}

/// Settles a claim by a verdict. In shadow mode its owner keeps his answer, whatever the key holds.
pub(super) async fn settle(
    config: &Config,
    claim: Claim,
    verdict: Verdict,
    completion: impl FnOnce() -> Completion,
) -> Settled {
    let settled = match verdict {
        Verdict::Complete => claim.complete_with(completion()).await,
        Verdict::Release => claim.release().await,
        Verdict::Unknown => claim.unknown().await,
        Verdict::Hold(why) => claim.hold(Held::because(why)).await,
    };
    match settled {
        Settled::Lost(_) if config.settings.shadow => Settled::Stored,
        settled => settled,
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("status", &self.head.status).finish_non_exhaustive()
    }
}
