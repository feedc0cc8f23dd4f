//! The one path of a guarded request: extract, fingerprint, acquire, run, classify, settle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{Request, Response, request, response};
use http_body::Body;
use tower_service::Service;

use super::BoxError;
use super::body::{Buffered, Chunks, Collected, RequestBody, ResponseBody, collect};
use super::capture::Capture;
use super::classify::Verdict;
use super::extract::{Extracted, Guarded, Refused, extract};
use super::handle::Idempotency;
use super::layer::Config;
use super::marks::{IDEMPOTENCY_EXPIRES, without};
use super::rejection::Rejection;
use super::repeats::{self, Completed};
use super::settle::{Judge, Outcome, settle};
use super::snapshot::{self, Replay};
use crate::guard::{Admission, Claim, Course, EventKind, Repeat, Settled};
use crate::protocol::{Completion, NotReplayable};

/// What the inner service is called with, and what it answers.
type Answer<RB, E> = Result<Response<ResponseBody<RB>>, E>;

pub(super) async fn run<S, B, RB>(
    config: Arc<Config>,
    mut inner: S,
    request: Request<B>,
    course: Course,
) -> Answer<RB, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
    B: Body,
    B::Error: Into<BoxError>,
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let tracked = config.guard.track();
    let (mut head, body) = request.into_parts();

    let shadow = config.settings.shadow;
    let Guarded { arrival, body, share, given } = match extract(&config, &mut head, body).await {
        Ok(Extracted::Guarded(guarded)) => guarded,
        Ok(Extracted::Passed(body, _share)) => return pass(inner, head, body).await,
        Err(Refused { rejection, body, share: _share }) if shadow => {
            let (operation, code) = (config.operation.as_str(), rejection.code());
            tracing::info!(target: "idem", operation, event = "refused", code, shadow, "idempotency");
            return pass(inner, head, body).await;
        }
        Err(Refused { rejection, .. }) => return Ok(refused(&config, rejection)),
    };
    // Most routes need neither.
    let caller = config.settings.on_replay.is_some().then(|| head.clone());
    let alerted = config.settings.repeats.alerts().then(|| arrival.identity().clone());

    let admission = config.guard.admit(arrival, &course).await;
    if let (Ok(Admission::Repeat(_)), Some(identity)) = (&admission, &alerted) {
        config.guard.emit(identity, shadow, EventKind::Alert);
    }
    let mut claim = match admission {
        Ok(Admission::Claimed(claim)) => claim,
        Ok(Admission::Repeat(_)) | Err(_) if shadow && !course.is_deserted() => {
            // It is as unguarded as without the layer, and ends with its client.
            course.uncommit();
            return pass(inner, head, body).await;
        }
        Ok(Admission::Repeat(repeat)) => return Ok(answer(&config, caller.as_ref(), repeat)),
        Err(error) => return Ok(refused(&config, Rejection::store(&error))),
    };

    // From here on the claim is counted, and the call is not counted beside it.
    drop(tracked);

    if course.is_deserted() {
        let _ = claim.release().await;
        // Nobody reads this.
        return Ok(refused(&config, Rejection::in_progress(Duration::ZERO, Duration::ZERO)));
    }
    // Until the handler begins, a claim that is dropped is released: so is that of a client who leaves while the service is
    // not ready. It neither keeps the key from the retry nor its place in front of the service.
    course.uncommit();
    let readied = ready(&mut inner).await;
    course.commit();
    if let Err(error) = readied {
        let _ = claim.release().await;
        return Err(error);
    }
    let handle = match head.extensions.get::<Idempotency>() {
        // What the handler says is meant for the layer that guards it; a shadow listens.
        Some(outer) if shadow => outer.clone(),
        _ => {
            let handle = Idempotency::of(&claim, shadow);
            head.extensions.insert(handle.clone());
            handle
        }
    };
    claim.begin();
    let result = inner.call(Request::from_parts(head, body)).await;
    drop(share);
    if course.is_deserted() {
        claim.emit_handed_over();
    }
    match result {
        Ok(mut response) => {
            if let Some((name, value)) = given {
                response.headers_mut().insert(name, value);
            }
            Ok(finish(&config, caller.as_ref(), claim, handle, response).await)
        }
        Err(error) => {
            let verdict = handle.said().unwrap_or(Verdict::Unknown);
            let broken_off = || Completion::NotReplayable(NotReplayable::BrokenOff);
            match settle(&config, claim, verdict, broken_off).await {
                Settled::Lost(repeat) => Ok(answer(&config, caller.as_ref(), repeat)),
                Settled::Stored | Settled::Deferred => Err(error),
            }
        }
    }
}

/// Lets a request pass as if there were no layer.
async fn pass<S, B, RB>(mut inner: S, head: request::Parts, body: RequestBody<B>) -> Answer<RB, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    ready(&mut inner).await?;
    let response = inner.call(Request::from_parts(head, body)).await?;
    Ok(response.map(ResponseBody::passed))
}

