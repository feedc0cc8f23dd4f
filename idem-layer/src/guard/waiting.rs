//! Repeats that wait for the end of a run that is going on, and then ask again.
//!
//! 1. What a repeat gets is what the store answers when it asks again: waking decides nothing. So only one of those who wait
//!    wins a claim that was released, and a request that differs is refused.
//! 2. In this process a settling wakes them at once. None is missed: see [`Waiters::asking`].
//! 3. Other processes are watched: of an identity's waiters in this guard one looks into the store, first after 5 ms, then
//!    ever more rarely down to 25 times a second. If it leaves, another takes its turn.
//! 4. Deadlines are by the time of the tokio runtime, like every other limit of a call; the guard's clock is for leases.
//!
//! Why looking, where a store could send notifications: one that is lost (a failover, a new connection) would leave the
//! waiters to the end of their wait, so there would have to be looking all the same; one look per identity and process is
//! cheap; and sending them would tax each settling, whether or not anybody waits, and need a connection of its own.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::admission::{Answer, Question};
use super::{Course, EventKind, Guard};
use crate::protocol::{Identity, Phase, Policy, Seen, State, Token};
use crate::store::{Inspect, StoreError};

/// How many repeats wait in one guard, of all identities. One more is refused at once.
pub(super) const MOST_WAITERS: usize = 1024;

/// The pauses between two looks into the store: doubled from the one to the other.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

impl Guard {
    /// Waits for the run that this repeat has met, and asks again when it has ended, or at the end of the wait.
    ///
    /// While it waits, nothing is committed: a caller who leaves takes all of it along.
    pub(super) async fn wait(
        &self,
        question: &mut Question,
        busy: Answer,
        wait: Duration,
        asking: &Asking<'_>,
        course: &Course,
    ) -> Result<Answer, StoreError> {
        // A caller who has left waits for nothing.
        if course.is_deserted() {
            return Ok(busy);
        }
        let Question { identity, terms, .. } = &*question;
        let Some(mut waiter) = asking.wait(identity, terms.policy.waiters()) else { return Ok(busy) };
        self.emit(identity, terms.shadow, EventKind::Waiting);

        let mut end = pin!(sleep(wait));
        loop {
            course.uncommit();
            let is_over = {
                let mut changed = pin!(waiter.changed(self, &question.identity, &question.terms.policy));
                poll_fn(|context| match end.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(true),
                    Poll::Pending => changed.as_mut().poll(context).map(|()| false),
                })
                .await
            };
            course.commit();
            let answer = self.ask(question).await?;
            if is_over || !answer.is_busy() || course.is_deserted() {
                return Ok(answer);
            }
        }
    }
}

/// The repeats that wait in one guard and its clones.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// How many arrivals are asking the store or wait, of those who would wait. All that a settling looks at while it is zero.
    asking: AtomicUsize,
    /// How many settlings have found somebody asking.
    ended: AtomicU64,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    /// By [`Identity::digest`].
    of: HashMap<[u8; 32], Place>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Place {
    waiting: usize,
    line: Arc<Line>,
}

/// What the waiters of one identity share.
#[derive(Debug, Default)]
struct Line {
    changes: watch::Sender<()>,
    /// Held by the one that looks into the store.
    turn: tokio::sync::Mutex<()>,
}

impl Waiters {
    /// Announces an arrival that would wait; **before** it asks the store.
    ///
    /// An arrival that is then told of a run asked before that run was settled, so whoever settles it finds the announcement
    /// and counts. The arrival compares the count when it has taken its place: it either sees that something has ended since
    /// it asked, or its place is found by the one who wakes.
    pub(super) fn asking(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Ordering::SeqCst);
        Asking { waiters: self, ended: self.ended.load(Ordering::SeqCst) }
    }

    /// Wakes those who wait for this identity. Called after each settling that the store has answered.
    pub(super) fn wake(&self, identity: &Identity) {
        if self.asking.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        let line = self.lines().of.get(identity.digest()).map(|place| Arc::clone(&place.line));
        if let Some(line) = line {
            line.wake();
        }
    }

    /// How many wait now.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        let lines = self.lines();
        assert_eq!(lines.of.values().map(|place| place.waiting).sum::<usize>(), lines.waiting);
        lines.waiting
    }

    /// How many settlings have found somebody asking.
    #[cfg(test)]
    pub(super) fn wakings(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An arrival that would wait, until it has its answer.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    waiters: &'a Waiters,
    ended: u64,
}

impl<'a> Asking<'a> {
    /// Takes a place among those who wait for this identity; `None` if `most` wait for it, or too many in all.
    fn wait(&self, identity: &Identity, most: usize) -> Option<Waiter<'a>> {
        let (waiters, digest) = (self.waiters, *identity.digest());
        let (line, mut changes) = {
            let mut lines = waiters.lines();
            if lines.waiting >= MOST_WAITERS || lines.of.get(&digest).is_some_and(|place| place.waiting >= most) {
                return None;
            }
            lines.waiting += 1;
            let place = lines.of.entry(digest).or_default();
            place.waiting += 1;
            (Arc::clone(&place.line), place.line.changes.subscribe())
        };
        if waiters.ended.load(Ordering::SeqCst) != self.ended {
            changes.mark_changed();
        }
        Some(Waiter { waiters, digest, line, changes })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.waiters.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place among those who wait for one identity.
struct Waiter<'a> {
    waiters: &'a Waiters,
    digest: [u8; 32],
    line: Arc<Line>,
    changes: watch::Receiver<()>,
}

impl Waiter<'_> {
    /// Ends when there may be another answer. What happens from then on ends the next call.
    async fn changed(&mut self, guard: &Guard, identity: &Identity, policy: &Policy) {
        {
            let mut woken = pin!(self.changes.changed());
            let mut looked = pin!(self.line.look(guard, identity, policy));
            poll_fn(|context| match woken.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => looked.as_mut().poll(context),
            })
            .await;
        }
        self.changes.mark_unchanged();
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut lines = self.waiters.lines();
        lines.waiting -= 1;
        if let Some(place) = lines.of.get_mut(&self.digest) {
            place.waiting -= 1;
            if place.waiting == 0 {
                lines.of.remove(&self.digest);
            }
        }
    }
}

impl Line {
    fn wake(&self) {
        self.changes.send_replace(());
    }

    /// Looks into the store, when it is its turn, until something has changed, and wakes all. When the store does not answer
    /// it just ends: whoever looked asks then, and gets the error.
    async fn look(&self, guard: &Guard, identity: &Identity, policy: &Policy) {
        let _turn = self.turn.lock().await;
        // The first look takes note whose claim it is.
        let mut first = None;
        let mut pause = SHORTEST_PAUSE;
        loop {
            sleep(spread(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let Ok(seen) = guard.call(policy.store_call(), || guard.0.store.read(identity)).await else { return };
            match live_claim(seen) {
                Some(token) if *first.get_or_insert(token) == token => {}
                _ => return self.wake(),
            }
        }
    }
}

/// Whose claim is live, if one is.
fn live_claim(seen: Option<Seen>) -> Option<Token> {
    let Seen { record, phase } = seen?;
    match (record.state, phase) {
        (State::InFlight { .. }, Phase::Active { .. }) => Some(record.token),
        _ => None,
    }
}

/// A quarter more or less, so that the processes of a fleet do not look in step.
fn spread(pause: Duration) -> Duration {
    pause * (384 + u32::from(Token::mint().as_bytes()[0])) / 512
}
