//! A payment service whose every write can be repeated without harm.
//!
//! Run it, with the store inside the process or with Redis behind any number of processes:
//!
//! ```text
//! cargo run -p idem-examples --bin payments
//! cargo run -p idem-examples --bin payments -- --store redis://127.0.0.1:6379 --ledger /tmp/ledger.jsonl
//! ```
//!
//! Then pay twice with one key. The second answer is the first one again, and there is one effect:
//!
//! ```text
//! $ curl -i localhost:3000/payments -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!        -d '{"order_no":"A-1","amount":1250,"currency":"EUR"}'
//! HTTP/1.1 201 Created
//! location: /payments/pay_5ce1c0f3c5b1a7e2d4f60718
//! {"payment_id":"pay_5ce1c0f3c5b1a7e2d4f60718","order_no":"A-1","amount":1250,"currency":"EUR","attempt":1}
//!
//! $ curl -i localhost:3000/payments -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!        -d '{"order_no":"A-1","amount":1250,"currency":"EUR"}'
//! HTTP/1.1 201 Created
//! idempotent-replayed: true
//! {"payment_id":"pay_5ce1c0f3c5b1a7e2d4f60718","order_no":"A-1","amount":1250,"currency":"EUR","attempt":1}
//!
//! $ curl localhost:3000/ledger
//! {"count":1,"effects":[{"kind":"payment","id":"pay_5ce1c0f3c5b1a7e2d4f60718","key":"k-1", ...}]}
//! ```
//!
//! Another amount under the same key is refused with 422, and so is no key at all on `/refunds`, with 400:
//!
//! ```text
//! $ curl localhost:3000/payments -H 'Authorization: Bearer alice' -H 'Idempotency-Key: k-1' \
//!        -d '{"order_no":"A-1","amount":9999,"currency":"EUR"}'
//! $ curl localhost:3000/refunds -d '{"order_no":"A-1","amount":1250,"currency":"EUR"}'
//! ```
//!
//! | route | key | scope |
//! |---|---|---|
//! | `POST /payments` | `Idempotency-Key`, optional | caller |
//! | `POST /refunds` | `Idempotency-Key`, required | caller |
//! | `POST /orders` | JSON `/request_id`, required | caller |
//! | `POST /reports` | `Idempotency-Key`, required; answers an event stream | caller |
//! | `POST /callbacks/pay` | JSON `/order_no` and `/event_type`, required | caller |
//! | `POST /forms` | form field `notify_id`, required | caller |
//! | `POST /webhooks/wecom` | JSON `/instance_guid` and `/MsgId`, optional | caller |
//! | `GET /ledger`, `GET /healthz` | | |
//!
//! `routes` is where the layers are; `auth` says who is calling; `ledger` is the effect; `faults` is for tests alone.

mod auth;
mod cli;
mod faults;
mod ledger;
mod routes;

use std::process::ExitCode;

use anyhow::Context;
use tokio::net::TcpListener;

use idem_examples::{log_to_stderr, serve};
use idem_layer::guard::Guard;

use crate::cli::{Guarantee, Options};
use crate::ledger::Ledger;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match cli::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", cli::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("payments: {mistake}\n\n{}", cli::USAGE);
            return ExitCode::from(2);
        }
    };
    log_to_stderr("warn");
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payments: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> anyhow::Result<()> {
    let store = options.store.open()?;
    let guard = match options.guarantee {
        Guarantee::AtLeastOnce => Guard::at_least_once(store),
        Guarantee::AtMostOnce => Guard::at_most_once(store),
    };
    let guard = guard.with_policy(options.policy);
    let ledger = Ledger::open(options.ledger).context("cannot append to the ledger")?;
    let app = routes::router(&guard, ledger, options.faults)?;
    let listener =
        TcpListener::bind(&options.listen).await.with_context(|| format!("cannot listen on {}", options.listen))?;
    serve(listener, app, &guard).await
}
