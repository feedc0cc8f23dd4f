//! One key, many arrivals.

use axum::Router;
use axum::routing::post as on_post;
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Idempotency, key, scope};
use idem_tests::gate::Gate;
use idem_tests::http::{Client, Server, read, whole};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, ServiceBuilder};

use crate::rig::*;

#[test]
fn fifty_copies_are_one_run_and_the_others_get_its_answer_or_are_told_to_wait() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let handler = handler(&runs, {
            let gate = gate.clone();
            move |_, _| {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    created("paid")
                }
            }
        });
        let server = std::sync::Arc::new(rig.serve(handler).await);

        let copies: Vec<_> = (0..50)
            .map(|_| {
                let server = server.clone();
                tokio::spawn(async move { server.answer(post("k", "5 euros")).await })
            })
            .collect();
        gate.reached().await;
        // Some are told while the first runs, the others meet its end.
        rig.events.until(EventKind::InProgress, 10).await;
        gate.open();

        let (mut firsts, mut told) = (0, 0);
        for copy in copies {
            let answer = copy.await.unwrap();
            match (answer.status.as_u16(), answer.is_replay()) {
                (201, replay) => {
                    assert_eq!(answer.text(), "paid");
                    firsts += usize::from(!replay);
                }
                _ => {
                    assert_in_progress(&answer);
                    told += 1;
                }
            }
        }
        assert_eq!((runs.count(), firsts), (1, 1));
        assert!(told >= 10);
        assert_replay(&server.answer(post("k", "5 euros")).await, 201, "paid");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn a_repeat_does_not_queue_behind_the_run_that_it_repeats() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let handler = gated(&runs, &gate);
        let stack = ServiceBuilder::new().layer(rig.layer().build().unwrap()).layer(ConcurrencyLimitLayer::new(1));
        let server = Server::start(stack.service(handler)).await;

        let mut first = Client::http1(&server).await;
        let (first, ()) = tokio::join!(first.send(post("k", "x")), async {
            gate.reached().await;
            for _ in 0..3 {
                assert_in_progress(&server.answer(post("k", "x")).await);
            }
            gate.open();
        });
        assert_first(&read(first.unwrap()).await.unwrap(), 201, "run 1");
        assert_replay(&server.answer(post("k", "x")).await, 201, "run 1");
    });
}

#[test]
fn another_body_is_a_mismatch_while_the_first_runs_and_when_it_is_done() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let server = rig.serve(gated(&runs, &gate)).await;

        let (first, ()) = tokio::join!(server.send(post("k", "5 euros")), async {
            gate.reached().await;
            assert_problem(&server.answer(post("k", "6 euros")).await, 422, "mismatch");
            gate.open();
        });
        assert_first(&first.unwrap(), 201, "run 1");
        let other = server.answer(post("k", "6 euros")).await;
        assert_problem(&other, 422, "mismatch");
        assert_eq!(other.retry_after_s(), None);
        assert_replay(&server.answer(post("k", "5 euros")).await, 201, "run 1");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn another_query_or_method_is_not_the_same_request() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;

        assert_first(&server.answer(post_to("/things?a=1", "k", "x")).await, 201, "run 1");
        assert_problem(&server.answer(post_to("/things?a=2", "k", "x")).await, 422, "mismatch");
        let mut put = post_to("/things?a=1", "k", "x");
        *put.method_mut() = http::Method::PUT;
        assert_first(&server.answer(put).await, 201, "run 2");
    });
}

#[test]
fn callers_with_the_same_key_never_meet() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let layer = rig.builder().scope(scope::header("x-tenant")).build().unwrap();
        let server = Server::start(layer.layer(gated(&runs, &gate))).await;
        let of = |tenant: &str| {
            let mut request = post("k", "x");
            request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
            request
        };

        // Neither while one runs nor afterwards.
        let (a, b) = tokio::join!(server.send(of("a")), async {
            gate.reached().await;
            let (b, ()) = tokio::join!(server.send(of("b")), async {
                gate.reached().await;
                gate.open();
            });
            b
        });
        assert_first(&a.unwrap(), 201, "run 1");
        assert_first(&b.unwrap(), 201, "run 2");
        assert_replay(&server.answer(of("b")).await, 201, "run 2");
        assert_replay(&server.answer(of("a")).await, 201, "run 1");
        assert_problem(&server.answer(post("k", "x")).await, 400, "scope-missing");
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn routes_have_records_of_their_own() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        assert_first(&server.answer(post_to("/a", "k", "x")).await, 201, "run 1");
        assert_first(&server.answer(post_to("/b", "k", "y")).await, 201, "run 2");
        assert_replay(&server.answer(post_to("/a", "k", "x")).await, 201, "run 1");
        assert_replay(&server.answer(post_to("/b", "k", "y")).await, 201, "run 2");
    });
}

