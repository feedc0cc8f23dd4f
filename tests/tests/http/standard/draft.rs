//! draft-ietf-httpapi-idempotency-key-header-07, section by section.

use std::time::Duration;

use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::{HeaderValue, Method, Request, StatusCode};
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Verdict, fingerprint, key, scope};
use idem_tests::gate::Gate;
use idem_tests::http::Content;
use tower::ServiceBuilder;

use super::*;

const KEY: &str = r#""0d9cbe0a-5f3c-4b0e-9a55-1f6f3c2b7e41""#;
const JSON: &str = "application/json";
const FIFTY: &str = r#"{"amount":50,"currency":"EUR"}"#;
const SIXTY: &str = r#"{"amount":60,"currency":"EUR"}"#;
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A payment of fifty.
fn pay(key: &str) -> Request<Content> {
    pay_as(key, FIFTY)
}

fn pay_as(key: &str, body: &str) -> Request<Content> {
    request(Method::POST, "/payments", key, JSON, body)
}

// 1. Introduction

/// Section 1: the field makes methods safe to repeat that are not by themselves, POST and PATCH.
#[test]
fn draft_1_post_and_patch_can_be_repeated() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for (n, method) in (1..).zip([Method::POST, Method::PATCH]) {
            let send = || request(method.clone(), "/payments", KEY, JSON, FIFTY);
            assert_first(&site.answer(send()).await, 201, &format!("run {n}"));
            assert_replay(&site.answer(send()).await, 201, &format!("run {n}"));
        }
    });
}

/// Section 1: other methods need no key. The field has no meaning on a safe one, and none is asked for.
#[test]
fn draft_1_a_safe_method_neither_needs_nor_uses_a_key() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for n in 1..=2 {
            let read = request(Method::GET, "/payments", KEY, JSON, "");
            assert_first(&site.answer(read).await, 201, &format!("run {n}"));
        }
        let read = keyless(request(Method::GET, "/payments", KEY, JSON, ""));
        assert_first(&site.answer(read).await, 201, "run 3");
    });
}

// 2.1. Syntax

/// Section 2.1: the field is an Item of structured fields, its value a String. The key is what the string says: escapes
/// are read, parameters are not part of it, nor is space around it.
#[test]
fn draft_2_1_the_key_is_the_value_of_a_structured_string() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for (n, spellings) in (1..).zip([
            &[r#""abc""#, r#"  "abc" "#, r#""abc";v=1"#, r#""abc"; a;b="x;y";c=?1;d=:YQ==:;e=1.5;f=t/k"#][..],
            &[r#""a\"b\\c""#, r#""a\"b\\c";x"#],
            &[r#""a b""#],
            &[r#"" abc""#],
            &[r#""ABC""#],
            &[r#""12""#],
            &[KEY],
            &[r#""vfkqpwmzrjtnxbhdgcslyaeuoivfkqpw""#],
        ]) {
            for (repeat, spelling) in spellings.iter().enumerate() {
                let answered = site.answer(pay(spelling)).await;
                assert_eq!((answered.text(), answered.is_replay()), (&*format!("run {n}"), repeat > 0), "{spelling}");
            }
        }
    });
}

/// Section 2.1: its value must be a String. Any other type, and what is no Item at all, is refused; nothing is executed.
#[test]
fn draft_2_1_a_value_of_another_type_is_no_key() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for value in [
            "abc",
            "12",
            "1.5",
            "?1",
            ":YWJj:",
            "@1659578233",
            "%\"abc\"",
            "(\"abc\")",
            "\"a\", \"b\"",
            "\"abc",
            "abc\"",
            "\"abc\"x",
            "\"abc\" x",
            "\"a\\bc\"",
            "\"abc\";",
            "\"abc\";V=1",
            "'abc'",
            "\"\"",
            "",
        ] {
            let answered = site.answer(pay(value)).await;
            assert_leads_to_documentation(&answered, 400, "key-malformed");
        }
        let mut beyond_ascii = pay(KEY);
        let value = HeaderValue::from_bytes("\"abc\u{e9}\"".as_bytes()).unwrap();
        beyond_ascii.headers_mut().insert("idempotency-key", value);
        assert_leads_to_documentation(&site.answer(beyond_ascii).await, 400, "key-malformed");
        assert_eq!(stage.runs.count(), 0);
    });
}

/// Section 2.1: an Item is one value. Two lines of the field, even of one value, are none.
#[test]
fn draft_2_1_a_field_in_two_lines_is_no_key() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for second in [KEY, "\"other\""] {
            let mut twice = pay(KEY);
            twice.headers_mut().append("idempotency-key", HeaderValue::from_str(second).unwrap());
            assert_leads_to_documentation(&site.answer(twice).await, 400, "key-malformed");
        }
        assert_eq!(stage.runs.count(), 0);
    });
}

