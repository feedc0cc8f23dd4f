//! What a repeat gets of the first answer.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::BodyExt;
use idem_layer::guard::EventKind;
use idem_layer::middleware::{Idempotency, Verdict};
use idem_layer::testing::Verb;
use idem_tests::http::{Answer, Client, Server, chunks, fields, next_data, read, streamed, whole};
use proptest::prelude::*;
use tower::Layer;

use crate::rig::*;

/// What a handler answers.
#[derive(Clone, Debug)]
struct Programmed {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// Without a length.
    streams: bool,
    http2: bool,
}

impl Programmed {
    fn response(&self) -> Outbound {
        let half = self.body.len() / 2;
        let body = match self.streams {
            true => chunks([self.body[..half].to_vec(), self.body[half..].to_vec()]),
            false => whole(self.body.clone()),
        };
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.fields {
            response = response.header(name, HeaderValue::from_bytes(value).unwrap());
        }
        response.body(body).unwrap()
    }

    /// The first answer and its replay, of a route on which everything is final.
    async fn exchange(self) -> (Answer, Answer) {
        let (rig, runs, http2) = (Rig::at_least_once(), Runs::default(), self.http2);
        let layer = rig.layer().classify(|_, _| Verdict::Complete).build().unwrap();
        let server = Server::start(layer.layer(handler(&runs, move |_, _| {
            let response = self.response();
            async move { response }
        })))
        .await;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
            answers.push(read(client.send(post("k", "x")).await.unwrap()).await.unwrap());
        }
        assert_eq!(runs.count(), 1);
        let replay = answers.pop().unwrap();
        (answers.pop().unwrap(), replay)
    }
}

/// The fields of an answer but those that every message has of its own.
fn lasting(answer: &Answer) -> Vec<(HeaderName, HeaderValue)> {
    let own = ["date", "content-length", "transfer-encoding", "idempotent-replayed"];
    let lasting = answer.headers.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    lasting.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn any_answer() -> impl Strategy<Value = Programmed> {
    let name = prop_oneof!["x-[a-c]", Just("link".into()), Just("etag".into()), Just("content-type".into())];
    let value = prop::collection::vec(prop_oneof![0x21_u8..=0x7e, 0x80_u8..=0xff], 0..12);
    let fields = prop::collection::vec((name, value), 0..8);
    let body = prop::collection::vec(any::<u8>(), 0..200);
    (200_u16..=599, fields, body, any::<bool>(), any::<bool>())
        .prop_map(|(status, fields, body, streams, http2)| Programmed { status, fields, body, streams, http2 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_equals_the_first_answer(programmed in any_answer()) {
        let status = programmed.status;
        let body = if matches!(status, 204 | 205 | 304) { Vec::new() } else { programmed.body.clone() };
        run(async move {
            let (first, replay) = programmed.exchange().await;
            assert!(!first.is_replay() && replay.is_replay());
            assert_eq!((first.status.as_u16(), replay.status.as_u16()), (status, status));
            assert_eq!(lasting(&first), lasting(&replay));
            assert_eq!(first.body, body);
            assert_eq!(first.body, replay.body);
            if matches!(status, 204 | 304) {
                assert_eq!(replay.header("content-length"), "");
            } else {
                assert_eq!(replay.header("content-length"), replay.body.len().to_string());
            }
            assert_eq!(replay.header("transfer-encoding"), "");
        });
    }
}

#[test]
fn a_status_without_content_is_answered_whole_only_when_it_is_stored() {
    run(async {
        for status in [204, 205, 304] {
            for streams in [false, true] {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let server = rig
                    .serve(handler(&runs, move |_, _| async move {
                        let body = if streams { chunks(["ignored"]) } else { whole("") };
                        Response::builder().status(status).header("etag", "\"1\"").body(body).unwrap()
                    }))
                    .await;
                let reply = rig.gates.withhold(Verb::Settle);
                let mut sending = std::pin::pin!(server.answer(post("k", "x")));
                tokio::select! {
                    answer = &mut sending => panic!("{status}, {streams}: {answer:?}"),
                    () = reply.reached() => {}
                }
                reply.open();
                assert_first(&sending.await, status, "");
                let replay = server.answer(post("k", "x")).await;
                assert_replay(&replay, status, "");
                let length = if status == 205 { "0" } else { "" };
                assert_eq!((replay.header("etag"), replay.header("content-length")), ("\"1\"", length));
            }
        }
    });
}

/// Over HTTP/2, a length that a 205 did not have broke the exchange; over HTTP/1.1 its body was taken for the next answer.
#[test]
fn a_length_that_a_status_cannot_have_goes_nowhere() {
    run(async {
        for http2 in [false, true] {
            // A 304 may tell the length of the body that it does not send; hyper tells it over HTTP/2 only. An empty body
            // needs no length there.
            let (first_205, first_304) = if http2 { ("", "7") } else { ("0", "") };
            for (status, first_length, replayed_length) in [(204, "", ""), (205, first_205, "0"), (304, first_304, "")]
            {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let server = rig
                    .serve(handler(&runs, move |_, _| async move {
                        let head = Response::builder().status(status).header("content-length", 7);
                        head.header("etag", "1").body(whole("ignored")).unwrap()
                    }))
                    .await;
                // All on one connection: what is left over of one answer would be read as the next.
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                for (key, replay) in [("k", false), ("k", true), ("l", false), ("l", true)] {
                    let answer = read(client.send(post(key, "x")).await.unwrap()).await.unwrap();
                    assert_eq!((answer.status.as_u16(), answer.text(), answer.is_replay()), (status, "", replay));
                    let length = if replay { replayed_length } else { first_length };
                    assert_eq!(answer.header("content-length"), length, "{http2} {answer:?}");
                    assert_eq!(answer.header("etag"), "1");
                }
            }
        }
    });
}

#[test]
fn safe_methods_pass_untouched() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().key_required().build().unwrap();
        let server = Server::start(layer.layer(handler(&runs, |run, _| async move {
            Response::builder().header("content-length", 5).body(whole(format!("run {run}"))).unwrap()
        })))
        .await;
        for (n, method) in [Method::GET, Method::HEAD, Method::OPTIONS, Method::GET].into_iter().enumerate() {
            let mut request = post("k", "");
            *request.method_mut() = method.clone();
            let body = if method == Method::HEAD { String::new() } else { format!("run {}", n + 1) };
            let answer = server.answer(request).await;
            assert_first(&answer, 200, &body);
            assert_eq!(answer.header("content-length"), "5");
        }
        assert_eq!(rig.faults.calls(Verb::Acquire), 0);
    });
}

