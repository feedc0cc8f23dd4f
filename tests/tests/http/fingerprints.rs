//! What a route compares of a repeat, as its client sees it.

use http::Request;
use idem_layer::guard::EventKind;
use idem_layer::middleware::{FingerprintRules, LayerError, fingerprint};
use idem_tests::http::{Answer, Content, Server, whole};
use tower::Layer;

use crate::rig::{Rig, Runs, assert_first, assert_problem, assert_replay, counted, run};

/// A service with these rules, and how often its handler has run.
async fn serve(rules: FingerprintRules) -> (Rig, Server, Runs) {
    let (rig, runs) = (Rig::at_least_once(), Runs::default());
    let layer = rig.layer().fingerprint(rules).build().unwrap();
    let server = Server::start(layer.layer(counted(&runs))).await;
    (rig, server, runs)
}

fn order(fields: &[(&str, &str)], body: &'static str) -> Request<Content> {
    let request = Request::post("/orders").header("idempotency-key", "k").header("content-type", "application/json");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(whole(body)).unwrap()
}

async fn send(server: &Server, body: &'static str) -> Answer {
    server.answer(order(&[], body)).await
}

/// The order of events: an order, its repeat with what may differ changed, a different order under its key, its repeat again.
/// A refusal leaves the stored answer as it was.
#[test]
fn a_member_that_is_left_out_may_change_and_no_other_may() {
    run(async {
        let (rig, server, runs) = serve(fingerprint::enforced().without(["/sent_at", "/client/attempt"])).await;
        let first = send(&server, r#"{"total":5,"client":{"id":1,"attempt":1},"sent_at":"9:00"}"#).await;
        assert_first(&first, 201, "run 1");
        for repeat in [
            r#"{"total":5,"client":{"id":1,"attempt":2},"sent_at":"9:05"}"#,
            r#"{"sent_at":null, "client":{"id":1}, "total":5}"#,
            r#"{"client":{"id":1},"total":5}"#,
        ] {
            assert_replay(&send(&server, repeat).await, 201, "run 1");
        }
        for other in [
            r#"{"total":6,"client":{"id":1,"attempt":1},"sent_at":"9:00"}"#,
            r#"{"total":5,"client":{"id":2,"attempt":1},"sent_at":"9:00"}"#,
            r#"{"total":5,"client":{"id":1,"attempt":1},"sent_at":"9:00","gift":true}"#,
            // What says two things is compared whole.
            r#"{"total":5,"client":{"id":1},"sent_at":"9:00","sent_at":"9:05"}"#,
            "total=5",
        ] {
            assert_problem(&send(&server, other).await, 422, "mismatch");
        }
        assert_replay(&send(&server, r#"{"client":{"id":1},"total":5}"#).await, 201, "run 1");
        assert_eq!((runs.count(), rig.events.count(EventKind::Mismatch)), (1, 5));
    });
}

#[test]
fn where_members_are_chosen_all_others_may_change() {
    run(async {
        let (_rig, server, runs) = serve(fingerprint::enforced().only(["/order_no", "/lines/0/id"])).await;
        assert_first(&send(&server, r#"{"order_no":7,"lines":[{"id":1}],"note":"a"}"#).await, 201, "run 1");
        assert_replay(&send(&server, r#"{"lines":[{"n":2,"id":1},3],"order_no":7}"#).await, 201, "run 1");
        for other in [
            r#"{"order_no":8,"lines":[{"id":1}],"note":"a"}"#,
            r#"{"order_no":7,"lines":[{"id":2}],"note":"a"}"#,
            r#"{"order_no":7,"lines":[{"id":null}],"note":"a"}"#,
            r#"{"order_no":7,"lines":[],"note":"a"}"#,
            r#"{"order_no":7.0,"lines":[{"id":1}],"note":"a"}"#,
        ] {
            assert_problem(&send(&server, other).await, 422, "mismatch");
        }
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn a_header_field_that_counts_may_not_change() {
    run(async {
        let (_rig, server, runs) = serve(fingerprint::enforced().header("X-Api-Version")).await;
        let send = async |fields: &[(&str, &str)]| server.answer(order(fields, r#"{"total":5}"#)).await;
        assert_first(&send(&[("x-api-version", "2"), ("x-trace", "a")]).await, 201, "run 1");
        assert_replay(&send(&[("x-trace", "b"), ("x-api-version", "2")]).await, 201, "run 1");
        for other in [&[("x-api-version", "3")][..], &[("x-api-version", "")], &[], &[("x-api-version", "2"); 2]] {
            assert_problem(&send(other).await, 422, "mismatch");
        }
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn raw_bodies_may_not_change_by_a_byte() {
    run(async {
        let (_rig, server, runs) = serve(fingerprint::enforced().raw()).await;
        assert_first(&send(&server, r#"{"a":1,"b":2}"#).await, 201, "run 1");
        assert_replay(&send(&server, r#"{"a":1,"b":2}"#).await, 201, "run 1");
        assert_problem(&send(&server, r#"{"b":2,"a":1}"#).await, 422, "mismatch");
        assert_problem(&send(&server, r#"{"a":1, "b":2}"#).await, 422, "mismatch");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn a_difference_that_is_observed_is_an_event_and_the_repeat_a_replay() {
    run(async {
        let (rig, server, runs) = serve(fingerprint::observed().without(["/sent_at"])).await;
        assert_first(&send(&server, r#"{"total":5,"sent_at":1}"#).await, 201, "run 1");
        assert_replay(&send(&server, r#"{"total":5,"sent_at":2}"#).await, 201, "run 1");
        assert_eq!(rig.events.count(EventKind::Differs), 0);
        assert_replay(&send(&server, r#"{"total":6,"sent_at":1}"#).await, 201, "run 1");
        assert_eq!((rig.events.count(EventKind::Differs), rig.events.count(EventKind::Mismatch)), (1, 0));
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn without_a_fingerprint_the_key_alone_decides() {
    run(async {
        let (rig, server, runs) = serve(fingerprint::off()).await;
        assert_first(&send(&server, r#"{"total":5}"#).await, 201, "run 1");
        assert_replay(&send(&server, "another body").await, 201, "run 1");
        let query = Request::post("/orders?x=1").header("idempotency-key", "k").body(whole("")).unwrap();
        assert_replay(&server.answer(query).await, 201, "run 1");
        assert_eq!((rig.events.count(EventKind::Differs), runs.count()), (0, 1));
    });
}

#[test]
fn a_layer_with_rules_that_do_not_fit_is_not_built() {
    let rig = Rig::at_least_once();
    let build = |rules| rig.layer().fingerprint(rules).build().map(drop);
    let two = build(fingerprint::enforced().only(["/a"]).without(["/b"]));
    assert_eq!(two, Err(LayerError::TwoSelections));
    assert_eq!(build(fingerprint::enforced().without(["sent_at"])), Err(LayerError::Pointer("sent_at".into())));
    assert_eq!(build(fingerprint::enforced().without(["/sent_at"])), Ok(()));
}