// 2.2. Uniqueness

/// Section 2.2: a key must not come again with another payload. Such a request is never executed, whether the first one
/// runs or has ended, and leaves the first one as it is.
#[test]
fn draft_2_2_another_payload_under_a_used_key_is_never_executed() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        let (first, ()) = tokio::join!(site.answer(pay(KEY)), async {
            gate.reached().await;
            assert_problem(&site.answer(pay_as(KEY, SIXTY)).await, 422, "mismatch");
            gate.open();
        });
        assert_first(&first, 201, "run 1");
        assert_problem(&site.answer(pay_as(KEY, SIXTY)).await, 422, "mismatch");
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// Section 2.2: a key is unique to its request, and says which request it is. The same payload under another key is
/// another request.
#[test]
fn draft_2_2_the_same_payload_under_another_key_is_another_request() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        assert_first(&site.answer(pay("\"a\"")).await, 201, "run 1");
        assert_first(&site.answer(pay("\"b\"")).await, 201, "run 2");
        assert_replay(&site.answer(pay("\"a\"")).await, 201, "run 1");
    });
}

/// Section 2.2: what makes a key unique is for the resource's owner to say. As we say it, a key belongs to one resource
/// and one method.
#[test]
fn draft_2_2_a_key_belongs_to_one_resource() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        let refund = || request(Method::POST, "/refunds", KEY, JSON, FIFTY);
        assert_first(&site.answer(refund()).await, 201, "run 2");
        assert_first(&site.answer(request(Method::PATCH, "/payments", KEY, JSON, FIFTY)).await, 201, "run 3");
        assert_replay(&site.answer(refund()).await, 201, "run 2");
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
    });
}

// 2.3. Validity and expiry

/// Section 2.3: keys may expire, by a policy that is published. By default they do a day after their request has
/// completed; what comes then is a first request, whatever its payload.
#[test]
fn draft_2_3_a_key_expires_when_the_policy_says() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        stage.rig.clock.advance(24 * HOUR - Duration::from_secs(1));
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        // To be asked for it does not prolong it.
        stage.rig.clock.advance(Duration::from_secs(1));
        assert_first(&site.answer(pay_as(KEY, SIXTY)).await, 201, "run 2");
        assert_replay(&site.answer(pay_as(KEY, SIXTY)).await, 201, "run 2");
    });
}

/// Section 2.3: the policy is the resource's own. A route can have another than its server.
#[test]
fn draft_2_3_a_route_has_a_policy_of_its_own() {
    play(|stage| async move {
        let week = policy().to_builder().retention(7 * 24 * HOUR).build().unwrap();
        let site = stage.count(stage.ietf().policy(week)).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        stage.rig.clock.advance(6 * 24 * HOUR);
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        stage.rig.clock.advance(24 * HOUR);
        assert_first(&site.answer(pay(KEY)).await, 201, "run 2");
    });
}

// 2.4. Fingerprint

