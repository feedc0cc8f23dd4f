use std::time::Duration;

use super::admission::Repeat;
use super::claim::Settled;
use super::tracker::Tracker;
use super::{EventKind, Guard};
use crate::protocol::{
    Acquired, Held, Identity, Owned, Policy, Record, Seen, Settle, Settlement, State, Ticket, Token,
    is_of_another_request,
};
use crate::store::{Store, StoreError, StoreErrorKind};

/// On what terms a claim was won.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// Another request under the same key is not refused.
    pub(super) observed: bool,
    /// The arrival is only watched; its events say so.
    pub(super) shadow: bool,
}

impl Guard {
    /// Settles a claim; where the store does not answer, from a task in the background.
    pub(super) async fn settle(&self, ticket: &Ticket, terms: Terms, settlement: Settlement) -> Settled {
        let spare = Token::mint();
        match self.settle_once(ticket, terms, &settlement, spare).await {
            Ok(settled) => settled,
            Err(error) => {
                self.emit_failure(&ticket.identity, terms.shadow, &error);
                self.settle_in_background(ticket.clone(), terms, settlement, spare);
                Settled::Deferred
            }
        }
    }

    /// One attempt at settling, and what follows from its answer. `spare` is the token of a fresh claim, should the record be
    /// gone: the same for all attempts at one settling, so that a later one finds the claim of an earlier whose reply got lost.
    async fn settle_once(
        &self,
        ticket: &Ticket,
        terms: Terms,
        settlement: &Settlement,
        spare: Token,
    ) -> Result<Settled, StoreError> {
        let found = match self.send(ticket, terms, settlement).await? {
            Owned::Done => {
                self.emit(&ticket.identity, terms.shadow, settled_event(settlement));
                return Ok(Settled::Stored);
            }
            Owned::Lost(Some(record)) if record.token == spare => {
                let fresh = Ticket { identity: ticket.identity.clone(), record };
                return self.settle_fresh(&fresh, terms, settlement).await;
            }
            Owned::Lost(found) => found,
        };
        self.emit(&ticket.identity, terms.shadow, EventKind::Lost { found: found.as_ref().map(Record::tag) });
        // Whoever has the key now may have come with another request, where the record was lost or released in between.
        if !terms.observed
            && found.as_ref().is_some_and(|found| is_of_another_request(found, ticket.record.fingerprint))
        {
            return Ok(Settled::Lost(Repeat::Mismatch));
        }
        match Repeat::of(found) {
            Some(repeat) => Ok(Settled::Lost(repeat)),
            None if leaves_a_mark(settlement) => self.restore(ticket, terms, settlement, spare).await,
            None => Ok(Settled::Stored),
        }
    }

    /// Nobody owns the key although its run has an outcome to remember: the store has lost the record. A fresh claim keeps
    /// the outcome, unless somebody else is faster.
    async fn restore(
        &self,
        ticket: &Ticket,
        terms: Terms,
        settlement: &Settlement,
        spare: Token,
    ) -> Result<Settled, StoreError> {
        let acquire = self.command(spare, ticket.record.fingerprint, terms);
        let acquired =
            self.call(terms.policy.store_call(), || self.0.store.acquire(&ticket.identity, &acquire)).await?;
        let fresh = match acquired {
            Acquired::Claimed(fresh, _) => fresh,
            Acquired::Busy { left, since_ms, .. } => return Ok(Settled::Lost(Repeat::Busy { left, since_ms })),
            Acquired::Replay { completion, .. } => return Ok(Settled::Lost(completion.into())),
            Acquired::Held { held, since_ms } => return Ok(Settled::Lost(Repeat::Held { held, since_ms })),
            Acquired::Mismatch | Acquired::OtherVersion(_) => return Ok(Settled::Lost(Repeat::Mismatch)),
            Acquired::Gone => return Ok(Settled::Lost(Repeat::Gone)),
        };
        self.settle_fresh(&fresh, terms, settlement).await
    }

    /// Settles the claim that stands in for the one whose record was lost.
    async fn settle_fresh(&self, fresh: &Ticket, terms: Terms, settlement: &Settlement) -> Result<Settled, StoreError> {
        match self.send(fresh, terms, settlement).await? {
            Owned::Done => {
                self.emit(&fresh.identity, terms.shadow, EventKind::Restored);
                Ok(Settled::Stored)
            }
            Owned::Lost(found) => Ok(Repeat::of(found).map_or(Settled::Stored, Settled::Lost)),
        }
    }

    async fn send(&self, ticket: &Ticket, terms: Terms, settlement: &Settlement) -> Result<Owned, StoreError> {
        let settle =
            Settle { token: ticket.record.token, settlement: settlement.clone(), at_ms: self.0.clock.epoch_ms() };
        let reply = self.call(terms.policy.store_call(), || self.0.store.settle(ticket, &settle)).await;
        if reply.is_ok() {
            self.0.waiters.wake(&ticket.identity);
        }
        reply
    }