#[test]
fn what_belongs_to_the_moment_is_not_replayed() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig
            .serve(handler(&runs, |_, _| async {
                Response::builder()
                    .header("location", "/things/1")
                    .header("set-cookie", "session=1")
                    .header("www-authenticate", "Basic")
                    .header("connection", "x-hop")
                    .header("x-hop", "1")
                    .header("keep-alive", "timeout=5")
                    .header("date", "Thu, 01 Jan 1970 00:00:00 GMT")
                    .header("cache-control", "no-store")
                    .header("idempotent-replayed", "true")
                    .body(whole("x"))
                    .unwrap()
            }))
            .await;
        let first = server.answer(post("k", "x")).await;
        assert_first(&first, 200, "x");
        assert_eq!((first.header("set-cookie"), first.header("x-hop")), ("session=1", "1"));
        let replay = server.answer(post("k", "x")).await;
        assert_replay(&replay, 200, "x");
        for gone in ["set-cookie", "www-authenticate", "connection", "x-hop", "keep-alive"] {
            assert_eq!(replay.header(gone), "", "{gone}");
        }
        // What the handler says of caches steers no store of ours.
        assert_eq!((replay.header("location"), replay.header("cache-control")), ("/things/1", "no-store"));
        assert_ne!(replay.header("date"), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(replay.headers.get_all("idempotent-replayed").iter().count(), 1);
    });
}

#[test]
fn trailers_are_replayed() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = rig
                .serve(handler(&runs, |_, _| async {
                    let (writer, body) = streamed();
                    writer.data("data");
                    writer.trailers(fields([("x-sum", "7"), ("x-sum", "8")]));
                    Response::builder().header("trailer", "x-sum").body(body).unwrap()
                }))
                .await;
            for replay in [false, true] {
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                let mut request = post("k", "x");
                request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
                let answer = read(client.send(request).await.unwrap()).await.unwrap();
                assert_eq!((answer.text(), answer.is_replay()), ("data", replay));
                let sums: Vec<_> = answer.trailers.iter().flat_map(HeaderMap::iter).collect();
                assert_eq!(sums.len(), 2, "{http2} {replay} {answer:?}");
            }
        }
    });
}

#[test]
fn an_answer_of_known_length_leaves_when_it_is_stored() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(counted(&runs)).await;
        let reply = rig.gates.withhold(Verb::Settle);
        let mut client = Client::http1(&server).await;
        let mut sending = std::pin::pin!(client.send(post("k", "x")));
        tokio::select! {
            head = &mut sending => panic!("{head:?}"),
            () = reply.reached() => {}
        }
        reply.open();
        assert_first(&read(sending.await.unwrap()).await.unwrap(), 201, "run 1");
    });
}