/// Section 2.4: the fingerprint may be a checksum of the whole payload. Whatever differs in meaning, the query among it,
/// is another request; how a JSON text is laid out is not.
#[test]
fn draft_2_4_the_fingerprint_is_of_the_whole_payload() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        for same in [FIFTY, "{ \"currency\" : \"EUR\",\n\"amount\":50 }", r#"{"amount":50,"currency":"\u0045UR"}"#] {
            assert_replay(&site.answer(pay_as(KEY, same)).await, 201, "run 1");
        }
        for other in [
            SIXTY,
            r#"{"amount":50.0,"currency":"EUR"}"#,
            r#"{"amount":"50","currency":"EUR"}"#,
            r#"{"amount":50,"currency":"eur"}"#,
            r#"{"amount":50,"currency":"EUR","note":null}"#,
            r#"{"amount":50}"#,
            "",
        ] {
            assert_problem(&site.answer(pay_as(KEY, other)).await, 422, "mismatch");
        }
        let elsewhere = request(Method::POST, "/payments?dry-run=1", KEY, JSON, FIFTY);
        assert_problem(&site.answer(elsewhere).await, 422, "mismatch");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// Section 2.4: a payload that is no JSON is compared byte by byte.
#[test]
fn draft_2_4_another_payload_is_compared_byte_by_byte() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        let send = |body: &str| request(Method::POST, "/payments", KEY, "application/x-www-form-urlencoded", body);
        assert_first(&site.answer(send("amount=50&currency=EUR")).await, 201, "run 1");
        assert_replay(&site.answer(send("amount=50&currency=EUR")).await, 201, "run 1");
        for other in ["currency=EUR&amount=50", "amount=50&currency=EUR ", "amount=50", ""] {
            assert_problem(&site.answer(send(other)).await, 422, "mismatch");
        }
    });
}

/// Section 2.4: it may be a checksum of chosen elements, or of all but some. What is left out may differ.
#[test]
fn draft_2_4_the_fingerprint_can_be_of_chosen_elements() {
    play(|stage| async move {
        let first = r#"{"amount":50,"currency":"EUR","sent_at":1}"#;
        let later = r#"{"amount":50,"currency":"EUR","sent_at":2,"attempt":2}"#;
        for (n, rules) in (1..).zip([
            fingerprint::enforced().only(["/amount", "/currency"]),
            fingerprint::enforced().without(["/sent_at", "/attempt"]),
        ]) {
            let site = stage.count(stage.ietf().fingerprint(rules)).await;
            let pay = |body| pay_as(&format!("\"{n}\""), body);
            assert_first(&site.answer(pay(first)).await, 201, &format!("run {n}"));
            assert_replay(&site.answer(pay(later)).await, 201, &format!("run {n}"));
            let other = r#"{"amount":60,"currency":"EUR","sent_at":1}"#;
            assert_problem(&site.answer(pay(other)).await, 422, "mismatch");
        }
    });
}

/// Section 2.4: a fingerprint may be used. A route without one tells requests apart by their keys alone.
#[test]
fn draft_2_4_a_route_can_do_without_a_fingerprint() {
    play(|stage| async move {
        let site = stage.count(stage.ietf().fingerprint(fingerprint::off())).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_replay(&site.answer(pay_as(KEY, SIXTY)).await, 201, "run 1");
    });
}

// 2.5. Responsibilities

/// Section 2.5.2: the key is read from the field of that name, and from nowhere else.
#[test]
fn draft_2_5_the_key_is_read_from_its_field_alone() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        let mut elsewhere =
            keyless(request(Method::POST, "/payments?idempotency-key=abc", KEY, JSON, r#"{"idempotency-key":"abc"}"#));
        for name in ["x-idempotency-key", "idempotency", "request-id"] {
            elsewhere.headers_mut().insert(name, HeaderValue::from_static("\"abc\""));
        }
        assert_problem(&site.answer(elsewhere).await, 400, "key-missing");
        assert_eq!(stage.runs.count(), 0);
    });
}

