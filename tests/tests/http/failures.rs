//! Runs that fail, and stores that do.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Idempotency, Verdict, fingerprint};
use idem_layer::protocol::Policy;
use idem_layer::store::StoreErrorKind;
use idem_layer::testing::{Fault, Verb};
use idem_tests::gate::Gate;
use idem_tests::http::{BoxError, Client, Server, chunks, fields, next_data, read, streamed, whole};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::rig::*;

/// What a retry of a run finds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Retry {
    Replays,
    Runs,
    Unknown,
}

#[test]
fn the_status_decides_what_a_retry_gets() {
    use Retry::{Replays, Runs as RunsAgain, Unknown};
    run(async {
        for (statuses, retry) in [
            (&[200, 201, 202, 204, 206, 301, 303, 304, 307][..], Replays),
            (&[400, 401, 403, 404, 405, 409, 410, 412, 422, 425, 429, 499, 503], RunsAgain),
            (&[408, 500, 501, 502, 504, 599], Unknown),
        ] {
            for &status in statuses {
                for (guarantee, rig) in Rig::each() {
                    let runs = Runs::default();
                    let server = rig.serve(first_run(&runs, move |_| async move { response(status, "") })).await;
                    assert_first(&server.answer(post("k", "x")).await, status, "");
                    let again = server.answer(post("k", "x")).await;
                    match retry {
                        Replays => assert_replay(&again, status, ""),
                        RunsAgain => assert_free(&again),
                        Unknown => assert_unknown(&again, guarantee),
                    }
                    let expected = if again.is_replay() || again.status == 409 { 1 } else { 2 };
                    assert_eq!(runs.count(), expected, "{status}, {guarantee:?}");
                }
            }
        }
    });
}

#[test]
fn attempts_are_counted_as_long_as_outcomes_are_unknown() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig
            .serve(handler(&runs, |run, request| async move {
                // A release in between does not let it fall.
                response([500, 500, 404, 200][run - 1], view(&request))
            }))
            .await;
        for (status, view) in [
            (500, "attempt 1, earlier unknown: false"),
            (500, "attempt 2, earlier unknown: true"),
            (404, "attempt 3, earlier unknown: true"),
            (200, "attempt 4, earlier unknown: true"),
        ] {
            assert_first(&server.answer(post("k", "x")).await, status, view);
        }
        assert_replay(&server.answer(post("k", "x")).await, 200, "attempt 4, earlier unknown: true");
    });
}

#[test]
fn a_corrected_request_runs_after_one_that_was_refused() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(first_run(&runs, |_| async { response(422, "no such currency") })).await;
        assert_first(&server.answer(post("k", "5 eurs")).await, 422, "no such currency");
        assert_free(&server.answer(post("k", "5 euros")).await);
    });
}

#[test]
fn a_panic_is_an_unknown_outcome_and_its_caller_gets_what_it_would_get_without_the_layer() {
    run(async {
        for in_future in [true, false] {
            for (guarantee, rig) in Rig::each() {
                let runs = Runs::default();
                let server = rig.serve(panicking(&runs, in_future)).await;
                server.send(post("k", "x")).await.expect_err("the connection breaks off");
                rig.events.until(guarantee.unknown(), 1).await;
                assert_unknown(&server.answer(post("k", "x")).await, guarantee);
            }
            for (guarantee, rig) in Rig::each() {
                let runs = Runs::default();
                let stack = ServiceBuilder::new().layer(CatchPanicLayer::new()).layer(rig.layer().build().unwrap());
                let server = Server::start(stack.service(panicking(&runs, in_future))).await;
                assert_eq!(server.answer(post("k", "x")).await.status, 500);
                rig.events.until(guarantee.unknown(), 1).await;
                assert_unknown(&server.answer(post("k", "x")).await, guarantee);
            }
            for (guarantee, rig) in Rig::each() {
                let runs = Runs::default();
                let stack = ServiceBuilder::new().layer(rig.layer().build().unwrap()).layer(CatchPanicLayer::new());
                let server = Server::start(stack.service(panicking(&runs, in_future))).await;
                assert_eq!(server.answer(post("k", "x")).await.status, 500);
                assert_unknown(&server.answer(post("k", "x")).await, guarantee);
            }
        }
    });
}