    fn settle_in_background(&self, ticket: Ticket, terms: Terms, settlement: Settlement, spare: Token) {
        let runtime = tokio::runtime::Handle::try_current();
        let (Ok(runtime), Some(slot)) = (runtime, self.0.tracker.retry_slot()) else {
            self.emit(&ticket.identity, terms.shadow, EventKind::SettlingGivenUp);
            return;
        };
        self.emit(&ticket.identity, terms.shadow, EventKind::SettlingDeferred);
        let guard = self.clone();
        runtime.spawn(async move {
            let stored = guard.settle_until_answered(&ticket, terms, &settlement, spare).await;
            let ended = if stored { EventKind::SettledLate } else { EventKind::SettlingGivenUp };
            guard.emit(&ticket.identity, terms.shadow, ended);
            drop(slot);
        });
    }

    /// Retries as long as the store can still hold the claim, and one last time when the guard is being drained.
    async fn settle_until_answered(
        &self,
        ticket: &Ticket,
        terms: Terms,
        settlement: &Settlement,
        spare: Token,
    ) -> bool {
        let began = self.0.clock.now();
        let mut backoff = Backoff::new(terms);
        while self.0.clock.now().since(began) < terms.policy.lease() + terms.policy.retention() {
            let last = self.0.tracker.is_draining();
            backoff.pause(&self.0.tracker).await;
            match self.settle_once(ticket, terms, settlement, spare).await {
                Ok(Settled::Stored) => return true,
                Ok(_) => return false,
                Err(error) if last || is_beyond_waiting(&error) => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// An acquire whose reply never came may have been granted. Nobody runs under it, so it is released as soon as the store
    /// answers again; else it would count as an unknown outcome when it lapses.
    pub(super) fn release_in_background(&self, identity: Identity, token: Token, terms: Terms) {
        let runtime = tokio::runtime::Handle::try_current();
        let (Ok(runtime), Some(slot)) = (runtime, self.0.tracker.search_slot()) else { return };
        let guard = self.clone();
        runtime.spawn(async move {
            let began = guard.0.clock.now();
            let mut backoff = Backoff::new(terms);
            // The command can still be on its way when a look finds nothing, so it takes several.
            let mut empty_looks = 0;
            while empty_looks < EMPTY_LOOKS
                && guard.0.clock.now().since(began) < terms.policy.lease() + terms.policy.retention()
            {
                let last = guard.0.tracker.is_draining();
                backoff.pause(&guard.0.tracker).await;
                match guard.stored(&identity).await {
                    Ok(Some(Seen { record, .. })) if record.token == token => {
                        if matches!(record.state, State::InFlight { .. } | State::Held(Held::Lapsed)) {
                            let ticket = Ticket { identity, record };
                            let _ = guard.settle(&ticket, terms, Settlement::Release).await;
                        }
                        break;
                    }
                    Ok(_) => empty_looks += 1,
                    Err(error) if error.is_passing() && !last => {}
                    Err(_) => break,
                }
            }
            drop(slot);
        });
    }
}

/// What stands in the key's place is not ours to write over, however long we wait.
fn is_beyond_waiting(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Unreadable | StoreErrorKind::Broken)
}

/// How often an acquire whose reply never came is looked for in vain: for about a second and a half.
const EMPTY_LOOKS: usize = 5;

/// Whether the settlement leaves a record that repeats must find.
fn leaves_a_mark(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Complete { .. } | Settlement::Hold { .. })
}

fn settled_event(settlement: &Settlement) -> EventKind {
    match settlement {
        Settlement::Complete { .. } => EventKind::Completed,
        Settlement::Release => EventKind::Released,
        Settlement::Abandon => EventKind::Abandoned,
        Settlement::Hold { .. } => EventKind::HeldBack,
    }
}

/// Pauses between attempts in the background: from 50 ms, doubled up to a quarter of the lease or 2 s (when the store is back,
/// an outcome should be there before a repeat takes over), spread by half so that a fleet does not come back in step.
struct Backoff {
    pause: Duration,
    longest: Duration,
}

impl Backoff {
    fn new(terms: Terms) -> Self {
        Self { pause: Duration::from_millis(50), longest: (terms.policy.lease() / 4).min(Duration::from_secs(2)) }
    }

    /// Waits, unless the guard is being drained.
    async fn pause(&mut self, tracker: &Tracker) {
        let spread = u32::from(Token::mint().as_bytes()[0]);
        tracker.pause(self.pause / 2 + self.pause * spread / 512).await;
        self.pause = (self.pause * 2).min(self.longest);
    }
}
