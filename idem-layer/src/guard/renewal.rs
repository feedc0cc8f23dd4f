use tokio::task::AbortHandle;

use super::settling::Terms;
use super::{EventKind, Guard};
use crate::clock::Moment;
use crate::protocol::{Owned, Renew, Ticket};
use crate::store::Store;

/// The task that renews one claim. Dropping it ends the renewing.
#[derive(Debug)]
pub(super) struct Renewal(AbortHandle);

impl Renewal {
    /// Starts renewing, if there is a runtime to do it on. `sent` is when the last accepted command was sent.
    pub(super) fn start(guard: &Guard, ticket: &Ticket, terms: Terms, sent: Moment) -> Option<Self> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (guard, ticket) = (guard.clone(), ticket.clone());
        Some(Self(runtime.spawn(renew(guard, ticket, terms, sent)).abort_handle()))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn renew(guard: Guard, ticket: Ticket, terms: Terms, claimed: Moment) {
    let Terms { policy, shadow, .. } = terms;
    let interval = policy.renewal_interval();
    let limit = policy.store_call().min(interval);
    let renew = Renew { token: ticket.record.token, lease: policy.lease(), progress: None };
    let mut pause = interval;

    loop {
        tokio::time::sleep(pause).await;
        if guard.0.clock.now().since(claimed) >= policy.run_ceiling() {
            guard.emit(&ticket.identity, shadow, EventKind::CeilingReached);
            return;
        }
        match guard.call(limit, || guard.0.store.renew(&ticket, &renew)).await {
            Ok(Owned::Done) => pause = interval,
            Ok(Owned::Lost(found)) => {
                guard.emit(&ticket.identity, shadow, EventKind::Lost { found: found.map(|record| record.tag()) });
                return;
            }
            // Unknown, not lost: the store may be back before the lease is over, and a lapsed claim can still be renewed as
            // long as nobody has taken it over.
            Err(_) => {
                guard.emit(&ticket.identity, shadow, EventKind::RenewalFailed);
                pause = interval / 4;
            }
        }
    }
}
