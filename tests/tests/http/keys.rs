//! Every source of keys, from the socket to the store.

use axum::Router;
use axum::routing::post as on_post;
use http::Request;
use idem_layer::middleware::{Idempotency, KeySource, fingerprint, key};
use idem_layer::testing::Verb;
use idem_tests::http::{Answer, Content, Server, whole};
use tower::{Layer, service_fn};

use crate::rig::*;

/// A request of a few words: its target, a field `x-key`, its body.
#[derive(Clone, Copy, Debug)]
struct Sent(&'static str, Option<&'static str>, &'static str);

impl Sent {
    fn request(self) -> Request<Content> {
        let Self(target, key, body) = self;
        let mut request = Request::post(target);
        if let Some(key) = key {
            request = request.header("x-key", key);
        }
        request.body(whole(body)).unwrap()
    }
}

/// What one source makes of requests.
struct Case {
    source: KeySource,
    /// Requests with one key. Each is another way to send it.
    same: &'static [Sent],
    /// Requests with another key each.
    others: &'static [Sent],
    /// Requests that are refused, and how.
    malformed: &'static [(Sent, &'static str)],
    /// Requests without a key.
    absent: &'static [Sent],
}

/// The same key runs once, another one runs, a malformed one neither runs nor claims, none passes.
async fn check(case: Case) {
    let (rig, runs) = (Rig::at_least_once(), Runs::default());
    // The key alone decides here: neither the target nor the body tells requests apart.
    let target = |_: &http::request::Parts| idem_layer::protocol::Target::new("POST", "/");
    let layer = rig.layer().key(case.source.clone()).target(target).fingerprint(fingerprint::off()).build().unwrap();
    let server = Server::start(layer.layer(handler(&runs, |run, request| async move {
        let guarded = request.extensions().get::<Idempotency>().is_some();
        created(format!("run {run}, guarded: {guarded}"))
    })))
    .await;
    let send = async |sent: Sent| -> Answer { server.answer(sent.request()).await };

    for (malformed, code) in case.malformed {
        assert_problem(&send(*malformed).await, 400, code);
    }
    assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0), "{:?}", case.source);

    for (n, same) in case.same.iter().enumerate() {
        let answer = send(*same).await;
        assert_eq!((answer.text(), answer.is_replay()), ("run 1, guarded: true", n > 0), "{same:?} {:?}", case.source);
    }
    for (n, other) in case.others.iter().enumerate() {
        let run = format!("run {}, guarded: true", n + 2);
        assert_first(&send(*other).await, 201, &run);
        assert_replay(&send(*other).await, 201, &run);
    }
    let runs_before = runs.count();
    for (n, absent) in case.absent.iter().enumerate() {
        assert_first(&send(*absent).await, 201, &format!("run {}, guarded: false", runs_before + n + 1));
    }
}

#[test]
fn a_header_is_read_quoted_or_bare_or_quoted_alone() {
    run(async {
        check(Case {
            source: key::header("x-key"),
            same: &[Sent("/", Some("abc"), ""), Sent("/", Some("\"abc\";v=:YQ==:;w=%\"%c3%bc\""), "")],
            others: &[Sent("/", Some("ABC"), ""), Sent("/", Some("\"a \\\"bc\""), "")],
            malformed: &[
                (Sent("/", Some(""), ""), "key-malformed"),
                (Sent("/", Some("\"abc\";v=:Y:"), ""), "key-malformed"),
                (Sent("/", Some("\"abc\";V=1"), ""), "key-malformed"),
                (Sent("/", Some("\"abc\", \"abc\""), ""), "key-malformed"),
            ],
            absent: &[Sent("/", None, "")],
        })
        .await;
        check(Case {
            source: key::header("x-key").quoted(),
            same: &[Sent("/", Some("\"abc\""), ""), Sent("/", Some("\"abc\";v"), "")],
            others: &[Sent("/", Some("\"abcd\""), "")],
            malformed: &[(Sent("/", Some("abc"), ""), "key-malformed")],
            absent: &[Sent("/", None, "")],
        })
        .await;
    });
}