#[test]
fn a_panic_after_the_client_has_left_is_an_unknown_outcome() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let (runs, gate) = (Runs::default(), Gate::new());
            let handler = first_run(&runs, {
                let gate = gate.clone();
                move |_| {
                    let gate = gate.clone();
                    async move {
                        gate.pass().await;
                        panic!("as the test says")
                    }
                }
            });
            let server = rig.serve(handler).await;
            leave_when(&server, post("k", "x"), gate.reached()).await;
            gate.open();
            rig.events.until(guarantee.unknown(), 1).await;
            assert_unknown(&server.answer(post("k", "x")).await, guarantee);
            assert_eq!(rig.guard.drain(Duration::from_secs(3600)).await.open, 0);
        }
    });
}

#[test]
fn a_body_that_panics_is_an_unknown_outcome() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let runs = Runs::default();
            let handler = first_run(&runs, |_| async { Response::new(Panicking.boxed_unsync()) });
            let server = rig.serve(handler).await;
            server.send(post("k", "x")).await.expect_err("the connection breaks off");
            rig.events.until(guarantee.unknown(), 1).await;
            assert_unknown(&server.answer(post("k", "x")).await, guarantee);
        }
    });
}

#[test]
fn a_timeout_inside_cuts_the_handler_off_half_way_and_so_its_outcome_is_unknown() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let runs = Runs::default();
            let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(20));
            let stack = ServiceBuilder::new().layer(rig.layer().build().unwrap()).layer(timeout);
            let server = Server::start(stack.service(first_run(&runs, |_| std::future::pending()))).await;
            assert_first(&server.answer(post("k", "x")).await, 408, "");
            assert_unknown(&server.answer(post("k", "x")).await, guarantee);
        }
    });
}

#[test]
fn a_timeout_outside_cuts_nothing_off_and_the_retry_gets_the_answer() {
    run(async {
        for (_, rig) in Rig::each() {
            let (runs, gate) = (Runs::default(), Gate::new());
            let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(20));
            let stack = ServiceBuilder::new().layer(timeout).layer(rig.layer().build().unwrap());
            let server = Server::start(stack.service(gated(&runs, &gate))).await;
            assert_first(&server.answer(post("k", "x")).await, 408, "");
            gate.open();
            rig.events.until(EventKind::Completed, 1).await;
            assert_replay(&server.answer(post("k", "x")).await, 201, "run 1");
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn an_error_of_the_service_is_passed_on_and_its_outcome_is_unknown() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let runs = Runs::default();
            let server = rig.serve(failing(&runs, |_| {})).await;
            server.send(post("k", "x")).await.expect_err("the connection breaks off");
            assert_unknown(&server.answer(post("k", "x")).await, guarantee);
        }
    });
}

#[test]
fn an_error_after_the_handler_has_said_what_happened_is_what_it_said() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(failing(&runs, Idempotency::complete)).await;
        server.send(post("k", "x")).await.expect_err("the connection breaks off");
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");

        let (rig, runs) = (Rig::at_most_once(), Runs::default());
        let server = rig.serve(failing(&runs, Idempotency::release)).await;
        server.send(post("k", "x")).await.expect_err("the connection breaks off");
        assert_free(&server.answer(post("k", "x")).await);
    });
}

/// What a handler says of its own run.
type Say = fn(&Idempotency);

#[test]
fn what_the_handler_says_counts_more_than_its_status() {
    let hold: Say = |run| run.hold("the provider did not answer");
    let twice: Say = |run| {
        run.hold("not yet known");
        run.release();
    };
    run(async {
        for (say, status, streams, retry) in [
            (Idempotency::complete as Say, 503, false, Retry::Replays),
            (Idempotency::complete, 404, false, Retry::Replays),
            (Idempotency::complete, 500, true, Retry::Replays),
            (Idempotency::release, 201, false, Retry::Runs),
            (Idempotency::release, 500, false, Retry::Runs),
            (Idempotency::release, 201, true, Retry::Runs),
            (twice, 201, false, Retry::Runs),
            (hold, 502, false, Retry::Unknown),
            (hold, 200, false, Retry::Unknown),
            (hold, 200, true, Retry::Unknown),
        ] {
            for (_, rig) in Rig::each() {
                let runs = Runs::default();
                let (writer, body) = streamed();
                let body = Arc::new(Mutex::new(streams.then_some(body)));
                let running = Arc::new(Mutex::new(None));
                let server = rig.serve(first_run(&runs, {
                    let running = running.clone();
                    move |request: Inbound| {
                        let run = request.extensions().get::<Idempotency>().unwrap().clone();
                        let body = body.lock().unwrap().take();
                        match body {
                            Some(_) => *running.lock().unwrap() = Some(run),
                            None => say(&run),
                        }
                        async move { Response::builder().status(status).body(body.unwrap_or(whole("first"))).unwrap() }
                    }
                }));
                let server = server.await;

                let mut client = Client::http1(&server).await;
                writer.data("fi");
                let mut response = client.send(post("k", "x")).await.unwrap();
                if streams {
                    // The head has left; the last word has not been said.
                    assert_eq!(next_data(response.body_mut()).await.unwrap(), "fi");
                    say(running.lock().unwrap().as_ref().unwrap());
                }
                writer.data("rst");
                drop(writer);
                assert_eq!(read(response).await.unwrap().status, status);

                let again = server.answer(post("k", "x")).await;
                match retry {
                    Retry::Replays => assert_replay(&again, status, "first"),
                    Retry::Runs => assert_free(&again),
                    // Under either guarantee: the handler has said that it must not run.
                    Retry::Unknown => assert_problem(&again, 409, "outcome-unknown"),
                }
            }
        }
    });
}

