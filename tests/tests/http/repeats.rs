//! What repeats of a completed operation get instead of a replay, and what becomes of a replay on its way.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use idem_layer::guard::EventKind;
use idem_layer::middleware::{LayerError, RejectionKind, Repeats, ReplayTrailers};
use idem_layer::testing::{Fault, Verb};
use idem_tests::gate::Gate;
use idem_tests::http::{Answer, Content, Server, chunks, fields, streamed, whole};
use tower::{Layer, ServiceExt};

use crate::rig::*;

fn success() -> Response<Bytes> {
    Response::builder()
        .status(202)
        .header("content-type", "application/json")
        .header("content-length", "999")
        .header("x-note", "a")
        .header("x-note", "b")
        .body(Bytes::from_static(br#"{"code":"SUCCESS"}"#))
        .unwrap()
}

/// A service that answers 201 and as much as its limit allows it to keep.
async fn served(rig: &Rig, runs: &Runs, repeats: Repeats) -> Server {
    let layer = rig.layer().snapshot_limit(8).repeats(repeats).build().unwrap();
    Server::start(layer.layer(handler(runs, |_, request| async move {
        let large = request.headers().contains_key("x-large");
        created(if large { "too large to keep" } else { "small" })
    })))
    .await
}

/// Makes the same request again.
type Repeated = fn() -> Request<Content>;

/// One whose answer is kept, one whose is not, each with its answer.
fn pairs() -> [(&'static str, Repeated); 2] {
    [
        ("small", || post("k", "x")),
        ("too large to keep", || {
            let mut request = post("l", "x");
            request.headers_mut().insert("x-large", HeaderValue::from_static("yes"));
            request
        }),
    ]
}

#[test]
fn a_fixed_acknowledgement_answers_repeats_whatever_became_of_the_first_answer() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = served(&rig, &runs, Repeats::acknowledge(success())).await;
            for (body, request) in pairs() {
                assert_first(&ask(&server, http2, request()).await, 201, body);
                for _ in 0..2 {
                    let repeat = ask(&server, http2, request()).await;
                    assert_replay(&repeat, 202, r#"{"code":"SUCCESS"}"#);
                    assert_eq!(repeat.header("content-type"), "application/json");
                    assert_eq!(repeat.header("content-length"), "18");
                    assert_eq!(repeat.headers.get_all("x-note").iter().collect::<Vec<_>>(), ["a", "b"]);
                    assert_eq!(repeat.headers.get_all("idempotent-replayed").iter().count(), 1);
                }
            }
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn an_acknowledgement_has_the_extensions_that_it_was_given() {
    #[derive(Clone)]
    struct Note(&'static str);

    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let mut answer = success();
        answer.extensions_mut().insert(Note("as given"));
        let layer = rig.layer().repeats(Repeats::acknowledge(answer)).build().unwrap();
        let server = Server::start(layer.layer(counted(&runs)).map_response(|mut response| {
            let note = response.extensions().get::<Note>().map_or("none", |note| note.0);
            response.headers_mut().insert("x-note", HeaderValue::from_static(note));
            response
        }))
        .await;
        for note in ["none", "as given", "as given"] {
            assert_eq!(server.answer(post("k", "x")).await.header("x-note"), note);
        }
    });
}

#[test]
fn silence_is_an_empty_204() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let server = served(&rig, &runs, Repeats::drop()).await;
            for (body, request) in pairs() {
                assert_first(&ask(&server, http2, request()).await, 201, body);
                let repeat = ask(&server, http2, request()).await;
                assert_replay(&repeat, 204, "");
                assert_eq!((repeat.header("content-length"), repeat.header("content-type")), ("", ""));
            }
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn a_refusal_says_that_it_was_done() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = served(&rig, &runs, Repeats::refuse()).await;
        for (body, request) in pairs() {
            assert_first(&server.answer(request()).await, 201, body);
            let repeat = server.answer(request()).await;
            assert_problem(&repeat, 409, "already-done");
            assert_eq!(repeat.retry_after_s(), None);
        }
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn the_stored_answer_is_what_repeats_get_by_default() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let server = served(&rig, &runs, Repeats::replay()).await;
        let [(_, kept), (_, large)] = pairs();
        server.answer(kept()).await;
        assert_replay(&server.answer(kept()).await, 201, "small");
        server.answer(large()).await;
        assert_problem(&server.answer(large()).await, 409, "not-replayable");
        assert_eq!(rig.events.count(EventKind::Alert), 0);
    });
}

