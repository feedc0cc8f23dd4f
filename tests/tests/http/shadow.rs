//! Shadow mode: everything is told, nothing is refused or replayed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use idem_layer::guard::{Event, EventKind};
use idem_layer::middleware::{Budget, Idempotency, RequestBody, scope};
use idem_layer::store::StoreErrorKind;
use idem_layer::testing::{Fault, Verb};
use idem_tests::gate::Gate;
use idem_tests::http::{BoxError, Client, Server, chunks, read, streamed, whole};
use tower::{Layer, service_fn};

use crate::rig::*;

/// Every event with whether it is a shadow.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(EventKind, bool)>>>);

impl Told {
    fn watch(rig: &mut Rig) -> Self {
        let told = Self::default();
        let events = told.clone();
        rig.guard = rig
            .guard
            .clone()
            .observed_by(move |event: &Event<'_>| events.0.lock().unwrap().push((event.kind, event.shadow)));
        told
    }

    fn take(&self) -> Vec<(EventKind, bool)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Answers with what the request says, and whether it is guarded.
fn echo(runs: &Runs) -> Handler {
    handler(runs, |run, request| async move {
        let guarded = request.extensions().get::<Idempotency>().is_some();
        let body = http_body_util::BodyExt::collect(request.into_body()).await;
        let body = body.map_or_else(|_| "broken".into(), |body| body.to_bytes());
        created(format!("run {run}, guarded: {guarded}, {}", String::from_utf8_lossy(&body)))
    })
}

#[test]
fn repeats_conflicts_and_mismatches_are_told_and_run() {
    run(async {
        let mut rig = Rig::at_least_once();
        let (told, runs, gate) = (Told::watch(&mut rig), Runs::default(), Gate::new());
        let server = Server::start(rig.layer().shadow().build().unwrap().layer(gated(&runs, &gate))).await;
        let first = async { server.answer(post("k", "x")).await };
        let second = async {
            gate.reached().await;
            let other = server.answer(post("k", "x"));
            let open = async {
                gate.reached().await;
                gate.open();
            };
            tokio::join!(other, open).0
        };
        let (first, second) = tokio::join!(first, second);
        let bodies = [first.text(), second.text()];
        assert!(bodies.contains(&"run 1") && bodies.contains(&"run 2"), "{bodies:?}");
        assert_eq!(
            told.take(),
            [(EventKind::Claimed { attempt: 1 }, true), (EventKind::InProgress, true), (EventKind::Completed, true),]
        );
        assert_first(&server.answer(post("k", "x")).await, 201, "run 3");
        assert_eq!(told.take(), [(EventKind::Replayed, true)]);
        assert_first(&server.answer(post("k", "y")).await, 201, "run 4");
        assert_eq!(told.take(), [(EventKind::Mismatch, true)]);
    });
}

#[test]
fn what_would_be_refused_reaches_the_handler_whole() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig
            .builder()
            .scope(scope::header("x-tenant"))
            .key_required()
            .request_limit(4)
            .budget(Budget::new(4))
            .shadow()
            .build()
            .unwrap();
        let server = Server::start(layer.layer(echo(&runs))).await;
        let with = |key: Option<&str>, tenant: bool, body| {
            let mut request = Request::post("/things");
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            if tenant {
                request = request.header("x-tenant", "t");
            }
            request.body(body).unwrap()
        };
        for (n, (key, tenant, body, sent)) in [
            (None, true, whole("no k"), "no k"),
            (Some(""), true, whole("bad"), "bad"),
            (Some("k"), false, whole("who"), "who"),
            (Some("k"), true, whole("too large"), "too large"),
            (Some("k"), true, chunks(["too ", "large"]), "too large"),
        ]
        .into_iter()
        .enumerate()
        {
            let answer = server.answer(with(key, tenant, body)).await;
            assert_first(&answer, 201, &format!("run {}, guarded: false, {sent}", n + 1));
        }
        assert_eq!(rig.faults.calls(Verb::Acquire), 0);
    });
}

#[test]
fn a_body_that_breaks_off_or_takes_too_long_reaches_the_handler_as_it_is() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().request_time_limit(Duration::from_millis(1)).shadow().build().unwrap();
        let started = Gate::new();
        let handler = {
            let started = started.clone();
            handler(&runs, move |_, request| {
                let started = started.clone();
                async move {
                    started.pass().await;
                    let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
                    created(body)
                }
            })
        };
        let server = Server::start(layer.layer(handler)).await;
        let (writer, body) = streamed();
        writer.data("one ");
        let request = Request::post("/things").header("idempotency-key", "k").body(body).unwrap();
        let answer = async { server.answer(request).await };
        let rest = async {
            started.reached().await;
            writer.data("two");
            drop(writer);
            started.open();
        };
        assert_first(&tokio::join!(answer, rest).0, 201, "one two");
        assert_eq!(rig.faults.calls(Verb::Acquire), 0);
    });
}