#[test]
fn a_route_can_read_outcomes_by_rules_of_its_own() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let layer = rig.layer().classify(|head, trailers| {
                let said = |fields: &HeaderMap| fields.get("x-outcome").map(|value| value.as_bytes().to_vec());
                match trailers.and_then(said).or_else(|| said(&head.headers)).as_deref() {
                    Some(b"done") => Verdict::Complete,
                    Some(b"nothing") => Verdict::Release,
                    Some(b"ask") => Verdict::Hold("ask".into()),
                    _ => Verdict::by_default(head, trailers),
                }
            });
            let handler = handler(&runs, |_, request| async move {
                let outcome = request.uri().query().unwrap().to_owned();
                let (in_head, in_trailers) = match request.uri().path() {
                    "/head" => (outcome.as_str(), ""),
                    _ => ("none", outcome.as_str()),
                };
                let (writer, body) = streamed();
                writer.data("ok");
                writer
                    .trailers(fields([("x-outcome", in_trailers)].into_iter().filter(|(_, value)| !value.is_empty())));
                Response::builder().status(500).header("x-outcome", in_head).body(body).unwrap()
            });
            let server = Server::start(layer.build().unwrap().layer(handler)).await;
            for path in ["/head", "/trailers"] {
                let send = async |outcome| server.answer(post_to(&format!("{path}?{outcome}"), outcome, "x")).await;
                assert_first(&send("done").await, 500, "ok");
                assert_replay(&send("done").await, 500, "ok");
                assert_first(&send("nothing").await, 500, "ok");
                assert_first(&send("nothing").await, 500, "ok");
                assert_first(&send("ask").await, 500, "ok");
                assert_problem(&send("ask").await, 409, "outcome-unknown");
            }
        }
    });
}

#[test]
fn nothing_runs_while_the_store_is_down_and_it_heals_by_itself() {
    run(async {
        for (fault, code) in [
            (Fault::FailBefore, "store-unavailable"),
            (Fault::FailWith(StoreErrorKind::Full), "store-unavailable"),
            (Fault::FailWith(StoreErrorKind::Unreadable), "record-unreadable"),
            (Fault::Hang, "store-unavailable"),
        ] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let impatient = Policy::builder().store_call(Duration::from_millis(20)).build().unwrap();
            let layer = rig.layer().policy(impatient).build().unwrap();
            let server = Server::start(layer.layer(counted(&runs))).await;
            rig.faults.always(Verb::Acquire, fault);
            for _ in 0..2 {
                let answer = server.answer(post("k", "x")).await;
                assert_problem(&answer, 503, code);
                assert!(answer.retry_after_s().is_some_and(|seconds| seconds >= 1), "{answer:?}");
            }
            assert_eq!(runs.count(), 0);
            rig.faults.heal();
            assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
        }
    });
}