#[test]
fn only_repeats_of_a_completed_operation_are_acknowledged() {
    run(async {
        for repeats in [Repeats::acknowledge(success()), Repeats::drop(), Repeats::refuse()] {
            let (rig, runs, gate) = (Rig::at_most_once(), Runs::default(), Gate::new());
            let layer = rig.layer().repeats(repeats).build().unwrap();
            let server = Server::start(layer.layer(once_at(&runs, &gate, response(500, "oh")))).await;
            let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
                gate.reached().await;
                assert_in_progress(&server.answer(post("k", "x")).await);
                assert_problem(&server.answer(post("k", "y")).await, 422, "mismatch");
                gate.open();
            });
            assert_first(&first, 500, "oh");
            assert_problem(&server.answer(post("k", "x")).await, 409, "outcome-unknown");
        }
    });
}

#[test]
fn an_alert_is_raised_for_every_repeat_and_for_nothing_else() {
    run(async {
        for repeats in [Repeats::replay(), Repeats::acknowledge(success()), Repeats::drop(), Repeats::refuse()] {
            let (rig, runs, gate) = (Rig::at_most_once(), Runs::default(), Gate::new());
            let layer = rig.layer().snapshot_limit(8).repeats(repeats.alert()).build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, {
                let gate = gate.clone();
                move |run, _| {
                    let gate = gate.clone();
                    async move {
                        match run {
                            1 => {
                                gate.pass().await;
                                created("small")
                            }
                            2 => created("too large to keep"),
                            _ => response(500, "oh"),
                        }
                    }
                }
            })))
            .await;
            let alerts = || rig.events.count(EventKind::Alert);
            let ((), ()) = tokio::join!(async { drop(server.answer(post("k", "x")).await) }, async {
                gate.reached().await;
                assert_eq!(alerts(), 0);
                assert_in_progress(&server.answer(post("k", "x")).await);
                assert_eq!(alerts(), 1);
                gate.open();
            });
            assert_eq!(alerts(), 1);
            server.answer(post("k", "x")).await;
            assert_eq!((alerts(), rig.events.count(EventKind::Replayed)), (2, 1));
            assert_problem(&server.answer(post("k", "y")).await, 422, "mismatch");
            assert_eq!((alerts(), rig.events.count(EventKind::Mismatch)), (3, 1));
            server.answer(post("l", "x")).await;
            server.answer(post("m", "x")).await;
            assert_eq!(alerts(), 3);
            server.answer(post("l", "x")).await;
            assert_eq!((alerts(), rig.events.count(EventKind::NotReplayable)), (4, 1));
            server.answer(post("m", "x")).await;
            assert_eq!((alerts(), rig.events.count(EventKind::OutcomeUnknown)), (5, 1));

            // Nobody knows whether this one is a repeat.
            rig.faults.always(Verb::Acquire, Fault::FailBefore);
            assert_problem(&server.answer(post("k", "x")).await, 503, "store-unavailable");
            assert_eq!(alerts(), 5);
        }
    });
}

#[test]
fn an_acknowledgement_that_cannot_be_sent_is_a_mistake() {
    let error = |answer: http::response::Builder, body: &'static str| {
        let answer = answer.body(Bytes::from_static(body.as_bytes())).unwrap();
        Rig::at_least_once().layer().repeats(Repeats::acknowledge(answer)).build().unwrap_err()
    };
    let status = |status: u16| Response::builder().status(status);
    for bad in [100, 101, 199] {
        assert_eq!(error(status(bad), ""), LayerError::Acknowledgement("an informational status"));
    }
    for bare in [204, 205, 304] {
        assert_eq!(error(status(bare), "x"), LayerError::Acknowledgement("a body with a status that has none"));
    }
    for name in ["connection", "date", "keep-alive", "transfer-encoding", "upgrade"] {
        assert_eq!(error(status(200).header(name, "x"), "x"), LayerError::NeverKept(name.into()));
    }
}

