use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::BoxError;
use super::body::{RequestBody, ResponseBody};
use super::flow;
use super::layer::Config;
use crate::guard::{Course, Handover};

/// What an [`IdempotencyLayer`](super::IdempotencyLayer) makes of a service. See the [module docs](super).
///
/// Always ready: the inner service is a clone that is driven ready only after the claim is won, so that a repeat never queues
/// behind the run that it repeats.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> IdempotencyService<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, B, RB> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, RB>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        let kind = if self.config.settings.methods.contains(request.method()) {
            let course = Course::default();
            let flow = flow::run(Arc::clone(&self.config), inner, request, course.clone());
            ResponseKind::Guarded { answer: Handover::on(course, flow) }
        } else {
            let request = Some(request.map(RequestBody::passed));
            ResponseKind::Passed { call: Oneshot::Waiting { service: inner, request } }
        };
        ResponseFuture { kind }
    }
}

pin_project! {
    /// The future of an [`IdempotencyService`].
    ///
    /// Dropped once the claim is sent, what is left of it goes on on the runtime: a handler that has begun runs to its end
    /// and its outcome is stored; one that has not begun does not begin. A repeat that waits for another's run just ends.
    pub struct ResponseFuture<S, B, RB>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
        S::Error: Send,
        S::Error: 'static,
        RB: Body,
        RB: Send,
        RB: 'static,
        RB::Error: Into<BoxError>,
    {
        #[pin]
        kind: ResponseKind<S, B, RB>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    enum ResponseKind<S, B, RB>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
        S::Error: Send,
        S::Error: 'static,
        RB: Body,
        RB: Send,
        RB: 'static,
        RB::Error: Into<BoxError>,
    {
        Passed { #[pin] call: Oneshot<S, Request<RequestBody<B>>, S::Future> },
        Guarded { answer: Handover<Result<Response<ResponseBody<RB>>, S::Error>> },
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
    S::Error: Send + 'static,
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            ResponseProjection::Passed { call } => {
                Poll::Ready(ready!(call.poll(context)).map(|response| response.map(ResponseBody::passed)))
            }
            ResponseProjection::Guarded { answer } => Pin::new(answer).poll(context),
        }
    }
}

pin_project! {
    /// Drives a service ready, then calls it.
    #[project = OneshotProjection]
    enum Oneshot<S, R, F> {
        Waiting { service: S, request: Option<R> },
        Calling { #[pin] future: F },
    }
}

impl<S, R> Future for Oneshot<S, R, S::Future>
where
    S: Service<R>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                OneshotProjection::Calling { future } => return future.poll(context),
                OneshotProjection::Waiting { service, request } => {
                    ready!(service.poll_ready(context))?;
                    let request = request.take().expect("called once, when ready");
                    let future = service.call(request);
                    self.set(Self::Calling { future });
                }
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).field("config", &self.config).finish()
    }
}

impl<S, B, RB> fmt::Debug for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody<B>>, Response = Response<RB>>,
    S::Error: Send + 'static,
    RB: Body + Send + 'static,
    RB::Error: Into<BoxError>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}
