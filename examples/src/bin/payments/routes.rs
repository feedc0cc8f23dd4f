//! The routes, each with the key that its callers send.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use idem_examples::{Problem, acknowledge_what_is_done, new_id};
use idem_layer::guard::Guard;
use idem_layer::middleware::{Idempotency, IdempotencyLayer, LayerError, key, scope};

use crate::auth::{Principal, authenticate};
use crate::faults::{Faults, Obey};
use crate::ledger::{Effect, Ledger};

/// The service. One guard stands behind all routes; each route has a layer of its own, which says where its key comes from.
///
/// # Errors
///
/// When a layer does not fit together.
pub(crate) fn router(guard: &Guard, ledger: Ledger, faults: bool) -> Result<Router, LayerError> {
    let layer = |operation| {
        IdempotencyLayer::builder(guard.clone(), operation)
            .scope(scope::extension(|caller: &Principal| Some(caller.scope().to_owned())))
    };
    let payments = layer("payments.create").build()?;
    let refunds = layer("refunds.create").key_required().build()?;
    let orders = layer("orders.create").key(key::json("/request_id")).key_required().build()?;
    let callbacks = layer("callbacks.pay")
        .webhook()
        .key(key::all_of([key::json("/order_no"), key::json("/event_type")]))
        .key_required()
        .on_rejection(acknowledge_what_is_done(success))
        .build()?;
    let forms = layer("callbacks.form")
        .webhook()
        .key(key::form("notify_id"))
        .key_required()
        .on_rejection(acknowledge_what_is_done(success))
        .build()?;
    let wecom = layer("wecom.message")
        .webhook()
        .key(key::all_of([key::json("/instance_guid"), key::json("/MsgId")]))
        .on_rejection(acknowledge_what_is_done(status_success))
        .build()?;
    let reports = layer("reports.create").key_required().build()?;

    let guarded = Router::new()
        .route("/payments", post(create_payment).layer(payments))
        .route("/refunds", post(create_refund).layer(refunds))
        .route("/orders", post(create_order).layer(orders))
        .route("/callbacks/pay", post(payment_callback).layer(callbacks))
        .route("/forms", post(form_callback).layer(forms))
        .route("/reports", post(create_report).layer(reports))
        .route("/webhooks/wecom", post(wecom_message).layer(wecom))
        .route_layer(from_fn(authenticate));
    Ok(Router::new()
        .route("/ledger", get(effects))
        .route("/healthz", get(|| async { "ok" }))
        .merge(guarded)
        .with_state(App { ledger, obey: Obey(faults) }))
}

#[derive(Clone, Debug)]
struct App {
    ledger: Ledger,
    obey: Obey,
}

impl FromRef<App> for Obey {
    fn from_ref(app: &App) -> Self {
        app.obey
    }
}

/// What a payment, a refund and an order have in common.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    collection: &'static str,
    id_prefix: &'static str,
}

async fn create_payment(state: State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    create(Kind { name: "payment", collection: "payments", id_prefix: "pay" }, state, run, body).await
}

async fn create_refund(state: State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    create(Kind { name: "refund", collection: "refunds", id_prefix: "ref" }, state, run, body).await
}

async fn create_order(state: State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    create(Kind { name: "order", collection: "orders", id_prefix: "ord" }, state, run, body).await
}

async fn create(kind: Kind, State(app): State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    // A 4xx says that nothing took effect: the layer frees the key, and a corrected request may use it.
    let payment = Payment::from_json(&body)
        .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-payment", why))?;
    let id = new_id(kind.id_prefix);
    let effect = Effect {
        kind: kind.name,
        id: id.clone(),
        key: run.key,
        order_no: Some(payment.order_no.clone().into()),
        attempt: run.attempt,
        details: details([("amount", payment.amount.into()), ("currency", payment.currency.clone().into())]),
    };
    take_effect(&app.ledger, &run.faults, &effect).await?;

    let location = format!("/{}/{id}", kind.collection);
    let receipt = Receipt { payment_id: id, payment, attempt: run.attempt };
    let body = serde_json::to_vec(&receipt).expect("a receipt is plain JSON");
    let response = Response::builder()
        .status(StatusCode::CREATED)
        .header(header::LOCATION, location)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .expect("valid header fields");
    Ok(run.faults.answer(response))
}

/// A payment provider's callback. Providers resend until they read `success`.
async fn payment_callback(State(app): State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    let callback = json_body(&body)?;
    let effect = Effect {
        kind: "callback",
        id: new_id("cb"),
        key: run.key,
        order_no: callback.get("order_no").cloned(),
        attempt: run.attempt,
        details: details([("event_type", callback["event_type"].clone())]),
    };
    take_effect(&app.ledger, &run.faults, &effect).await?;
    Ok(run.faults.answer(success()))
}

/// The same from a provider that sends forms.
async fn form_callback(State(app): State<App>, run: Run, _: Bytes) -> Result<Response, Problem> {
    let effect = Effect {
        kind: "form",
        id: new_id("fm"),
        key: run.key,
        order_no: None,
        attempt: run.attempt,
        details: Map::new(),
    };
    take_effect(&app.ledger, &run.faults, &effect).await?;
    Ok(run.faults.answer(success()))
}

