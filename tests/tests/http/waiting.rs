//! Repeats that wait for the first.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use idem_layer::guard::{Admission, EventKind, Repeat, Settled};
use idem_layer::protocol::{Identity, Key, Operation, PolicyBuilder, Scope};
use idem_layer::testing::{Fault, Verb};
use idem_tests::gate::Gate;
use idem_tests::http::{Answer, Client, Server, read, streamed};
use tokio::task::JoinHandle;
use tower::Layer;

use crate::rig::*;

/// A rig whose repeats wait, and whose store cannot be looked into: what wakes them is the end of the run itself.
fn patient(guarantee: Guarantee) -> Rig {
    let rig = waiting(guarantee, |policy| policy.wait(Duration::from_secs(60)));
    rig.faults.always(Verb::Read, Fault::Hang);
    rig
}

fn waiting(guarantee: Guarantee, wait: impl Fn(PolicyBuilder) -> PolicyBuilder) -> Rig {
    let rig = Rig::new(guarantee);
    let policy = wait(policy().to_builder()).build().unwrap();
    Rig { guard: rig.guard.with_policy(policy), ..rig }
}

/// So many copies of one request.
fn copies(server: &Arc<Server>, copies: usize) -> Vec<JoinHandle<Answer>> {
    (0..copies)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { server.answer(post("k", "5 euros")).await })
        })
        .collect()
}

async fn answers(copies: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for copy in copies {
        answers.push(copy.await.unwrap());
    }
    answers
}

#[test]
fn fifty_copies_are_one_run_and_forty_nine_replays() {
    run(async {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let (rig, runs, gate) = (patient(guarantee), Runs::default(), Gate::new());
            let server = Arc::new(rig.serve(gated(&runs, &gate)).await);
            let copies = copies(&server, 50);
            rig.events.until(EventKind::Waiting, 49).await;
            gate.open();

            let (replays, firsts): (Vec<_>, Vec<_>) = answers(copies).await.into_iter().partition(Answer::is_replay);
            assert_eq!((firsts.len(), replays.len(), runs.count()), (1, 49, 1));
            assert_first(&firsts[0], 201, "run 1");
            replays.iter().for_each(|replay| assert_replay(replay, 201, "run 1"));
            assert_eq!(rig.events.count(EventKind::InProgress), 0);
        }
    });
}