/// What a caller sees depends on his role.
fn by_role(
    replays: Arc<Mutex<Vec<String>>>,
) -> impl Fn(&http::request::Parts, Response<Bytes>) -> Option<Response<Bytes>> {
    move |head, mut replay| {
        let role = head.headers["x-role"].to_str().unwrap().to_owned();
        replays.lock().unwrap().push(format!("{role} {} {}", head.method, head.uri.path()));
        assert!(
            !replay.headers().contains_key("idempotent-replayed") && !replay.headers().contains_key("content-length")
        );
        match role.as_str() {
            "owner" => Some(replay),
            "clerk" => {
                replay.headers_mut().remove("x-balance");
                Some(replay.map(|body| Bytes::from(String::from_utf8_lossy(&body).replace("4111", "*"))))
            }
            "odd" => {
                // What the layer says is not for the hook to say.
                for (name, value) in [("idempotent-replayed", "no"), ("content-length", "3"), ("connection", "close")] {
                    replay.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                *replay.body_mut() = Bytes::from_static(b"another");
                Some(replay)
            }
            "bare" => {
                *replay.status_mut() = http::StatusCode::NO_CONTENT;
                Some(replay)
            }
            "absurd" => {
                *replay.status_mut() = http::StatusCode::CONTINUE;
                Some(replay)
            }
            _ => None,
        }
    }
}

fn post_as(role: &'static str) -> Request<Content> {
    let mut request = post("k", "x");
    request.headers_mut().insert("x-role", HeaderValue::from_static(role));
    request
}

#[test]
fn a_replay_is_looked_through_for_the_caller_who_asks_now() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs, seen) = (Rig::at_least_once(), Runs::default(), Arc::new(Mutex::new(Vec::new())));
            let layer = rig.layer().on_replay(by_role(Arc::clone(&seen))).build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, |_, _| async {
                let head = Response::builder().status(201).header("x-balance", "12");
                head.header("location", "/payments/1").body(chunks(["card ", "4111"])).unwrap()
            })))
            .await;
            let send = async |role| ask(&server, http2, post_as(role)).await;
            // The first answer is its own handler's business.
            let first = send("nobody").await;
            assert_first(&first, 201, "card 4111");
            assert!(seen.lock().unwrap().is_empty());

            let owner = send("owner").await;
            assert_replay(&owner, 201, "card 4111");
            assert_eq!((owner.header("x-balance"), owner.header("content-length")), ("12", "9"));
            let clerk = send("clerk").await;
            assert_replay(&clerk, 201, "card *");
            assert_eq!((clerk.header("x-balance"), clerk.header("content-length")), ("", "6"));
            assert_eq!(clerk.header("location"), "/payments/1");
            let odd = send("odd").await;
            assert_replay(&odd, 201, "another");
            assert_eq!((odd.header("content-length"), odd.header("connection")), ("7", ""));
            let bare = send("bare").await;
            assert_replay(&bare, 204, "");
            assert_eq!(bare.header("content-length"), "");

            for role in ["nobody", "absurd"] {
                let refused = send(role).await;
                assert_problem(&refused, 403, "replay-refused");
                assert_eq!(refused.retry_after_s(), None);
                for leak in ["x-balance", "location"] {
                    assert_eq!(refused.header(leak), "");
                }
                assert!(!refused.text().contains("card"), "{refused:?}");
            }
            assert_eq!(seen.lock().unwrap()[..2], ["owner POST /things", "clerk POST /things"]);
            // What one caller may not see is not lost for the next.
            assert_replay(&send("owner").await, 201, "card 4111");
            assert_eq!(runs.count(), 1);
        }
    });
}

#[test]
fn what_a_route_says_of_refusals_applies_to_a_replay_that_is_refused() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().on_replay(|_, _| None).on_rejection(|rejection, response| {
            assert_eq!(rejection.kind(), RejectionKind::ReplayRefused);
            assert!(response.headers().get("etag").is_none());
            rejection.response_with(http::StatusCode::NOT_FOUND)
        });
        let server = Server::start(layer.build().unwrap().layer(counted(&runs))).await;
        assert_first(&server.answer(post("k", "x")).await, 201, "run 1");
        assert_problem(&server.answer(post("k", "x")).await, 404, "replay-refused");
    });
}

/// A caller's rights are in the request's extensions, where a layer further out has put them.
#[test]
fn a_hook_sees_the_extensions_of_the_present_request() {
    #[derive(Clone)]
    struct Role(HeaderValue);

    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().on_replay(|head, mut replay| {
            replay.headers_mut().insert("x-for", head.extensions.get::<Role>().unwrap().0.clone());
            Some(replay)
        });
        let service = layer.build().unwrap().layer(counted(&runs));
        let service = service.map_request(|mut request: Request<hyper::body::Incoming>| {
            let role = request.headers_mut().remove("x-role").unwrap();
            request.extensions_mut().insert(Role(role));
            request
        });
        let server = Server::start(service).await;
        assert_first(&server.answer(post_as("first")).await, 201, "run 1");
        for role in ["second", "third"] {
            let replay = server.answer(post_as(role)).await;
            assert_replay(&replay, 201, "run 1");
            assert_eq!(replay.header("x-for"), role);
        }
    });
}