#[test]
fn a_store_that_is_down_refuses_nothing() {
    run(async {
        let mut rig = Rig::at_least_once();
        let (told, runs) = (Told::watch(&mut rig), Runs::default());
        let server = Server::start(rig.layer().shadow().build().unwrap().layer(echo(&runs))).await;
        rig.faults.always(Verb::Acquire, Fault::FailBefore);
        assert_first(&server.answer(post("k", "x")).await, 201, "run 1, guarded: false, x");
        assert_eq!(told.take()[0], (EventKind::StoreFailed { kind: StoreErrorKind::Unavailable }, true));
    });
}

#[test]
fn an_owner_whose_claim_is_lost_keeps_its_answer() {
    run(async {
        for body in [whole("mine"), chunks(["mi", "ne"])] {
            let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
            let shadow = rig.layer().shadow().build().unwrap();
            let server = Server::start(shadow.layer(once_at(&runs, &gate, Response::new(body)))).await;
            let address = server.address();
            let slow = tokio::spawn(async move {
                let mut client = Client::http1(address).await;
                read(client.send(post("k", "x")).await.unwrap()).await.unwrap()
            });
            gate.reached().await;
            // Its lease lapses, and another takes over and completes.
            rig.clock.advance(rig.guard.policy().lease());
            assert_eq!(server.answer(post("k", "x")).await.status, 200);
            gate.open();
            assert_first(&slow.await.unwrap(), 200, "mine");
        }
    });
}

#[test]
fn what_a_handler_says_of_replays_itself_reaches_its_client() {
    run(async {
        for body in [whole("x"), chunks(["x"])] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let own = Response::builder()
                .header("idempotent-replayed", "by the handler")
                .header("idempotency-expires", "Sun, 06 Nov 1994 08:49:37 GMT");
            let layer = rig.layer().idempotency_expires().shadow().build().unwrap();
            let server = Server::start(layer.layer(once(&runs, own.body(body).unwrap()))).await;
            let answer = server.answer(post("k", "x")).await;
            assert_eq!(answer.header("idempotent-replayed"), "by the handler");
            assert_eq!(answer.header("idempotency-expires"), "Sun, 06 Nov 1994 08:49:37 GMT");

            // But it is not kept, for the time when the layer says so.
            let layer = rig.layer().build().unwrap();
            let server = Server::start(layer.layer(counted(&runs))).await;
            let answer = server.answer(post("k", "x")).await;
            assert_replay(&answer, 200, "x");
            assert_eq!(answer.header("idempotency-expires"), "");
        }
    });
}

#[test]
fn a_repeat_whose_client_left_before_it_was_told_does_not_run() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = Server::start(rig.layer().shadow().build().unwrap().layer(counted(&runs))).await;
        assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
        let reply = rig.gates.withhold(Verb::Acquire);
        leave_when(&server, post("k", "x"), reply.reached()).await;
        reply.open();
        assert_eq!(rig.guard.drain(Duration::from_secs(3600)).await.open, 0);
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn what_a_handler_says_is_heard_by_the_layer_that_guards_it() {
    run(async {
        let (rig, other) = (Rig::at_least_once(), Rig::at_least_once());
        let handler = service_fn(|request: Request<RequestBody<RequestBody<Incoming>>>| async move {
            request.extensions().get::<Idempotency>().unwrap().hold("who knows");
            Ok::<_, BoxError>(Response::new(whole("held")))
        });
        let tried = other.layer().shadow().request_limit(2).build().unwrap();
        let server = Server::start(rig.layer().without_target().build().unwrap().layer(tried.layer(handler))).await;
        assert_first(&server.answer(post("k", "x")).await, 200, "held");
        assert_problem(&server.answer(post("k", "x")).await, 409, "outcome-unknown");
        assert_eq!((rig.events.count(EventKind::HeldBack), other.events.count(EventKind::HeldBack)), (1, 1));
    });
}

/// A new store that is tried in front of the one in use took over the guarding, and did not guard.
#[test]
fn a_shadow_keeps_no_layer_further_in_from_guarding() {
    run(async {
        for same in [false, true] {
            let (inside, runs) = (Rig::at_least_once(), Runs::default());
            let outside = if same { inside.layer() } else { Rig::at_least_once().layer() };
            let begun = runs.clone();
            let handler = service_fn(move |_: Request<RequestBody<RequestBody<Incoming>>>| {
                let run = begun.begin();
                async move { Ok::<_, BoxError>(created(format!("run {run}"))) }
            });
            let stack = outside.shadow().build().unwrap().layer(inside.layer().build().unwrap().layer(handler));
            let server = Server::start(stack).await;
            assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
            let repeat = server.answer(post("k", "x")).await;
            assert_eq!((repeat.status, repeat.text(), runs.count()), (StatusCode::CREATED, "run 1", 1));
        }
    });
}
