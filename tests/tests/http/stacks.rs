//! The layer on the servers and routers that it is made for.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::middleware::{Next, from_fn};
use axum::routing::post as on_post;
use bytes::{BufMut, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use idem_layer::middleware::{Idempotency, NotGuarded, into_axum_body};
use idem_tests::http::{Answer, Client, Server, read, whole};
use prost::Message;
use tokio::net::TcpListener;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, ServiceBuilder, service_fn};
use tower_http::timeout::TimeoutLayer;

use crate::rig::*;

#[test]
fn bare_hyper_serves_it() {
    run(async {
        for http2 in [false, true] {
            let (rig, runs) = (Rig::at_least_once(), Runs::default());
            let begun = runs.clone();
            let handler = service_fn(move |_: Inbound| {
                let run = begun.begin();
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("run {run}"))))) }
            });
            let service = TowerToHyperService::new(rig.layer().build().unwrap().layer(handler));
            let (listener, address) = listen().await;
            tokio::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let (io, service) = (TokioIo::new(socket), service.clone());
                    if http2 {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        tokio::spawn(async move { drop(server.serve_connection(io, service).await) });
                    } else {
                        let server = hyper::server::conn::http1::Builder::new();
                        tokio::spawn(async move { drop(server.serve_connection(io, service).await) });
                    }
                }
            });
            for replay in [false, true] {
                let mut client = if http2 { Client::http2(address).await } else { Client::http1(address).await };
                let answer = read(client.send(post("k", "x")).await.unwrap()).await.unwrap();
                assert_eq!((answer.text(), answer.is_replay()), ("run 1", replay));
            }
        }
    });
}

#[test]
fn a_handler_of_axum_extracts_what_it_wants_to_know_of_its_run() {
    run(async {
        let rig = Rig::at_least_once();
        async fn always(run: Idempotency, body: String) -> String {
            format!("{} {} {} {body}", run.key().text(), run.attempt(), run.earlier_unknown())
        }
        async fn perhaps(run: Option<Idempotency>) -> &'static str {
            if run.is_some() { "guarded" } else { "unguarded" }
        }
        async fn refuses(run: Result<Idempotency, NotGuarded>) -> String {
            run.expect_err("not guarded").to_string()
        }
        let app = Router::new()
            .route("/always", on_post(always))
            .route("/perhaps", on_post(perhaps))
            .route("/refuses", on_post(refuses))
            .layer(rig.layer().build().unwrap());
        let server = Server::axum(app).await;
        let keyless = async |path| server.answer(Request::post(path).body(whole("x")).unwrap()).await;

        assert_first(&server.answer(post_to("/always", "k", "x")).await, 200, "k 1 false x");
        assert_replay(&server.answer(post_to("/always", "k", "x")).await, 200, "k 1 false x");
        assert_first(&server.answer(post_to("/perhaps", "k", "x")).await, 200, "guarded");
        assert_first(&keyless("/perhaps").await, 200, "unguarded");
        // A route that cannot do without is wired wrongly, which no client can mend.
        assert_first(&keyless("/always").await, 500, "");
        assert!(keyless("/refuses").await.text().contains("not guarded"));
    });
}

#[test]
fn middleware_of_axum_fits_inside_and_outside() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        async fn inside(request: axum::extract::Request, next: Next) -> axum::response::Response {
            let attempt = request.extensions().get::<Idempotency>().unwrap().attempt();
            let mut response = next.run(request).await;
            response.headers_mut().insert("x-inside", attempt.into());
            response
        }
        async fn outside(request: axum::extract::Request, next: Next) -> axum::response::Response {
            let mut response = next.run(request).await;
            response.headers_mut().insert("x-outside", HeaderValue::from_static("1"));
            response
        }
        let begun = runs.clone();
        let app = Router::new()
            .route("/things", on_post(move |body: String| async move { format!("{body} {}", begun.begin()) }))
            .layer(
                ServiceBuilder::new()
                    .layer(from_fn(outside))
                    .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(3600)))
                    .layer(rig.layer().build().unwrap())
                    .map_request(into_axum_body)
                    .layer(from_fn(inside)),
            );
        let server = Server::axum(app).await;
        for replay in [false, true] {
            let answer = server.answer(post("k", "x")).await;
            assert_eq!((answer.text(), answer.is_replay()), ("x 1", replay));
            assert_eq!((answer.header("x-inside"), answer.header("x-outside")), ("1", "1"));
        }
    });
}

#[test]
fn a_path_that_has_no_route_keeps_no_key() {
    run(async {
        let rig = Rig::at_most_once();
        let app = Router::new().route("/things", on_post(|| async { "ok" })).layer(rig.layer().build().unwrap());
        let server = Server::axum(app).await;
        for _ in 0..2 {
            assert_first(&server.answer(post_to("/elsewhere", "k", "x")).await, 404, "");
        }
    });
}

