//! What a route decides: methods, missing keys, targets, statuses, presets.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Idempotency, LayerError, RejectionKind, fingerprint, key};
use idem_layer::testing::Verb;
use idem_tests::gate::Gate;
use idem_tests::http::{Content, Server, whole};
use tower::Layer;

use crate::rig::*;

fn request(method: &Method, path: &str, key: &str, body: &'static str) -> Request<Content> {
    Request::builder().method(method).uri(path).header("idempotency-key", key).body(whole(body)).unwrap()
}

fn keyless(body: &'static str) -> Request<Content> {
    Request::post("/things").body(whole(body)).unwrap()
}

#[test]
fn a_route_says_which_methods_it_guards() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let purge = Method::from_bytes(b"PURGE").unwrap();
        let layer = rig.layer().methods([Method::POST, purge.clone()]).key_required().build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        for method in [Method::POST, purge] {
            let first = server.answer(request(&method, "/x", "k", "")).await;
            assert!(!first.is_replay() && server.answer(request(&method, "/x", "k", "")).await.is_replay(), "{method}");
        }
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::GET, Method::OPTIONS] {
            for _ in 0..2 {
                assert!(!server.answer(request(&method, "/x", "k", "")).await.is_replay(), "{method}");
            }
            let without = Request::builder().method(&method).uri("/x").body(whole("")).unwrap();
            assert_eq!(server.answer(without).await.status, 201, "{method}");
        }
        assert_eq!(runs.count(), 2 + 5 * 3);

        let mistake = |methods: &[Method]| rig.layer().methods(methods.iter().cloned()).build().err();
        assert_eq!(mistake(&[]), Some(LayerError::NoMethod));
        assert_eq!(mistake(&[Method::POST, Method::GET]), Some(LayerError::SafeMethod(Method::GET)));
    });
}

#[test]
fn a_request_without_a_key_is_given_one_that_handler_and_client_see() {
    run(async {
        for (source, name) in [
            (key::header("idempotency-key"), "idempotency-key"),
            (key::first_of([key::json("/id"), key::header("x-request-key")]), "x-request-key"),
            (key::json("/id"), "idempotency-key"),
        ] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer = rig.layer().key(source).key_generated().build().unwrap();
            let handler = handler(&runs, move |_, request| async move {
                let run = request.extensions().get::<Idempotency>().unwrap();
                let field = request.headers()[name].to_str().unwrap();
                assert_eq!(field, format!("\"{}\"", run.key().text()));
                created(field.to_owned())
            });
            let server = Server::start(layer.layer(handler)).await;
            let (first, second) = (server.answer(keyless("{}")).await, server.answer(keyless("{}")).await);
            assert_eq!((first.status.as_u16(), first.header(name)), (201, first.text()));
            assert_eq!(first.text().len(), 34);
            assert_ne!(first.text(), second.text(), "each is another operation");
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn an_answer_can_be_asked_for_again_with_the_key_that_came_with_it() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = Server::start(rig.layer().key_generated().build().unwrap().layer(counted(&runs))).await;
        let first = server.answer(keyless("x")).await;
        let given = first.header("idempotency-key").to_owned();
        for key in [given.as_str(), given.trim_matches('"')] {
            let again = server.answer(post(key, "x")).await;
            // The path of `post` is the one of `keyless`.
            assert_replay(&again, 201, "run 1");
            assert_eq!(again.header("idempotency-key"), given);
        }
        assert_problem(&server.answer(post(&given, "y")).await, 422, "mismatch");
        // A malformed key is not a missing one.
        assert_problem(&server.answer(post("", "x")).await, 400, "key-malformed");
        assert_eq!(runs.count(), 1);
    });
}

