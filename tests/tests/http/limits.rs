//! What requests may take of memory and time.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Budget, LayerError, key};
use idem_layer::testing::Verb;
use idem_tests::gate::Gate;
use idem_tests::http::{Client, Server, chunks, next_data, read, streamed, whole};
use tokio::sync::Semaphore;
use tower::Layer;

use crate::rig::*;

const MEBIBYTE: usize = 1024 * 1024;

#[test]
fn of_a_thousand_uploads_at_once_those_are_read_that_fit_the_budget() {
    const UPLOADS: usize = 1000;
    const FIT: usize = 64;
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let budget = Budget::new(FIT * MEBIBYTE);
        let layer = rig.layer().budget(budget.clone()).build().unwrap();
        let at_most = budget.clone();
        let handler = handler(&runs, move |_, _| {
            assert!(at_most.held() <= at_most.limit());
            async { created("uploaded") }
        });
        let server = Server::start(layer.layer(handler)).await;
        let address = server.address();

        // Each announces its mebibyte, and sends it when all that do not fit have been turned away.
        let (send, shed) = (Gate::new(), Arc::new(Semaphore::new(0)));
        let uploads: Vec<_> = (0..UPLOADS)
            .map(|n| {
                let (send, shed) = (send.clone(), shed.clone());
                tokio::spawn(async move {
                    let mut client = Client::http1(address).await;
                    let (writer, body) = streamed();
                    let request = Request::post("/uploads")
                        .header("idempotency-key", format!("k-{n}"))
                        .header("content-length", MEBIBYTE)
                        .body(body)
                        .unwrap();
                    let mut answer = std::pin::pin!(client.send(request));
                    let response = tokio::select! {
                        response = &mut answer => {
                            shed.add_permits(1);
                            response
                        }
                        () = send.pass() => {
                            writer.data(vec![b'x'; MEBIBYTE]);
                            drop(writer);
                            answer.await
                        }
                    };
                    read(response.unwrap()).await.unwrap()
                })
            })
            .collect();
        drop(shed.acquire_many((UPLOADS - FIT) as u32).await.unwrap());
        assert_eq!(budget.held(), budget.limit());
        send.open();

        let mut statuses = [0, 0];
        for upload in uploads {
            let answer = upload.await.unwrap();
            if answer.status == StatusCode::CREATED {
                statuses[0] += 1;
            } else {
                assert_problem(&answer, 503, "overloaded");
                assert_eq!(answer.retry_after_s(), Some(1));
                statuses[1] += 1;
            }
        }
        assert_eq!(statuses, [FIT, UPLOADS - FIT]);
        assert_eq!((runs.count(), rig.faults.calls(Verb::Acquire), budget.held()), (FIT, FIT as u64, 0));
    });
}

#[test]
fn a_body_of_unannounced_length_is_counted_as_it_comes() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let budget = Budget::new(9);
        let guarded = || rig.layer().budget(budget.clone()).build().unwrap();
        let first = Server::start(guarded().layer(gated(&Runs::default(), &gate))).await;
        let server = Server::start(guarded().layer(counted(&runs))).await;
        let running = tokio::spawn({
            let address = first.address();
            async move { read(Client::http1(address).await.send(post("a", "1")).await.unwrap()).await.unwrap() }
        });
        gate.reached().await;
        let chunked = |data: [&'static str; 2]| {
            Request::post("/things").header("idempotency-key", "k").body(chunks(data)).unwrap()
        };
        assert_problem(&server.answer(chunked(["12345", "6789"])).await, 503, "overloaded");
        assert_eq!((runs.count(), rig.faults.calls(Verb::Acquire), budget.held()), (0, 1, 1));
        assert_first(&server.answer(chunked(["1234", "5678"])).await, 201, "run 1");
        gate.open();
        assert_first(&running.await.unwrap(), 201, "run 1");
        assert_eq!(budget.held(), 0);
    });
}

#[test]
fn a_response_that_does_not_fit_the_budget_reaches_its_client_and_is_not_run_again() {
    run(async {
        for body in [whole("0123456789"), chunks(["01234", "56789"])] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let budget = Budget::new(8);
            let layer = rig.layer().budget(budget.clone()).build().unwrap();
            let server = Server::start(layer.layer(once(&runs, Response::new(body)))).await;
            assert_first(&server.answer(post("k", "")).await, 200, "0123456789");
            assert_problem(&server.answer(post("k", "")).await, 409, "not-replayable");
            assert_eq!((runs.count(), budget.held()), (1, 0));
        }
    });
}

#[test]
fn a_budget_is_shared_by_the_layers_that_are_given_it() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let budget = Budget::new(6);
        let guarded = || rig.layer().budget(budget.clone()).build().unwrap();
        let first = Server::start(guarded().layer(gated(&runs, &gate))).await;
        let second = Server::start(guarded().layer(counted(&runs))).await;
        let running = tokio::spawn({
            let address = first.address();
            async move { read(Client::http1(address).await.send(post("a", "12345")).await.unwrap()).await.unwrap() }
        });
        gate.reached().await;
        assert_eq!(budget.held(), 5);
        assert_problem(&second.answer(post("b", "12")).await, 503, "overloaded");
        gate.open();
        assert_first(&running.await.unwrap(), 201, "run 1");
        assert_first(&second.answer(post("b", "12")).await, 201, "run 2");
    });
}

