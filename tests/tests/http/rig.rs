//! A guarded service under test, and power over everything around it.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use idem_layer::clock::Clock;
use idem_layer::guard::{Event, EventKind, Guard};
use idem_layer::middleware::{Idempotency, IdempotencyLayer, LayerBuilder, RequestBody, ScopeChosen, ScopeMissing};
use idem_layer::protocol::Policy;
use idem_layer::store::MemoryStore;
use idem_layer::testing::FaultyStore;
use idem_tests::gate::{Gate, GatedStore};
use idem_tests::http::{Answer, BoxError, Client, Content, Server, read, whole};
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;
use tower::{Layer, service_fn};

/// What a guarded handler is called with.
pub(crate) type Inbound = Request<RequestBody<Incoming>>;
/// What it answers.
pub(crate) type Outbound = Response<Content>;
/// A handler as a service.
pub(crate) type Handler = BoxCloneSyncService<Inbound, Outbound, BoxError>;

/// Runs a test on a runtime of its own. It must end by itself: the limit is there so that one that hangs fails.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    let ended = runtime.block_on(limited);
    runtime.shutdown_background();
    ended.expect("the test hangs");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    AtLeastOnce,
    AtMostOnce,
}

impl Guarantee {
    /// What is reported of a run whose outcome is unknown.
    pub(crate) fn unknown(self) -> EventKind {
        match self {
            Self::AtLeastOnce => EventKind::Abandoned,
            Self::AtMostOnce => EventKind::HeldBack,
        }
    }
}

/// A guard on a memory store whose time stands still, whose calls can fail and whose replies can be withheld.
pub(crate) struct Rig {
    pub(crate) clock: Clock,
    pub(crate) faults: FaultyStore,
    pub(crate) gates: GatedStore,
    pub(crate) guard: Guard,
    pub(crate) events: Events,
}

impl Rig {
    pub(crate) fn each() -> [(Guarantee, Self); 2] {
        [Guarantee::AtLeastOnce, Guarantee::AtMostOnce].map(|guarantee| (guarantee, Self::new(guarantee)))
    }

    pub(crate) fn new(guarantee: Guarantee) -> Self {
        let clock = Clock::manual();
        let faults = FaultyStore::new(MemoryStore::builder().clock(clock.clone()).build());
        let gates = GatedStore::new(faults.clone());
        let events = Events::default();
        let guard = match guarantee {
            Guarantee::AtLeastOnce => Guard::at_least_once(gates.clone()),
            Guarantee::AtMostOnce => Guard::at_most_once(gates.clone()),
        };
        let guard = guard.with_policy(policy()).observed_by({
            let events = events.clone();
            move |event: &Event<'_>| events.note(event.kind)
        });
        Self { clock, faults, gates, guard, events }
    }

    pub(crate) fn at_least_once() -> Self {
        Self::new(Guarantee::AtLeastOnce)
    }

    pub(crate) fn at_most_once() -> Self {
        Self::new(Guarantee::AtMostOnce)
    }

    pub(crate) fn builder(&self) -> LayerBuilder<ScopeMissing> {
        IdempotencyLayer::builder(self.guard.clone(), "test.run")
    }

    pub(crate) fn layer(&self) -> LayerBuilder<ScopeChosen> {
        self.builder().unscoped()
    }

    pub(crate) async fn serve(&self, handler: Handler) -> Server {
        Server::start(self.layer().build().unwrap().layer(handler)).await
    }
}

/// A reply that is withheld is waited for as long as it takes.
pub(crate) fn policy() -> Policy {
    Policy::builder().store_call(Duration::from_secs(3600)).build().unwrap()
}

/// What has happened.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Noted>);

#[derive(Default)]
struct Noted {
    kinds: Mutex<Vec<EventKind>>,
    more: Notify,
}

impl Events {
    fn note(&self, kind: EventKind) {
        self.0.kinds.lock().unwrap().push(kind);
        self.0.more.notify_waiters();
    }

    pub(crate) fn all(&self) -> Vec<EventKind> {
        self.0.kinds.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, kind: EventKind) -> usize {
        self.all().into_iter().filter(|noted| *noted == kind).count()
    }

    /// Waits until this has happened so often.
    pub(crate) async fn until(&self, kind: EventKind, times: usize) {
        loop {
            let more = self.0.more.notified();
            let mut more = std::pin::pin!(more);
            more.as_mut().enable();
            if self.count(kind) >= times {
                return;
            }
            more.await;
        }
    }
}