/// A report, told event by event. Its effect is over before the first one: a stream is not kept, and a repeat does not run.
async fn create_report(State(app): State<App>, run: Run, _: Bytes) -> Result<Response, Problem> {
    let id = new_id("rep");
    let effect = Effect {
        kind: "report",
        id: id.clone(),
        key: run.key,
        order_no: None,
        attempt: run.attempt,
        details: Map::new(),
    };
    take_effect(&app.ledger, &run.faults, &effect).await?;
    let events = stream::unfold(1, move |part| {
        let id = id.clone();
        async move {
            if part > 3 {
                return None;
            }
            if part > 1 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let event = Event::default().event("part").data(json!({ "report_id": id, "part": part }).to_string());
            Some((Ok::<_, Infallible>(event), part + 1))
        }
    });
    Ok(Sse::new(events).into_response())
}

/// A message from a WeCom channel. One without ids cannot be told from another: it is acknowledged and does nothing.
async fn wecom_message(State(app): State<App>, run: Run, body: Bytes) -> Result<Response, Problem> {
    let message = json_body(&body)?;
    if run.key.is_none() {
        return Ok(run.faults.answer(status_success()));
    }
    let effect = Effect {
        kind: "wecom",
        id: new_id("wx"),
        key: run.key,
        order_no: None,
        attempt: run.attempt,
        details: details([("instance_guid", message["instance_guid"].clone())]),
    };
    take_effect(&app.ledger, &run.faults, &effect).await?;
    Ok(run.faults.answer(status_success()))
}

/// All effects of the ledger.
async fn effects(State(app): State<App>) -> Result<Response, Problem> {
    let effects = app.ledger.effects().await.map_err(ledger_failed)?;
    Ok(Json(json!({ "count": effects.len(), "effects": effects })).into_response())
}

/// The part that must not happen twice, and what `x-fault` puts around it.
async fn take_effect(ledger: &Ledger, faults: &Faults, effect: &Effect) -> Result<(), Problem> {
    faults.before_effect().await;
    if faults.effect() {
        ledger.append(effect).await.map_err(ledger_failed)?;
    }
    faults.after_effect().await;
    Ok(())
}

/// A 500 says that the outcome is unknown, which is what an append that failed half-way is.
fn ledger_failed(error: std::io::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", error.to_string())
}

/// What a payment provider wants to read.
fn success() -> Response<Bytes> {
    acknowledgement("text/plain; charset=utf-8", "success")
}

/// What a WeCom channel wants to read.
fn status_success() -> Response<Bytes> {
    acknowledgement("application/json", r#"{"status":"success"}"#)
}

fn acknowledgement(content_type: &'static str, body: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(body.as_bytes()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Whatever the content type says: providers are careless about it.
fn json_body(body: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(body).map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "invalid-json", why.to_string()))
}

fn details<const N: usize>(details: [(&str, Value); N]) -> Map<String, Value> {
    details.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What a handler knows about this run of it.
struct Run {
    faults: Faults,
    /// The client's key, if the request had one.
    key: Option<String>,
    /// 1, or more when an earlier run of this key did not end well.
    attempt: u32,
}

impl FromRequestParts<App> for Run {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let faults = Faults::from_request_parts(parts, app).await?;
        let idempotency = parts.extensions.get::<Idempotency>();
        Ok(Self {
            faults,
            key: idempotency.map(|idempotency| idempotency.key().text().into_owned()),
            attempt: idempotency.map_or(1, Idempotency::attempt),
        })
    }
}

/// The body of a payment, a refund and an order.
#[derive(Debug, Deserialize, Serialize)]
struct Payment {
    order_no: String,
    amount: u64,
    currency: String,
}

/// The answer to one.
#[derive(Debug, Serialize)]
struct Receipt {
    payment_id: String,
    #[serde(flatten)]
    payment: Payment,
    attempt: u32,
}

impl Payment {
    fn from_json(body: &[u8]) -> Result<Self, String> {
        // An object first: for serde an array of three would do as well.
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(|why| why.to_string())?;
        let payment: Self = serde_json::from_value(object.into()).map_err(|why| why.to_string())?;
        if payment.amount == 0 {
            return Err("amount must be greater than zero".into());
        }
        if payment.currency.len() != 3 || !payment.currency.bytes().all(|b| b.is_ascii_alphabetic()) {
            return Err("currency must be three letters".into());
        }
        Ok(payment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_has_an_order_a_positive_amount_and_a_currency() {
        assert!(Payment::from_json(br#"{"order_no":"A-1","amount":1,"currency":"EUR","note":"more is fine"}"#).is_ok());
        for bad in [
            "",
            "not json",
            r#"["A-1",1,"EUR"]"#,
            r#"{"order_no":"A-1","amount":1}"#,
            r#"{"order_no":7,"amount":1,"currency":"EUR"}"#,
            r#"{"order_no":"A-1","amount":0,"currency":"EUR"}"#,
            r#"{"order_no":"A-1","amount":-1,"currency":"EUR"}"#,
            r#"{"order_no":"A-1","amount":1.5,"currency":"EUR"}"#,
            r#"{"order_no":"A-1","amount":"1","currency":"EUR"}"#,
            r#"{"order_no":"A-1","amount":1,"currency":"EURO"}"#,
            r#"{"order_no":"A-1","amount":1,"currency":"E1R"}"#,
        ] {
            assert!(Payment::from_json(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
