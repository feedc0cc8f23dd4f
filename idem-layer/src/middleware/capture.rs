use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;

use super::BoxError;
use super::body::{Chunks, into_bytes};
use super::budget::Share;
use super::settle::{Judge, Outcome};
use crate::guard::{Claim, Settled};
use crate::protocol::NotReplayable;

/// A response body that is kept while it passes through, and whose end is withheld until the outcome is stored.
pub(super) struct Capture<B>(Option<Box<Inner<B>>>)
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>;

struct Inner<B> {
    body: Pin<Box<B>>,
    limit: usize,
    chunks: Chunks,
    share: Option<Share>,
    claim: Option<Claim>,
    judge: Option<Judge>,
    state: State,
    polling: bool,
}

enum State {
    /// Frames pass and are kept.
    Capturing,
    /// The settling is under way; this follows when it is stored.
    Settling(Pin<Box<dyn Future<Output = Settled> + Send>>, Next),
    /// The outcome is settled as not replayable: the rest is the client's business.
    Free,
    /// Nothing follows.
    Ended,
}

enum Next {
    /// A frame that was withheld, then the rest of the body.
    Rest(Bytes),
    /// The end of the body.
    End(Option<HeaderMap>),
    /// The error with which the body broke off.
    Broken(BoxError),
}

/// The body of a stream whose claim was lost: what the client has seen so far is not the answer of its key.
#[derive(Debug, Error)]
#[error("another run of the same key has answered meanwhile")]
struct Superseded;

impl<B> Capture<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(body: B, limit: usize, share: Share, claim: Claim, judge: Judge) -> Self {
        Self(Some(Box::new(Inner {
            body: Box::pin(body),
            limit,
            chunks: Chunks::default(),
            share: Some(share),
            claim: Some(claim),
            judge: Some(judge),
            state: State::Capturing,
            polling: false,
        })))
    }

    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Some(inner) => inner.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| matches!(inner.state, State::Ended))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, |inner| inner.body.size_hint())
    }
}

impl<B> Inner<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.polling = true;
        let polled = self.poll_state(context);
        self.polling = false;
        polled
    }

    fn poll_state(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Free => return self.body.as_mut().poll_frame(context).map(|frame| frame.map(into_bytes)),
                State::Capturing => {
                    let frame = ready!(self.body.as_mut().poll_frame(context)).map(into_bytes);
                    if let Some(passed) = self.capture(frame) {
                        return Poll::Ready(Some(Ok(passed)));
                    }
                }
                State::Settling(settling, _) => {
                    let settled = ready!(settling.as_mut().poll(context));
                    self.share = None;
                    let State::Settling(_, next) = std::mem::replace(&mut self.state, State::Ended) else {
                        return Poll::Ready(None);
                    };
                    return Poll::Ready(match (settled, next) {
                        (_, Next::Broken(error)) => Some(Err(error)),
                        (Settled::Lost(_), _) => Some(Err(Superseded.into())),
                        (Settled::Stored | Settled::Deferred, Next::Rest(data)) => {
                            self.state = State::Free;
                            Some(Ok(Frame::data(data)))
                        }
                        (Settled::Stored | Settled::Deferred, Next::End(trailers)) => {
                            trailers.map(Frame::trailers).map(Ok)
                        }
                    });
                }
            }
        }
    }

    /// Keeps a frame and lets it pass, or begins to settle.
    fn capture(&mut self, frame: Option<Result<Frame<Bytes>, BoxError>>) -> Option<Frame<Bytes>> {
        let trailers = match frame {
            None => None,
            Some(Err(error)) => {
                self.settle(|claim, judge| Box::pin(judge.settle_broken(claim)), Next::Broken(error));
                return None;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => match self.has_room_for(&data) {
                    Ok(()) => {
                        self.chunks.push(data.clone());
                        return Some(Frame::data(data));
                    }
                    Err(why) => {
                        self.settle(|claim, judge| Box::pin(judge.settle_early(claim, why)), Next::Rest(data));
                        return None;
                    }
                },
                Err(frame) => frame.into_trailers().ok(),
            },
        };
        let outcome = Outcome { body: self.chunks.join(), trailers: trailers.clone() };
        self.settle(|claim, judge| Box::pin(judge.settle(claim, outcome)), Next::End(trailers));
        None
    }

    fn has_room_for(&mut self, data: &Bytes) -> Result<(), NotReplayable> {
        let length = self.chunks.len() + data.len();
        if length > self.limit {
            return Err(NotReplayable::TooLarge);
        }
        match self.share.as_mut().is_none_or(|share| share.raise_to(length)) {
            true => Ok(()),
            false => Err(NotReplayable::NoRoom),
        }
    }

    fn settle(
        &mut self,
        settle: impl FnOnce(Claim, Judge) -> Pin<Box<dyn Future<Output = Settled> + Send>>,
        next: Next,
    ) {
        self.chunks = Chunks::default();
        if let (Some(claim), Some(judge)) = (self.claim.take(), self.judge.take()) {
            self.state = State::Settling(settle(claim, judge), next);
        }
    }
}

impl<B> Drop for Capture<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// A client who leaves does not stop the capture; the run ceiling does. A body that panicked while it was polled is not
    /// polled again: its claim is dropped, and with it its outcome is unknown.
    fn drop(&mut self) {
        let Some(mut inner) = self.0.take() else { return };
        let unfinished = matches!(inner.state, State::Capturing | State::Settling(..));
        if !unfinished || inner.polling {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let ceiling = inner.claim.as_ref().map(Claim::until_ceiling);
        if let Some(claim) = &inner.claim {
            claim.emit_handed_over();
        }
        runtime.spawn(async move {
            let rest = std::future::poll_fn(move |context| {
                while let State::Capturing | State::Settling(..) = inner.state {
                    if ready!(inner.poll_frame(context)).is_none_or(|frame| frame.is_err()) {
                        break;
                    }
                }
                Poll::Ready(())
            });
            match ceiling {
                Some(ceiling) => drop(tokio::time::timeout(ceiling, rest).await),
                None => rest.await,
            }
        });
    }
}

impl<B> fmt::Debug for Capture<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capture")
    }
}