#[test]
fn a_claim_whose_reply_is_lost_once_is_found_out_by_asking_again() {
    run(async {
        let (rig, runs) = (Rig::at_most_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        rig.faults.next(Verb::Acquire, Fault::LoseReply).next(Verb::Settle, Fault::LoseReply);
        assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
        assert_replay(&server.answer(post("k", "x")).await, 201, "run 1");
    });
}

#[test]
fn a_claim_whose_reply_is_lost_for_good_blocks_nobody() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let server = rig.serve(first_run(&runs, |request| async move { response(200, view(&request)) })).await;
            rig.faults.next(Verb::Acquire, Fault::LoseReply).next(Verb::Acquire, Fault::LoseReply);
            assert_problem(&server.answer(post("k", "x")).await, 503, "store-unavailable");
            rig.events.until(EventKind::Released, 1).await;
            assert_free(&server.answer(post("k", "x")).await);
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn an_answer_is_given_although_it_cannot_be_stored_and_stored_once_that_is_possible() {
    run(async {
        for streams in [false, true] {
            for (_, rig) in Rig::each() {
                let runs = Runs::default();
                let handler = handler(&runs, move |_, _| async move {
                    let body = if streams { chunks(["pa", "id"]) } else { whole("paid") };
                    Response::builder().status(201).body(body).unwrap()
                });
                let server = rig.serve(handler).await;
                rig.faults.always(Verb::Settle, Fault::FailBefore);
                assert_first(&server.answer(post("k", "x")).await, 201, "paid");
                assert_in_progress(&server.answer(post("k", "x")).await);
                rig.faults.heal();
                rig.events.until(EventKind::SettledLate, 1).await;
                assert_replay(&server.answer(post("k", "x")).await, 201, "paid");
                assert_eq!(runs.count(), 1);
            }
        }
    });
}

#[test]
fn an_owner_that_was_overtaken_answers_what_the_key_holds() {
    run(async {
        let (rig, runs, gates) = (Rig::at_least_once(), Runs::default(), [Gate::new(), Gate::new()]);
        let server = rig.serve(gated_each(&runs, &gates)).await;
        let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
            gates[0].reached().await;
            rig.clock.advance(rig.guard.policy().lease());
            gates[1].open();
            assert_first(&server.answer(post("k", "x")).await, 201, "attempt 2, earlier unknown: true");
            gates[0].open();
        });
        assert_replay(&first, 201, "attempt 2, earlier unknown: true");
        assert_replay(&server.answer(post("k", "x")).await, 201, "attempt 2, earlier unknown: true");
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn an_owner_that_was_overtaken_by_a_run_that_still_goes_on_says_so() {
    run(async {
        let (rig, runs, gates) = (Rig::at_least_once(), Runs::default(), [Gate::new(), Gate::new()]);
        let server = rig.serve(gated_each(&runs, &gates)).await;
        let ((), second) = tokio::join!(
            async {
                let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
                    gates[0].reached().await;
                    rig.clock.advance(rig.guard.policy().lease());
                    gates[1].reached().await;
                    gates[0].open();
                });
                assert_in_progress(&first);
                gates[1].open();
            },
            async {
                rig.events.until(EventKind::Claimed { attempt: 1 }, 1).await;
                // Until the lease is over it is told to wait.
                loop {
                    let answer = server.answer(post("k", "x")).await;
                    if answer.status != StatusCode::CONFLICT {
                        return answer;
                    }
                    tokio::task::yield_now().await;
                }
            }
        );
        assert_first(&second, 201, "attempt 2, earlier unknown: true");
        assert_replay(&server.answer(post("k", "x")).await, 201, "attempt 2, earlier unknown: true");
    });
}

#[test]
fn a_run_that_was_held_by_its_lapse_is_completed_by_its_owner() {
    run(async {
        let (rig, runs, gates) = (Rig::at_most_once(), Runs::default(), [Gate::new(), Gate::new()]);
        let server = rig.serve(gated_each(&runs, &gates)).await;
        let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
            gates[0].reached().await;
            rig.clock.advance(rig.guard.policy().lease());
            assert_problem(&server.answer(post("k", "x")).await, 409, "outcome-unknown");
            gates[0].open();
        });
        assert_first(&first, 201, "attempt 1, earlier unknown: false");
        assert_replay(&server.answer(post("k", "x")).await, 201, "attempt 1, earlier unknown: false");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn a_stream_that_was_overtaken_breaks_off_instead_of_ending_whole() {
    run(async {
        for ends in [true, false] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let (writer, body) = streamed();
            let body = Arc::new(Mutex::new(Some(body)));
            let server = rig
                .serve(first_run(&runs, move |_| {
                    let body = body.lock().unwrap().take().unwrap();
                    async move { Response::new(body) }
                }))
                .await;
            let mut client = Client::http1(&server).await;
            writer.data("one,");
            let mut response = client.send(post("k", "x")).await.unwrap();
            assert_eq!(next_data(response.body_mut()).await.unwrap(), "one,");

            rig.clock.advance(rig.guard.policy().lease());
            assert_first(&server.answer(post("k", "x")).await, 200, "attempt 2, earlier unknown: true");
            if ends {
                drop(writer);
            } else {
                // Larger than what is kept.
                writer.data(vec![b'x'; 2 << 20]);
            }
            read(response).await.expect_err("the response breaks off");
            assert_replay(&server.answer(post("k", "x")).await, 200, "attempt 2, earlier unknown: true");
        }
    });
}

