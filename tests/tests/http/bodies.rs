//! Keys and request bodies.

use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use idem_layer::middleware::{Idempotency, fingerprint, key, scope};
use idem_layer::testing::Verb;
use idem_tests::gate::Gate;
use idem_tests::http::{Client, Content, Server, chunks, fields, read, streamed, whole};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Layer;

use crate::rig::*;

#[test]
fn each_bad_key_is_refused_and_claims_nothing() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        let long = [b'k'; 256];
        for bad in [
            &b""[..],
            b"   ",
            b"\"\"",
            b"\"   \"",
            &long,
            b"two words",
            b"a\tb",
            b"\"open",
            b"\"a\" b",
            b"\"a\\b\"",
            b"caf\xc3\xa9",
            b"\"caf\xc3\xa9\"",
            b"\xff",
        ] {
            let mut request = post("k", "x");
            request.headers_mut().insert("idempotency-key", HeaderValue::from_bytes(bad).unwrap());
            let answer = server.answer(request).await;
            assert_problem(&answer, 400, "key-malformed");
            assert_eq!(answer.retry_after_s(), None);
        }
        for lines in [["k", "k"], ["k", "l"]] {
            let mut request = post(lines[0], "x");
            request.headers_mut().append("idempotency-key", lines[1].parse().unwrap());
            assert_problem(&server.answer(request).await, 400, "key-malformed");
        }
        // No server of HTTP lets these through to a service.
        for control in [&b"\x00"[..], b"a\x07b", b"\x7f"] {
            let answer =
                exchange(&server, &[b"POST / HTTP/1.1\r\nhost: h\r\nidempotency-key: ", control, b"\r\n\r\n"]).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
    });
}

#[test]
fn a_key_of_255_bytes_is_one_and_so_is_every_visible_character() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        let visible: String = ('!'..='~').filter(|c| *c != '"').collect();
        for (n, key) in
            ["k".repeat(255), visible, "a%2Cb".into(), "a,b".into(), "A".into(), "a".into()].iter().enumerate()
        {
            let run = format!("run {}", n + 1);
            assert_first(&server.answer(post(key, "x")).await, 201, &run);
            assert_replay(&server.answer(post(key, "x")).await, 201, &run);
        }
    });
}

#[test]
fn a_quoted_key_and_a_bare_one_are_one() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        assert_first(&server.answer(post("abc", "x")).await, 201, "run 1");
        for same in ["\"abc\"", "  abc ", "\"abc\";v=1"] {
            assert_replay(&server.answer(post(same, "x")).await, 201, "run 1");
        }
        assert_first(&server.answer(post("\"a bc\"", "x")).await, 201, "run 2");
    });
}

#[test]
fn a_request_without_a_key_passes_unguarded_or_is_refused_where_one_is_required() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let keyless = || Request::post("/things").body(whole("x")).unwrap();
        let unguarded = handler(&runs, |run, request| async move {
            assert!(request.extensions().get::<Idempotency>().is_none());
            created(format!("run {run}"))
        });
        let server = rig.serve(unguarded.clone()).await;
        assert_first(&server.answer(keyless()).await, 201, "run 1");
        assert_first(&server.answer(keyless()).await, 201, "run 2");

        let layer = rig.layer().key_required().build().unwrap();
        let server = Server::start(layer.layer(unguarded)).await;
        assert_problem(&server.answer(keyless()).await, 400, "key-missing");
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 2));
    });
}