#[test]
fn a_query_parameter_is_a_key() {
    run(check(Case {
        source: key::query("id"),
        same: &[Sent("/?id=a%20b", None, ""), Sent("/x?y=1&%69d=a+b", None, "")],
        others: &[Sent("/?id=a%2Bb", None, ""), Sent("/?id=a%2520b", None, "")],
        malformed: &[
            (Sent("/?id=", None, ""), "key-malformed"),
            (Sent("/?id", None, ""), "key-malformed"),
            (Sent("/?id=a&id=a", None, ""), "key-malformed"),
            (Sent("/?id=%zz", None, ""), "key-malformed"),
            (Sent("/?id=a%20b&rate=100%", None, ""), "key-malformed"),
            (Sent("/?id=%00", None, ""), "key-malformed"),
            (Sent("/?id=%ff", None, ""), "key-malformed"),
        ],
        absent: &[Sent("/", None, ""), Sent("/?", None, ""), Sent("/?ID=a", None, "id=a")],
    }));
}

#[test]
fn a_form_field_is_a_key_and_a_body_that_is_no_form_is_refused() {
    run(check(Case {
        source: key::form("id"),
        same: &[Sent("/", None, "id=a%20b"), Sent("/", None, "y=1&%69d=a+b&z")],
        others: &[Sent("/", None, "id=a%2Bb")],
        malformed: &[
            (Sent("/", None, "id="), "key-malformed"),
            (Sent("/", None, "id=a&id=b"), "key-malformed"),
            (Sent("/", None, "id=%0A"), "key-malformed"),
            (Sent("/", None, "id=%zz"), "body-malformed"),
            (Sent("/", None, "id=a&rate=100%"), "body-malformed"),
        ],
        absent: &[Sent("/?id=a", None, ""), Sent("/", None, r#"{"id":"a"}"#)],
    }));
}

#[test]
fn what_is_wrong_with_a_body_is_said_of_the_body_that_the_route_reads() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        for (source, words) in
            [(key::form("id"), "form-urlencoded"), (key::json("/id"), "JSON"), (key::digest(["/id"]), "JSON")]
        {
            let server = Server::start(rig.layer().key(source).build().unwrap().layer(counted(&runs))).await;
            let answer = server.answer(Sent("/", None, "id=%").request()).await;
            assert_problem(&answer, 400, "body-malformed");
            let problem: serde_json::Value = serde_json::from_str(answer.text()).unwrap();
            assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
        }
        assert_eq!(runs.count(), 0);
    });
}

#[test]
fn segments_of_the_path_are_a_key() {
    run(async {
        check(Case {
            source: key::path("/orders/{order_no}/pay"),
            same: &[Sent("/orders/a%20b/pay", None, ""), Sent("/orders/a%20%62/pay?x=1", None, "")],
            others: &[Sent("/orders/a+b/pay", None, ""), Sent("/orders/a%2Fb/pay", None, "")],
            malformed: &[
                (Sent("/orders//pay", None, ""), "key-malformed"),
                (Sent("/orders/%zz/pay", None, ""), "key-malformed"),
                (Sent("/orders/%00/pay", None, ""), "key-malformed"),
            ],
            absent: &[Sent("/orders/a/pay/", None, ""), Sent("/orders/a", None, ""), Sent("/orders/a/b/pay", None, "")],
        })
        .await;
        check(Case {
            source: key::path("/{shop}/orders/{order_no}"),
            same: &[Sent("/a/orders/b", None, ""), Sent("/%61/orders/b", None, "")],
            others: &[Sent("/b/orders/a", None, ""), Sent("/a%2Cb/orders/b", None, "")],
            malformed: &[
                (Sent("//orders/b", None, ""), "key-malformed"),
                (Sent("/a/orders/", None, ""), "key-malformed"),
            ],
            absent: &[Sent("/a/Orders/b", None, "")],
        })
        .await;
    });
}

