//! A webhook receiver that recognises repeats: a WeCom channel delivers every message at least once.
//!
//! ```text
//! cargo run -p idem-examples --bin wecom                                   (records in this process)
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p idem-examples --bin wecom  (shared by all processes)
//! ```
//!
//! A message is recognised by `instance_guid` and `MsgId` together, in the body. The first arrival is replied to, which is
//! the effect; a repeat gets the same acknowledgement and nothing runs:
//!
//! ```text
//! $ curl localhost:3001/webhooks/wecom -d '{"instance_guid":"wx-1","MsgId":7773749793478223190,"text":"hi"}'
//! {"status":"success"}
//! $ curl localhost:3001/webhooks/wecom -d '{"instance_guid":"wx-1","MsgId":7773749793478223190,"text":"hi"}'
//! {"status":"success"}
//! $ curl localhost:3001/webhooks/wecom -d '{"instance_guid":"wx-1","event":"heartbeat"}'
//! {"status":"success"}
//! $ curl localhost:3001/stats
//! {"replies":1,"without_ids":1}
//! ```
//!
//! 1. The claim is one atomic step of the store, so of any number of simultaneous copies one is replied to.
//! 2. A repeat of a message that is still being worked on gets 503 with `Retry-After`, never `success`: if the work failed
//!    after all, the channel would not send the message again.
//! 3. A callback without the ids is acknowledged and counted; there is nothing to recognise it by.
//! 4. Only the ids are compared. A channel that renders a resent message a little differently still means the same one.
//!
//! Listens on `127.0.0.1:3001`, or on the address given as the only argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use idem_examples::{StoreUrl, log_to_stderr, serve};
use idem_layer::guard::Guard;
use idem_layer::middleware::{Idempotency, IdempotencyLayer, Repeats, key};
use idem_layer::protocol::Policy;

/// Longer than a channel goes on resending a message, history synchronised after a restart included.
const REMEMBERED: Duration = Duration::from_secs(3 * 24 * 60 * 60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr("warn");
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3001".into());
    let store = StoreUrl::from_env()?.open()?;
    let guard = Guard::at_least_once(store).with_policy(Policy::builder().retention(REMEMBERED).build()?);

    // The instance is part of the key, so the channel as a whole may be one scope.
    let layer = IdempotencyLayer::builder(guard.clone(), "wecom.message")
        .unscoped()
        .webhook()
        .key(key::all_of([key::json("/instance_guid"), key::json("/MsgId")]))
        .repeats(Repeats::acknowledge(acknowledgement()))
        .build()?;
    let app = Router::new()
        .route("/webhooks/wecom", post(message).layer(layer))
        .route("/stats", get(stats))
        .with_state(Arc::default());

    let listener = TcpListener::bind(&address).await.with_context(|| format!("cannot listen on {address}"))?;
    serve(listener, app, &guard).await
}

#[derive(Debug, Default)]
struct Stats {
    replies: AtomicU64,
    without_ids: AtomicU64,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    text: String,
}

/// Runs once per message. An error would free the key, and the channel's next copy would try again.
async fn message(
    State(stats): State<Arc<Stats>>,
    idempotency: Option<Idempotency>,
    body: Bytes,
) -> Result<Response<Body>, (StatusCode, String)> {
    let message: Message = serde_json::from_slice(&body).map_err(|why| (StatusCode::BAD_REQUEST, why.to_string()))?;
    match idempotency {
        Some(idempotency) => reply(&stats, &message, &idempotency).await,
        None => drop(stats.without_ids.fetch_add(1, Ordering::Relaxed)),
    }
    Ok(acknowledgement().map(Body::from))
}

/// What the channel wants to read, whatever the message.
fn acknowledgement() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(br#"{"status":"success"}"#));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Stands for the call to the channel that sends a reply.
async fn reply(stats: &Stats, message: &Message, idempotency: &Idempotency) {
    tokio::time::sleep(Duration::from_millis(50)).await;
    stats.replies.fetch_add(1, Ordering::Relaxed);
    println!("reply to {:?}, attempt {}", message.text, idempotency.attempt());
}

async fn stats(State(stats): State<Arc<Stats>>) -> Json<Value> {
    Json(json!({
        "replies": stats.replies.load(Ordering::Relaxed),
        "without_ids": stats.without_ids.load(Ordering::Relaxed),
    }))
}