/// The client was given a key in a field that its route did not read, or would not take: asking again ran it again.
#[test]
fn an_answer_can_be_asked_for_again_wherever_the_route_looks_for_keys() {
    run(async {
        for (source, name) in [
            (key::query("id"), "idempotency-key"),
            (key::json("/id"), "idempotency-key"),
            (key::from_fn(|_, _| Ok(None)), "idempotency-key"),
            (key::all_of([key::header("x-part"), key::json("/id")]), "idempotency-key"),
            (key::first_of([key::all_of([key::header("x-a"), key::json("/id")]), key::header("x-b")]), "x-b"),
            (key::first_of([key::header("x-b").length(32..=32), key::header("x-c").uuid()]).length(16..), "x-b"),
        ] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer = rig.layer().key(source).key_generated().build().unwrap();
            let server = Server::start(layer.layer(counted(&runs))).await;
            let first = server.answer(keyless("{}")).await;
            let mut again = keyless("{}");
            again.headers_mut().insert(name, first.headers[name].clone());
            assert_replay(&server.answer(again).await, 201, "run 1");
        }
        let rig = Rig::at_least_once();
        for refusing in [
            key::header("idempotency-key").uuid(),
            key::header("idempotency-key").length(..=16),
            key::header("idempotency-key").chars("digits", |c| c.is_ascii_digit()),
            key::first_of([key::json("/id"), key::header("x-b")]).uuid(),
            key::all_of([key::header("idempotency-key"), key::json("/id")]),
        ] {
            let mistake = rig.layer().key(refusing.clone()).key_generated().build().err();
            assert_eq!(mistake, Some(LayerError::GeneratedKey), "{refusing:?}");
            assert!(rig.layer().key(refusing).key_required().build().is_ok());
        }
    });
}

#[test]
fn equal_orders_of_callers_without_a_key_are_one_until_they_say_otherwise() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let digest = key::all_of([key::digest(["/sku", "/quantity"]), key::optional(key::header("x-factor"))]);
        let layer = rig
            .layer()
            .key(key::first_of([key::header("idempotency-key"), digest]))
            .fingerprint(fingerprint::enforced().without(["/sent_at"]))
            .build()
            .unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        let order = |factor: Option<&str>, body: &'static str| {
            let request = Request::post("/orders").header("content-type", "application/json");
            let request = factor.into_iter().fold(request, |request, factor| request.header("x-factor", factor));
            request.body(whole(body)).unwrap()
        };
        let (sent, resent) = (r#"{"sku":"a","quantity":1,"sent_at":1}"#, r#"{"sent_at":2,"quantity":1,"sku":"a"}"#);
        assert_first(&server.answer(order(None, sent)).await, 201, "run 1");
        assert_replay(&server.answer(order(None, resent)).await, 201, "run 1");
        assert_first(&server.answer(order(Some("again"), resent)).await, 201, "run 2");
        assert_replay(&server.answer(order(Some("again"), sent)).await, 201, "run 2");
        assert_first(&server.answer(order(None, r#"{"sku":"a","quantity":2}"#)).await, 201, "run 3");
        // Without one of the members there is no key, and nothing to tell repeats by.
        for run in ["run 4", "run 5"] {
            assert_first(&server.answer(order(None, r#"{"sku":"a"}"#)).await, 201, run);
        }
    });
}

#[test]
fn without_its_target_an_identity_takes_another_path_for_a_mismatch() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = Server::start(rig.layer().without_target().build().unwrap().layer(counted(&runs))).await;
        assert_first(&server.answer(request(&Method::POST, "/a", "k", "x")).await, 201, "run 1");
        assert_replay(&server.answer(request(&Method::POST, "/a", "k", "x")).await, 201, "run 1");
        assert_problem(&server.answer(request(&Method::POST, "/b", "k", "x")).await, 422, "mismatch");
        assert_problem(&server.answer(request(&Method::PUT, "/a", "k", "x")).await, 422, "mismatch");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn every_refusal_links_to_the_documentation_of_its_route() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().key_required().documentation("https://example.org/keys").build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        server.answer(post("k", "x")).await;
        for (refused, status) in [(keyless(""), 400), (post("", "x"), 400), (post("k", "y"), 422)] {
            let answer = server.answer(refused).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("link"), "<https://example.org/keys>; rel=\"describedby\"");
            assert!(answer.text().contains(r#""documentation":"https://example.org/keys""#), "{answer:?}");
        }
        let mistake = rig.layer().documentation("docs/keys.md").build().err();
        assert_eq!(mistake, Some(LayerError::Documentation("docs/keys.md".into())));
        let corrected = rig.layer().documentation("docs/keys.md").documentation("https://example.org/keys");
        assert!(corrected.build().is_ok(), "what is said last counts");
    });
}

#[test]
fn a_route_chooses_its_statuses_and_how_soon_clients_come_back() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let gate = Gate::new();
        let layer = rig
            .layer()
            .status(RejectionKind::InProgress, StatusCode::TOO_EARLY)
            .status(RejectionKind::Mismatch, StatusCode::CONFLICT)
            .retry_after(Duration::from_millis(4_500))
            .build()
            .unwrap();
        let server = Server::start(layer.layer(gated(&runs, &gate))).await;
        let first = async { server.answer(post("k", "x")).await };
        let others = async {
            gate.reached().await;
            let busy = server.answer(post("k", "x")).await;
            assert_problem(&busy, 425, "in-progress");
            assert_eq!(busy.retry_after_s(), Some(5));
            assert_problem(&server.answer(post("k", "y")).await, 409, "mismatch");
            gate.open();
        };
        let (first, ()) = tokio::join!(first, others);
        assert_first(&first, 201, "run 1");

        for status in
            [StatusCode::CONTINUE, StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED]
        {
            let mistake = rig.layer().status(RejectionKind::Gone, status).build().err();
            assert_eq!(mistake, Some(LayerError::RejectionStatus(status)));
        }
    });
}