#[test]
fn the_path_is_the_one_that_was_sent_also_in_a_nested_router() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().key(key::path("/api/orders/{order_no}/pay")).key_required().build().unwrap();
        let begun = runs.clone();
        let pay = on_post(async move |run: Idempotency| format!("run {} of {}", begun.begin(), run.key().text()));
        let app = Router::new()
            .nest("/api", Router::new().nest("/orders", Router::new().route("/{no}/pay", pay).layer(layer)));
        let server = Server::axum(app).await;
        let send = async |path| server.answer(Sent(path, None, "").request()).await;
        assert_problem(&send("/api/orders/%zz/pay").await, 400, "key-malformed");
        assert_first(&send("/api/orders/o-1/pay").await, 200, "run 1 of o-1");
        assert_replay(&send("/api/orders/o-1/pay").await, 200, "run 1 of o-1");
        assert_first(&send("/api/orders/o%202/pay").await, 200, "run 2 of o 2");
        assert_eq!(runs.count(), 2);
    });
}

#[derive(Clone)]
struct Verified {
    event: Option<String>,
}

#[test]
fn what_an_outer_layer_has_found_out_is_a_key() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let layer = rig.layer().key(key::extension(|verified: &Verified| verified.event.clone())).build().unwrap();
        let guarded = layer.layer(counted(&runs));
        // As an auth layer does: it checks a field and leaves what it says.
        let server = Server::start(service_fn(move |mut request: Request<hyper::body::Incoming>| {
            let guarded = guarded.clone();
            let sent = request.headers().get("x-key").map(|key| key.to_str().unwrap().to_owned());
            match sent.as_deref() {
                None => {}
                Some("none") => drop(request.extensions_mut().insert(Verified { event: None })),
                Some(event) => drop(request.extensions_mut().insert(Verified { event: Some(event.to_owned()) })),
            }
            tower::ServiceExt::oneshot(guarded, request)
        }))
        .await;
        let send = async |key| server.answer(Sent("/", key, "").request()).await;
        assert_problem(&send(Some("")).await, 400, "key-malformed");
        assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (0, 0));
        assert_first(&send(Some("e-1")).await, 201, "run 1");
        assert_replay(&send(Some("e-1")).await, 201, "run 1");
        assert_first(&send(Some("e-2")).await, 201, "run 2");
        assert_first(&send(None).await, 201, "run 3");
        assert_first(&send(Some("none")).await, 201, "run 4");
    });
}