#[test]
fn an_owner_that_was_overtaken_gets_the_other_answer_as_he_may_see_it() {
    run(async {
        for (role, expected) in [("clerk", Some("card *")), ("nobody", None)] {
            let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
            let layer = rig.layer().on_replay(by_role(Arc::default())).build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, {
                let gate = gate.clone();
                move |run, _| {
                    let gate = gate.clone();
                    async move {
                        if run == 1 {
                            gate.pass().await;
                        }
                        created("card 4111")
                    }
                }
            })))
            .await;
            let (first, ()) = tokio::join!(server.answer(post_as(role)), async {
                gate.reached().await;
                rig.clock.advance(rig.guard.policy().lease());
                assert_first(&server.answer(post_as("owner")).await, 201, "card 4111");
                gate.open();
            });
            match expected {
                Some(body) => assert_replay(&first, 201, body),
                None => assert_problem(&first, 403, "replay-refused"),
            }
            assert_eq!(runs.count(), 2);
        }
    });
}

#[test]
fn an_owner_that_was_overtaken_is_a_repeat_by_then() {
    run(async {
        let (rig, runs, gate) = (Rig::at_least_once(), Runs::default(), Gate::new());
        let layer = rig.layer().repeats(Repeats::acknowledge(success()).alert()).build().unwrap();
        let server = Server::start(layer.layer(once_at(&runs, &gate, created("late")))).await;
        let (first, ()) = tokio::join!(server.answer(post("k", "x")), async {
            gate.reached().await;
            rig.clock.advance(rig.guard.policy().lease());
            assert_first(&server.answer(post("k", "x")).await, 200, "attempt 2, earlier unknown: true");
            gate.open();
        });
        assert_replay(&first, 202, r#"{"code":"SUCCESS"}"#);
        // He came once.
        assert_eq!(rig.events.count(EventKind::Alert), 0);
    });
}

#[test]
fn trailers_pass_a_hook_only_where_it_lets_them() {
    run(async {
        for (letting, sent) in [("unseen", &[][..]), ("changed", &["x-sum"]), ("all", &["x-secret", "x-sum"])] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer = rig.layer().on_replay(move |_, mut replay| {
                let trailers = replay.extensions_mut().get_mut::<ReplayTrailers>().unwrap();
                assert_eq!(trailers.fields().len(), 2);
                match letting {
                    "unseen" => {}
                    "changed" => {
                        trailers.fields_mut().remove("x-secret");
                        trailers.let_pass();
                    }
                    _ => trailers.let_pass(),
                }
                Some(replay)
            });
            let server = Server::start(layer.build().unwrap().layer(handler(&runs, |_, _| async {
                let (writer, body) = streamed();
                writer.data("data");
                writer.trailers(fields([("x-secret", "1"), ("x-sum", "7")]));
                Response::builder().header("trailer", "x-secret, x-sum").body(body).unwrap()
            })))
            .await;
            for http2 in [false, true] {
                let send = async || {
                    let mut request = post("k", "x");
                    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
                    ask(&server, http2, request).await
                };
                let names = |answer: &Answer| {
                    let trailers = answer.trailers.clone().unwrap_or_default();
                    let mut names: Vec<_> = trailers.keys().map(ToString::to_string).collect();
                    names.sort();
                    names
                };
                if !http2 {
                    assert_eq!(names(&send().await), ["x-secret", "x-sum"]);
                }
                let replay = send().await;
                assert_replay(&replay, 200, "data");
                assert_eq!(names(&replay), sent, "{letting} {http2}");
                // Without trailers none are announced, and there is a length again.
                assert_eq!(replay.header("trailer").is_empty(), sent.is_empty());
                assert_eq!(replay.header("content-length"), if sent.is_empty() { "4" } else { "" });
            }
        }
    });
}

#[test]
fn a_hook_is_not_asked_for_what_is_not_stored() {
    run(async {
        for repeats in [Repeats::acknowledge(success()), Repeats::drop(), Repeats::refuse()] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let layer =
                rig.layer().repeats(repeats).on_replay(|_, _| panic!("nothing stored is sent")).build().unwrap();
            let server = Server::start(layer.layer(handler(&runs, |_, _| async { Response::new(whole("x")) }))).await;
            for _ in 0..2 {
                server.answer(post("k", "x")).await;
            }
            assert_eq!(runs.count(), 1);
        }
    });
}