/// Section 2.5.2: the lifecycle of a key is the server's business. The client's connection is no part of it: one that
/// breaks while the request runs takes nothing back, and the retry over a new one gets the result.
#[test]
fn draft_2_5_a_lost_connection_does_not_end_the_life_of_a_key() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        let mut client = site.client().await;
        tokio::select! {
            answered = client.send(pay(KEY)) => panic!("{answered:?}"),
            () = gate.reached() => {}
        }
        drop(client);
        gate.open();
        stage.rig.events.until(EventKind::Completed, 1).await;
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

// 2.6. Enforcement

/// Section 2.6, first time: the request is processed as it would be without the field, and so is its answer.
#[test]
fn draft_2_6_a_first_request_is_processed_normally() {
    play(|stage| async move {
        let handler = |_, _| async {
            Response::builder()
                .status(201)
                .header("location", "/payments/7")
                .header("content-type", "text/plain")
                .header("x-twice", "1")
                .header("x-twice", "2")
                .body("paid".into())
                .unwrap()
        };
        let plain = stage.open(stage.routes(handler)).await;
        let guarded = stage.serve(stage.ietf(), handler).await;
        let (mut expected, mut answered) = (plain.answer(pay(KEY)).await, guarded.answer(pay(KEY)).await);
        for of in [&mut expected, &mut answered] {
            of.headers.remove("date");
        }
        assert_eq!(answered, expected);
    });
}

/// Section 2.6, retry: once the first has completed, a retry gets its result.
#[test]
fn draft_2_6_a_retry_gets_the_result_of_the_first() {
    play(|stage| async move {
        for (n, status) in (1..).zip([200, 201, 202, 204, 303]) {
            let site = stage
                .serve(stage.ietf(), move |run, _| async move {
                    let body = if status == 204 { String::new() } else { format!("run {run}") };
                    Response::builder().status(status).header("etag", format!("\"{run}\"")).body(body.into()).unwrap()
                })
                .await;
            let (key, body) = (format!("\"{status}\""), if status == 204 { String::new() } else { format!("run {n}") });
            assert_first(&site.answer(pay(&key)).await, status, &body);
            for _ in 0..3 {
                let replay = site.answer(pay(&key)).await;
                assert_replay(&replay, status, &body);
                assert_eq!(replay.header("etag"), format!("\"{n}\""));
            }
        }
    });
}

/// Section 2.6, retry: success or error. An error that is the result of the operation, as its handler says, is the result
/// of each retry.
#[test]
fn draft_2_6_an_error_is_a_result_where_the_handler_says_so() {
    play(|stage| async move {
        for (n, status) in (1..).zip([400, 402, 404, 422, 500, 502, 503]) {
            let site = stage
                .serve(stage.ietf(), move |run, idempotency| async move {
                    idempotency.unwrap().complete();
                    answer(status, format!("run {run}"))
                })
                .await;
            let key = format!("\"{status}\"");
            assert_first(&site.answer(pay(&key)).await, status, &format!("run {n}"));
            assert_replay(&site.answer(pay(&key)).await, status, &format!("run {n}"));
        }
    });
}

/// Section 2.6, retry: the same where the whole route says so.
#[test]
fn draft_2_6_an_error_is_a_result_where_the_route_says_so() {
    play(|stage| async move {
        let layer = stage.ietf().classify(|_, _| Verdict::Complete);
        let site = stage.serve(layer, |run, _| async move { answer(402, format!("run {run}")) }).await;
        assert_first(&site.answer(pay(KEY)).await, 402, "run 1");
        assert_replay(&site.answer(pay(KEY)).await, 402, "run 1");
    });
}

/// Section 2.6, retry: by default a request that was refused before it took effect has completed nothing. The next one is
/// a first one, corrected or not.
#[test]
fn draft_2_6_a_request_without_effect_leaves_its_key_free() {
    play(|stage| async move {
        let site = stage
            .serve(stage.ietf(), |run, _| async move { answer([422, 429, 201][run - 1], format!("run {run}")) })
            .await;
        assert_first(&site.answer(pay(KEY)).await, 422, "run 1");
        assert_first(&site.answer(pay_as(KEY, SIXTY)).await, 429, "run 2");
        assert_first(&site.answer(pay_as(KEY, SIXTY)).await, 201, "run 3");
        assert_replay(&site.answer(pay_as(KEY, SIXTY)).await, 201, "run 3");
    });
}

