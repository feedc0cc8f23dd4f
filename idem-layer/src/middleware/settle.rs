use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, response};

use super::classify::Verdict;
use super::handle::Idempotency;
use super::layer::Config;
use super::snapshot;
use crate::guard::{Claim, Settled};
use crate::protocol::{Completion, Held, Snapshot};

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

    pub(super) fn verdict(&self, trailers: Option<&HeaderMap>) -> Verdict {
        self.handle.said().unwrap_or_else(|| self.config.classify(&self.head, trailers))
    }

    pub(super) async fn settle(self, claim: Claim, outcome: Outcome) -> Settled {
        let verdict = self.verdict(outcome.trailers.as_ref());
        settle(claim, verdict, || {
            let response = snapshot::capture(&self.head, outcome.body, outcome.trailers.as_ref());
            Completion::Replayable(Snapshot::response(&response))
        })
        .await
    }
}

/// Settles a claim by a verdict.
pub(super) async fn settle(claim: Claim, verdict: Verdict, completion: impl FnOnce() -> Completion) -> Settled {
    match verdict {
        Verdict::Complete => claim.complete_with(completion()).await,
        Verdict::Release => claim.release().await,
        Verdict::Unknown => claim.unknown().await,
        Verdict::Hold(why) => claim.hold(Held::because(why)).await,
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("status", &self.head.status).finish_non_exhaustive()
    }
}