#[test]
fn a_digest_of_chosen_fields_is_a_key() {
    run(check(Case {
        source: key::digest(["/order_no", "/lines"]),
        same: &[
            Sent("/", None, r#"{"order_no":"o-1","lines":[{"sku":1,"n":2}],"sent_at":"10:00:59"}"#),
            Sent("/", None, r#"{"sent_at":"10:01:01", "lines" : [ {"n":2, "sku":1} ], "order_no":"\u006f-1"}"#),
        ],
        others: &[
            Sent("/", None, r#"{"order_no":"o-1","lines":[]}"#),
            Sent("/", None, r#"{"order_no":"o-2","lines":[{"sku":1,"n":2}]}"#),
            Sent("/", None, r#"{"order_no":[],"lines":"o-1"}"#),
            Sent("/", None, r#"{"order_no":7,"lines":true}"#),
            Sent("/", None, r#"{"order_no":"7","lines":true}"#),
        ],
        malformed: &[
            (Sent("/", None, r#"{"order_no":1,"order_no":1,"lines":1}"#), "key-malformed"),
            (Sent("/", None, r#"{"order_no":1,"lines":{"n":1,"n":2}}"#), "key-malformed"),
            (Sent("/", None, r#"{"order_no":1,"lines":1"#), "body-malformed"),
            (Sent("/", None, ""), "body-malformed"),
        ],
        absent: &[Sent("/", None, r#"{"order_no":"o-1"}"#), Sent("/", None, r#"{"order_no":"o-1","lines":null}"#)],
    }));
}

#[test]
fn two_equal_orders_are_two_where_the_client_says_so() {
    const ORDER: &str = r#"{"customer":"c","amount":7}"#;
    run(check(Case {
        source: key::all_of([key::digest(["/customer", "/amount"]), key::optional(key::header("x-key"))]),
        same: &[Sent("/", None, ORDER), Sent("/", None, ORDER)],
        others: &[Sent("/", Some("2"), ORDER), Sent("/", Some("3"), ORDER), Sent("/", Some("~"), ORDER)],
        malformed: &[(Sent("/", Some(""), ORDER), "key-malformed"), (Sent("/", Some("\""), "{}"), "key-malformed")],
        absent: &[Sent("/", Some("2"), "{}")],
    }));
}

#[test]
fn a_digest_is_no_text_that_a_client_can_send() {
    run(async {
        let digest = key::digest(["/id"]);
        let (head, ()) = Request::post("/").body(()).unwrap().into_parts();
        let found = digest.find(&head, &r#"{"id":1}"#.into()).unwrap().unwrap();

        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let source = key::first_of([key::header("x-key"), digest]);
        let layer = rig.layer().key(source).fingerprint(fingerprint::off()).build().unwrap();
        let server = Server::start(layer.layer(counted(&runs))).await;
        let send = async |key: Option<&str>| {
            let mut request = Sent("/", None, r#"{"id":1}"#).request();
            if let Some(key) = key {
                request.headers_mut().insert("x-key", key.parse().unwrap());
            }
            server.answer(request).await
        };
        assert_first(&send(None).await, 201, "run 1");
        assert_replay(&send(None).await, 201, "run 1");
        assert_first(&send(Some(&found.text())).await, 201, "run 2");
    });
}

#[test]
fn parts_of_one_key_keep_their_positions() {
    run(async {
        check(Case {
            source: key::all_of([key::query("a"), key::json("/b"), key::optional(key::header("x-key"))]),
            same: &[Sent("/?a=x", Some("z"), r#"{"b":7}"#), Sent("/?a=x", Some("\"z\""), r#"{"b":"7"}"#)],
            others: &[
                Sent("/?a=x", None, r#"{"b":7}"#),
                Sent("/?a=7", None, r#"{"b":"x"}"#),
                Sent("/?a=x%2C7", None, r#"{"b":"z"}"#),
            ],
            malformed: &[
                (Sent("/?a=", Some("z"), r#"{"b":7}"#), "key-malformed"),
                (Sent("/?a=x", Some(""), r#"{"b":7}"#), "key-malformed"),
                (Sent("/", None, r#"{"b":"","c":1}"#), "key-malformed"),
                (Sent("/?a=x", Some("z"), "b=7"), "body-malformed"),
            ],
            absent: &[Sent("/", Some("z"), r#"{"b":7}"#), Sent("/?a=x", Some("z"), "{}")],
        })
        .await;
        check(Case {
            source: key::all_of([key::optional(key::query("a")), key::optional(key::query("b"))]),
            same: &[Sent("/?a=x", None, ""), Sent("/?a=x&c=y", None, "")],
            others: &[Sent("/?b=x", None, ""), Sent("/?a=x&b=x", None, ""), Sent("/?a=%7E&b=x", None, "")],
            malformed: &[(Sent("/?a=&b=x", None, ""), "key-malformed")],
            absent: &[Sent("/", None, ""), Sent("/?c=x", None, "")],
        })
        .await;
    });
}

#[test]
fn one_text_is_one_key_through_the_header_or_the_body() {
    run(check(Case {
        source: key::first_of([key::header("x-key"), key::json("/id"), key::query("id")]),
        same: &[
            Sent("/", Some("k"), "{}"),
            Sent("/", None, r#"{"id":"k"}"#),
            Sent("/?id=k", None, "{}"),
            // The first that has one decides, and the others are not read.
            Sent("/?id=l", Some("\"k\""), "no JSON"),
        ],
        others: &[Sent("/?id=k", None, r#"{"id":"l"}"#)],
        malformed: &[
            (Sent("/", Some(""), r#"{"id":"k"}"#), "key-malformed"),
            (Sent("/?id=k", None, r#"{"id":""}"#), "key-malformed"),
            (Sent("/?id=k", None, "no JSON"), "body-malformed"),
        ],
        absent: &[Sent("/", None, "{}")],
    }));
}

#[test]
fn code_is_a_source() {
    run(check(Case {
        source: key::from_fn(|head, body| match head.uri.path() {
            "/" => Ok(None),
            path => idem_layer::protocol::Key::new([path.as_bytes(), body].concat()).map(Some),
        }),
        same: &[Sent("/a", None, "b"), Sent("/ab", None, "")],
        others: &[Sent("/a", None, "c")],
        malformed: &[],
        absent: &[Sent("/", None, "b")],
    }));
}

#[test]
fn a_key_that_breaks_a_rule_is_told_what_is_expected_and_its_correction_runs() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        for (source, bad, good, expected) in [
            (key::header("x-key").uuid(), "my-secret", "8e03978e-40d5-43dd-bc93-6894a57f9324", "must be a UUID"),
            (
                key::header("x-key").length(16..=64),
                "my-secret",
                "my-secret-is-long-enough",
                "must be 16 to 64 bytes long",
            ),
            (
                key::header("x-key").chars("letters and digits", |c| c.is_ascii_alphanumeric()),
                "my-secret",
                "mysecret",
                "must be made of letters and digits",
            ),
            (key::header("x-key").quoted(), "my-secret", "\"my-secret\"", "double quotes"),
            (
                key::all_of([key::path("/{tenant}"), key::header("x-key").length(10..)]),
                "my-secret",
                "my-secret-1",
                "must be 10 to 255 bytes long",
            ),
        ] {
            let (acquired, begun) = (rig.faults.calls(Verb::Acquire), runs.count());
            let server = Server::start(rig.layer().key(source).build().unwrap().layer(counted(&runs))).await;
            let answer = server.answer(Sent("/t", Some(bad), "").request()).await;
            assert_problem(&answer, 400, "key-malformed");
            assert!(answer.text().contains(expected), "{}", answer.text());
            assert!(!answer.text().contains(bad), "{}", answer.text());
            assert_eq!((rig.faults.calls(Verb::Acquire), runs.count()), (acquired, begun));

            let run = format!("run {}", begun + 1);
            assert_first(&server.answer(Sent("/t", Some(good), "").request()).await, 201, &run);
            assert_replay(&server.answer(Sent("/t", Some(good), "").request()).await, 201, &run);
        }
    });
}

/// A malformed request was refused, and its correction found a claim that nobody held.
#[test]
fn the_correction_of_a_malformed_request_runs() {
    run(async {
        for (source, malformed, corrected) in [
            (key::query("id"), Sent("/?id=%zz", None, ""), Sent("/?id=zz", None, "")),
            (key::form("id"), Sent("/", None, "id=1&id=1"), Sent("/", None, "id=1")),
            (key::path("/{id}/pay"), Sent("//pay", None, ""), Sent("/o-1/pay", None, "")),
            (key::digest(["/id"]), Sent("/", None, r#"{"id":1"#), Sent("/", None, r#"{"id":1}"#)),
            (key::header("x-key"), Sent("/", Some("\"k"), ""), Sent("/", Some("\"k\""), "")),
        ] {
            let (rig, runs) = (Rig::at_most_once(), Runs::default());
            let server =
                Server::start(rig.layer().key(source).key_required().build().unwrap().layer(counted(&runs))).await;
            for _ in 0..2 {
                assert_eq!(server.answer(malformed.request()).await.status, 400);
            }
            assert_first(&server.answer(corrected.request()).await, 201, "run 1");
            assert_replay(&server.answer(corrected.request()).await, 201, "run 1");
            assert_eq!(server.answer(malformed.request()).await.status, 400);
            assert_eq!(rig.faults.calls(Verb::Acquire), 2);
        }
    });
}