#[test]
fn a_unary_call_of_tonic_keeps_its_trailers_first_time_and_replayed() {
    run(async {
        let (rig, runs) = (Rig::at_least_once(), Runs::default());
        let address = charges(&rig, &runs).await;

        // As its own client sees it.
        for replay in [None, Some("true")] {
            let reply = call(address, "typed", Code::Ok).await.unwrap();
            assert_eq!(reply.get_ref().run, 1);
            let metadata = reply.metadata();
            assert_eq!(metadata.get("x-sum").unwrap(), "7");
            assert_eq!(metadata.get("idempotent-replayed").map(|value| value.to_str().unwrap()), replay);
        }

        // As it is on the wire.
        let (first, replay) = (on_the_wire(address, "raw").await, on_the_wire(address, "raw").await);
        assert!(!first.is_replay() && replay.is_replay());
        assert_eq!(first.body, replay.body);
        assert_eq!(Charge::decode(&first.body[5..]).unwrap().run, 2);
        for answer in [&first, &replay] {
            let trailers = answer.trailers.as_ref().expect("trailers");
            assert_eq!((&trailers["grpc-status"], &trailers["x-sum"]), (&"0".parse().unwrap(), &"7".parse().unwrap()));
            assert_eq!(answer.header("content-type"), "application/grpc");
        }
        assert_eq!(first.trailers, replay.trailers);
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn the_status_of_a_call_decides_and_not_that_of_its_http() {
    run(async {
        for (guarantee, rig) in Rig::each() {
            let runs = Runs::default();
            let address = charges(&rig, &runs).await;
            for code in [Code::InvalidArgument, Code::NotFound, Code::Unavailable, Code::Unauthenticated] {
                let key = format!("{code:?}");
                let first = call(address, &key, code).await.unwrap_err();
                assert_eq!((first.code(), first.message()), (code, "no"));
                assert_eq!(first.metadata().get("x-why").unwrap(), "x");
                let again = call(address, &key, code).await.unwrap();
                assert_eq!((again.get_ref().attempt, again.get_ref().earlier_unknown), (1, false), "{code:?}");
            }
            for code in [Code::Internal, Code::Unknown, Code::DeadlineExceeded, Code::DataLoss, Code::Cancelled] {
                let key = format!("{code:?}");
                let before = runs.count();
                assert_eq!(call(address, &key, code).await.unwrap_err().code(), code);
                let again = call(address, &key, code).await;
                match guarantee {
                    Guarantee::AtLeastOnce => {
                        let again = again.unwrap();
                        assert_eq!((again.get_ref().attempt, again.get_ref().earlier_unknown), (2, true), "{code:?}");
                    }
                    Guarantee::AtMostOnce => {
                        assert_ne!(again.unwrap_err().code(), Code::Ok);
                        assert_eq!(runs.count(), before + 1);
                    }
                }
            }
        }
    });
}

/// Asks for a status on the first run; the reply tells of the run.
#[derive(Clone, PartialEq, Message)]
struct Charge {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(uint64, tag = "2")]
    run: u64,
    #[prost(uint32, tag = "3")]
    attempt: u32,
    #[prost(bool, tag = "4")]
    earlier_unknown: bool,
}

/// What a build script would generate, for one method. Each key fails once, if it is told to.
#[derive(Clone)]
struct Charges {
    runs: Runs,
    failed: Arc<Mutex<HashSet<String>>>,
}

impl NamedService for Charges {
    const NAME: &'static str = "test.Charges";
}

impl Service<Request<tonic::body::Body>> for Charges {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let Self { runs, failed } = self.clone();
        let charge = service_fn(move |request: tonic::Request<Charge>| {
            let (run, guarded) = (runs.begin() as u64, request.extensions().get::<Idempotency>().unwrap().clone());
            let code = Code::from_i32(request.get_ref().code);
            let fails = code != Code::Ok && failed.lock().unwrap().insert(guarded.key().text().into_owned());
            async move {
                if fails {
                    let mut no = Status::new(code, "no");
                    no.metadata_mut().insert("x-why", "x".parse().unwrap());
                    return Err(no);
                }
                let (attempt, earlier_unknown) = (guarded.attempt(), guarded.earlier_unknown());
                Ok(tonic::Response::new(Charge { code: 0, run, attempt, earlier_unknown }))
            }
        });
        Box::pin(async move {
            let codec = ProstCodec::<Charge, Charge>::default();
            let response = tonic::server::Grpc::new(codec).unary(charge, request).await;
            Ok(response.map(|body| tonic::body::Body::new(body.map_frame(with_sum))))
        })
    }
}

/// Trailing metadata of a successful call, which tonic leaves to layers.
fn with_sum(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            trailers.insert("x-sum", HeaderValue::from_static("7"));
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

async fn charges(rig: &Rig, runs: &Runs) -> SocketAddr {
    let (listener, address) = listen().await;
    let charges = Charges { runs: runs.clone(), failed: Arc::default() };
    let server = tonic::transport::Server::builder().layer(rig.layer().build().unwrap()).add_service(charges);
    tokio::spawn(async move { server.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serving") });
    address
}

async fn call(address: SocketAddr, key: &str, code: Code) -> Result<tonic::Response<Charge>, Status> {
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(Charge { code: code as i32, ..Charge::default() });
    request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    let path = PathAndQuery::from_static("/test.Charges/Charge");
    client.unary(request, path, ProstCodec::<Charge, Charge>::default()).await
}

async fn on_the_wire(address: SocketAddr, key: &str) -> Answer {
    let message = Charge { code: 0, run: 1, ..Charge::default() }.encode_to_vec();
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.put_slice(&message);
    let request = Request::post("/test.Charges/Charge")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("idempotency-key", key);
    let mut client = Client::http2(address).await;
    read(client.send(request.body(whole(body.freeze())).unwrap()).await.unwrap()).await.unwrap()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}
