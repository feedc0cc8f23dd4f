//! Misbehaviour on request, for tests: the header `x-fault` under `--faults`.
//!
//! | fault | what the handler does |
//! |---|---|
//! | `before=MS`, `after=MS` | waits before or after the effect |
//! | `no-effect` | leaves the effect out |
//! | `status=NNN` | answers with this status, the rest unchanged; 204 and 304 without a body |
//! | `panic`, `abort` | panics or aborts the process, after the effect and the waiting after it |
//! | `panic-before`, `abort-before` | the same before the effect |
//! | `size=BYTES` | pads the body with spaces up to this size |
//! | `chunks=N` | sends the body in N chunks 100 ms apart, without telling its length |

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hyper::body::Frame;
use tokio::time::Sleep;

use idem_examples::Problem;

const CHUNK_INTERVAL: Duration = Duration::from_millis(100);
/// More than any limit that a test wants to pass.
const MAX_SIZE: usize = 64 * 1024 * 1024;

/// Whether the service obeys the header at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Obey(pub(crate) bool);

/// What one request asks to go wrong; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    before: Duration,
    crash_before: Option<Crash>,
    no_effect: bool,
    after: Duration,
    crash_after: Option<Crash>,
    status: Option<StatusCode>,
    size: usize,
    chunks: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Panic,
    Abort,
}

impl Faults {
    /// The time before the effect, which does not always return.
    pub(crate) async fn before_effect(&self) {
        wait(self.before).await;
        crash(self.crash_before);
    }

    /// Whether to take effect.
    pub(crate) fn effect(&self) -> bool {
        !self.no_effect
    }

    /// The time after the effect, which does not always return.
    pub(crate) async fn after_effect(&self) {
        wait(self.after).await;
        crash(self.crash_after);
    }

    /// The answer as it leaves.
    pub(crate) fn answer(&self, response: Response<Bytes>) -> Response {
        let (mut parts, body) = response.into_parts();
        parts.status = self.status.unwrap_or(parts.status);
        if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Response::from_parts(parts, Body::empty());
        }
        let body = pad(body, self.size);
        let body = match self.chunks {
            Some(chunks) => Body::new(Chunks::new(body, chunks)),
            None => Body::from(body),
        };
        Response::from_parts(parts, body)
    }

    fn from_headers(headers: &HeaderMap) -> Result<Self, String> {
        let mut faults = Self::default();
        for line in headers.get_all("x-fault") {
            let line = line.to_str().map_err(|_| "x-fault is visible ASCII".to_owned())?;
            for fault in line.split(',').map(str::trim).filter(|fault| !fault.is_empty()) {
                faults.add(fault).ok_or_else(|| format!("there is no fault `{fault}`"))?;
            }
        }
        Ok(faults)
    }

    fn add(&mut self, fault: &str) -> Option<()> {
        let (name, value) = fault.split_once('=').map_or((fault, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("before", Some(ms)) => self.before = millis(ms)?,
            ("after", Some(ms)) => self.after = millis(ms)?,
            ("no-effect", None) => self.no_effect = true,
            ("status", Some(status)) => self.status = Some(final_status(status)?),
            ("panic", None) => self.crash_after = Some(Crash::Panic),
            ("abort", None) => self.crash_after = Some(Crash::Abort),
            ("panic-before", None) => self.crash_before = Some(Crash::Panic),
            ("abort-before", None) => self.crash_before = Some(Crash::Abort),
            ("size", Some(bytes)) => self.size = bytes.parse().ok().filter(|&size| size <= MAX_SIZE)?,
            ("chunks", Some(chunks)) => self.chunks = Some(chunks.parse().ok().filter(|&chunks| chunks > 0)?),
            _ => return None,
        }
        Some(())
    }
}

impl<S> FromRequestParts<S> for Faults
where
    S: Send + Sync,
    Obey: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Obey(true) = Obey::from_ref(state) else { return Ok(Self::default()) };
        Self::from_headers(&parts.headers).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "invalid-fault", why))
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// A status that ends a response: an interim one (1xx) would be followed by another.
fn final_status(text: &str) -> Option<StatusCode> {
    text.parse::<StatusCode>().ok().filter(|status| !status.is_informational())
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn crash(crash: Option<Crash>) {
    match crash {
        None => {}
        Some(Crash::Panic) => panic!("x-fault asked for a panic"),
        Some(Crash::Abort) => std::process::abort(),
    }
}

/// Spaces at the end: JSON stays JSON.
fn pad(body: Bytes, size: usize) -> Bytes {
    if body.len() >= size {
        return body;
    }
    let mut padded = Vec::from(body);
    padded.resize(size, b' ');
    padded.into()
}

/// A body in chunks of about equal size, with a pause before each but the first, and of unknown length.
struct Chunks {
    rest: Bytes,
    left: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Chunks {
    /// An empty chunk would end the body, so there are never more chunks than bytes.
    fn new(body: Bytes, chunks: usize) -> Self {
        Self { left: chunks.min(body.len()), rest: body, pause: None }
    }
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
        }
        let length = self.rest.len().div_ceil(self.left);
        let chunk = self.rest.split_to(length);
        self.left -= 1;
        self.pause = Some(Box::pin(tokio::time::sleep(CHUNK_INTERVAL)));
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use http_body_util::BodyExt;

    use super::*;

    fn parsed(lines: &[&str]) -> Result<Faults, String> {
        Faults::from_headers(
            &lines.iter().map(|l| ("x-fault".parse().unwrap(), HeaderValue::from_str(l).unwrap())).collect(),
        )
    }

    #[test]
    fn faults_compose() {
        let all =
            parsed(&["before=10, after=20,no-effect,status=204", "panic,abort-before,size=100,chunks=3"]).unwrap();
        let expected = Faults {
            before: Duration::from_millis(10),
            crash_before: Some(Crash::Abort),
            no_effect: true,
            after: Duration::from_millis(20),
            crash_after: Some(Crash::Panic),
            status: Some(StatusCode::NO_CONTENT),
            size: 100,
            chunks: Some(3),
        };
        assert_eq!(all, expected);
        assert_eq!(parsed(&[]), Ok(Faults::default()));
        assert_eq!(parsed(&[""]), Ok(Faults::default()));
    }

    #[test]
    fn an_unknown_fault_is_named() {
        for bad in [
            "sleep",
            "before",
            "before=soon",
            "after=-1",
            "status=99",
            "status=100",
            "status=abc",
            "panic=1",
            "chunks=0",
            "size=99999999999",
        ] {
            assert_eq!(parsed(&["no-effect", bad]), Err(format!("there is no fault `{bad}`")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_padded_and_cut_into_chunks_without_a_length() {
        let faults = parsed(&["size=10,chunks=3"]).unwrap();
        let mut body = faults.answer(Response::new(Bytes::from_static(b"success"))).into_body();
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), None);
        let mut chunks = Vec::new();
        while let Some(frame) = body.frame().await {
            chunks.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(chunks, ["succ", "ess", "   "]);
    }

    #[tokio::test]
    async fn a_status_without_content_has_no_body() {
        let faults = parsed(&["status=304,size=10"]).unwrap();
        let response = faults.answer(Response::new(Bytes::from_static(b"success")));
        assert_eq!(response.status(), 304);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 0);
    }
}