/// Section 2.6, concurrent: a retry that comes before the first has completed gets a conflict, however many come. One is
/// executed.
#[test]
fn draft_2_6_a_retry_of_a_running_request_is_a_conflict() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        let (first, ()) = tokio::join!(site.answer(pay(KEY)), async {
            gate.reached().await;
            for _ in 0..3 {
                assert_in_progress(&site.answer(pay(KEY)).await);
            }
            gate.open();
        });
        assert_first(&first, 201, "run 1");
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_eq!(stage.runs.count(), 1);
    });
}

// 2.7. Errors

/// Section 2.7: an operation that requires the field answers 400 without it, with a link to its documentation in the body,
/// or in a `Link` field. It has both.
#[test]
fn draft_2_7_a_missing_key_is_answered_400_with_a_link() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        for _ in 0..2 {
            assert_leads_to_documentation(&site.answer(keyless(pay(KEY))).await, 400, "key-missing");
        }
        assert_eq!(stage.runs.count(), 0);
    });
}

/// Section 2.7: only an operation that requires it. Elsewhere a request without the field runs each time.
#[test]
fn draft_2_7_a_missing_key_is_no_error_where_none_is_required() {
    play(|stage| async move {
        let site = stage.count(stage.rig.layer().documentation(DOCUMENTATION)).await;
        for n in 1..=2 {
            assert_first(&site.answer(keyless(pay(KEY))).await, 201, &format!("run {n}"));
        }
    });
}

/// Section 2.7: another payload under a used key is answered 422, with a link to the documentation.
#[test]
fn draft_2_7_a_reused_key_is_answered_422_with_a_link() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_leads_to_documentation(&site.answer(pay_as(KEY, SIXTY)).await, 422, "mismatch");
    });
}

/// Section 2.7: a retry of a running request is answered 409, with a description of the problem.
#[test]
fn draft_2_7_a_retry_of_a_running_request_is_answered_409_with_a_description() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        tokio::join!(site.answer(pay(KEY)), async {
            gate.reached().await;
            assert_leads_to_documentation(&site.answer(pay(KEY)).await, 409, "in-progress");
            gate.open();
        });
    });
}

/// Section 2.7: a request that was answered with one of these errors fails again until it is corrected; one that was
/// answered 409 needs no correction.
#[test]
fn draft_2_7_what_is_not_corrected_fails_again() {
    play(|stage| async move {
        let gate = Gate::new();
        let site = gated_site(&stage, &gate).await;
        tokio::join!(site.answer(pay(KEY)), async {
            gate.reached().await;
            assert_problem(&site.answer(pay(KEY)).await, 409, "in-progress");
            gate.open();
        });
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        for _ in 0..2 {
            assert_problem(&site.answer(keyless(pay_as(KEY, SIXTY))).await, 400, "key-missing");
            assert_problem(&site.answer(pay_as(KEY, SIXTY)).await, 422, "mismatch");
        }
        assert_first(&site.answer(pay_as("\"corrected\"", SIXTY)).await, 201, "run 2");
    });
}

// 5. Security

/// Section 5, injection: a key is looked up only after it has been checked, and whatever it says it is data.
#[test]
fn draft_5_a_key_is_nothing_but_data() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        let keys = [
            "a",
            "a,b",
            "a%2Cb",
            "a:b",
            "*",
            "{a}b",
            "{a}c",
            "../a",
            "a' OR '1'='1",
            "a\\\"; DROP TABLE a",
            "$(a)",
            "EVAL a",
            "a%00",
            "POST+/payments:a",
        ];
        for (n, key) in (1..).zip(keys) {
            assert_first(&site.answer(pay(&format!("\"{key}\""))).await, 201, &format!("run {n}"));
        }
        for (n, key) in (1..).zip(keys) {
            assert_replay(&site.answer(pay(&format!("\"{key}\""))).await, 201, &format!("run {n}"));
        }
    });
}

