//! What Stripe documents of idempotent requests to its API v1, and how a route is set up as its v2.
//!
//! Sources: <https://docs.stripe.com/api/idempotent_requests>, <https://docs.stripe.com/error-low-level>,
//! <https://docs.stripe.com/api/errors>, <https://docs.stripe.com/api-v2-overview>. Keys are sent bare, payloads as forms.

use std::time::Duration;

use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::{HeaderValue, Method, Request};
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Verdict, scope};
use idem_tests::gate::Gate;
use idem_tests::http::Content;
use tower::ServiceBuilder;

use super::*;

const KEY: &str = "hZ3vQ9pLm2XyT7bK";
const FORM: &str = "application/x-www-form-urlencoded";
const FIFTY: &str = "amount=50&currency=eur";
const SIXTY: &str = "amount=60&currency=eur";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A charge of fifty.
fn charge(key: &str) -> Request<Content> {
    charge_as(key, FIFTY)
}

fn charge_as(key: &str, body: &str) -> Request<Content> {
    request(Method::POST, "/payments", key, FORM, body)
}

/// "Idempotent requests": the first result is stored and given to every retry, whether it is a success or a failure, a 500
/// too. A replay says of itself that it is one (`Idempotent-Replayed: true`), a first answer does not.
#[test]
fn stripe_the_first_result_is_replayed_whatever_it_was() {
    play(|stage| async move {
        let statuses = [200, 201, 302, 400, 402, 403, 404, 408, 410, 422, 424, 500, 501, 502, 503, 504];
        for (n, status) in (1..).zip(statuses) {
            let site =
                stage.serve(stage.stripe(), move |run, _| async move { answer(status, format!("run {run}")) }).await;
            let (key, body) = (format!("key-{status}"), format!("run {n}"));
            let first = site.answer(charge(&key)).await;
            assert_first(&first, status, &body);
            assert_eq!(first.header("idempotent-replayed"), "");
            for _ in 0..2 {
                let replay = site.answer(charge(&key)).await;
                assert_replay(&replay, status, &body);
                assert_eq!(replay.header("idempotent-replayed"), "true");
            }
        }
        assert_eq!(stage.runs.count(), statuses.len());
    });
}

/// "Idempotent requests": after a connection error a request can be sent again without the risk of a second effect.
#[test]
fn stripe_a_retry_after_a_lost_connection_gets_the_first_result() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        let mut client = site.client().await;
        tokio::select! {
            answered = client.send(charge(KEY)) => panic!("{answered:?}"),
            () = gate.reached() => {}
        }
        drop(client);
        gate.open();
        stage.rig.events.until(EventKind::Completed, 1).await;
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// "Idempotent requests": a key is any text that the client likes, of up to 255 characters.
#[test]
fn stripe_a_key_has_up_to_255_characters() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        let longest = "k".repeat(255);
        let keys = ["k", KEY, "b5c7e0de-3f61-4f4e-9a52-0b9e5f2c8d10", "order_7/attempt:1", &longest];
        for (n, key) in (1..).zip(keys) {
            assert_first(&site.answer(charge(key)).await, 201, &format!("run {n}"));
            assert_replay(&site.answer(charge(key)).await, 201, &format!("run {n}"));
        }
        for none in ["k".repeat(256), String::new()] {
            assert_problem(&site.answer(charge(&none)).await, 400, "key-malformed");
        }
        assert_eq!(stage.runs.count(), keys.len());
    });
}