#[test]
fn when_the_first_took_no_effect_one_of_those_who_wait_runs_and_the_others_get_its_answer() {
    run(async {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let (rig, runs, gate) = (patient(guarantee), Runs::default(), Gate::new());
            let handler = once_at(&runs, &gate, response(400, "no such account"));
            let server = Arc::new(rig.serve(handler).await);
            let copies = copies(&server, 10);
            rig.events.until(EventKind::Waiting, 9).await;
            gate.open();

            let (refused, others): (Vec<_>, Vec<_>) =
                answers(copies).await.into_iter().partition(|answer| answer.status == 400);
            let (replays, firsts): (Vec<_>, Vec<_>) = others.into_iter().partition(Answer::is_replay);
            assert_eq!((refused.len(), firsts.len(), replays.len()), (1, 1, 8));
            assert_free(&firsts[0]);
            replays.iter().for_each(|replay| assert_replay(replay, 200, "attempt 1, earlier unknown: false"));
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn another_body_is_a_mismatch_at_once_while_others_wait() {
    run(async {
        let (rig, runs, gate) = (patient(Guarantee::AtLeastOnce), Runs::default(), Gate::new());
        let server = Arc::new(rig.serve(gated(&runs, &gate)).await);
        let copies = copies(&server, 2);
        rig.events.until(EventKind::Waiting, 1).await;
        assert_problem(&server.answer(post("k", "6 euros")).await, 422, "mismatch");
        gate.open();
        assert_eq!(answers(copies).await.iter().filter(|answer| answer.is_replay()).count(), 1);
    });
}

#[test]
fn one_more_than_may_wait_is_told_at_once_and_so_is_one_whose_wait_is_over() {
    run(async {
        let wait = |policy: PolicyBuilder| policy.wait(Duration::from_secs(60)).waiters(1);
        let (rig, runs, gate) = (waiting(Guarantee::AtLeastOnce, wait), Runs::default(), Gate::new());
        let server = Arc::new(rig.serve(gated(&runs, &gate)).await);
        let copies = copies(&server, 2);
        rig.events.until(EventKind::Waiting, 1).await;
        assert_in_progress(&server.answer(post("k", "5 euros")).await);
        gate.open();
        answers(copies).await;

        let wait = |policy: PolicyBuilder| policy.wait(Duration::from_millis(1));
        let (rig, runs, gate) = (waiting(Guarantee::AtLeastOnce, wait), Runs::default(), Gate::new());
        let server = rig.serve(gated(&runs, &gate)).await;
        let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
            gate.reached().await;
            assert_in_progress(&server.answer(post("k", "x")).await);
            assert_eq!(rig.events.count(EventKind::Waiting), 1);
            gate.open();
        });
        assert_first(&first, 201, "run 1");
    });
}

#[test]
fn a_client_who_leaves_while_it_waits_leaves_nothing() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs, gate) = (patient(Guarantee::AtMostOnce), Runs::default(), Gate::new());
            let handler = once_at(&runs, &gate, response(400, "no such account"));
            let server = rig.serve(handler).await;
            let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
                gate.reached().await;
                let client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                leave(client, &server, post("k", "x"), rig.events.until(EventKind::Waiting, 1)).await;
                gate.open();
            });
            assert_first(&first, 400, "no such account");
            // Had it gone on waiting, it would have claimed by now, or do so before the guard has nothing open.
            assert_eq!(rig.guard.drain(Duration::from_secs(60)).await.open, 0);
            assert_eq!(rig.events.count(EventKind::Claimed { attempt: 1 }), 1);
            assert_free(&server.answer(post("k", "x")).await);
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn a_streamed_answer_is_waited_for_until_it_is_stored() {
    run(async {
        let (rig, runs) = (patient(Guarantee::AtLeastOnce), Runs::default());
        let (writer, body) = streamed();
        let server =
            Arc::new(Server::start(rig.layer().build().unwrap().layer(once(&runs, Response::new(body)))).await);
        let mut client = Client::http1(&*server).await;
        let first = client.send(post("k", "5 euros")).await.unwrap();
        let copies = copies(&server, 1);
        rig.events.until(EventKind::Waiting, 1).await;
        writer.data("one,");
        writer.data("two");
        drop(writer);
        assert_first(&read(first).await.unwrap(), 200, "one,two");
        assert_replay(&answers(copies).await[0], 200, "one,two");
        assert_eq!(runs.count(), 1);
    });
}

/// With a store that cannot be looked into, whoever misses the end of a run waits for a minute, and the test with it.
#[test]
fn no_end_of_a_run_is_missed() {
    run(async {
        let rig = patient(Guarantee::AtLeastOnce);
        for round in 0..500 {
            let identity = Identity::new(
                Operation::new("test.run").unwrap(),
                None,
                Scope::unscoped(),
                Key::new(format!("k-{round}")).unwrap(),
            );
            let copies: Vec<_> = (0..8)
                .map(|n| {
                    let (guard, identity) = (rig.guard.clone(), identity.clone());
                    tokio::spawn(async move {
                        match guard.claim(identity).await.unwrap() {
                            Admission::Claimed(claim) if n % 2 == 0 => {
                                assert_eq!(claim.release().await, Settled::Stored)
                            }
                            Admission::Claimed(claim) => assert_eq!(claim.complete(&n).await, Settled::Stored),
                            Admission::Repeat(Repeat::Replay(_)) => {}
                            Admission::Repeat(repeat) => panic!("{repeat:?}"),
                        }
                    })
                })
                .collect();
            for copy in copies {
                copy.await.unwrap();
            }
        }
        assert_eq!(rig.guard.drain(Duration::ZERO).await.open, 0);
    });
}
