use std::error::Error as _;
use std::fmt;

use super::admission::Repeat;
use crate::protocol::{Identity, KeyHash, Tag};
use crate::store::{StoreError, StoreErrorKind};

/// Something that happened to a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The operation's name; safe as a metric label.
    pub operation: &'a str,
    /// Stands for the identity. The key itself is in no event.
    pub key: KeyHash,
    /// What happened.
    pub kind: EventKind,
    /// The arrival is only watched ([`Arrival::shadow`](super::Arrival::shadow)): nobody was refused by what is reported.
    pub shadow: bool,
    /// Why, where a store could not answer. Names neither keys nor values.
    pub error: Option<&'a StoreError>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A run begins. Emitted before the work.
    Claimed {
        /// 1, or more after an earlier attempt was released.
        attempt: u32,
    },
    /// A run begins although an earlier attempt's outcome is unknown. Emitted before the work.
    TakenOver {
        /// At least 2.
        attempt: u32,
    },
    /// A repeat got the stored outcome.
    Replayed,
    /// A repeat of a completed operation whose outcome could not be kept.
    NotReplayable,
    /// A repeat came while the first runs, and waits for its end. What it then gets is an event of its own.
    Waiting,
    /// A repeat came while the first runs; it was told so, at once or at the end of its wait.
    InProgress,
    /// A repeat came for a key whose outcome is unknown.
    OutcomeUnknown,
    /// The key was used for a different request, which was refused.
    Mismatch,
    /// The key was used for a different request, which the route only observes.
    Differs,
    /// A repeat came after the outcome had expired.
    Gone,
    /// A run's outcome was stored.
    Completed,
    /// A run took no effect; the key is free.
    Released,
    /// A run's outcome is unknown; the next repeat runs again.
    Abandoned,
    /// A run's outcome is unknown; nobody runs it until that is decided.
    HeldBack,
    /// An owner's command was refused: the claim was no longer its own.
    Lost {
        /// What is stored instead, if anything.
        found: Option<Tag>,
    },
    /// The store had lost the record of a run that was still going; its outcome was stored under a fresh claim.
    Restored,
    /// A renewal got no answer; it is tried again.
    RenewalFailed,
    /// A run has reached the run ceiling: it goes on, but its claim is no longer renewed.
    CeilingReached,
    /// The store did not take an outcome; it is tried again in the background.
    SettlingDeferred,
    /// A deferred outcome is stored.
    SettledLate,
    /// A deferred outcome was given up: the claim is left to its lease.
    SettlingGivenUp,
    /// The store could not answer.
    StoreFailed {
        /// Why.
        kind: StoreErrorKind,
    },
    /// The caller left; the run goes on without him.
    HandedOver,
    /// A repeat came on a route that asks for an alert. Beside the event of the repeat itself.
    Alert,
}

impl EventKind {
    /// A stable name for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed { .. } => "claimed",
            Self::TakenOver { .. } => "taken_over",
            Self::Replayed => "replayed",
            Self::NotReplayable => "not_replayable",
            Self::Waiting => "waiting",
            Self::InProgress => "in_progress",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Mismatch => "mismatch",
            Self::Differs => "differs",
            Self::Gone => "gone",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Abandoned => "abandoned",
            Self::HeldBack => "held_back",
            Self::Lost { .. } => "lost",
            Self::Restored => "restored",
            Self::RenewalFailed => "renewal_failed",
            Self::CeilingReached => "ceiling_reached",
            Self::SettlingDeferred => "settling_deferred",
            Self::SettledLate => "settled_late",
            Self::SettlingGivenUp => "settling_given_up",
            Self::StoreFailed { .. } => "store_failed",
            Self::HandedOver => "handed_over",
            Self::Alert => "alert",
        }
    }

    pub(super) fn of_repeat(repeat: &Repeat) -> Self {
        match repeat {
            Repeat::Replay(_) => Self::Replayed,
            Repeat::NotReplayable(_) => Self::NotReplayable,
            Repeat::Busy { .. } => Self::InProgress,
            Repeat::Held { .. } => Self::OutcomeUnknown,
            Repeat::Mismatch => Self::Mismatch,
            Repeat::Gone => Self::Gone,
        }
    }
}

