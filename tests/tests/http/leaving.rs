//! Clients that do not wait for their answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Response;
use idem_layer::guard::EventKind;
use idem_layer::protocol::{Identity, Key, Operation, Scope, Target};
use idem_layer::testing::{Fault, Verb};
use idem_tests::gate::Gate;
use idem_tests::http::{Client, Content, Server, next_data, streamed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;

use crate::rig::*;

#[test]
fn a_handler_that_has_begun_finishes_and_the_retry_gets_its_answer() {
    run(async {
        for http2 in [false, true] {
            for (_, rig) in Rig::each() {
                let (runs, gate) = (Runs::default(), Gate::new());
                let server = rig.serve(gated(&runs, &gate)).await;
                let client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                leave(client, &server, post("k", "x"), gate.reached()).await;

                assert_in_progress(&server.answer(post("k", "x")).await);
                gate.open();
                rig.events.until(EventKind::Completed, 1).await;
                assert_replay(&server.answer(post("k", "x")).await, 201, "run 1");
                assert_eq!((runs.count(), rig.events.count(EventKind::HandedOver)), (1, 1));
            }
        }
    });
}

#[test]
fn a_claim_that_is_answered_after_its_client_has_left_is_released() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let server = rig.serve(viewing(&runs)).await;
            let reply = rig.gates.withhold(Verb::Acquire);
            leave_when(&server, post("k", "x"), reply.reached()).await;

            assert_in_progress(&server.answer(post("k", "x")).await);
            reply.open();
            rig.events.until(EventKind::Released, 1).await;
            assert_eq!(runs.count(), 0);
            assert_free(&server.answer(post("k", "x")).await);
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn a_claim_whose_answer_is_lost_after_its_client_has_left_is_released() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let server = rig.serve(viewing(&runs)).await;
            rig.faults.next(Verb::Acquire, Fault::LoseReply).next(Verb::Acquire, Fault::LoseReply);
            let reply = rig.gates.withhold(Verb::Acquire);
            leave_when(&server, post("k", "x"), reply.reached()).await;

            reply.open();
            rig.events.until(EventKind::Released, 1).await;
            assert_free(&server.answer(post("k", "x")).await);
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn a_request_whose_client_leaves_before_its_body_has_come_claims_nothing() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(viewing(&runs)).await;
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        let head = "POST /things HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        // It is asked for the body: so it is being read.
        let mut go_on = [0; 25];
        socket.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(b"ha").await.unwrap();
        drop(socket);

        server.ended().await;
        assert_eq!(rig.guard.drain(Duration::ZERO).await.open, 0);
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
        assert_free(&server.answer(post("k", "half")).await);
    });
}

#[test]
fn a_claim_whose_client_leaves_while_the_service_is_not_ready_is_released() {
    run(async {
        for (_, rig) in Rig::each() {
            let (runs, gate) = (Runs::default(), Gate::new());
            let stack = ServiceBuilder::new().layer(rig.layer().build().unwrap()).layer(ConcurrencyLimitLayer::new(1));
            let server = Server::start(stack.service(gated(&runs, &gate))).await;

            let (busy, ()) = tokio::join!(server.answer(post("other", "x")), async {
                gate.reached().await;
                let waiting = rig.events.until(EventKind::Claimed { attempt: 1 }, 2);
                leave_when(&server, post("k", "x"), waiting).await;
                // At once, not when the service is ready for nobody.
                rig.events.until(EventKind::Released, 1).await;
                assert_eq!(rig.guard.stored(&identity("k")).await.unwrap(), None);
                gate.open();
            });
            assert_first(&busy, 201, "run 1");
            assert_eq!(runs.count(), 1);
            assert_first(&server.answer(post("k", "x")).await, 201, "run 2");
        }
    });
}

#[test]
fn a_streamed_answer_is_stored_whole_though_its_client_left_in_the_middle() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let (writer, body) = streamed();
            let server = rig.serve(once(&runs, Response::new(body))).await;

            let mut client = Client::http1(&server).await;
            writer.data("one,");
            let mut response = client.send(post("k", "x")).await.unwrap();
            assert_eq!(next_data(response.body_mut()).await.unwrap(), "one,");
            drop((client, response));
            server.left().await;

            assert_in_progress(&server.answer(post("k", "x")).await);
            writer.data("two");
            drop(writer);
            rig.events.until(EventKind::Completed, 1).await;
            assert_replay(&server.answer(post("k", "x")).await, 200, "one,two");
            assert_eq!((runs.count(), rig.events.count(EventKind::HandedOver)), (1, 1));
        }
    });
}

