//! What is stored of an answer, and the fields that the layer adds to it.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Response, Version};
use idem_layer::clock::Clock;
use idem_layer::middleware::{Idempotency, KeptHeaders, LayerError};
use idem_layer::protocol::Policy;
use idem_tests::http::{Answer, Client, Server, chunks, fields, next_data, streamed, whole};
use tower::{Layer, ServiceExt};

use crate::rig::*;

/// The values of a field, in order.
fn lines(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn the_fields_that_give_an_answer_its_meaning_come_with_it() {
    /// A status, field lines, a body.
    type Case = (u16, &'static [(&'static str, &'static [u8])], &'static [u8]);
    const CASES: &[Case] = &[
        (201, &[("location", b"/things/1"), ("etag", b"W/\"1\"")], b" {\"a\" : 1.0}\n"),
        (206, &[("content-range", b"bytes 2-4/10"), ("content-type", b"text/plain; charset=latin1")], b"\xe9\0\xff"),
        (303, &[("location", b"/things/1?x=%20")], b""),
        (200, &[("content-encoding", b"gzip"), ("vary", b"accept-encoding")], b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0"),
        (200, &[("link", b"<a>"), ("x-raw", b"\xff\xfe"), ("link", b"<b>"), ("x-raw", b"a,b"), ("link", b"<a>")], b"x"),
        (200, &[("retry-after", b"7"), ("cache-control", b"private"), ("x-empty", b"")], b"x"),
    ];

    run(async {
        for http2 in [false, true] {
            for &(status, lines, body) in CASES {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let server = rig
                    .serve(handler(&runs, move |_, _| async move {
                        let mut response = response(status, body);
                        for (name, value) in lines {
                            response.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
                        }
                        response
                    }))
                    .await;
                for replay in [false, true] {
                    let answer = ask(&server, http2, post("k", "x")).await;
                    assert_eq!((answer.status.as_u16(), &answer.body[..], answer.is_replay()), (status, body, replay));
                    for (name, _) in lines {
                        let sent = lines.iter().filter(|line| line.0 == *name).map(|line| line.1);
                        let came = answer.headers.get_all(*name).iter().map(HeaderValue::as_bytes);
                        assert!(came.eq(sent), "{answer:?}");
                    }
                }
                assert_eq!(runs.count(), 1);
            }
        }
    });
}

#[test]
fn a_first_answer_has_the_extensions_and_the_version_that_its_handler_gave_it() {
    #[derive(Clone)]
    struct Note(&'static str);

    run(async {
        for streams in [false, true] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let handler = handler(&runs, move |_, _| async move {
                let mut response = Response::new(if streams { chunks(["x"]) } else { whole("x") });
                response.extensions_mut().insert(Note("from the handler"));
                *response.version_mut() = Version::HTTP_10;
                response
            });
            let layer = rig.layer().idempotency_expires().build().unwrap();
            let server = Server::start(layer.layer(handler).map_response(|mut response| {
                let note = response.extensions().get::<Note>().map_or("none", |note| note.0);
                let seen = format!("{note}, {:?}", response.version()).parse().unwrap();
                response.headers_mut().insert("x-seen", seen);
                *response.version_mut() = Version::HTTP_11;
                response
            }))
            .await;
            assert_eq!(server.answer(post("k", "x")).await.header("x-seen"), "from the handler, HTTP/1.0");
            // They are of the process, not of the answer.
            assert_eq!(server.answer(post("k", "x")).await.header("x-seen"), "none, HTTP/1.1");
        }
    });
}

async fn signed_in(trailers: bool) -> Outbound {
    let (writer, body) = streamed();
    writer.data("in");
    if trailers {
        writer.trailers(fields([("x-sum", "7"), ("x-request-id", "first"), ("set-cookie", "t=1")]));
    }
    Response::builder()
        .header("content-type", "text/plain")
        .header("content-encoding", "identity")
        .header("set-cookie", "a=1; HttpOnly")
        .header("x-request-id", "first")
        .header("set-cookie", "b=2")
        .header("www-authenticate", "Negotiate")
        .header("location", "/sessions/1")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("trailer", "x-sum, x-request-id")
        .body(body)
        .unwrap()
}

#[test]
fn a_route_lists_which_fields_are_replayed() {
    run(async {
        let all = ["x-request-id", "location"];
        for (kept, expected, cookies, sum) in [
            (KeptHeaders::all(), &all[..], false, true),
            (
                KeptHeaders::all().with(["Set-Cookie", "www-authenticate"]),
                &["x-request-id", "location", "www-authenticate"],
                true,
                true,
            ),
            (KeptHeaders::all().without(["X-Request-ID", "x-sum"]), &["location"], false, false),
            (KeptHeaders::only(["location", "x-sum"]), &["location"], false, true),
            (KeptHeaders::only(["set-cookie"]), &[], true, false),
            (KeptHeaders::only(["x-hop"]), &[], false, false),
        ] {
            for trailers in [false, true] {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let layer = rig.layer().keep(kept.clone()).build().unwrap();
                let server = Server::start(layer.layer(handler(&runs, move |_, _| signed_in(trailers)))).await;
                let send = async || {
                    let mut request = post("k", "x");
                    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
                    ask(&server, true, request).await
                };
                let first = send().await;
                assert_first(&first, 200, "in");
                // The first answer has all of them.
                assert_eq!(lines(&first.headers, "set-cookie"), ["a=1; HttpOnly", "b=2"]);
                let replay = send().await;
                assert_replay(&replay, 200, "in");
                for name in ["x-request-id", "location", "www-authenticate", "x-hop"] {
                    let kept = if expected.contains(&name) { lines(&first.headers, name) } else { Vec::new() };
                    assert_eq!(lines(&replay.headers, name), kept, "{name} {kept:?}");
                }
                let expected_cookies = if cookies { &["a=1; HttpOnly", "b=2"][..] } else { &[] };
                assert_eq!(lines(&replay.headers, "set-cookie"), expected_cookies);
                // Without its type a body is another one.
                assert_eq!(
                    (replay.header("content-type"), replay.header("content-encoding")),
                    ("text/plain", "identity")
                );
                if trailers {
                    let of = replay.trailers.clone().unwrap_or_default();
                    let names: Vec<_> = of.keys().map(HeaderName::as_str).collect();
                    for (name, kept) in
                        [("x-sum", sum), ("x-request-id", expected.contains(&"x-request-id")), ("set-cookie", cookies)]
                    {
                        assert_eq!(names.contains(&name), kept, "{name} {names:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_mark_may_have_another_name() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().replay_marker("X-Repeated", "1").build().unwrap();
        let server = Server::start(layer.layer(handler(&runs, |_, _| async {
            Response::builder()
                .header("x-repeated", "0")
                .header("idempotent-replayed", "by somebody further in")
                .header("x-repeated", "no")
                .header("etag", "1")
                .body(whole("x"))
                .unwrap()
        })))
        .await;
        for marks in [&[][..], &["1"], &["1"]] {
            let answer = server.answer(post("k", "x")).await;
            assert_eq!(lines(&answer.headers, "x-repeated"), marks);
            assert_eq!(answer.header("idempotent-replayed"), "by somebody further in");
            assert_eq!((answer.header("etag"), answer.text()), ("1", "x"));
        }
        assert_eq!(runs.count(), 1);
    });
}

/// What is a mistake in a description of answers.
#[test]
fn a_layer_that_could_not_keep_or_mark_as_described_is_not_built() {
    let layer = || Rig::at_least_once().layer();
    let error = |layer: idem_layer::middleware::LayerBuilder<_>| layer.build().unwrap_err();
    assert_eq!(error(layer().keep(KeptHeaders::all().with(["date"]))), LayerError::NeverKept("date".into()));
    assert_eq!(error(layer().keep(KeptHeaders::only(["a b"]))), LayerError::HeaderName("a b".into()));
    assert_eq!(
        error(layer().keep(KeptHeaders::all().without(["Content-Type"]))),
        LayerError::AlwaysKept("content-type".into())
    );
    // The mark is never kept, whatever its name is, and whichever is said first.
    let named = |marked: &'static str| KeptHeaders::only([marked]);
    assert_eq!(error(layer().keep(named("idempotent-replayed"))), LayerError::NeverKept("idempotent-replayed".into()));
    assert_eq!(
        error(layer().replay_marker("x-again", "1").keep(named("x-again"))),
        LayerError::NeverKept("x-again".into())
    );
    assert_eq!(
        error(layer().keep(named("x-again")).replay_marker("X-Again", "1")),
        LayerError::NeverKept("x-again".into())
    );
    layer().keep(named("idempotent-replayed")).replay_marker("x-again", "1").build().unwrap();
    assert_eq!(error(layer().replay_marker("a b", "1")), LayerError::HeaderName("a b".into()));
    assert_eq!(error(layer().replay_marker("x-again", "\n")), LayerError::HeaderValue("\n".into()));
    assert_eq!(error(layer().replay_marker("Date", "1")), LayerError::Marker("date".into()));
}

fn expires(answer: &Answer) -> &str {
    assert!(answer.headers.get_all("idempotency-expires").iter().count() <= 1, "{answer:?}");
    answer.header("idempotency-expires")
}

#[test]
fn an_answer_says_until_when_it_is_kept_and_its_replay_says_the_same() {
    run(async {
        let (clock, retention) = (Clock::system(), Duration::from_millis(3_600_999));
        for (status, streams) in [(201, false), (200, true), (204, false), (303, false)] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let policy = Policy::builder().retention(retention).build().unwrap();
            let kept = KeptHeaders::only([""; 0]);
            let layer = rig.layer().policy(policy).keep(kept).idempotency_expires().build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, move |_, _| async move {
                let body = if streams { chunks(["a", "b"]) } else { whole("") };
                let head = Response::builder().status(status).header("idempotency-expires", "from further in");
                head.header("idempotency-expires", "twice").body(body).unwrap()
            })))
            .await;
            let before_ms = clock.epoch_ms();
            let first = server.answer(post("k", "x")).await;
            let after_ms = clock.epoch_ms();
            let said = expires(&first);
            assert!(said.len() == 29 && said.ends_with(" GMT"), "{said}");
            let until = httpdate::parse_http_date(said).unwrap();
            let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms) + retention;
            assert!(until <= at(after_ms), "{said}");
            assert!(until + Duration::from_secs(1) > at(before_ms), "{said}");
            let replay = server.answer(post("k", "x")).await;
            assert!(replay.is_replay());
            assert_eq!(expires(&replay), said);
        }
    });
}

#[test]
fn an_answer_that_is_not_kept_promises_nothing() {
    run(async {
        for case in [
            "not asked for",
            "unguarded",
            "refused",
            "failed",
            "says release",
            "says hold",
            "events",
            "stream that fails",
            "too large",
            "longer than it says",
            "fields too large",
            "grpc",
        ] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer = rig.layer().snapshot_limit(16);
            let layer = if case == "not asked for" { layer } else { layer.idempotency_expires() };
            let server = Server::start(layer.build().unwrap().layer(handler(&runs, move |_, request| async move {
                let said = request.extensions().get::<Idempotency>();
                match case {
                    "refused" => response(422, "no"),
                    "failed" => response(500, "oh"),
                    "says release" => {
                        said.unwrap().release();
                        response(200, "free")
                    }
                    "says hold" => {
                        said.unwrap().hold("ask first");
                        response(200, "held")
                    }
                    "events" => Response::builder()
                        .header("content-type", "text/event-stream")
                        .body(whole("data:\n\n"))
                        .unwrap(),
                    "stream that fails" => Response::builder().status(500).body(chunks(["oh"])).unwrap(),
                    "too large" => response(200, "12345678901234567"),
                    // More comes than its length says: only so much reaches the client.
                    "longer than it says" => Response::builder()
                        .header("content-length", "12")
                        .body(chunks(["1234567890", "1234567890"]))
                        .unwrap(),
                    "fields too large" => {
                        Response::builder().header("x-large", "x".repeat(70_000)).body(whole("x")).unwrap()
                    }
                    "grpc" => {
                        let (writer, body) = streamed();
                        writer.trailers(fields([("grpc-status", "0")]));
                        Response::builder().header("content-type", "application/grpc").body(body).unwrap()
                    }
                    _ => response(200, "x"),
                }
            })))
            .await;
            let mut request = post("k", "x");
            if case == "unguarded" {
                request.headers_mut().remove("idempotency-key");
            }
            let answer = server.answer(request).await;
            assert_eq!(answer.header("idempotency-expires"), "", "{case}");
            assert!(!answer.is_replay());
        }
    });
}

#[test]
fn fields_too_large_to_keep_reach_their_client_and_the_request_is_not_run_again() {
    run(async {
        for (_, rig) in Rig::each() {
            for (n, (length, kept)) in [(60_000_usize, true), (70_000, false)].into_iter().enumerate() {
                for (status, streams) in [(201, false), (200, true), (204, false)] {
                    let runs = Runs::default();
                    let server = rig.serve(handler(&runs, move |_, _| async move {
                        let data = if status == 204 { "" } else { "done" };
                        let body = if streams { chunks([data]) } else { whole(data) };
                        Response::builder().status(status).header("x-large", "x".repeat(length)).body(body).unwrap()
                    }));
                    let (server, key) = (server.await, format!("{n}-{status}"));
                    let first = server.answer(post(&key, "x")).await;
                    assert_first(&first, status, if status == 204 { "" } else { "done" });
                    assert_eq!(first.header("x-large").len(), length);
                    let again = server.answer(post(&key, "x")).await;
                    match kept {
                        true => assert_eq!((again.is_replay(), again.header("x-large").len()), (true, length)),
                        false => assert_problem(&again, 409, "not-replayable"),
                    }
                    assert_eq!(runs.count(), 1);
                }
            }
        }
    });
}

#[test]
fn fields_too_large_to_keep_are_settled_by_what_the_answer_says_all_the_same() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            for status in [422, 500] {
                let runs = Runs::default();
                let large = Response::builder().status(status).header("x-large", "x".repeat(70_000));
                let server = rig.serve(once(&runs, large.body(whole("no")).unwrap())).await;
                assert_first(&server.answer(post(&format!("k-{status}"), "x")).await, status, "no");
                let again = server.answer(post(&format!("k-{status}"), "x")).await;
                if status == 422 { assert_free(&again) } else { assert_unknown(&again, guarantee) }
            }
        }
    });
}

#[test]
fn trailers_too_large_to_keep_are_known_at_the_end() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let (writer, body) = streamed();
        writer.data("done");
        writer.trailers(fields([("x-large", "x".repeat(70_000).as_str())]));
        let server = rig.serve(once(&runs, Response::new(body))).await;
        // A client that does not ask for trailers gets none.
        assert_first(&server.answer(post("k", "x")).await, 200, "done");
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
        assert_eq!(runs.count(), 1);
    });
}

/// They are there before the head leaves, and so is what it means: nothing of the body is kept for a replay that cannot be.
#[test]
fn fields_too_large_to_keep_are_settled_before_the_head_leaves() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let (writer, body) = streamed();
            let stream = Response::builder().header("x-large", "x".repeat(70_000)).body(body).unwrap();
            let server = rig.serve(once(&runs, stream)).await;
            let mut client = Client::http1(&server).await;
            let mut response = client.send(post("k", "x")).await.unwrap();
            assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
            writer.data("some");
            assert_eq!(next_data(response.body_mut()).await.unwrap(), "some");
            // It is the client's business by now.
            writer.fail();
            assert!(next_data(response.body_mut()).await.is_err());
            assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
            assert_eq!(runs.count(), 1);
        }
    });
}