impl<'a> Event<'a> {
    pub(super) fn new(identity: &'a Identity, kind: EventKind, shadow: bool, error: Option<&'a StoreError>) -> Self {
        Self { operation: identity.operation().as_str(), key: identity.key_hash(), kind, shadow, error }
    }
}

/// Is told of every event, on the task where it happens: it must neither block nor panic.
pub trait Observer: Send + Sync + 'static {
    /// Takes note of an event.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// Reports every event to `tracing`, with the target `idem`: the ordinary course at debug, repeats at info, what somebody
/// should look into at warn.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        use EventKind as Kind;
        let Event { operation, key, kind, shadow, error } = event;
        let name = kind.name();
        let shadow = shadow.then_some(true);
        let detail = Detail::of(*kind).map(tracing::field::display);
        match kind {
            Kind::Claimed { .. } | Kind::Completed | Kind::Released | Kind::HandedOver | Kind::Waiting => {
                tracing::debug!(target: "idem", operation, %key, event = name, detail, shadow, "idempotency");
            }
            Kind::Replayed | Kind::InProgress | Kind::Mismatch | Kind::Differs | Kind::Gone | Kind::NotReplayable => {
                tracing::info!(target: "idem", operation, %key, event = name, detail, shadow, "idempotency");
            }
            _ => {
                let error = error.map(Chain).map(tracing::field::display);
                tracing::warn!(target: "idem", operation, %key, event = name, detail, shadow, error, "idempotency");
            }
        }
    }
}

/// An error with its causes.
struct Chain<'a>(&'a StoreError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// What an event's name does not say.
struct Detail(EventKind);

impl Detail {
    /// Nothing where the name says it all.
    fn of(kind: EventKind) -> Option<Self> {
        let says_more = matches!(
            kind,
            EventKind::Claimed { .. }
                | EventKind::TakenOver { .. }
                | EventKind::Lost { .. }
                | EventKind::StoreFailed { .. }
        );
        says_more.then_some(Self(kind))
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            EventKind::Claimed { attempt } | EventKind::TakenOver { attempt } => write!(f, "attempt {attempt}"),
            EventKind::Lost { found: Some(found) } => write!(f, "found {found:?}"),
            EventKind::Lost { found: None } => f.write_str("found nothing"),
            EventKind::StoreFailed { kind } => write!(f, "{kind:?}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;
    use crate::protocol::{Key, Operation, Scope};

    /// Writes down level and fields of what is reported.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Fields<'a>(&'a mut String);

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "idem"
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = event.metadata().level().to_string();
            event.record(&mut Fields(&mut line));
            self.0.lock().unwrap().push(line);
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn each_event_is_reported_at_its_level_and_as_shadow_only_where_it_is_one() {
        let (operation, key) = (Operation::new("test").unwrap(), Key::new("secret").unwrap());
        let identity = Identity::new(operation, None, Scope::unscoped(), key);
        let log = Log::default();
        let kinds = [(EventKind::Waiting, "DEBUG"), (EventKind::InProgress, "INFO"), (EventKind::Alert, "WARN")];
        tracing::subscriber::with_default(log.clone(), || {
            for (kind, _) in kinds {
                for shadow in [false, true] {
                    TracingObserver.observe(&Event::new(&identity, kind, shadow, None));
                }
            }
        });
        let lines = log.0.lock().unwrap();
        for ((kind, level), lines) in kinds.into_iter().zip(lines.chunks(2)) {
            for (line, shadow) in lines.iter().zip([false, true]) {
                assert!(line.starts_with(level) && line.contains(kind.name()) && !line.contains("secret"), "{line}");
                assert_eq!(line.contains("shadow=true"), shadow, "{line}");
                assert_eq!(line.contains("shadow"), shadow, "{line}");
            }
        }
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn a_detail_is_never_empty() {
        let detail = |kind| Detail::of(kind).map(|detail| detail.to_string());
        assert_eq!(detail(EventKind::TakenOver { attempt: 2 }).as_deref(), Some("attempt 2"));
        assert_eq!(detail(EventKind::Lost { found: None }).as_deref(), Some("found nothing"));
        assert_eq!(detail(EventKind::StoreFailed { kind: StoreErrorKind::Full }).as_deref(), Some("Full"));
        assert_eq!(detail(EventKind::Replayed), None);
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = StoreError::new(StoreErrorKind::Unavailable).because("connection refused");
        assert_eq!(Chain(&error).to_string(), "the store is not available: connection refused");
    }
}