#[test]
fn a_stream_that_breaks_off_after_its_client_has_left_has_an_unknown_outcome() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let runs = Runs::default();
            let (writer, body) = streamed();
            let server = rig.serve(once(&runs, Response::new(body))).await;

            let mut client = Client::http1(&server).await;
            writer.data("one,");
            let mut response = client.send(post("k", "x")).await.unwrap();
            next_data(response.body_mut()).await.unwrap();
            drop((client, response));
            server.left().await;

            writer.fail();
            rig.events.until(guarantee.unknown(), 1).await;
            assert_unknown(&server.answer(post("k", "x")).await, guarantee);
        }
    });
}

#[test]
fn an_answer_of_known_length_is_stored_though_its_client_left_before_it_was_there() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let (writer, body) = streamed();
        let sized = Response::builder().header("content-length", 7).body(body).unwrap();
        let answering = Gate::new();
        let server = rig.serve(once_at(&runs, &answering, sized)).await;
        writer.data("one,");
        answering.open();
        leave_when(&server, post("k", "x"), answering.reached()).await;
        writer.data("two");
        drop(writer);
        rig.events.until(EventKind::Completed, 1).await;
        assert_replay(&server.answer(post("k", "x")).await, 200, "one,two");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn a_client_who_leaves_while_the_outcome_is_being_stored_changes_nothing() {
    run(async {
        for stored in [whole_answer as fn() -> Response<Content>, streamed_answer] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = rig.serve(once(&runs, stored())).await;
            let reply = rig.gates.withhold(Verb::Settle);
            let mut client = Client::http1(&server).await;
            tokio::select! {
                () = async { drop(client.send(post("k", "x")).await.unwrap()); std::future::pending().await } => {}
                () = reply.reached() => {}
            }
            drop(client);
            server.left().await;
            reply.open();
            rig.events.until(EventKind::Completed, 1).await;
            assert_replay(&server.answer(post("k", "x")).await, 200, "whole");
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn a_drain_waits_for_everything_that_goes_on_without_a_client() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let (writer, body) = streamed();
        let body = Arc::new(Mutex::new(Some(body)));
        let server = rig
            .serve(handler(&runs, {
                let gate = gate.clone();
                move |_, request| {
                    let (gate, body) = (gate.clone(), body.clone());
                    async move {
                        if request.uri().path() == "/streamed" {
                            return Response::new(body.lock().unwrap().take().unwrap());
                        }
                        gate.pass().await;
                        created("done")
                    }
                }
            }))
            .await;

        leave_when(&server, post_to("/running", "k", "x"), gate.reached()).await;
        let reply = rig.gates.withhold(Verb::Acquire);
        leave_when(&server, post_to("/claiming", "k", "x"), reply.reached()).await;
        let mut client = Client::http1(&server).await;
        writer.data("one,");
        let mut response = client.send(post_to("/streamed", "k", "x")).await.unwrap();
        next_data(response.body_mut()).await.unwrap();
        drop((client, response));
        server.left().await;

        let all = rig.guard.drain(Duration::ZERO).await.open;
        assert!(all >= 3, "{all}");
        reply.open();
        rig.events.until(EventKind::Released, 1).await;
        gate.open();
        rig.events.until(EventKind::Completed, 1).await;
        let guard = rig.guard.clone();
        let drained = tokio::spawn(async move { guard.drain(Duration::from_secs(3600)).await });
        let left = rig.guard.drain(Duration::from_millis(1)).await.open;
        assert!((1..all).contains(&left), "{left} of {all}");
        drop(writer);
        assert_eq!(drained.await.unwrap().open, 0);
        assert_replay(&server.answer(post_to("/running", "k", "x")).await, 201, "done");
        assert_replay(&server.answer(post_to("/streamed", "k", "x")).await, 200, "one,");
    });
}

#[test]
fn a_drain_gives_a_deferred_outcome_one_last_try() {
    run(async {
        for (heals, end) in [(true, EventKind::SettledLate), (false, EventKind::SettlingGivenUp)] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = rig.serve(counted(&runs)).await;
            rig.faults.always(Verb::Settle, Fault::FailBefore);
            assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
            rig.events.until(EventKind::SettlingDeferred, 1).await;
            if heals {
                rig.faults.heal();
            }
            assert_eq!(rig.guard.drain(Duration::from_secs(3600)).await.open, 0);
            assert_eq!(rig.events.count(end), 1);
        }
    });
}

fn identity(key: &str) -> Identity {
    let operation = Operation::new("test.run").unwrap();
    Identity::new(operation, Some(Target::new("POST", "/things")), Scope::unscoped(), Key::new(key).unwrap())
}

fn viewing(runs: &Runs) -> Handler {
    handler(runs, |_, request| async move { response(200, view(&request)) })
}

fn whole_answer() -> Response<Content> {
    response(200, "whole")
}

fn streamed_answer() -> Response<Content> {
    Response::new(idem_tests::http::chunks(["who", "le"]))
}