/// "Idempotent requests": parameters are compared with those of the first request, and it is an error when they differ
/// ("Errors": 400). The first result stays what it is.
#[test]
fn stripe_other_parameters_are_an_error() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        assert_first(&site.answer(charge(KEY)).await, 201, "run 1");
        for other in [SIXTY, "amount=50", "amount=50&currency=eur&capture=false", ""] {
            assert_problem(&site.answer(charge_as(KEY, other)).await, 400, "mismatch");
        }
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// "Errors", idempotency errors: the endpoint is compared like the parameters. A key is one for all endpoints.
#[test]
fn stripe_another_endpoint_is_an_error() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        assert_first(&site.answer(charge(KEY)).await, 201, "run 1");
        for target in ["/refunds", "/payments?expand=customer"] {
            let elsewhere = request(Method::POST, target, KEY, FORM, FIFTY);
            assert_problem(&site.answer(elsewhere).await, 400, "mismatch");
        }
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// "Idempotent requests": a request that conflicts with a running one of its key (409) stores nothing and may be sent
/// again. It then gets the result of the one that ran.
#[test]
fn stripe_a_request_in_conflict_with_a_running_one_may_be_sent_again() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        let (first, ()) = tokio::join!(site.answer(charge(KEY)), async {
            gate.reached().await;
            for _ in 0..2 {
                assert_in_progress(&site.answer(charge(KEY)).await);
            }
            gate.open();
        });
        assert_first(&first, 201, "run 1");
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// "Idempotent requests": where parameters are refused before execution begins, nothing is stored. A handler that
/// validates says so, and the request may come again, corrected or not.
#[test]
fn stripe_a_refusal_before_execution_is_not_stored() {
    play(|stage| async move {
        let site = stage
            .serve(stage.stripe(), |run, idempotency| async move {
                if run <= 2 {
                    idempotency.unwrap().release();
                    return answer(400, format!("run {run}"));
                }
                answer(200, format!("run {run}"))
            })
            .await;
        assert_first(&site.answer(charge_as(KEY, "amount=-1")).await, 400, "run 1");
        assert_first(&site.answer(charge_as(KEY, "amount=-1")).await, 400, "run 2");
        assert_first(&site.answer(charge(KEY)).await, 200, "run 3");
        assert_replay(&site.answer(charge(KEY)).await, 200, "run 3");
    });
}

/// "Advanced error handling": who is calling (401) and how often (429) is decided before keys are looked at, and so is a
/// conflict (409). Such an answer is not stored, wherever on the stack it is given.
#[test]
fn stripe_an_answer_from_before_the_idempotency_layer_is_not_stored() {
    play(|stage| async move {
        async fn limit(request: AxumRequest, next: Next) -> Response {
            match request.headers().get("x-too-many") {
                Some(_) => answer(429, ""),
                None => next.run(request).await,
            }
        }
        let handler = |run, _| async move { answer([401, 409, 429, 200][run - 1], format!("run {run}")) };
        let stack = ServiceBuilder::new().layer(from_fn(limit)).layer(stage.stripe().build().unwrap());
        let site = stage.open(stage.routes(handler).layer(stack)).await;
        let mut too_many = charge(KEY);
        too_many.headers_mut().insert("x-too-many", HeaderValue::from_static("1"));
        assert_first(&site.answer(too_many).await, 429, "");
        assert_eq!(stage.runs.count(), 0);
        for (n, status) in (1..).zip([401, 409, 429, 200]) {
            assert_first(&site.answer(charge(KEY)).await, status, &format!("run {n}"));
        }
        assert_replay(&site.answer(charge(KEY)).await, 200, "run 4");
    });
}

/// "Idempotent requests": keys are pruned when they are at least a day old. One that comes after that makes a new request,
/// whatever its parameters and its endpoint.
#[test]
fn stripe_a_key_is_forgotten_after_a_day_and_not_before() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        assert_first(&site.answer(charge(KEY)).await, 201, "run 1");
        stage.rig.clock.advance(DAY - Duration::from_secs(1));
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
        assert_problem(&site.answer(charge_as(KEY, SIXTY)).await, 400, "mismatch");
        stage.rig.clock.advance(Duration::from_secs(1));
        let other = || request(Method::POST, "/refunds", KEY, FORM, SIXTY);
        assert_first(&site.answer(other()).await, 201, "run 2");
        assert_replay(&site.answer(other()).await, 201, "run 2");
    });
}

