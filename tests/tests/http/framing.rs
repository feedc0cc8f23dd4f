//! Answers whose head says something else of their body than is true.

use bytes::Bytes;
use http::{Response, StatusCode};
use idem_layer::middleware::{LayerError, RejectionKind};
use idem_tests::http::{Client, Content, Server, chunks, read, whole};
use tower::Layer;

use crate::rig::*;

/// A handler's length reached the wire as it was, with a body of another: the rest of it was the client's next answer, or was
/// waited for.
#[test]
fn a_first_answer_has_the_length_of_its_body_whatever_its_handler_says() {
    run(async {
        let bodies: [fn() -> Content; 2] = [|| chunks(["12345", "67890"]), || whole("1234567890")];
        for body in bodies {
            for (said, http2) in [("5", false), ("5", true), ("0", false), ("17", false), ("17", true), ("10", false)] {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let server = rig
                    .serve(handler(&runs, move |_, _| async move {
                        Response::builder().status(201).header("content-length", said).body(body()).unwrap()
                    }))
                    .await;
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                for replay in [false, true] {
                    // One connection: what is over from one answer would be read as the next.
                    let answer = read(client.send(post("k", "x")).await.unwrap()).await.unwrap();
                    assert_eq!((answer.text(), answer.header("content-length")), ("1234567890", "10"), "{said}");
                    assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, replay));
                }
                assert_eq!(runs.count(), 1);
            }
        }
    });
}

/// The default answer's length was sent with the hook's body.
#[test]
fn a_refusal_has_the_length_of_the_body_that_its_route_gives_it() {
    run(async {
        for (status, length) in [(200, "4"), (400, "4"), (204, ""), (205, "0"), (304, "")] {
            for http2 in [false, true] {
                let (rig, runs) = (Rig::at_least_once(), Runs::default());
                let layer = rig.layer().on_rejection(move |_, mut response| {
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    response.map(|_| Bytes::from_static(b"fail"))
                });
                let server = Server::start(layer.build().unwrap().layer(counted(&runs))).await;
                let mut client = if http2 { Client::http2(&server).await } else { Client::http1(&server).await };
                for _ in 0..2 {
                    let answer = read(client.send(post("", "")).await.unwrap()).await.unwrap();
                    assert_eq!(answer.status, status);
                    assert_eq!(answer.text(), if ["", "0"].contains(&length) { "" } else { "fail" });
                    let length = if http2 && length == "0" { answer.header("content-length") } else { length };
                    assert_eq!(answer.header("content-length"), length, "{status} {http2}");
                }
                assert_eq!(runs.count(), 0);
            }
        }
    });
}

#[test]
fn a_refusal_has_a_status_that_can_tell_why() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        for status in [StatusCode::PROCESSING, StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
            let mistake = rig.layer().status(RejectionKind::Mismatch, status).build().err();
            assert_eq!(mistake, Some(LayerError::RejectionStatus(status)));
        }
        let layer = rig.layer().on_rejection(|rejection, _| rejection.response_with(StatusCode::CONTINUE));
        let server = Server::start(layer.build().unwrap().layer(counted(&runs))).await;
        assert_problem(&server.answer(post("", "")).await, 400, "key-malformed");
    });
}

/// It was taken for a stream, and repeats were told that it could not be kept.
#[test]
fn an_event_stream_of_a_status_without_content_is_no_stream() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let none = Response::builder().status(204).header("content-type", "text/event-stream").body(whole("")).unwrap();
        let server = rig.serve(once(&runs, none)).await;
        assert_first(&server.answer(post("k", "x")).await, 204, "");
        assert_replay(&server.answer(post("k", "x")).await, 204, "");
    });
}

/// Such a head was stored as a response, and every repeat was told that the record cannot be read.
#[test]
fn an_informational_answer_is_not_kept() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = rig.serve(once(&runs, response(102, ""))).await;
        let _ = server.send(post("k", "x")).await;
        assert_problem(&server.answer(post("k", "x")).await, 409, "not-replayable");
        assert_eq!(runs.count(), 1);
    });
}
