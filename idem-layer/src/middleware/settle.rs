use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, response};

use super::classify::{Verdict, is_grpc_without_status};
use super::handle::Idempotency;
use super::layer::Config;
use super::snapshot;
use crate::guard::{Claim, Settled};
use crate::protocol::{Completion, Held, NotReplayable, Snapshot};

/// Decides how a claim is settled once the response is whole: what the handler said, else what the route's classifier says.
pub(super) struct Judge {
    config: Arc<Config>,
    handle: Idempotency,
    head: response::Parts,
}

/// The rest of a response, behind its head.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Judge {
    pub(super) fn new(config: Arc<Config>, handle: Idempotency, head: response::Parts) -> Self {
        Self { config, handle, head }
    }

    /// The response is whole: what the handler said decides, else what the response says.
    pub(super) async fn settle(self, claim: Claim, outcome: Outcome) -> Settled {
        let verdict = self.said_or(|| self.config.classify(&self.head, outcome.trailers.as_ref()));
        settle(&self.config, claim, verdict, || {
            let response = snapshot::capture(&self.head, outcome.body, outcome.trailers.as_ref());
            Completion::Replayable(Snapshot::response(&response))
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
