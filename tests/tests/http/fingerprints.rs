//! What of a request may not change under one key.

use http::Request;
use idem_layer::guard::EventKind;
use idem_layer::middleware::{FingerprintRules, LayerError, fingerprint};
use idem_tests::http::{Content, Server};
use tower::Layer;

use crate::rig::*;

async fn serve(rig: &Rig, runs: &Runs, rules: FingerprintRules) -> Server {
    Server::start(rig.layer().fingerprint(rules).build().unwrap().layer(counted(runs))).await
}

fn json(body: &'static str) -> Request<Content> {
    let mut request = post("k", body);
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request
}

#[test]
fn a_member_that_is_left_out_may_change_and_no_other() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = serve(&rig, &runs, fingerprint::enforced().without(["/sent_at"])).await;
        assert_first(&server.answer(json(r#"{"id":1,"sent_at":1}"#)).await, 201, "run 1");
        for same in [r#"{"sent_at":2,"id":1}"#, r#"{"id":1}"#] {
            assert_replay(&server.answer(json(same)).await, 201, "run 1");
        }
        for other in [r#"{"id":2,"sent_at":1}"#, r#"{"id":1,"sent_at":1,"more":1}"#, r#"{"id":1,"sent_at":1"#] {
            assert_problem(&server.answer(json(other)).await, 422, "mismatch");
        }
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn only_the_chosen_members_and_header_fields_are_compared() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = serve(&rig, &runs, fingerprint::enforced().only(["/amount"]).header("x-version")).await;
        let versioned = |body, version: &'static str| {
            let mut request = json(body);
            request.headers_mut().insert("x-version", version.parse().unwrap());
            request
        };
        assert_first(&server.answer(versioned(r#"{"amount":1,"note":"a"}"#, "1")).await, 201, "run 1");
        assert_replay(&server.answer(versioned(r#"{"note":"b","amount":1}"#, "1")).await, 201, "run 1");
        for other in [versioned(r#"{"amount":2}"#, "1"), versioned(r#"{"amount":1}"#, "2"), json(r#"{"amount":1}"#)] {
            assert_problem(&server.answer(other).await, 422, "mismatch");
        }
    });
}

#[test]
fn a_difference_is_told_where_it_is_observed_and_nothing_where_it_is_off() {
    run(async {
        for (rules, told) in [(fingerprint::observed(), 1), (fingerprint::off(), 0)] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = serve(&rig, &runs, rules).await;
            assert_first(&server.answer(json("1")).await, 201, "run 1");
            assert_replay(&server.answer(json("2")).await, 201, "run 1");
            assert_eq!(rig.events.count(EventKind::Differs), told);
        }
    });
}

#[test]
fn rules_that_mean_nothing_are_mistakes_of_the_layer() {
    let rig = Rig::at_least_once();
    let mistake = rig.layer().fingerprint(fingerprint::enforced().only(["amount"])).build().err();
    assert_eq!(mistake, Some(LayerError::Pointer("amount".into())));
}
