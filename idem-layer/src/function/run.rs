use std::fmt;
use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::failure::Failure;
use super::refused::{Refused, RefusedKind};
use crate::guard::{Admission, Arrival, Claim, Guard, Repeat, Settled};
use crate::protocol::{Completion, Content, Identity, Key, NotReplayable, Operation, Snapshot, SnapshotError};

impl Guard {
    /// Runs `work` if nobody has yet, and returns its value or the stored one. See the [module docs](crate::function).
    ///
    /// `failure` says what an `Err` of the work means. An error that it calls [`Failure::Final`] is not kept, so repeats are
    /// refused as not replayable; [`Guard::run_replaying_errors`] keeps it.
    ///
    /// # Errors
    ///
    /// The work's own, and [`Refused`] made into `E`.
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
        run(self, arrival.into(), failure, work, Errors::NotKept).await
    }

    /// As [`Guard::run`], and repeats get the error that `failure` calls [`Failure::Final`].
    ///
    /// # Errors
    ///
    /// The work's own or the stored one, and [`Refused`] made into `E`.
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
        run(self, arrival.into(), failure, work, Errors::kept()).await
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

/// Whether final errors are kept, and how: the one place that needs `E` to be serialisable.
enum Errors<E> {
    NotKept,
    Kept { encode: fn(&E) -> serde_json::Result<Vec<u8>>, decode: fn(&[u8]) -> serde_json::Result<E> },
}

impl<E: Serialize + DeserializeOwned> Errors<E> {
    fn kept() -> Self {
        Self::Kept { encode: |error| serde_json::to_vec(error), decode: |json| serde_json::from_slice(json) }
    }
}

/// How a run has ended, for its claim.
enum End {
    Complete(Completion),
    Release,
    Unknown,
}

async fn run<T, E>(
    guard: &Guard,
    arrival: Arrival,
    failure: impl Fn(&E) -> Failure,
    work: impl Future<Output = Result<T, E>>,
    errors: Errors<E>,
) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: From<Refused>,
{
    let operation = arrival.identity().operation().clone();
    let claim = match guard.claim(arrival).await {
        Ok(Admission::Claimed(claim)) => claim,
        Ok(Admission::Repeat(repeat)) => return answer(repeat, &operation, &errors),
        Err(error) => return Err(Refused::of_store(error, &operation).into()),
    };

    let result = CURRENT.scope(Run::of(&claim), work).await;

    let settled = match end(&result, failure, &errors) {
        End::Complete(completion) => claim.complete_with(completion).await,
        End::Release => claim.release().await,
        End::Unknown => claim.unknown().await,
    };
    match settled {
        Settled::Stored | Settled::Deferred => result,
        Settled::Lost(repeat) => answer(repeat, &operation, &errors),
    }
}

fn end<T: Serialize, E>(result: &Result<T, E>, failure: impl Fn(&E) -> Failure, errors: &Errors<E>) -> End {
    let encoded = match (result, errors) {
        (Ok(value), _) => serde_json::to_vec(value).map(|json| Snapshot::value(&json)),
        (Err(error), errors) => match (failure(error), errors) {
            (Failure::Safe, _) => return End::Release,
            (Failure::Unknown, _) => return End::Unknown,
            (Failure::Final, Errors::NotKept) => {
                return End::Complete(Completion::NotReplayable(NotReplayable::Unencodable));
            }
            (Failure::Final, Errors::Kept { encode, .. }) => encode(error).map(|json| Snapshot::error(&json)),
        },
    };
    // It took effect, whether or not its outcome can be kept.
    End::Complete(match encoded {
        Ok(snapshot) => Completion::Replayable(snapshot),
        Err(_) => Completion::NotReplayable(NotReplayable::Unencodable),
    })
}

/// What a call gets that did not run, or whose run no longer counts.
fn answer<T: DeserializeOwned, E: From<Refused>>(
    repeat: Repeat,
    operation: &Operation,
    errors: &Errors<E>,
) -> Result<T, E> {
    let Repeat::Replay(snapshot) = &repeat else {
        return Err(Refused::of_repeat(&repeat, operation).into());
    };
    let undecodable = |misfit: Misfit| Refused::new(RefusedKind::Undecodable, operation).because(misfit).into();
    match (snapshot.decode(), errors) {
        (Ok(Content::Value(json)), _) => {
            serde_json::from_slice(&json).map_err(|error| undecodable(Misfit::of::<T>(&error, &json)))
        }
        (Ok(Content::Error(json)), Errors::Kept { decode, .. }) => {
            Err(decode(&json).unwrap_or_else(|error| undecodable(Misfit::of::<E>(&error, &json))))
        }
        (Ok(Content::Error(_)), Errors::NotKept) => {
            Err(Refused::new(RefusedKind::NotReplayable, operation).because(Misfit::Error).into())
        }
        (Ok(Content::Response(_)), _) => Err(undecodable(Misfit::Response)),
        (Err(error @ SnapshotError::OtherKind), _) => {
            Err(Refused::new(RefusedKind::Undecodable, operation).because(error).into())
        }
        (Err(error), _) => Err(Refused::new(RefusedKind::RecordUnreadable, operation).because(error).into()),
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