#[test]
fn nested_routers_with_the_same_inner_path_have_records_of_their_own() {
    run(async {
        let items = |whose: &'static str, runs: &Runs| {
            let runs = runs.clone();
            Router::new().route("/items", on_post(move || async move { format!("{whose} {}", runs.begin()) }))
        };
        for inside in [true, false] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer = rig.layer().build().unwrap();
            let app = match inside {
                true => Router::new()
                    .nest("/a", items("a", &runs).layer(layer.clone()))
                    .nest("/b", items("b", &runs).layer(layer)),
                false => Router::new().nest("/a", items("a", &runs)).nest("/b", items("b", &runs)).layer(layer),
            };
            let server = Server::axum(app).await;
            assert_first(&server.answer(post_to("/a/items", "k", "x")).await, 200, "a 1");
            assert_first(&server.answer(post_to("/b/items", "k", "x")).await, 200, "b 2");
            assert_replay(&server.answer(post_to("/a/items", "k", "x")).await, 200, "a 1");
            assert_replay(&server.answer(post_to("/b/items", "k", "x")).await, 200, "b 2");
        }
    });
}

#[test]
fn a_layer_inside_a_nest_and_one_around_it_name_the_same_record() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().build().unwrap();
        let items = {
            let runs = runs.clone();
            Router::new().route("/items", on_post(move || async move { format!("run {}", runs.begin()) }))
        };
        let inside = Server::axum(Router::new().nest("/a", items.clone().layer(layer.clone()))).await;
        let around = Server::start(layer.layer(Router::new().nest("/a", items))).await;
        assert_first(&inside.answer(post_to("/a/items", "k", "x")).await, 200, "run 1");
        assert_replay(&around.answer(post_to("/a/items", "k", "x")).await, 200, "run 1");
    });
}

#[test]
fn the_layer_twice_on_one_stack_does_not_refuse_itself() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().build().unwrap();
        let begun = runs.clone();
        let app = Router::new()
            .route(
                "/things",
                on_post(move |_: Idempotency, body: String| async move { format!("{body} {}", begun.begin()) }),
            )
            .layer(layer.clone())
            .layer(layer);
        let server = Server::axum(app).await;
        assert_first(&server.answer(post("k", "x")).await, 200, "x 1");
        assert_replay(&server.answer(post("k", "x")).await, 200, "x 1");
        assert_eq!((runs.count(), rig.events.count(EventKind::Claimed { attempt: 1 })), (1, 1));
    });
}

#[test]
fn routes_of_one_application_find_their_keys_in_different_places() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let answer = || {
            let runs = runs.clone();
            on_post(move || async move { format!("run {}", runs.begin()) })
        };
        let header = rig.layer().build().unwrap();
        let json = rig.layer().key(key::json("/request_id")).key_required().build().unwrap();
        let both = key::all_of([key::json("/order_no"), key::json("/event_type")]);
        let webhook = rig.layer().key(both).build().unwrap();
        let app = Router::new()
            .route("/payments", answer().layer(header))
            .route("/orders", answer().layer(json))
            .route("/callbacks", answer().layer(webhook))
            .route("/free", answer());
        let server = Server::axum(app).await;
        let send = async |path: &str, body: &'static str| {
            let request = http::Request::post(path).body(whole(body)).unwrap();
            server.answer(request).await
        };

        assert_first(&server.answer(post_to("/payments", "k", "x")).await, 200, "run 1");
        assert_replay(&server.answer(post_to("/payments", "k", "x")).await, 200, "run 1");
        assert_first(&send("/orders", r#"{"request_id":"k"}"#).await, 200, "run 2");
        assert_replay(&send("/orders", r#"{"request_id":"k"}"#).await, 200, "run 2");
        assert_problem(&send("/orders", "{}").await, 400, "key-missing");
        assert_first(&send("/callbacks", r#"{"order_no":1,"event_type":"paid"}"#).await, 200, "run 3");
        assert_first(&send("/callbacks", r#"{"order_no":1,"event_type":"refunded"}"#).await, 200, "run 4");
        assert_replay(&send("/callbacks", r#"{"order_no":1,"event_type":"paid"}"#).await, 200, "run 3");
        assert_first(&send("/callbacks", r#"{"order_no":1}"#).await, 200, "run 5");
        assert_first(&server.answer(post_to("/free", "k", "x")).await, 200, "run 6");
        assert_first(&server.answer(post_to("/free", "k", "x")).await, 200, "run 7");
    });
}
