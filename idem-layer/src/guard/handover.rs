use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future whose work does not depend on whoever awaits it.
///
/// Once its [`Course`] is committed, dropping it hands what is left to the runtime on which it was first polled; the result
/// goes to `orphaned`. A future that is dropped while it is being polled has panicked: that is not handed over. Without a
/// runtime it is just dropped.
pub(crate) struct Handover<F, O, D>
where
    F: Future + Send + 'static,
    F::Output: Send,
    O: FnOnce(F::Output) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    orphaned: Option<O>,
    course: Course,
    runtime: Option<Handle>,
    polling: bool,
}

/// How far a handed-over future has come, shared between it and whoever awaits it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    committed: AtomicBool,
    deserted: AtomicBool,
}

impl Course {
    /// From here on nothing depends on whoever awaits.
    pub(crate) fn commit(&self) {
        self.0.committed.store(true, Ordering::Release);
    }

    /// Whoever awaited has left.
    pub(crate) fn is_deserted(&self) -> bool {
        self.0.deserted.load(Ordering::Acquire)
    }
}

impl<F, O, D> Handover<F, O, D>
where
    F: Future + Send + 'static,
    F::Output: Send,
    O: FnOnce(F::Output) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    /// Committed from its first poll on.
    pub(crate) fn new(future: F, orphaned: O) -> Self {
        let course = Course::default();
        course.commit();
        Self::on(course, future, orphaned)
    }

    /// Committed when `course` is.
    pub(crate) fn on(course: Course, future: F, orphaned: O) -> Self {
        Self { future: Some(Box::pin(future)), orphaned: Some(orphaned), course, runtime: None, polling: false }
    }
}

impl<F, O, D> Future for Handover<F, O, D>
where
    F: Future + Send + 'static,
    F::Output: Send,
    O: FnOnce(F::Output) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Unpin: the future is boxed and the rest is never pinned.
        let this = self.get_mut();
        let future = this.future.as_mut().expect("polled after completion");
        if this.runtime.is_none() {
            this.runtime = Handle::try_current().ok();
        }
        this.polling = true;
        let polled = future.as_mut().poll(context);
        this.polling = false;
        if polled.is_ready() {
            this.future = None;
        }
        polled
    }
}

impl<F, O, D> Unpin for Handover<F, O, D>
where
    F: Future + Send + 'static,
    F::Output: Send,
    O: FnOnce(F::Output) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
}

impl<F, O, D> Drop for Handover<F, O, D>
where
    F: Future + Send + 'static,
    F::Output: Send,
    O: FnOnce(F::Output) -> D + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    fn drop(&mut self) {
        let (Some(future), Some(orphaned)) = (self.future.take(), self.orphaned.take()) else { return };
        if self.polling || !self.course.0.committed.load(Ordering::Acquire) {
            return;
        }
        let Some(runtime) = self.runtime.take() else { return };
        self.course.0.deserted.store(true, Ordering::Release);
        runtime.spawn(async move { orphaned(future.await).await });
    }
}