#[test]
fn a_key_in_json_is_its_exact_text() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        // The key alone decides here.
        let layer = rig.layer().key(key::json("/request_id")).fingerprint(fingerprint::off());
        let server = Server::start(layer.build().unwrap().layer(counted(&runs))).await;
        let send = async |body: &'static str| server.answer(Request::post("/orders").body(whole(body)).unwrap()).await;

        assert_first(&send(r#"{"request_id":9007199254740993}"#).await, 201, "run 1");
        assert_first(&send(r#"{"request_id":9007199254740992}"#).await, 201, "run 2");
        assert_replay(&send(r#"{"request_id":"9007199254740993"}"#).await, 201, "run 1");
        assert_replay(&send(r#"{ "other": [1, {}], "request_id" : 9007199254740993 }"#).await, 201, "run 1");
        assert_first(&send(r#"{"request_id":18446744073709551616}"#).await, 201, "run 3");
        assert_first(&send(r#"{"request_id":7}"#).await, 201, "run 4");
        assert_first(&send(r#"{"request_id":7.0}"#).await, 201, "run 5");
        assert_first(&send(r#"{"request_id":"\u0061"}"#).await, 201, "run 6");
        assert_replay(&send(r#"{"request_id":"a"}"#).await, 201, "run 6");
    });
}

#[test]
fn a_body_that_has_no_key_passes_and_one_that_has_a_bad_one_is_refused() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let optional = rig.layer().key(key::json("/request_id"));
        let required = optional.clone().key_required();
        let optional = Server::start(optional.build().unwrap().layer(counted(&runs))).await;
        let required = Server::start(required.build().unwrap().layer(counted(&runs))).await;
        let order = |body: &'static str| Request::post("/orders").body(whole(body)).unwrap();

        for absent in ["{}", r#"{"request_id":null}"#, "[1]", "7"] {
            assert_eq!(optional.answer(order(absent)).await.status, 201);
            assert_problem(&required.answer(order(absent)).await, 400, "key-missing");
        }
        for (bad, code) in [
            ("", "body-malformed"),
            ("{", "body-malformed"),
            (r#"{"request_id":1} x"#, "body-malformed"),
            (r#"{"request_id":01}"#, "body-malformed"),
            (r#"{"request_id":1,"request_id":2}"#, "key-malformed"),
            (r#"{"request_id":""}"#, "key-malformed"),
            (r#"{"request_id":"  "}"#, "key-malformed"),
            (r#"{"request_id":"a\u0000"}"#, "key-malformed"),
            (r#"{"request_id":true}"#, "key-malformed"),
            (r#"{"request_id":{}}"#, "key-malformed"),
        ] {
            for server in [&optional, &required] {
                assert_problem(&server.answer(order(bad)).await, 400, code);
            }
        }
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 4));
    });
}

#[test]
fn json_is_compared_by_value_and_other_bodies_by_their_bytes() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        let send = async |key: &str, content_type: &'static str, body: &'static str| {
            let mut request = post(key, body);
            request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
            server.answer(request).await
        };
        assert_first(&send("json", "application/json", r#"{"a":1,"b":"x"}"#).await, 201, "run 1");
        assert_replay(&send("json", "application/json", r#"{ "b":"\u0078", "a":1 }"#).await, 201, "run 1");
        assert_problem(&send("json", "application/json", r#"{"a":1.0,"b":"x"}"#).await, 422, "mismatch");
        assert_first(&send("text", "text/plain", r#"{"a":1,"b":2}"#).await, 201, "run 2");
        assert_problem(&send("text", "text/plain", r#"{"b":2,"a":1}"#).await, 422, "mismatch");
        assert_first(&send("form", "multipart/form-data; boundary=1", "--1\r\n--1--").await, 201, "run 3");
        assert_replay(&send("form", "multipart/form-data; boundary=2", "--2\r\n--2--").await, 201, "run 3");
    });
}

#[test]
fn a_body_over_the_limit_claims_nothing() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().request_limit(16).build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        let sized = |length: usize| post_bytes(whole(vec![b'x'; length]));
        let unsized_ = |length: usize| post_bytes(chunks([vec![b'x'; length / 2], vec![b'x'; length - length / 2]]));
        for http2 in [false, true] {
            for large in [sized(17), sized(1 << 20), unsized_(17)] {
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                let answer = read(client.send(large).await.unwrap()).await.unwrap();
                assert_problem(&answer, 413, "body-too-large");
                assert_eq!(answer.retry_after_s(), None);
            }
        }
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
        assert_first(&server.answer(sized(16)).await, 201, "run 1");
        // However the same bytes come.
        assert_replay(&server.answer(unsized_(16)).await, 201, "run 1");
    });
}

#[test]
fn a_body_that_breaks_off_claims_nothing_and_the_retry_runs() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        let head = b"POST /things HTTP/1.1\r\nhost: h\r\nidempotency-key: k\r\n";
        for rest in [
            &b"content-length: 10\r\n\r\nhalf"[..],
            b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nnot a length\r\n",
        ] {
            let answer = exchange(&server, &[head, rest]).await;
            let refused = answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"code\":\"body-incomplete\"");
            assert!(answer.is_empty() || refused, "{answer}");
            server.ended().await;
        }

        let mut client = Client::http2(&server).await;
        let (writer, body) = streamed();
        writer.data("half");
        writer.fail();
        match client.send(post_bytes(body)).await {
            Ok(response) => assert_problem(&read(response).await.unwrap(), 400, "body-incomplete"),
            Err(reset) => drop(reset),
        }
        server.ended().await;
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
        assert_first(&server.answer(post("k", "half")).await, 201, "run 1");
    });
}

#[test]
fn the_handler_gets_the_body_it_was_sent_with_its_trailers() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig
            .serve(handler(&runs, |_, request| async move {
                let body = request.into_body().collect().await.unwrap();
                let sum = body.trailers().map_or("none".into(), |trailers| format!("{:?}", trailers["x-sum"]));
                created(format!("{} {sum}", std::str::from_utf8(&body.to_bytes()).unwrap()))
            }))
            .await;
        for (n, http2) in [false, true].into_iter().enumerate() {
            let key = format!("with {n}");
            let send = async |again: bool| {
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                let (writer, body) = streamed();
                ["one,", "two"].into_iter().for_each(|data| writer.data(data));
                writer.trailers(fields([("x-sum", if again { "other" } else { "7" })]));
                let mut request = post_bytes(body);
                request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
                request.headers_mut().insert("idempotency-key", format!("\"{key}\"").parse().unwrap());
                read(client.send(request).await.unwrap()).await.unwrap()
            };
            assert_first(&send(false).await, 201, "one,two \"7\"");
            // Trailers are not part of what is compared.
            assert_replay(&send(true).await, 201, "one,two \"7\"");
        }
        assert_first(&server.answer(post("without", "one,two")).await, 201, "one,two none");
    });
}

#[test]
fn an_unguarded_body_is_not_collected() {
    run(async {
        let (rig, runs, seen) = (Rig::at_least_once(), Runs::default(), Gate::new());
        seen.open();
        let layer = rig.layer().request_limit(4).build().unwrap();
        let server = Server::start(layer.layer(handler(&runs, {
            let seen = seen.clone();
            move |_, request| {
                let seen = seen.clone();
                async move {
                    let mut body = request.into_body();
                    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
                    seen.pass().await;
                    let rest = body.collect().await.unwrap().to_bytes();
                    created([first, rest].concat())
                }
            }
        })))
        .await;
        let (writer, body) = streamed();
        writer.data("one,");
        let request = Request::post("/things").body(body).unwrap();
        let (answer, ()) = tokio::join!(server.answer(request), async {
            // The handler has the first part before there is a second.
            seen.reached().await;
            writer.data("two, and more than would be kept");
            drop(writer);
        });
        assert_first(&answer, 201, "one,two, and more than would be kept");
    });
}

fn post_bytes(body: Content) -> Request<Content> {
    Request::post("/things").header("idempotency-key", "k").body(body).unwrap()
}

/// Sends bytes and no more after them, and returns what comes back until the server closes.
async fn exchange(server: &Server, bytes: &[&[u8]]) -> String {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(&bytes.concat()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is no less of an end.
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request without a key was refused for want of a scope, which it does not need.
#[test]
fn a_request_without_a_key_needs_no_scope() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        for key in [key::header("idempotency-key"), key::json("/id")] {
            let layer = rig.builder().scope(scope::header("x-tenant")).key(key).build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, |_, _| async { created("made") }))).await;
            let request = Request::post("/things").body(whole("{}")).unwrap();
            assert_eq!(server.answer(request).await.status, 201);
        }
        assert_eq!(runs.count(), 2);
    });
}