#[test]
fn an_answer_of_unknown_length_passes_at_once_but_its_end_waits_until_it_is_stored() {
    run(async {
        for (http2, trailers) in [(false, false), (true, false), (true, true)] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let (writer, body) = streamed();
            let server = rig.serve(once(&runs, Response::new(body))).await;
            let reply = rig.gates.withhold(Verb::Settle);
            let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
            let mut response = client.send(post("k", "x")).await.unwrap();
            for data in ["one,", "two"] {
                writer.data(data);
                assert_eq!(next_data(response.body_mut()).await.unwrap(), data);
            }
            match trailers {
                true => writer.trailers(fields([("x-sum", "7")])),
                false => drop(writer),
            }
            {
                let mut end = std::pin::pin!(response.body_mut().frame());
                tokio::select! {
                    frame = &mut end => panic!("{frame:?}"),
                    () = reply.reached() => {}
                }
                assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut end).await.is_err(), "it has ended");
                reply.open();
                let sum = match end.await.map(|frame| frame.unwrap().into_trailers()) {
                    Some(Ok(trailers)) => trailers.get("x-sum").cloned(),
                    // In HTTP/2 an end may be an empty piece of data.
                    Some(Err(end)) => end.into_data().unwrap().is_empty().then_some(None).expect("no more data"),
                    None => None,
                };
                assert_eq!(sum, trailers.then(|| HeaderValue::from_static("7")));
            }
            let replay = server.answer(post("k", "x")).await;
            assert_replay(&replay, 200, "one,two");
            assert_eq!(replay.header("content-length"), if trailers { "" } else { "7" });
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn an_answer_too_large_to_keep_reaches_its_client_whole_and_is_not_run_again() {
    run(async {
        for (_, rig) in Rig::each() {
            for (length, streams, kept) in [
                (16_usize, false, true),
                (17, false, false),
                (1 << 20, false, false),
                (16, true, true),
                (17, true, false),
                (1 << 20, true, false),
            ] {
                for http2 in [false, true] {
                    let runs = Runs::default();
                    let layer = rig.layer().snapshot_limit(16).build().unwrap();
                    let server = Server::start(layer.layer(handler(&runs, move |_, _| async move {
                        let data: Vec<_> = (0..length).map(|n| (n % 251) as u8).collect();
                        let pieces = data.chunks(length.div_ceil(8)).map(<[u8]>::to_vec);
                        Response::new(if streams { chunks(pieces) } else { whole(data.clone()) })
                    })))
                    .await;
                    let key = format!("{length}-{streams}-{http2}");
                    let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                    let first = read(client.send(post(&key, "x")).await.unwrap()).await.unwrap();
                    assert_eq!(first.body.len(), length);
                    assert!(first.body.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
                    let again = server.answer(post(&key, "x")).await;
                    match kept {
                        true => assert_eq!((again.is_replay(), &again.body), (true, &first.body)),
                        false => assert_problem(&again, 409, "not-replayable"),
                    }
                    assert_eq!(runs.count(), 1);
                }
            }
        }
    });
}

#[test]
fn the_byte_that_is_too_much_waits_until_that_is_stored_and_then_nothing_matters_any_more() {
    run(async {
        let (rig, runs) = (Rig::at_most_once(), Runs::default());
        let (writer, body) = streamed();
        let layer = rig.layer().snapshot_limit(4).build().unwrap();
        let server = Server::start(layer.layer(once(&runs, Response::new(body)))).await;
        let reply = rig.gates.withhold(Verb::Settle);
        let mut client = Client::http1(&server).await;
        writer.data("four");
        let mut response = client.send(post("k", "x")).await.unwrap();
        assert_eq!(next_data(response.body_mut()).await.unwrap(), "four");
        writer.data("five!");
        {
            let mut more = std::pin::pin!(next_data(response.body_mut()));
            tokio::select! {
                data = &mut more => panic!("{data:?}"),
                () = reply.reached() => {}
            }
            reply.open();
            assert_eq!(more.await.unwrap(), "five!");
        }
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
        writer.fail();
        assert!(response.into_body().collect().await.is_err());
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn an_event_stream_is_settled_before_its_head_leaves_and_passes_event_by_event() {
    run(async {
        for (_, rig) in Rig::each() {
            let runs = Runs::default();
            let (writer, body) = streamed();
            let stream =
                Response::builder().header("content-type", "text/event-stream; charset=utf-8").body(body).unwrap();
            let server = rig.serve(once(&runs, stream)).await;
            let mut client = Client::http1(&server).await;
            let mut response = client.send(post("k", "x")).await.unwrap();
            assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
            for event in ["data: 1\n\n", "data: 2\n\n"] {
                writer.data(event);
                assert_eq!(next_data(response.body_mut()).await.unwrap(), event);
            }
            // It is the client's business by now.
            drop((client, response));
            server.left().await;
            assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
            assert_eq!((runs.count(), rig.events.count(EventKind::HandedOver)), (1, 0));
        }
    });
}

#[test]
fn an_upgrade_is_settled_before_its_head_leaves() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let switching = Response::builder().status(101).header("upgrade", "x").header("connection", "upgrade");
        let server = rig.serve(once(&runs, switching.body(whole("")).unwrap())).await;
        let mut client = Client::http1(&server).await;
        let mut request = post("k", "x");
        request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
        request.headers_mut().insert("upgrade", HeaderValue::from_static("x"));
        assert_eq!(client.send(request).await.unwrap().status(), 101);
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn an_answer_that_breaks_off_within_the_limit_has_an_unknown_outcome() {
    run(async {
        for length in [None, Some(100)] {
            for (guarantee, rig) in Rig::each() {
                let runs = Runs::default();
                let (writer, body) = streamed();
                writer.data("half");
                writer.fail();
                let mut response = Response::new(body);
                if let Some(length) = length {
                    response.headers_mut().insert("content-length", length.into());
                }
                let server = rig.serve(once(&runs, response)).await;
                server.send(post("k", "x")).await.expect_err("the response breaks off");
                rig.events.until(guarantee.unknown(), 1).await;
                assert_unknown(&server.answer(post("k", "x")).await, guarantee);
            }
        }
    });
}

#[test]
fn a_replay_may_be_asked_for_by_another_protocol_than_the_first_answer() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(handler(&runs, |_, _| async { Response::new(chunks(["one,", "two"])) })).await;
        for (first, then) in [(false, true), (true, false)] {
            let key = format!("k-{first}");
            for (http2, replay) in [(first, false), (then, true)] {
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                let answer = read(client.send(post(&key, "x")).await.unwrap()).await.unwrap();
                assert_eq!((answer.text(), answer.is_replay()), ("one,two", replay));
            }
        }
    });
}

/// A refusal longer than the limit was settled as completed: the key was spent although nothing had happened.
#[test]
fn an_answer_too_large_to_keep_is_settled_by_what_it_says_all_the_same() {
    run(async {
        for streams in [false, true] {
            for (guarantee, rig) in Rig::each() {
                for (status, says_hold) in [(422, false), (500, false), (200, true)] {
                    let runs = Runs::default();
                    let layer = rig.layer().snapshot_limit(16).build().unwrap();
                    let handler = first_run(&runs, move |request| async move {
                        if says_hold {
                            request.extensions().get::<Idempotency>().unwrap().hold("ask first");
                        }
                        let body =
                            if streams { chunks(["0123456789", "0123456789"]) } else { whole("01234567890123456789") };
                        Response::builder().status(status).body(body).unwrap()
                    });
                    let server = Server::start(layer.layer(handler)).await;
                    let key = format!("{status}");
                    assert_eq!(server.answer(post(&key, "x")).await.body.len(), 20);
                    let again = server.answer(post(&key, "x")).await;
                    match (status, says_hold) {
                        (422, _) => assert_free(&again),
                        (_, true) => assert_problem(&again, 409, "outcome-unknown"),
                        _ => assert_unknown(&again, guarantee),
                    }
                }
            }
        }
    });
}

/// The status of a gRPC call comes last. At the limit it is not there yet: the call ran, and must not run again.
#[test]
fn a_grpc_answer_too_large_to_keep_is_not_run_again() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().snapshot_limit(16).build().unwrap();
        let (writer, body) = streamed();
        writer.data("01234567890123456789");
        writer.trailers(fields([("grpc-status", "0")]));
        let mut response = Response::new(body);
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let server = Server::start(layer.layer(once(&runs, response))).await;
        assert_eq!(server.answer(post("k", "x")).await.body.len(), 20);
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
    });
}

/// The handler had said that it took effect; then its response broke off, and the retry ran.
#[test]
fn an_answer_that_breaks_off_is_what_its_handler_has_said() {
    run(async {
        for length in [None, Some(100)] {
            for (_, rig) in Rig::each() {
                let runs = Runs::default();
                let server = rig.serve(first_run(&runs, move |request| async move {
                    request.extensions().get::<Idempotency>().unwrap().complete();
                    let (writer, body) = streamed();
                    writer.data("half");
                    writer.fail();
                    let mut response = Response::new(body);
                    if let Some(length) = length {
                        response.headers_mut().insert("content-length", HeaderValue::from(length));
                    }
                    response
                }));
                let server = server.await;
                server.send(post("k", "x")).await.expect_err("the response breaks off");
                rig.events.until(EventKind::Completed, 1).await;
                assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
                assert_eq!(runs.count(), 1);
            }
        }
    });
}
