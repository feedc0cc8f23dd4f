//! What others have written down of the `Idempotency-Key` field, requirement by requirement, over both versions of HTTP.
//!
//! [`draft`] goes through draft-ietf-httpapi-idempotency-key-header-07 (October 2025, expired in April 2026, so not a
//! standard that anything could be certified against), [`stripe`] through what Stripe publishes of its API. A test's
//! comment names the section and says in our words what is asked.
//!
//! # What has no test
//!
//! | where | asked of | why there is none |
//! |---|---|---|
//! | draft, 2.2 | clients: a key is unique, and not used again with another payload | a server sees no intent. What it does with such a client is tested in 2.2 and 2.7 |
//! | draft, 2.2 | clients: a UUID or another random value is recommended | the same; a route can insist on it, as section 5 tests |
//! | draft, 2.2 | owners: say what makes a key unique | documentation. What we say, operation, target, scope and key, is tested in 2.2 and 5 |
//! | draft, 2.3 and 2.5.2 | owners: publish how keys are used and when they expire | documentation of the service. That its clients are led there is tested in 2.7 |
//! | draft, 2.5.1 | clients: know what the server publishes, send a key when they choose to | as 2.2 |
//! | draft, 2.7 | clients: correct a request before it is sent again, act on other statuses as documented | as 2.2. That the uncorrected one fails again is tested |
//! | draft, 3 and 4 | the registry of fields, lists of implementations | no behaviour |
//! | Stripe | clients: keys of enough entropy, a new key after a failure | as 2.2 |
//! | Stripe | errors as `{"error": {"type": "idempotency_error"}}`, `idempotency_key_in_use` | statuses and their order are alike, bodies are problem details: a route that wants Stripe's has `on_rejection` |
//!
//! # Where a text can be read in two ways
//!
//! 1. Draft, 2.6: a retry gets the result of an operation that *completed*, "success or an error" alike. A request that was
//!    refused before it took effect has completed nothing: its key is free again, and the corrected request may use it. An
//!    error that is the result of an operation is one that the handler or the route declares to be.
//! 2. Draft, 2.6: a conflict is the answer to a retry of a running request. So it is by default.
//! 3. Stripe: keys of an account are keys of all its endpoints, so that another endpoint is a misuse. The draft speaks of
//!    payloads alone; there, another resource is another request.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderValue, Method, Request, Version};
use idem_layer::middleware::{Idempotency, LayerBuilder, ScopeChosen};
use idem_tests::http::{Answer, BoxError, Client, Content, Server, read, whole};

use crate::rig::*;

mod draft;
mod stripe;

/// Where the routes under test send their clients to read.
const DOCUMENTATION: &str = "https://example.org/keys";

/// A route as the draft has it.
fn ietf<Scope>(builder: LayerBuilder<Scope>) -> LayerBuilder<Scope> {
    builder.ietf().documentation(DOCUMENTATION)
}

/// A route as Stripe's.
fn stripe<Scope>(builder: LayerBuilder<Scope>) -> LayerBuilder<Scope> {
    builder.stripe()
}

/// Which HTTP a scenario is played over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Http1,
    Http2,
}

/// What a scenario is played on.
struct Stage {
    rig: Rig,
    runs: Runs,
    wire: Wire,
}

/// A running application.
struct Site {
    server: Server,
    wire: Wire,
}

/// Plays a scenario over HTTP/1.1 and over HTTP/2, with each guarantee, on a stage of its own each time.
fn play<F: Future<Output = ()>>(scenario: impl Fn(Stage) -> F) {
    run(async {
        for wire in [Wire::Http1, Wire::Http2] {
            for (guarantee, rig) in Rig::each() {
                // For whoever reads a failure: the harness shows it then.
                println!("{wire:?}, {guarantee:?}");
                scenario(Stage { rig, runs: Runs::default(), wire }).await;
            }
        }
    });
}

impl Stage {
    /// A route as the draft has it, for all callers.
    fn ietf(&self) -> LayerBuilder<ScopeChosen> {
        ietf(self.rig.layer())
    }

    /// A route as Stripe's, for all callers.
    fn stripe(&self) -> LayerBuilder<ScopeChosen> {
        stripe(self.rig.layer())
    }

    /// Serves two endpoints, `/payments` and `/refunds`, behind one layer.
    async fn serve<F>(
        &self,
        layer: LayerBuilder<ScopeChosen>,
        handler: impl Fn(usize, Option<Idempotency>) -> F + Clone + Send + Sync + 'static,
    ) -> Site
    where
        F: Future<Output = Response> + Send + 'static,
    {
        self.open(self.routes(handler).layer(layer.build().unwrap())).await
    }

    /// Serves handlers that answer 201 and the number of their run.
    async fn count(&self, layer: LayerBuilder<ScopeChosen>) -> Site {
        self.serve(layer, |run, _| async move { answer(201, format!("run {run}")) }).await
    }

    /// Two endpoints that take any method, and count their runs together.
    fn routes<F>(&self, handler: impl Fn(usize, Option<Idempotency>) -> F + Clone + Send + Sync + 'static) -> Router
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let runs = self.runs.clone();
        let endpoint = any(move |run: Option<Idempotency>| handler(runs.begin(), run));
        Router::new().route("/payments", endpoint.clone()).route("/refunds", endpoint)
    }

    async fn open(&self, app: Router) -> Site {
        Site { server: Server::axum(app).await, wire: self.wire }
    }
}

impl Site {
    /// Sends a request on a connection of its own, and reads the whole answer.
    async fn answer(&self, request: Request<Content>) -> Answer {
        self.send(request).await.expect("an answer")
    }

    async fn send(&self, request: Request<Content>) -> Result<Answer, BoxError> {
        let response = self.client().await.send(request).await?;
        let expected = if self.wire == Wire::Http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        assert_eq!(response.version(), expected);
        read(response).await
    }

    async fn client(&self) -> Client {
        match self.wire {
            Wire::Http1 => Client::http1(&self.server).await,
            Wire::Http2 => Client::http2(&self.server).await,
        }
    }
}

fn answer(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// A request with this field value as its key.
fn request(method: Method, target: &str, key: &str, content_type: &str, body: impl Into<String>) -> Request<Content> {
    let mut request = Request::builder().method(method).uri(target).body(whole(body.into())).unwrap();
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    request.headers_mut().insert("idempotency-key", HeaderValue::from_str(key).unwrap());
    request
}

/// The same without a key.
fn keyless(mut request: Request<Content>) -> Request<Content> {
    request.headers_mut().remove("idempotency-key");
    request
}

/// An error of the layer, which leads its reader to the documentation both from its head and from its body.
#[track_caller]
fn assert_leads_to_documentation(answer: &Answer, status: u16, code: &str) {
    assert_problem(answer, status, code);
    let link = answer.headers[LINK].to_str().unwrap();
    assert!(link.starts_with(&format!("<{DOCUMENTATION}>")) && link.contains("rel=\"describedby\""), "{link}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["documentation"], DOCUMENTATION, "{problem}");
    for member in ["title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {problem}");
    }
}