/// How often a handler has run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more, and says which it is, from one on.
    pub(crate) fn begin(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A handler that counts its runs. It is told which run it is.
pub(crate) fn handler<F>(runs: &Runs, answer: impl Fn(usize, Inbound) -> F + Clone + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Outbound> + Send + 'static,
{
    let runs = runs.clone();
    BoxCloneSyncService::new(service_fn(move |request: Inbound| {
        let answered = answer(runs.begin(), request);
        async move { Ok(answered.await) }
    }))
}

/// Answers 201 with the number of its run.
pub(crate) fn counted(runs: &Runs) -> Handler {
    handler(runs, |run, _| async move { created(format!("run {run}")) })
}

/// The same, each run waiting at the gate.
pub(crate) fn gated(runs: &Runs, gate: &Gate) -> Handler {
    let gate = gate.clone();
    handler(runs, move |run, _| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            created(format!("run {run}"))
        }
    })
}

/// Answers its first run as programmed, and every later one with its own view of the run.
pub(crate) fn first_run<F>(runs: &Runs, first: impl Fn(Inbound) -> F + Clone + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Outbound> + Send + 'static,
{
    handler(runs, move |run, request| {
        let (view, first) = (view(&request), (run == 1).then(|| first(request)));
        async move {
            match first {
                Some(first) => first.await,
                None => response(200, view),
            }
        }
    })
}

/// Answers its first run with this response.
pub(crate) fn once(runs: &Runs, first: Response<Content>) -> Handler {
    let gate = Gate::new();
    gate.open();
    once_at(runs, &gate, first)
}

/// The same, when the gate is open.
pub(crate) fn once_at(runs: &Runs, gate: &Gate, first: Response<Content>) -> Handler {
    let (gate, first) = (gate.clone(), Arc::new(Mutex::new(Some(first))));
    first_run(runs, move |_| {
        let (gate, first) = (gate.clone(), first.lock().unwrap().take().unwrap());
        async move {
            gate.pass().await;
            first
        }
    })
}

/// A request with a key.
pub(crate) fn post(key: &str, body: &'static str) -> Request<Content> {
    post_to("/things", key, body)
}

pub(crate) fn post_to(path: &str, key: &str, body: &'static str) -> Request<Content> {
    Request::post(path).header("idempotency-key", key).body(whole(body)).unwrap()
}

pub(crate) fn response(status: u16, body: impl Into<bytes::Bytes>) -> Outbound {
    Response::builder().status(status).body(whole(body)).unwrap()
}

pub(crate) fn created(body: impl Into<bytes::Bytes>) -> Outbound {
    response(201, body)
}

/// A handler's own view of its run, as text.
pub(crate) fn view(request: &Inbound) -> String {
    let run = request.extensions().get::<Idempotency>().expect("guarded");
    format!("attempt {}, earlier unknown: {}", run.attempt(), run.earlier_unknown())
}

/// The first answer, not a replay.
#[track_caller]
pub(crate) fn assert_first(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status.as_u16(), answer.text()), (status, body), "{answer:?}");
    assert!(!answer.is_replay(), "{answer:?}");
}

#[track_caller]
pub(crate) fn assert_replay(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status.as_u16(), answer.text()), (status, body), "{answer:?}");
    assert!(answer.is_replay(), "{answer:?}");
}

#[track_caller]
pub(crate) fn assert_in_progress(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::CONFLICT, "{answer:?}");
    assert_eq!(answer.problem(), "in-progress");
    assert!(answer.retry_after_s().is_some_and(|seconds| seconds >= 1), "{answer:?}");
    assert!(!answer.is_replay(), "{answer:?}");
}

#[track_caller]
pub(crate) fn assert_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (status, code), "{answer:?}");
    assert!(!answer.is_replay(), "{answer:?}");
}

/// What a repeat gets whose first run has an unknown outcome, of a handler that answers with its view.
#[track_caller]
pub(crate) fn assert_unknown(answer: &Answer, guarantee: Guarantee) {
    match guarantee {
        Guarantee::AtLeastOnce => assert_first(answer, 200, "attempt 2, earlier unknown: true"),
        Guarantee::AtMostOnce => {
            assert_problem(answer, 409, "outcome-unknown");
            assert_eq!(answer.retry_after_s(), None);
        }
    }
}

/// The answer to a request, by either version of HTTP.
pub(crate) async fn ask(server: &Server, http2: bool, request: Request<Content>) -> Answer {
    let mut client = if http2 { Client::http2(server).await } else { Client::http1(server).await };
    read(client.send(request).await.unwrap()).await.unwrap()
}

/// What a repeat gets whose first run took no effect.
#[track_caller]
pub(crate) fn assert_free(answer: &Answer) {
    assert_first(answer, 200, "attempt 1, earlier unknown: false");
}

/// Sends a request, leaves when `when` has come, and waits until the server has noticed.
pub(crate) async fn leave_when(server: &Server, request: Request<Content>, when: impl Future<Output = ()>) {
    leave(Client::http1(server).await, server, request, when).await;
}

pub(crate) async fn leave(
    mut client: Client,
    server: &Server,
    request: Request<Content>,
    when: impl Future<Output = ()>,
) {
    tokio::select! {
        answered = client.send(request) => panic!("{answered:?}"),
        () = when => {}
    }
    drop(client);
    server.left().await;
}
