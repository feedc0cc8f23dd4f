use std::fmt;
use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::failure::Failure;
use super::refused::{Refused, RefusedKind};
use crate::guard::{Admission, Arrival, Claim, Guard, Repeat, Settled};
use crate::protocol::{Completion, Content, Identity, Key, NotReplayable, Operation, Snapshot};

impl Guard {
    /// Runs `work` if nobody has yet, and returns its value or the stored one. See the [module docs](crate::function).
    ///
    /// `failure` says what an `Err` of the work means. An error that it calls [`Failure::Final`] is not kept, so repeats are
    /// refused as not replayable; [`Guard::run_replaying_errors`] keeps it.
    ///
    /// A [shadow](Arrival::shadow) always runs, and gets its own value.
    ///
    /// # Errors
    ///
    /// The work's own, and [`Refused`] made into `E`.
    ///
    /// # Panics
    ///
    /// When it is polled outside of a tokio runtime with its timer enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the claim is won, nothing is run and what was claimed is released. Dropped while the work runs, its
    /// outcome is unknown. Dropped after the work has returned, its outcome is stored.
    pub async fn run<T, E>(
        &self,
        arrival: impl Into<Arrival>,
        failure: impl Fn(&E) -> Failure,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Refused>,
    {
        run(self, arrival.into(), Returns::new(), failure, work).await
    }

    /// As [`Guard::run`], and repeats get the error that `failure` calls [`Failure::Final`].
    ///
    /// # Errors
    ///
    /// The work's own or the stored one, and [`Refused`] made into `E`.
    ///
    /// # Panics
    ///
    /// As [`Guard::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::run`].
    pub async fn run_replaying_errors<T, E>(
        &self,
        arrival: impl Into<Arrival>,
        failure: impl Fn(&E) -> Failure,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Refused> + Serialize + DeserializeOwned,
    {
        run(self, arrival.into(), Returns::new().replaying_errors(), failure, work).await
    }
}

/// What a guarded function may know of the run that it is.
///
/// ```
/// use idem_layer::function::Run;
///
/// # fn ask_the_bank() {}
/// # async fn example() {
/// if Run::current().is_some_and(|run| run.earlier_unknown()) {
///     ask_the_bank(); // an earlier attempt may have paid already
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Run {
    identity: Identity,
    attempt: u32,
    earlier_unknown: bool,
}

tokio::task_local! {
    static CURRENT: Run;
}

impl Run {
    /// The run of the innermost guarded function whose body is calling. `None` outside of one, and in tasks that the body
    /// has spawned.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// 1 for the first claim of the key, +1 at each later one while the record is remembered. A fence: it never falls, so a
    /// row that keeps it can refuse the write of a stale owner.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether an earlier attempt ended without a known outcome. Then its effect may have happened: ask before acting.
    pub fn earlier_unknown(&self) -> bool {
        self.earlier_unknown
    }

    /// The key of this run, good for passing on to services that take one themselves.
    pub fn key(&self) -> &Key {
        self.identity.key()
    }

    fn of(claim: &Claim) -> Self {
        Self { identity: claim.identity().clone(), attempt: claim.attempt(), earlier_unknown: claim.earlier_unknown() }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("identity", &self.identity).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// What must be known of a return type: how its outcomes are kept, and how a refusal becomes its error. The functions stand
/// for the bounds, so that these are asked for at one place.
pub(super) struct Returns<T, E> {
    encode: fn(&T) -> serde_json::Result<Vec<u8>>,
    decode: fn(&[u8]) -> serde_json::Result<T>,
    refuse: fn(Refused) -> E,
    /// How final errors are kept, if they are.
    errors: Option<Errors<E>>,
}

struct Errors<E> {
    encode: fn(&E) -> serde_json::Result<Vec<u8>>,
    decode: fn(&[u8]) -> serde_json::Result<E>,
}

impl<T: Serialize + DeserializeOwned, E: From<Refused>> Returns<T, E> {
    pub(super) fn new() -> Self {
        Self {
            encode: |value| serde_json::to_vec(value),
            decode: |json| serde_json::from_slice(json),
            refuse: E::from,
            errors: None,
        }
    }
}

impl<T, E: Serialize + DeserializeOwned> Returns<T, E> {
    pub(super) fn replaying_errors(mut self) -> Self {
        self.errors =
            Some(Errors { encode: |error| serde_json::to_vec(error), decode: |json| serde_json::from_slice(json) });
        self
    }
}

impl<T, E> Returns<T, E> {
    pub(super) fn refuse(&self, refused: Refused) -> E {
        (self.refuse)(refused)
    }
}

impl<T, E> fmt::Debug for Returns<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Returns")
    }
}

/// How a run has ended, for its claim.
enum End {
    Complete(Completion),
    Release,
    Unknown,
}

pub(super) async fn run<T, E>(
    guard: &Guard,
    arrival: Arrival,
    returns: Returns<T, E>,
    failure: impl Fn(&E) -> Failure,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let operation = arrival.identity().operation().clone();
    let shadow = arrival.is_shadow();
    let claim = match guard.claim(arrival).await {
        Ok(Admission::Claimed(claim)) => claim,
        // It runs as it would without the guard.
        Ok(Admission::Repeat(_)) | Err(_) if shadow => return work.await,
        Ok(Admission::Repeat(repeat)) => return answer(&repeat, &operation, &returns),
        Err(error) => return Err(returns.refuse(Refused::of_store(error, &operation))),
    };

    let result = CURRENT.scope(Run::of(&claim), work).await;

    let settled = match end(&result, failure, &returns) {
        End::Complete(completion) => claim.complete_with(completion).await,
        End::Release => claim.release().await,
        End::Unknown => claim.unknown().await,
    };
    match settled {
        Settled::Stored | Settled::Deferred => result,
        Settled::Lost(_) if shadow => result,
        Settled::Lost(repeat) => answer(&repeat, &operation, &returns),
    }
}

fn end<T, E>(result: &Result<T, E>, failure: impl Fn(&E) -> Failure, returns: &Returns<T, E>) -> End {
    let encoded = match result {
        Ok(value) => (returns.encode)(value).map(|json| Snapshot::value(&json)),
        Err(error) => match (failure(error), &returns.errors) {
            (Failure::Safe, _) => return End::Release,
            (Failure::Unknown, _) => return End::Unknown,
            (Failure::Final, None) => {
                return End::Complete(Completion::NotReplayable(NotReplayable::Unencodable));
            }
            (Failure::Final, Some(errors)) => (errors.encode)(error).map(|json| Snapshot::error(&json)),
        },
    };
    // It took effect, whether or not its outcome can be kept.
    End::Complete(match encoded {
        Ok(snapshot) => Completion::Replayable(snapshot),
        Err(_) => Completion::NotReplayable(NotReplayable::Unencodable),
    })
}

/// What a call gets that did not run, or whose run no longer counts.
fn answer<T, E>(repeat: &Repeat, operation: &Operation, returns: &Returns<T, E>) -> Result<T, E> {
    let Repeat::Replay(snapshot) = repeat else {
        return Err(returns.refuse(Refused::of_repeat(repeat, operation)));
    };
    let refused = |kind| Refused::new(kind, operation);
    let misfit = |misfit: Misfit| returns.refuse(refused(RefusedKind::Undecodable).because(misfit));
    match (snapshot.decode(), &returns.errors) {
        (Ok(Content::Value(json)), _) => {
            (returns.decode)(&json).map_err(|error| misfit(Misfit::of::<T>(&error, &json)))
        }
        (Ok(Content::Error(json)), Some(errors)) => {
            Err((errors.decode)(&json).unwrap_or_else(|error| misfit(Misfit::of::<E>(&error, &json))))
        }
        (Ok(Content::Error(_)), None) => {
            Err(returns.refuse(refused(RefusedKind::NotReplayable).because(Misfit::Error)))
        }
        (Ok(Content::Response(_)), _) => Err(misfit(Misfit::Response)),
        (Err(error), _) => Err(returns.refuse(refused(RefusedKind::RecordUnreadable).because(error))),
    }
}

/// Why a stored outcome cannot be given back. Says where, and not what: `serde_json`'s own words quote the stored value.
#[derive(Debug, Error)]
enum Misfit {
    #[error("byte {at} of the {length} bytes of stored JSON does not fit {expected}")]
    Json { at: usize, length: usize, expected: &'static str },
    #[error("the outcome is an error, and this call was not asked to replay errors")]
    Error,
    #[error("the outcome is a response, stored by the HTTP layer under the same operation")]
    Response,
}

impl Misfit {
    /// What `serde_json` writes is one line, so its column is the place.
    fn of<T>(error: &serde_json::Error, json: &Bytes) -> Self {
        Self::Json { at: error.column(), length: json.len(), expected: std::any::type_name::<T>() }
    }
}