/// Settles a claim by the response, and makes of it what the client gets.
async fn finish<RB>(
    config: &Arc<Config>,
    caller: Option<&request::Parts>,
    claim: Claim,
    handle: Idempotency,
    response: Response<RB>,
) -> Response<ResponseBody<RB>>
where
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let (mut head, body) = response.into_parts();
    snapshot::unframe(&mut head);
    let mut kept = copy(&head);
    unmark(config, &mut kept);
    if !config.settings.shadow && kept.headers.len() != head.headers.len() {
        head.headers = kept.headers.clone();
    }
    let mut judge = Judge::new(Arc::clone(config), handle, kept);

    if let Some(why) = never_ends(&head) {
        let settled = judge.settle_early(claim, why).await;
        return unless_lost(config, caller, settled, Response::from_parts(head, ResponseBody::passed(body)));
    }
    if !snapshot::has_content(head.status) {
        // Its head is all of it: whatever body comes with such a status is sent by no server that knows HTTP.
        judge.promise(&mut head, None);
        let settled = judge.settle(claim, Outcome { body: Bytes::new(), trailers: None }).await;
        let response = Response::from_parts(head, ResponseBody::whole(Buffered::default()));
        return unless_lost(config, caller, settled, response);
    }
    if let Some(why) = judge.too_large(None) {
        let settled = judge.settle_early(claim, why).await;
        return unless_lost(config, caller, settled, Response::from_parts(head, ResponseBody::passed(body)));
    }
    let limit = config.settings.snapshot_limit;
    let mut share = config.settings.budget.share();
    let length = known_length(&head, &body);
    let Some(_) = length.filter(|length| *length <= limit as u64) else {
        if length.is_none() {
            judge.promise(&mut head, None);
        }
        let capture = Capture::new(body, limit, share, claim, judge);
        return Response::from_parts(head, ResponseBody::captured(capture));
    };

    let mut body = Box::pin(body);
    let mut chunks = Chunks::default();
    let (settled, body) = match collect(body.as_mut(), limit, &mut share, &mut chunks).await {
        Collected::Whole(trailers) => {
            let data = chunks.join();
            snapshot::correct_length(&mut head.headers, data.len());
            judge.promise(&mut head, trailers.as_ref());
            let outcome = Outcome { body: data.clone(), trailers: trailers.clone() };
            (judge.settle(claim, outcome).await, ResponseBody::whole(Buffered::new(data, trailers)))
        }
        Collected::TooLarge => {
            let settled = judge.settle_early(claim, NotReplayable::TooLarge).await;
            (settled, ResponseBody::resumed(chunks.join(), body))
        }
        Collected::NoRoom => {
            let settled = judge.settle_early(claim, NotReplayable::NoRoom).await;
            (settled, ResponseBody::resumed(chunks.join(), body))
        }
        Collected::Broken(error) => {
            (judge.settle_broken(claim).await, ResponseBody::whole(Buffered::broken(chunks.join(), error)))
        }
    };
    unless_lost(config, caller, settled, Response::from_parts(head, body))
}

/// One key, one answer: an owner whose claim is lost sends what the key holds.
fn unless_lost<RB>(
    config: &Config,
    caller: Option<&request::Parts>,
    settled: Settled,
    response: Response<ResponseBody<RB>>,
) -> Response<ResponseBody<RB>>
where
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    match settled {
        Settled::Stored | Settled::Deferred => response,
        Settled::Lost(repeat) => answer(config, caller, repeat),
    }
}

/// What a repeat gets.
fn answer<RB>(config: &Config, caller: Option<&request::Parts>, repeat: Repeat) -> Response<ResponseBody<RB>>
where
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let completed = match repeat {
        Repeat::Replay(snapshot) => Completed::Kept(snapshot),
        Repeat::NotReplayable(_) => Completed::NotReplayable,
        Repeat::Gone => Completed::Gone,
        Repeat::Busy { left, .. } => {
            return refused(config, Rejection::in_progress(config.settings.retry_after, left));
        }
        Repeat::Held { .. } => return refused(config, Rejection::outcome_unknown()),
        Repeat::Mismatch => return refused(config, Rejection::mismatch()),
    };
    match repeats::of_completed(config, caller, completed) {
        Ok(Replay { response, trailers }) => response.map(|body| ResponseBody::whole(Buffered::new(body, trailers))),
        Err(rejection) => refused(config, rejection),
    }
}

fn refused<RB>(config: &Config, rejection: Rejection) -> Response<ResponseBody<RB>>
where
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    config.reject(rejection).map(|body| ResponseBody::whole(Buffered::new(body, None)))
}

async fn ready<S, R>(service: &mut S) -> Result<(), S::Error>
where
    S: Service<R>,
{
    std::future::poll_fn(|context| service.poll_ready(context)).await
}

/// Responses without an end to wait for.
fn never_ends(head: &response::Parts) -> Option<NotReplayable> {
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    match head.status {
        // The others end no exchange, and no server sends them as an answer: they cannot be sent again.
        status if status.is_informational() => Some(NotReplayable::Upgrade),
        status
            if snapshot::has_content(status)
                && content_type.is_some_and(|value| value.starts_with(b"text/event-stream")) =>
        {
            Some(NotReplayable::Stream)
        }
        _ => None,
    }
}

/// The length of a body that says it: such a message is whole to the client with its last byte of data.
fn known_length<B: Body>(head: &response::Parts, body: &B) -> Option<u64> {
    let declared = || head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.size_hint().exact().or_else(declared)
}

/// Takes out of a first answer what only the layer says: it is no replay, whatever stands further in.
fn unmark(config: &Config, head: &mut response::Parts) {
    let settings = &config.settings;
    let ours = |name: &HeaderName| *name == settings.marker.name || (settings.expires && *name == IDEMPOTENCY_EXPIRES);
    if head.headers.keys().any(ours) {
        head.headers = without(&head.headers, ours);
    }
}

/// The parts of a head that matter for the record.
fn copy(head: &response::Parts) -> response::Parts {
    let mut copy = Response::new(()).into_parts().0;
    copy.status = head.status;
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy
}