#[test]
fn the_outcome_of_a_run_whose_record_the_store_has_lost_is_stored_again() {
    run(async {
        for (_, rig) in Rig::each() {
            let (runs, gates) = (Runs::default(), [Gate::new(), Gate::new()]);
            let server = rig.serve(gated_each(&runs, &gates)).await;
            let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
                gates[0].reached().await;
                let policy = rig.guard.policy();
                rig.clock.advance(policy.lease() + policy.retention());
                gates[0].open();
            });
            assert_first(&first, 201, "attempt 1, earlier unknown: false");
            assert_eq!(rig.events.count(EventKind::Restored), 1);
            assert_replay(&server.answer(post("k", "x")).await, 201, "attempt 1, earlier unknown: false");
            assert_problem(&server.answer(post("k", "y")).await, 422, "mismatch");
            assert_eq!(runs.count(), 1);
        }
    });
}

/// The order of events: the first run's record is lost (or released by another run that took over), a different request
/// gets the key and completes, and only then the first run ends. Its client must not get the other request's answer.
#[test]
fn an_owner_never_gets_the_answer_of_another_request_that_has_its_key_now() {
    run(async {
        for (rules, refuses, loses) in [
            (fingerprint::enforced(), true, true),
            (fingerprint::enforced(), true, false),
            (fingerprint::observed(), false, true),
            (fingerprint::off(), false, true),
        ] {
            let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
            let layer = rig.layer().fingerprint(rules).build().unwrap();
            let handler = handler(&runs, {
                let gate = gate.clone();
                move |run, _| {
                    let gate = gate.clone();
                    async move {
                        match (run, loses) {
                            (1, _) => gate.pass().await,
                            (2, false) => return response(404, "not yet"),
                            _ => {}
                        }
                        created(format!("run {run}"))
                    }
                }
            });
            let server = Server::start(layer.layer(handler)).await;
            let other = if loses { "run 2" } else { "run 3" };
            let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
                gate.reached().await;
                let policy = rig.guard.policy();
                if loses {
                    rig.clock.advance(policy.lease() + policy.retention());
                } else {
                    rig.clock.advance(policy.lease());
                    assert_first(&server.answer(post("k", "x")).await, 404, "not yet");
                }
                assert_first(&server.answer(post("k", "y")).await, 201, other);
                gate.open();
            });
            match refuses {
                true => assert_problem(&first, 422, "mismatch"),
                // The route says that requests of one key are one.
                false => assert_replay(&first, 201, other),
            }
            assert_replay(&server.answer(post("k", "y")).await, 201, other);
        }
    });
}

fn panicking(runs: &Runs, in_future: bool) -> Handler {
    first_run(runs, move |_| {
        assert!(in_future, "a panic, as the test says");
        async { panic!("as the test says") }
    })
}

/// A body that panics when it is read.
struct Panicking;

impl Body for Panicking {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        panic!("as the test says")
    }
}

/// Its first run says something and fails, the others answer with their view.
fn failing(runs: &Runs, say: Say) -> Handler {
    let runs = runs.clone();
    BoxCloneSyncService::new(service_fn(move |request: Inbound| {
        let run = runs.begin();
        async move {
            if run > 1 {
                return Ok(response(200, view(&request)));
            }
            say(request.extensions().get().unwrap());
            Err(BoxError::from("as the test says"))
        }
    }))
}

/// Each run waits at a gate of its own, and answers with its view.
fn gated_each(runs: &Runs, gates: &[Gate; 2]) -> Handler {
    let gates = gates.clone();
    handler(runs, move |run, request| {
        let gate = gates[run - 1].clone();
        async move {
            gate.pass().await;
            created(view(&request))
        }
    })
}