/// Section 5, format: a key has a fixed format, which is checked before anything else happens: 1 to 255 characters of
/// ASCII that can be printed.
#[test]
fn draft_5_a_key_is_checked_before_it_is_used() {
    play(|stage| async move {
        let site = stage.count(stage.ietf()).await;
        let of_length = |length| pay(&format!("\"{}\"", "k".repeat(length)));
        assert_first(&site.answer(of_length(1)).await, 201, "run 1");
        assert_first(&site.answer(of_length(255)).await, 201, "run 2");
        for length in [0, 256, 4096] {
            assert_problem(&site.answer(of_length(length)).await, 400, "key-malformed");
        }
        assert_problem(&site.answer(pay("\"a\tb\"")).await, 400, "key-malformed");
        assert_eq!(stage.runs.count(), 2);
    });
}

/// Section 5, format, and 2.2, which recommends them: a route can insist on UUIDs, so that no key can be guessed.
#[test]
fn draft_5_a_route_can_insist_on_uuids() {
    play(|stage| async move {
        let uuids = key::header("idempotency-key").quoted().uuid();
        let site = stage.count(stage.ietf().key(uuids)).await;
        assert_first(&site.answer(pay(KEY)).await, 201, "run 1");
        assert_replay(&site.answer(pay(KEY)).await, 201, "run 1");
        for weak in ["\"1\"", "\"order-7\"", &KEY.replace('-', ""), &KEY[..KEY.len() - 2], KEY.trim_matches('"')] {
            assert_problem(&site.answer(pay(weak)).await, 400, "key-malformed");
        }
        assert_problem(&site.answer(keyless(pay(KEY))).await, 400, "key-missing");
        assert_eq!(stage.runs.count(), 1);
    });
}

/// Section 5, data leaks: a key is looked up together with something that the client cannot choose. Two callers with the
/// same key do not meet: neither gets the other's answer, nor learns that there is one.
#[test]
fn draft_5_a_key_is_bound_to_its_caller() {
    play(|stage| async move {
        #[derive(Clone)]
        struct Account(&'static str);

        async fn authenticate(mut request: AxumRequest, next: Next) -> Response {
            let account = match request.headers().get("authorization").map(HeaderValue::as_bytes) {
                Some(b"Bearer alice's") => "alice",
                Some(b"Bearer bob's") => "bob",
                _ => return answer(401, ""),
            };
            request.extensions_mut().insert(Account(account));
            next.run(request).await
        }

        let layer = ietf(stage.rig.builder().scope(scope::extension(|account: &Account| Some(account.0))));
        let stack = ServiceBuilder::new().layer(from_fn(authenticate)).layer(layer.build().unwrap());
        let routes = stage.routes(|run, _| async move { answer(201, format!("run {run}")) });
        let site = stage.open(routes.layer(stack)).await;
        let as_caller = |token: &'static str, body: &str| {
            let mut request = pay_as(KEY, body);
            request.headers_mut().insert("authorization", HeaderValue::from_static(token));
            request
        };
        assert_first(&site.answer(as_caller("Bearer alice's", FIFTY)).await, 201, "run 1");
        assert_eq!(site.answer(as_caller("Bearer mallory's", FIFTY)).await.status, StatusCode::UNAUTHORIZED);
        // No replay of hers, and no mismatch with hers either.
        assert_first(&site.answer(as_caller("Bearer bob's", SIXTY)).await, 201, "run 2");
        assert_replay(&site.answer(as_caller("Bearer alice's", FIFTY)).await, 201, "run 1");
        assert_replay(&site.answer(as_caller("Bearer bob's", SIXTY)).await, 201, "run 2");
    });
}

/// A route as the draft has it, whose handler waits at a gate.
async fn gated_site(stage: &Stage, gate: &Gate) -> Site {
    let gate = gate.clone();
    stage
        .serve(stage.ietf(), move |run, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                answer(201, format!("run {run}"))
            }
        })
        .await
}
