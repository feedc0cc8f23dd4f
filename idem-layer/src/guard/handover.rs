use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future whose work does not depend on whoever awaits it.
///
/// While its [`Course`] is committed, dropping it hands what is left to the runtime on which it was first polled. A future
/// that is dropped while it is being polled has panicked: that is not handed over. Without a runtime it is just dropped.
pub(crate) struct Handover<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
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

    /// Takes that back: nothing is on its way that would have to be awaited, so that whoever leaves now leaves nothing.
    pub(crate) fn uncommit(&self) {
        self.0.committed.store(false, Ordering::Release);
    }

    /// Whoever awaited has left.
    pub(crate) fn is_deserted(&self) -> bool {
        self.0.deserted.load(Ordering::Acquire)
    }
}

impl<T: Send + 'static> Handover<T> {
    /// Committed from its first poll on.
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        let course = Course::default();
        course.commit();
        Self::on(course, future)
    }

    /// Committed while `course` is.
    pub(crate) fn on(course: Course, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), course, runtime: None, polling: false }
    }
}

impl<T: Send + 'static> Future for Handover<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let future = this.future.as_mut().expect("not polled after completion");
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

impl<T: Send + 'static> Drop for Handover<T> {
    fn drop(&mut self) {
        let (Some(future), Some(runtime)) = (self.future.take(), self.runtime.take()) else { return };
        if self.polling || !self.course.0.committed.load(Ordering::Acquire) {
            // What it holds may have something to do yet on the runtime, on whatever thread it is dropped.
            let _entered = runtime.enter();
            drop(future);
            return;
        }
        self.course.0.deserted.store(true, Ordering::Release);
        runtime.spawn(async move { drop(future.await) });
    }
}

impl<T: Send + 'static> fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("course", &self.course).finish_non_exhaustive()
    }
}
