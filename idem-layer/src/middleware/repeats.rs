//! What repeats of a completed operation get.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header, request};

use super::builder::OnReplay;
use super::error::LayerError;
use super::kept::is_of_one_message;
use super::layer::Config;
use super::rejection::Rejection;
use super::snapshot::{self, Replay};
use crate::protocol::Snapshot;

/// What a repeat of a completed operation gets: [`LayerBuilder::repeats`](super::LayerBuilder::repeats).
///
/// | | the answer is kept | it could not be kept | it is no longer kept |
/// |---|---|---|---|
/// | [`replay`](Self::replay), the default | the answer | 409 `not-replayable` | 410 `gone` |
/// | [`acknowledge`](Self::acknowledge) | the fixed answer | the fixed answer | the fixed answer |
/// | [`drop`](Self::drop) | 204 | 204 | 204 |
/// | [`refuse`](Self::refuse) | 409 `already-done` | 409 `already-done` | 409 `already-done` |
///
/// An answer of the first three rows that is no problem is marked as a replay. What is still running, is held or came with
/// another request is answered as ever. An owner who has lost his claim to another run that is completed gets the same, for
/// he is a repeat by then.
///
/// A webhook whose sender takes nothing but one fixed answer for "received", and an alert when it sends twice:
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use idem_layer::middleware::{IdempotencyLayer, Repeats, key};
/// use idem_layer::{Guard, MemoryStore};
///
/// let received = Response::builder().header("content-type", "application/json").body(Bytes::from(r#"{"code":"SUCCESS"}"#))?;
/// let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "callbacks.pay")
///     .unscoped()
///     .key(key::json("/order_no"))
///     .repeats(Repeats::acknowledge(received).alert())
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Repeats {
    reply: Reply,
    alert: bool,
}

#[derive(Clone, Debug, Default)]
enum Reply {
    #[default]
    Replay,
    Fixed(Arc<Response<Bytes>>),
    Refuse,
}

impl Repeats {
    /// The stored answer.
    pub fn replay() -> Self {
        Self::default()
    }

    /// This answer, whatever the first one was. Its `Content-Length` is counted, the mark of a replay is added.
    ///
    /// An informational status, a body with a status that has none, or a field of the connection or of one message (`Date`,
    /// `Keep-Alive`) is an error of the layer's `build`.
    pub fn acknowledge(answer: Response<Bytes>) -> Self {
        Self { reply: Reply::Fixed(Arc::new(answer)), alert: false }
    }

    /// Silence: an empty 204, marked as a replay.
    pub fn drop() -> Self {
        let mut nothing = Response::new(Bytes::new());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        Self::acknowledge(nothing)
    }

    /// An error: 409 `already-done`.
    pub fn refuse() -> Self {
        Self { reply: Reply::Refuse, alert: false }
    }

    /// Beside it, an [`Alert`](crate::guard::EventKind::Alert) for every repeat of whatever kind, of a running or a held
    /// operation and with another request, too: for routes on which nobody should ever repeat.
    pub fn alert(self) -> Self {
        Self { alert: true, ..self }
    }

    pub(super) fn alerts(&self) -> bool {
        self.alert
    }

    /// Reports what cannot be sent of a fixed answer.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        let Reply::Fixed(answer) = &self.reply else { return Ok(()) };
        if answer.status().is_informational() {
            return Err(LayerError::Acknowledgement("an informational status"));
        }
        if !snapshot::has_content(answer.status()) && !answer.body().is_empty() {
            return Err(LayerError::Acknowledgement("a body with a status that has none"));
        }
        match answer.headers().keys().find(|name| is_of_one_message(name) && **name != header::CONTENT_LENGTH) {
            Some(name) => Err(LayerError::NeverKept(name.to_string())),
            None => Ok(()),
        }
    }
}

/// The trailers of a stored response, in the extensions of the response that
/// [`on_replay`](super::LayerBuilder::on_replay) gets.
///
/// They are sent only where the hook lets them pass: one that has not thought of them has not looked through them.
#[derive(Clone, Debug)]
pub struct ReplayTrailers {
    fields: HeaderMap,
    passes: bool,
}

impl ReplayTrailers {
    /// The stored fields.
    pub fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    /// The stored fields, to change some before they are sent.
    pub fn fields_mut(&mut self) -> &mut HeaderMap {
        &mut self.fields
    }

    /// Lets them be sent behind the body. A gRPC answer is none without them.
    pub fn let_pass(&mut self) {
        self.passes = true;
    }
}