#[test]
fn the_preset_for_webhooks_refuses_no_difference_and_asks_senders_to_come_back() {
    run(async {
        let (rig, runs) = (Rig::at_most_once(), Runs::default());
        let gate = Gate::new();
        let layer = rig.layer().webhook().key(key::json("/id")).build().unwrap();
        let handler = {
            let gate = gate.clone();
            handler(&runs, move |run, _| {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    // The second run's outcome is unknown.
                    response(if run == 1 { 200 } else { 500 }, "ok")
                }
            })
        };
        let server = Server::start(layer.layer(handler)).await;
        let hook = |body: &'static str| Request::post("/hook").body(whole(body)).unwrap();
        let first = async { server.answer(hook(r#"{"id":1,"sent_at":1}"#)).await };
        let others = async {
            gate.reached().await;
            let busy = server.answer(hook(r#"{"id":1,"sent_at":1}"#)).await;
            assert_problem(&busy, 503, "in-progress");
            assert_eq!(busy.retry_after_s(), Some(1));
            gate.open();
        };
        assert_first(&tokio::join!(first, others).0, 200, "ok");
        assert_replay(&server.answer(hook(r#"{"id":1,"sent_at":2}"#)).await, 200, "ok");
        assert_eq!(rig.events.count(EventKind::Differs), 1);

        server.answer(hook(r#"{"id":2}"#)).await;
        assert_problem(&server.answer(hook(r#"{"id":2}"#)).await, 503, "outcome-unknown");
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn what_is_said_after_a_preset_counts_more() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().stripe().status(RejectionKind::Mismatch, StatusCode::IM_A_TEAPOT).key_required();
        let server = Server::start(layer.build().unwrap().layer(counted(&runs))).await;
        server.answer(post("k", "x")).await;
        assert_problem(&server.answer(post("k", "y")).await, 418, "mismatch");
        assert_problem(&server.answer(keyless("x")).await, 400, "key-missing");
    });
}

#[test]
fn a_generated_key_is_not_stored_when_nothing_else_is() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().key_generated().build().unwrap();
        let refusing = handler(&runs, |_, _| async { response(422, "no") });
        let server = Server::start(layer.layer(refusing)).await;
        let answer = server.answer(keyless("x")).await;
        assert_eq!(answer.status, 422);
        assert!(!answer.header("idempotency-key").is_empty());
        assert_eq!((runs.count(), rig.events.count(EventKind::Released), rig.faults.calls(Verb::Settle)), (1, 1, 1));
    });
}

#[test]
fn a_late_retry_is_told_that_its_answer_is_gone_for_as_long_as_its_key_is_remembered() {
    run(async {
        let (retention, remember) = (Duration::from_secs(3_600), Duration::from_secs(7_200));
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let policy = rig.guard.policy().to_builder().retention(retention).remember(remember).build().unwrap();
            let server = Server::start(rig.layer().policy(policy).build().unwrap().layer(counted(&runs))).await;
            assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
            rig.clock.advance(retention - Duration::from_millis(1));
            assert_replay(&server.answer(post("k", "x")).await, 201, "run 1");
            rig.clock.advance(Duration::from_millis(1));
            let gone = server.answer(post("k", "x")).await;
            assert_problem(&gone, 410, "gone");
            assert_eq!(gone.retry_after_s(), None);
            assert_problem(&server.answer(post("k", "y")).await, 422, "mismatch");
            assert_eq!((runs.count(), rig.events.count(EventKind::Gone)), (1, 1));

            // Then it is a new key.
            rig.clock.advance(remember);
            assert_first(&server.answer(post("k", "y")).await, 201, "run 2");
        }
    });
}