/// "Idempotent requests": every POST takes a key; on GET and DELETE it has no effect. Nor has it on any other method.
#[test]
fn stripe_a_key_matters_on_post_alone() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        assert_first(&site.answer(charge(KEY)).await, 201, "run 1");
        let mut run = 1;
        for method in [Method::GET, Method::DELETE, Method::PUT, Method::PATCH] {
            for _ in 0..2 {
                run += 1;
                let sent = request(method.clone(), "/payments", KEY, FORM, FIFTY);
                assert_first(&site.answer(sent).await, 201, &format!("run {run}"));
            }
        }
        assert_replay(&site.answer(charge(KEY)).await, 201, "run 1");
    });
}

/// "Idempotent requests": a key is the client's choice. A request without one runs each time.
#[test]
fn stripe_a_key_is_optional() {
    play(|stage| async move {
        let site = stage.count(stage.stripe()).await;
        for n in 1..=2 {
            assert_first(&site.answer(keyless(charge(KEY))).await, 201, &format!("run {n}"));
        }
    });
}

/// "API v2 overview": keys belong to an account, two accounts with the same key do not meet. (Of API v1 nothing is said; it
/// could not be otherwise.)
#[test]
fn stripe_a_key_belongs_to_an_account() {
    play(|stage| async move {
        let site = stage.count(stripe(stage.rig.builder().scope(scope::header("stripe-account")))).await;
        let by = |account: &'static str, body: &str| {
            let mut request = charge_as(KEY, body);
            request.headers_mut().insert("stripe-account", HeaderValue::from_static(account));
            request
        };
        assert_first(&site.answer(by("acct_1", FIFTY)).await, 201, "run 1");
        assert_first(&site.answer(by("acct_2", SIXTY)).await, 201, "run 2");
        assert_replay(&site.answer(by("acct_1", FIFTY)).await, 201, "run 1");
        assert_replay(&site.answer(by("acct_2", SIXTY)).await, 201, "run 2");
    });
}

/// "API v2 overview": there, DELETE takes a key too, keys live for 30 days, and a retry of what has failed runs again, while
/// a success is not repeated. A route says so with three settings. (What v2 answers after a success is brought up to date;
/// a replay says what was said.)
#[test]
fn stripe_a_route_can_be_set_up_as_the_second_version_of_the_api() {
    play(|stage| async move {
        let month = policy().to_builder().retention(30 * DAY).build().unwrap();
        let layer =
            stage.stripe().methods([Method::POST, Method::DELETE]).classify(Verdict::only_success).policy(month);
        let site = stage
            .serve(layer, |run, _| async move { answer([500, 402, 200, 200, 200][run - 1], format!("run {run}")) })
            .await;
        assert_first(&site.answer(charge(KEY)).await, 500, "run 1");
        assert_first(&site.answer(charge(KEY)).await, 402, "run 2");
        assert_first(&site.answer(charge(KEY)).await, 200, "run 3");
        assert_replay(&site.answer(charge(KEY)).await, 200, "run 3");
        let delete = || request(Method::DELETE, "/payments", "delete", FORM, "");
        assert_first(&site.answer(delete()).await, 200, "run 4");
        stage.rig.clock.advance(29 * DAY);
        assert_replay(&site.answer(charge(KEY)).await, 200, "run 3");
        assert_replay(&site.answer(delete()).await, 200, "run 4");
        stage.rig.clock.advance(DAY);
        assert_first(&site.answer(charge(KEY)).await, 200, "run 5");
    });
}

/// A route as Stripe's, whose handler waits at a gate.
async fn gated_site(stage: &Stage, gate: &Gate) -> Site {
    let gate = gate.clone();
    stage
        .serve(stage.stripe(), move |run, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                answer(201, format!("run {run}"))
            }
        })
        .await
}