/// What a repeat of a completed operation gets. `caller` is the head of its request, where the route has a hook for it.
pub(super) fn of_completed(
    config: &Config,
    caller: Option<&request::Parts>,
    completed: Completed,
) -> Result<Replay, Rejection> {
    let settings = &config.settings;
    let replay = match (&settings.repeats.reply, completed) {
        (Reply::Fixed(answer), _) => Replay { response: Response::clone(answer), trailers: None },
        (Reply::Refuse, _) => return Err(Rejection::already_done()),
        (Reply::Replay, Completed::NotReplayable) => return Err(Rejection::not_replayable()),
        (Reply::Replay, Completed::Gone) => return Err(Rejection::gone()),
        (Reply::Replay, Completed::Kept(snapshot)) => {
            let operation = config.operation.as_str();
            let replay = snapshot::read(&snapshot).map_err(|error| {
                tracing::error!(target: "idem", operation, %error, "a snapshot cannot be replayed");
                Rejection::record_unreadable()
            })?;
            match &settings.on_replay {
                None => replay,
                Some(on_replay) => looked_through(on_replay, caller, replay).ok_or_else(|| {
                    tracing::info!(target: "idem", operation, "a replay was refused by its route");
                    Rejection::replay_refused()
                })?,
            }
        }
    };
    Ok(replay.marked(&settings.marker))
}

/// How the operation of a repeat was completed.
#[derive(Debug)]
pub(super) enum Completed {
    /// With an answer that is kept.
    Kept(Snapshot),
    /// With one that could not be kept.
    NotReplayable,
    /// With one that is no longer kept.
    Gone,
}

/// What the route's hook makes of a replay; `None` where it refuses. A status that ends no exchange is no answer either.
fn looked_through(on_replay: &OnReplay, caller: Option<&request::Parts>, replay: Replay) -> Option<Replay> {
    let Replay { mut response, trailers } = replay;
    if let Some(fields) = trailers {
        response.extensions_mut().insert(ReplayTrailers { fields, passes: false });
    }
    let mut response = on_replay(caller?, response).filter(|response| !response.status().is_informational())?;
    let trailers = response.extensions_mut().remove::<ReplayTrailers>().filter(|trailers| trailers.passes);
    let trailers = trailers.map(|trailers| trailers.fields).filter(|fields| !fields.is_empty());
    Some(Replay { response, trailers })
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use http::Request;

    use super::*;
    use crate::middleware::builder::Settings;
    use crate::middleware::rejection::RejectionKind;
    use crate::middleware::scope::ScopeSource;
    use crate::protocol::{Operation, ResponseSnapshot};
    use crate::{Guard, MemoryStore};

    fn config(settings: Settings) -> Config {
        Config {
            guard: Guard::at_least_once(MemoryStore::new()),
            operation: Operation::new("test.run").expect("a name"),
            scope: ScopeSource::unscoped(),
            settings,
        }
    }

    fn kept() -> Completed {
        let response = ResponseSnapshot { status: 201, body: Bytes::from_static(b"made"), ..Default::default() };
        Completed::Kept(Snapshot::response(&response))
    }

    fn answered(config: &Config, completed: Completed) -> Result<u16, RejectionKind> {
        let caller = Request::new(()).into_parts().0;
        match of_completed(config, Some(&caller), completed) {
            Ok(Replay { response, .. }) => {
                assert_eq!(response.headers()["idempotent-replayed"], "true");
                Ok(response.status().as_u16())
            }
            Err(rejection) => Err(rejection.kind()),
        }
    }

    #[test]
    fn a_route_decides_for_whatever_became_of_the_answer() {
        use RejectionKind::{AlreadyDone, Gone, NotReplayable, RecordUnreadable};
        let fixed = Response::builder().status(202).body(Bytes::from_static(b"ok")).unwrap();
        for (repeats, expected) in [
            (Repeats::replay(), [Ok(201), Err(NotReplayable), Err(Gone), Err(RecordUnreadable)]),
            (Repeats::acknowledge(fixed), [Ok(202); 4]),
            (Repeats::drop(), [Ok(204); 4]),
            (Repeats::refuse(), [Err(AlreadyDone); 4]),
        ] {
            let config = config(Settings { repeats, ..Settings::default() });
            let damaged = Completed::Kept(Snapshot::from_bytes(Bytes::new()));
            let answers = [kept(), Completed::NotReplayable, Completed::Gone, damaged];
            assert_eq!(answers.map(|completed| answered(&config, completed)), expected);
        }
    }

    /// Whoever cannot be shown to the hook is shown nothing.
    #[test]
    fn nothing_passes_a_hook_that_cannot_be_asked() {
        let config = config(Settings { on_replay: Some(Arc::new(|_, replay| Some(replay))), ..Settings::default() });
        assert_eq!(answered(&config, kept()), Ok(201));
        let refused = of_completed(&config, None, kept()).unwrap_err();
        assert_eq!(refused.kind(), RejectionKind::ReplayRefused);
    }
}
