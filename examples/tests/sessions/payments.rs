//! The contract of `payments`, line by line.

use std::process::Output;
use std::time::Duration;

use idem_tests::{Call, Client, Process, Reply};
use serde_json::{Value, json};
use tokio::process::Command;

const PAYMENTS: &str = env!("CARGO_BIN_EXE_payments");

async fn start(arguments: &[&str]) -> Process {
    Process::start(PAYMENTS, &[&["--listen", "127.0.0.1:0"], arguments].concat()).await
}

fn payment() -> Value {
    json!({"order_no": "A-1", "amount": 1250, "currency": "EUR"})
}

fn pay(client: &Client, key: &str) -> Call {
    client.post("/payments").key(key).json(&payment())
}

async fn effects(client: &Client) -> Vec<Value> {
    let ledger = client.get("/ledger").send().await.json();
    let effects = ledger["effects"].as_array().expect("an array").clone();
    assert_eq!(ledger["count"], effects.len());
    effects
}

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!((reply.status.as_u16(), &*reply.code()), (status, code), "{reply:?}");
    assert_eq!(reply.json()["status"], status);
    assert!(reply.json()["type"].is_string());
}

/// Waits for another request to have got as far as the ledger.
async fn effect_appears(client: &Client, count: usize) {
    while effects(client).await.len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_session_in_its_docs_goes_as_it_is_written() {
    let service = start(&[]).await;
    let client = service.client();
    let alice = |call: Call| call.header("authorization", "Bearer alice");

    let first = alice(pay(&client, "k-1")).send().await;
    assert_eq!(first.status, 201);
    assert!(!first.replayed());
    let body = first.json();
    let id = body["payment_id"].as_str().unwrap();
    let expected = json!({"payment_id": id, "order_no": "A-1", "amount": 1250, "currency": "EUR", "attempt": 1});
    assert_eq!(body, expected);
    assert_eq!(first.header("location").unwrap(), format!("/payments/{id}"));
    assert_eq!(first.header("content-type"), Some("application/json"));

    let second = alice(pay(&client, "k-1")).send().await;
    assert!(second.replayed());
    assert_eq!((second.status, &second.body), (first.status, &first.body));
    assert_eq!(second.header("location"), first.header("location"));

    let other = json!({"order_no": "A-1", "amount": 9999, "currency": "EUR"});
    refused(&alice(client.post("/payments").key("k-1").json(&other)).send().await, 422, "mismatch");
    refused(&client.post("/refunds").json(&payment()).send().await, 400, "key-missing");

    let effects = effects(&client).await;
    let expected = json!([{"kind": "payment", "id": id, "key": "k-1", "order_no": "A-1", "attempt": 1,
        "amount": 1250, "currency": "EUR"}]);
    assert_eq!(Value::from(effects), expected);
    assert_eq!(client.get("/healthz").send().await.status, 200);
}

#[tokio::test]
async fn a_payment_without_a_key_takes_effect_each_time() {
    let service = start(&[]).await;
    let client = service.client();
    for _ in 0..2 {
        let reply = client.post("/payments").json(&payment()).send().await;
        assert_eq!((reply.status.as_u16(), reply.json()["attempt"].clone()), (201, 1.into()));
    }
    let effects = effects(&client).await;
    assert_eq!(effects.len(), 2);
    assert_eq!((&effects[0]["key"], &effects[0]["attempt"]), (&Value::Null, &1.into()));
}

#[tokio::test]
async fn an_invalid_body_is_told_and_frees_the_key() {
    let service = start(&[]).await;
    let client = service.client();
    for path in ["/payments", "/refunds"] {
        for body in ["", "{", "[]", r#"{"order_no":"A-1","amount":0,"currency":"EUR"}"#] {
            refused(&client.post(path).key("k-1").body(body).send().await, 422, "invalid-payment");
        }
        refused(&client.post(path).key("").json(&payment()).send().await, 400, "key-malformed");
        let corrected = client.post(path).key("k-1").json(&payment()).send().await;
        assert_eq!((corrected.status.as_u16(), corrected.json()["attempt"].clone()), (201, 1.into()));
    }
    assert_eq!(effects(&client).await.len(), 2);
}

#[tokio::test]
async fn refunds_and_orders_have_effects_and_records_of_their_own() {
    let service = start(&[]).await;
    let client = service.client();
    let mut order = payment();
    order["request_id"] = "k-1".into();
    let calls = [
        ("payment", "/payments/", pay(&client, "k-1")),
        ("refund", "/refunds/", client.post("/refunds").key("k-1").json(&payment())),
        ("order", "/orders/", client.post("/orders").json(&order)),
    ];
    for (i, (kind, location, call)) in calls.into_iter().enumerate() {
        let first = call.clone().send().await;
        assert_eq!(first.status, 201, "{first:?}");
        let again = call.send().await;
        assert!(again.replayed());
        assert_eq!(again.body, first.body);
        let effect = effects(&client).await.swap_remove(i);
        assert_eq!(
            (&effect["kind"], &effect["key"], &effect["order_no"]),
            (&kind.into(), &"k-1".into(), &"A-1".into())
        );
        assert_eq!(first.json()["payment_id"], effect["id"]);
        assert_eq!(first.header("location").unwrap(), format!("{location}{}", effect["id"].as_str().unwrap()));
    }
    assert_eq!(effects(&client).await.len(), 3);

    refused(&client.post("/orders").json(&payment()).send().await, 400, "key-missing");
    refused(&client.post("/orders").body("request_id=k-1").send().await, 400, "body-malformed");
    order["request_id"] = "".into();
    refused(&client.post("/orders").json(&order).send().await, 400, "key-malformed");
}

#[tokio::test]
async fn keys_belong_to_the_caller_and_not_to_the_token() {
    let service = start(&[]).await;
    let client = service.client();
    let by = |authorization: &str| pay(&client, "k-1").header("authorization", authorization).send();
    let first = by("Bearer alice.old-secret").await;
    let rotated = by("bearer alice.new-secret").await;
    assert!(rotated.replayed());
    assert_eq!(rotated.body, first.body);
    assert!(!by("Bearer bob").await.replayed());
    assert!(!pay(&client, "k-1").send().await.replayed());
    assert_eq!(effects(&client).await.len(), 3);
}

#[tokio::test]
async fn whoever_is_not_known_claims_nothing() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    for path in ["/payments", "/refunds", "/orders", "/callbacks/pay", "/webhooks/wecom"] {
        for authorization in ["Basic YWxpY2U6eA==", "Bearer", "Bearer ", "Bearer a b", "Bearer .x", "alice"] {
            let call = client.post(path).key("k-1").json(&payment()).header("authorization", authorization);
            let reply = call.send().await;
            refused(&reply, 401, "unauthorized");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    assert_eq!(effects(&client).await.len(), 0);
    assert!(!pay(&client, "k-1").send().await.replayed());
}

#[tokio::test]
async fn a_callback_is_answered_success_and_takes_effect_once() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    let callback = |body: Value| client.post("/callbacks/pay").json(&body);
    let paid = json!({"order_no": "A-1", "event_type": "paid", "sent": 1});
    let resent = json!({"event_type": "paid", "order_no": "A-1", "sent": 2});
    let refunded = json!({"order_no": "A-1", "event_type": "refunded"});

    for (body, replayed) in [(&paid, false), (&paid, true), (&resent, true), (&refunded, false)] {
        let reply = callback(body.clone()).send().await;
        assert_eq!((reply.status.as_u16(), reply.text()), (200, "success"));
        assert!(reply.header("content-type").unwrap().starts_with("text/plain"));
        assert_eq!(reply.replayed(), replayed, "{body}");
    }
    let recorded = effects(&client).await;
    assert_eq!(recorded.len(), 2);
    assert_eq!(
        (&recorded[0]["kind"], &recorded[0]["key"], &recorded[0]["order_no"]),
        (&"callback".into(), &"A-1,paid".into(), &"A-1".into())
    );

    for (body, code) in [
        (json!({"order_no": "A-1"}), "key-missing"),
        (json!({"event_type": "paid"}), "key-missing"),
        (json!({"order_no": "", "event_type": "paid"}), "key-malformed"),
        (json!({"order_no": "A-1", "event_type": ""}), "key-malformed"),
    ] {
        refused(&callback(body).send().await, 400, code);
    }
    refused(&client.post("/callbacks/pay").body("order_no=A-1").send().await, 400, "body-malformed");

    // While the first runs.
    let other = json!({"order_no": "A-2", "event_type": "paid"});
    let first = tokio::spawn(callback(other.clone()).header("x-fault", "after=1000").send());
    effect_appears(&client, 3).await;
    let meanwhile = callback(other.clone()).send().await;
    refused(&meanwhile, 503, "in-progress");
    assert_eq!(meanwhile.header("retry-after"), Some("1"));
    assert_eq!(first.await.unwrap().text(), "success");
    assert!(callback(other).send().await.replayed());

    // One whose answer could not be kept took effect all the same.
    let large = json!({"order_no": "A-3", "event_type": "paid"});
    let first = callback(large.clone()).header("x-fault", "size=2000000").send().await;
    assert_eq!((first.status.as_u16(), first.body.len()), (200, 2_000_000));
    assert_eq!(callback(large).send().await.text(), "success");
    assert_eq!(effects(&client).await.len(), 4);
}

#[tokio::test]
async fn a_wecom_message_takes_effect_once_and_one_without_ids_never() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    let message = |body: &str| client.post("/webhooks/wecom").body(body.to_owned());
    for (body, replayed) in [
        (r#"{"instance_guid":"wx-1","MsgId":12345678901234567890123}"#, false),
        (r#"{"instance_guid":"wx-1","MsgId":"12345678901234567890123"}"#, true),
        (r#"{"instance_guid":"wx-1","MsgId":12345678901234567890124}"#, false),
        (r#"{"instance_guid":"wx-2","MsgId":12345678901234567890123,"text":"hi"}"#, false),
        (r#"{"instance_guid":"wx-2","MsgId":12345678901234567890123,"text":"ho"}"#, true),
        (r#"{"instance_guid":"wx-1"}"#, false),
        (r#"{"MsgId":1}"#, false),
        (r#"{"instance_guid":"wx-1","MsgId":null}"#, false),
        (r#"{}"#, false),
    ] {
        let reply = message(body).send().await;
        assert_eq!((reply.status.as_u16(), reply.text()), (200, r#"{"status":"success"}"#), "{body}");
        assert_eq!(reply.replayed(), replayed, "{body}");
    }
    let recorded = effects(&client).await;
    assert_eq!(recorded.len(), 3);
    assert_eq!((&recorded[0]["kind"], &recorded[0]["key"]), (&"wecom".into(), &"wx-1,12345678901234567890123".into()));

    refused(&message("<xml/>").send().await, 400, "body-malformed");
    refused(&message(r#"{"instance_guid":"wx-1","MsgId":""}"#).send().await, 400, "key-malformed");

    let first = tokio::spawn(message(r#"{"instance_guid":"wx-3","MsgId":1}"#).header("x-fault", "after=1000").send());
    effect_appears(&client, 4).await;
    let meanwhile = message(r#"{"instance_guid":"wx-3","MsgId":1}"#).send().await;
    refused(&meanwhile, 503, "in-progress");
    assert_eq!(meanwhile.header("retry-after"), Some("1"));
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test]
async fn every_fault_does_what_it_says() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    let fault = |key: &str, fault: &str| pay(&client, key).header("x-fault", fault);

    let reply = fault("none", "no-effect").send().await;
    assert_eq!((reply.status.as_u16(), effects(&client).await.len()), (201, 0));

    let reply = fault("status", "status=202").send().await;
    assert_eq!(reply.status, 202);
    assert!(reply.header("location").is_some() && reply.json()["payment_id"].is_string());
    assert!(pay(&client, "status").send().await.status == 202);

    for (key, status) in [("empty", 204), ("unchanged", 304)] {
        let reply = fault(key, &format!("status={status}")).send().await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (status, 0));
        assert!(reply.header("location").is_some());
        let again = pay(&client, key).send().await;
        assert_eq!((again.status.as_u16(), again.body.len(), again.replayed()), (status, 0, true));
    }
    assert_eq!(effects(&client).await.len(), 3);

    // An effect, then an answer that says that its outcome is unknown: a further attempt.
    assert_eq!(fault("unknown", "status=500").send().await.status, 500);
    let retried = pay(&client, "unknown").send().await;
    assert_eq!((retried.status.as_u16(), retried.json()["attempt"].clone()), (201, 2.into()));
    assert_eq!(effects(&client).await.last().unwrap()["attempt"], 2);
    // One that says that nothing took effect frees the key.
    assert_eq!(fault("safe", "no-effect,status=409").send().await.status, 409);
    assert_eq!(pay(&client, "safe").send().await.json()["attempt"], 1);
    assert_eq!(effects(&client).await.len(), 6);

    let padded = fault("size", "size=5000").send().await;
    assert_eq!((padded.body.len(), padded.json()["attempt"].clone()), (5000, 1.into()));
    assert_eq!(pay(&client, "size").send().await.body, padded.body);

    let chunked = fault("chunks", "size=300,chunks=3").send().await;
    assert_eq!((chunked.body.len(), chunked.header("content-length")), (300, None));
    assert_eq!(chunked.header("transfer-encoding"), Some("chunked"));
    let again = pay(&client, "chunks").send().await;
    assert_eq!((again.body, again.headers.contains_key("content-length")), (chunked.body, true));
    assert_eq!(effects(&client).await.len(), 8);

    for bad in ["sleep=1", "before", "status=42", "chunks=0"] {
        refused(&fault("bad", bad).send().await, 400, "invalid-fault");
    }
    assert_eq!(effects(&client).await.len(), 8);
    assert_eq!(pay(&client, "bad").send().await.json()["attempt"], 1);
}

#[tokio::test]
async fn a_panic_breaks_the_connection_and_leaves_the_service() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    let fault = |key: &str, fault: &str| pay(&client, key).header("x-fault", fault);
    assert!(fault("before", "panic-before").try_send().await.is_err());
    assert_eq!(effects(&client).await.len(), 0);
    assert!(fault("after", "panic").try_send().await.is_err());
    assert_eq!(effects(&client).await.len(), 1);
    for key in ["before", "after"] {
        assert_eq!(pay(&client, key).send().await.json()["attempt"], 2, "{key}");
    }
}

#[tokio::test]
async fn an_abort_ends_the_process_and_the_file_keeps_its_effects() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger.jsonl");
    let ledger = ledger.to_str().unwrap();
    for (fault, count) in [("abort-before", 0), ("abort", 1)] {
        let mut service = start(&["--faults", "--ledger", ledger]).await;
        assert!(pay(&service.client(), "k-1").header("x-fault", fault).try_send().await.is_err());
        assert!(!service.ended().await.success());
        let lines = std::fs::read_to_string(ledger).unwrap();
        assert_eq!(lines.lines().count(), count, "{lines}");
    }
    // Another process appends to it and shows what both wrote.
    let service = start(&["--ledger", ledger]).await;
    pay(&service.client(), "k-2").send().await;
    let recorded = effects(&service.client()).await;
    assert_eq!((recorded.len(), &recorded[0]["key"], &recorded[1]["key"]), (2, &"k-1".into(), &"k-2".into()));
}

#[tokio::test]
async fn without_its_flag_the_fault_header_is_ignored() {
    let service = start(&[]).await;
    let client = service.client();
    for (key, fault) in [("k-1", "status=500"), ("k-2", "abort"), ("k-3", "no such fault")] {
        assert_eq!(pay(&client, key).header("x-fault", fault).send().await.status, 201);
    }
    assert_eq!(effects(&client).await.len(), 3);
}

#[tokio::test]
async fn an_outcome_that_is_unknown_is_held_under_at_most_once() {
    let service = start(&["--faults", "--guarantee", "at-most-once"]).await;
    let client = service.client();
    assert_eq!(pay(&client, "k-1").header("x-fault", "status=500").send().await.status, 500);
    refused(&pay(&client, "k-1").send().await, 409, "outcome-unknown");
    assert_eq!(effects(&client).await.len(), 1);
}

#[tokio::test]
async fn sigterm_lets_what_runs_finish_and_ends_with_zero() {
    let mut service = start(&["--faults"]).await;
    let client = service.client();
    let running = tokio::spawn(pay(&client, "k-1").header("x-fault", "after=500").send());
    // This one's client leaves; its handler does not.
    let leaving = pay(&client, "k-2").header("x-fault", "after=500").try_send();
    tokio::select! {
        _ = leaving => panic!("it was too quick"),
        () = effect_appears(&client, 2) => {}
    }
    service.terminate();
    assert_eq!(running.await.unwrap().status, 201);
    assert_eq!(service.ended().await.code(), Some(0));
    assert!(client.get("/healthz").try_send().await.is_err());
}

#[tokio::test]
async fn sigterm_does_not_wait_for_clients_that_say_nothing() {
    let mut service = start(&[]).await;
    let _idle = tokio::net::TcpStream::connect(service.address()).await.unwrap();
    service.client().get("/healthz").send().await;
    service.terminate();
    let ended = tokio::time::timeout(Duration::from_secs(20), service.ended()).await;
    assert_eq!(ended.expect("it ends before the limit of a shutdown").code(), Some(0));
}

async fn run(arguments: &[&str]) -> Output {
    let output = Command::new(PAYMENTS).args(arguments).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await;
    output.expect("the program ends").expect("the program runs")
}

#[tokio::test]
async fn a_mistake_on_the_command_line_is_answered_with_the_usage_and_two() {
    for arguments in [
        &["--store", "postgres://localhost"][..],
        &["--guarantee", "exactly-once"],
        &["--lease", "soon"],
        &["--retention", "0s"],
        &["--listen", "here"],
        &["--ledger"],
        &["--fault"],
    ] {
        let output = run(arguments).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("payments: ") && stderr.contains("usage: payments"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    let help = run(&["--help"]).await;
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).starts_with("usage: payments"));
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let service = start(&[]).await;
    let taken = run(&["--listen", &service.address().to_string()]).await;
    assert_eq!(taken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&taken.stderr).contains("cannot listen on"));
    let ledger = run(&["--listen", "127.0.0.1:0", "--ledger", "/no/such/directory/ledger"]).await;
    assert_eq!(ledger.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ledger.stderr).contains("cannot append to the ledger"));
}

#[tokio::test]
async fn a_report_is_a_stream_of_three_events_and_is_not_run_again() {
    let service = start(&[]).await;
    let client = service.client();
    refused(&client.post("/reports").send().await, 400, "key-missing");

    let report = || client.post("/reports").key("r-1");
    let first = report().send().await;
    assert_eq!((first.status.as_u16(), first.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(first.text().matches("event: part\n").count(), 3, "{}", first.text());
    let repeat = report().send().await;
    refused(&repeat, 409, "not-replayable");

    let recorded = effects(&client).await;
    assert_eq!(recorded.len(), 1);
    assert_eq!((&recorded[0]["kind"], &recorded[0]["key"]), (&"report".into(), &"r-1".into()));
    assert!(first.text().contains(recorded[0]["id"].as_str().unwrap()));
}

#[tokio::test]
async fn a_form_is_a_callback_with_its_key_in_a_field() {
    let service = start(&["--faults"]).await;
    let client = service.client();
    let form = |body: &str| {
        client.post("/forms").header("content-type", "application/x-www-form-urlencoded").body(body.to_owned())
    };
    let (sent, resent) = ("notify_id=n%2D1&sent=1", "sent=2&notify_id=n-1");
    for (body, replayed) in [(sent, false), (sent, true), (resent, true), ("notify_id=n+1", false)] {
        let reply = form(body).send().await;
        assert_eq!((reply.status.as_u16(), reply.text(), reply.replayed()), (200, "success", replayed), "{body}");
    }
    let keys: Vec<_> =
        effects(&client).await.into_iter().map(|effect| (effect["kind"].clone(), effect["key"].clone())).collect();
    assert_eq!(keys, [("form".into(), "n-1".into()), ("form".into(), "n 1".into())]);

    for (body, code) in [
        ("", "key-missing"),
        ("other=1", "key-missing"),
        ("notify_id=", "key-malformed"),
        ("notify_id=1&notify_id=1", "key-malformed"),
        ("notify_id=%zz", "body-malformed"),
    ] {
        refused(&form(body).send().await, 400, code);
    }

    // While the first runs, it is told to come back; and its answer is kept whatever it was.
    let first = tokio::spawn(form("notify_id=2").header("x-fault", "after=1000").send());
    effect_appears(&client, 3).await;
    refused(&form("notify_id=2").send().await, 503, "in-progress");
    assert_eq!(first.await.unwrap().text(), "success");
    let large = form("notify_id=3").header("x-fault", "size=2000000").send().await;
    assert_eq!(large.body.len(), 2_000_000);
    assert_eq!(form("notify_id=3").send().await.text(), "success");
}

#[tokio::test]
async fn with_wait_every_copy_gets_the_answer_of_the_first() {
    let service = start(&["--wait", "30s", "--faults"]).await;
    let client = service.client();
    let copies: Vec<_> =
        (0..20).map(|_| tokio::spawn(pay(&client, "k-1").header("x-fault", "before=50").send())).collect();
    let mut replies = Vec::new();
    for copy in copies {
        replies.push(copy.await.unwrap());
    }
    assert!(replies.iter().all(|reply| reply.status == 201 && reply.body == replies[0].body), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
    assert_eq!(effects(&client).await.len(), 1);

    // Another payment under the same key is not kept waiting.
    let slow = tokio::spawn(pay(&client, "k-2").header("x-fault", "after=1000").send());
    effect_appears(&client, 2).await;
    let other = json!({"order_no": "A-1", "amount": 1, "currency": "EUR"});
    refused(&client.post("/payments").key("k-2").json(&other).send().await, 422, "mismatch");
    assert_eq!(slow.await.unwrap().status, 201);
}