#[test]
fn a_body_that_never_ends_is_refused_when_its_time_is_over() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().request_time_limit(Duration::from_millis(1)).build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        let (writer, body) = streamed();
        writer.data("half of ");
        let request = Request::post("/things").header("idempotency-key", "k").body(body).unwrap();
        assert_problem(&server.answer(request).await, 408, "body-timeout");
        assert_eq!((runs.count(), rig.faults.calls(Verb::Acquire)), (0, 0));
        drop(writer);
    });
}

/// It was told to come back later, and got the same answer for ever.
#[test]
fn a_body_that_no_budget_ever_has_room_for_is_too_large() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = Server::start(rig.layer().budget(Budget::new(8)).build().unwrap().layer(counted(&runs))).await;
        for body in [whole("123456789"), chunks(["12345", "6789"])] {
            let request = Request::post("/things").header("idempotency-key", "k").body(body).unwrap();
            assert_problem(&server.answer(request).await, 413, "body-too-large");
        }
        assert_eq!((runs.count(), rig.faults.calls(Verb::Acquire)), (0, 0));
    });
}

#[test]
fn limits_of_nothing_are_mistakes() {
    let rig = Rig::at_least_once();
    let zero = |layer: Result<_, LayerError>| layer.err();
    assert_eq!(
        zero(rig.layer().request_time_limit(Duration::ZERO).build()),
        Some(LayerError::ZeroLimit("the request time limit"))
    );
    assert_eq!(zero(rig.layer().budget(Budget::new(0)).build()), Some(LayerError::ZeroLimit("the budget")));
}

#[test]
fn an_endless_event_stream_begins_at_once_and_leaves_nothing_behind_its_client() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let ended = Gate::new();
        let events = {
            let ended = ended.clone();
            move |_: usize, _: Inbound| {
                let (writer, body) = streamed();
                writer.data("data: 0\n\n");
                let ended = ended.clone();
                tokio::spawn(async move {
                    // As long as somebody listens.
                    writer.closed().await;
                    ended.pass().await;
                });
                let response = Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
                async move { response }
            }
        };
        let budget = Budget::default();
        let layer = rig.layer().budget(budget.clone()).build().unwrap();
        let server = Server::start(layer.layer(handler(&runs, events))).await;
        let mut client = Client::http1(&server).await;
        let mut response = client.send(post("k", "")).await.unwrap();
        assert_eq!(next_data(response.body_mut()).await.unwrap(), "data: 0\n\n");
        drop((client, response));
        server.left().await;
        // The body is gone with its client, no task of ours holds it or anything else.
        ended.reached().await;
        ended.open();
        let drained = rig.guard.drain(Duration::from_secs(3600)).await;
        assert_eq!((drained.open, budget.held(), rig.events.count(EventKind::HandedOver)), (0, 0, 0));
    });
}

#[test]
fn an_endless_answer_of_another_type_is_not_followed_beyond_the_limit() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let (writer, body) = streamed();
        let layer = rig.layer().snapshot_limit(4).build().unwrap();
        let server = Server::start(layer.layer(once(&runs, Response::new(body)))).await;
        let mut client = Client::http1(&server).await;
        let mut response = client.send(post("k", "")).await.unwrap();
        for data in ["123", "456"] {
            writer.data(data);
            assert_eq!(next_data(response.body_mut()).await.unwrap(), data);
        }
        drop((client, response));
        server.left().await;
        writer.closed().await;
        assert_eq!(rig.guard.drain(Duration::from_secs(3600)).await.open, 0);
    });
}

/// They were not counted, although they are held as long as any other.
#[test]
fn a_body_that_was_read_in_vain_is_counted_until_its_handler_has_answered() {
    run(async {
        for shadow in [false, true] {
            let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
            let budget = Budget::new(MEBIBYTE);
            // In shadow mode what is too large has been read up to there.
            let sent = if shadow { "8 bytes." } else { r#"{"order": 7}"# };
            let body = if shadow { chunks([sent, "more"]) } else { whole(sent) };
            let layer = rig.layer().budget(budget.clone());
            let layer = if shadow { layer.shadow().request_limit(8) } else { layer.key(key::json("/key")) };
            let server = Server::start(layer.build().unwrap().layer(gated(&runs, &gate))).await;
            let request = Request::post("/things").header("idempotency-key", "k").body(body).unwrap();
            let (answer, ()) = tokio::join!(server.answer(request), async {
                gate.reached().await;
                assert!(budget.held() >= sent.len(), "{}", budget.held());
                gate.open();
            });
            assert_first(&answer, 201, "run 1");
            assert_eq!(budget.held(), 0);
        }
    });
}
