//! One payment, 120 copies, one execution.
//!
//! ```text
//! cargo run -p idem-examples --bin quickstart
//! cargo run -p idem-examples --bin quickstart -- --store redis://127.0.0.1:6379
//! ```
//!
//! Starts a small payment service on a free port, sends it 100 copies of one payment at once, each on a connection of its
//! own, and 20 more when the first has been answered. Ends with 0 only if one copy was executed and every later one got its
//! answer.

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use idem_examples::{StoreUrl, log_to_stderr, new_id};
use idem_layer::clock::Clock;
use idem_layer::guard::Guard;
use idem_layer::middleware::IdempotencyLayer;

const AT_ONCE: usize = 100;
const LATER: usize = 20;
/// How long a payment takes: long enough for copies to meet it on its way.
const WORK: Duration = Duration::from_millis(50);

const USAGE: &str = "usage: quickstart [--store memory:|redis://HOST:PORT[/DB]]";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let store = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(StoreUrl::MEMORY),
        ["--store", url] => url.parse().map_err(|why| format!("{why}\n{USAGE}")),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => Err(USAGE.into()),
    };
    let store = match store {
        Ok(store) => store,
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::from(2);
        }
    };
    log_to_stderr("off");
    match run(&store).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quickstart: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(store: &StoreUrl) -> anyhow::Result<bool> {
    let service = Service::start(store).await?;
    println!("One payment in {} copies, each over a TCP connection of its own", AT_ONCE + LATER);
    println!("service http://{}   store {store}\n", service.address);

    // A new key, so that a second run against the same Redis is a second payment.
    let payment = Payment { service: &service, key: new_id("quickstart") };
    let at_once = payment.send(AT_ONCE).await?;
    let first = at_once.answers.iter().find(|answer| answer.outcome == Outcome::Executed).map(|answer| &answer.body);
    let later = payment.send(LATER).await?;
    let the_same_answer = later.answers.iter().all(|answer| Some(&answer.body) == first);

    println!(
        "{:<10}{:>6}{:>10}{:>10}{:>9}{:>11}{:>12}",
        "", "sent", "executed", "replayed", "refused", "slowest", "requests/s"
    );
    println!("{:<10}{at_once}", "at once");
    println!("{:<10}{later}\n", "later");

    if let Some(answer) = at_once.answers.iter().chain(&later.answers).find(|answer| answer.outcome == Outcome::Failed)
    {
        println!("Not as it should be: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        return Ok(false);
    }
    if at_once.executed != 1 || later.executed != 0 || later.count(Outcome::Replayed) != LATER || !the_same_answer {
        println!(
            "Not as it should be: one copy should have been executed, and every later one should have got its answer."
        );
        return Ok(false);
    }
    println!(
        "One copy was executed, which took {} ms. Those that arrived meanwhile were refused: 409, come back in a",
        WORK.as_millis()
    );
    println!("second. Those that arrived afterwards got the first one's answer, to the byte, and cost no execution.");
    Ok(true)
}

/// The service, and a look behind its counter.
struct Service {
    address: std::net::SocketAddr,
    executed: Arc<AtomicUsize>,
}

impl Service {
    async fn start(store: &StoreUrl) -> anyhow::Result<Self> {
        let guard = Guard::at_least_once(store.open()?);
        // Where keys come from many callers, `.scope(..)` says whose each one is. Here there is one caller.
        let idempotency = IdempotencyLayer::builder(guard, "payments.create").unscoped().key_required().build()?;
        let executed = Arc::<AtomicUsize>::default();
        let app = Router::new().route("/payments", post(pay).layer(idempotency)).with_state(Arc::clone(&executed));

        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port")?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, executed })
    }
}

/// What must not happen twice.
async fn pay(State(executed): State<Arc<AtomicUsize>>, Json(order): Json<Value>) -> (StatusCode, Json<Value>) {
    executed.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(WORK).await;
    (StatusCode::CREATED, Json(json!({ "payment_id": new_id("pay"), "order_no": order["order_no"] })))
}

/// The client's side.
struct Payment<'a> {
    service: &'a Service,
    key: String,
}

impl Payment<'_> {
    /// Opens the connections, then sends all copies at once.
    async fn send(&self, copies: usize) -> anyhow::Result<Tally> {
        let mut connections = Vec::with_capacity(copies);
        for _ in 0..copies {
            connections.push(connect(self.service).await?);
        }
        let executed_before = self.service.executed.load(Ordering::SeqCst);
        let clock = Clock::system();
        let start = clock.now();
        let mut sending = JoinSet::new();
        for mut connection in connections {
            let request = self.request()?;
            let clock = clock.clone();
            sending.spawn(async move {
                let response = connection.send_request(request).await?;
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                let outcome = match head.status {
                    StatusCode::CREATED if head.headers.contains_key("idempotent-replayed") => Outcome::Replayed,
                    StatusCode::CREATED => Outcome::Executed,
                    StatusCode::CONFLICT => Outcome::Refused,
                    _ => Outcome::Failed,
                };
                anyhow::Ok(Answer { outcome, status: head.status, body, took: clock.now().since(start) })
            });
        }
        let answers: Vec<Answer> = sending.join_all().await.into_iter().collect::<Result<_, _>>()?;
        ensure!(answers.len() == copies, "a copy got no answer");
        let executed = self.service.executed.load(Ordering::SeqCst) - executed_before;
        Ok(Tally { took: clock.now().since(start), executed, answers })
    }

    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let body = json!({ "order_no": "A-1", "amount": 1250, "currency": "EUR" }).to_string();
        Ok(Request::post("/payments")
            .header("host", self.service.address.to_string())
            .header("content-type", "application/json")
            .header("idempotency-key", &self.key)
            .body(body.into())?)
    }
}

async fn connect(service: &Service) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(service.address).await?;
    let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(driver);
    Ok(connection)
}

struct Answer {
    outcome: Outcome,
    status: StatusCode,
    body: Bytes,
    /// From when the first copy was sent.
    took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Executed,
    Replayed,
    Refused,
    Failed,
}

/// What became of copies that were sent together.
struct Tally {
    answers: Vec<Answer>,
    /// Counted by the handler, not by what its clients read.
    executed: usize,
    took: Duration,
}

impl Tally {
    fn count(&self, outcome: Outcome) -> usize {
        self.answers.iter().filter(|answer| answer.outcome == outcome).count()
    }
}

impl fmt::Display for Tally {
    /// The columns of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, replayed, refused) =
            (self.answers.len(), self.count(Outcome::Replayed), self.count(Outcome::Refused));
        let slowest = self.answers.iter().map(|answer| answer.took).max().unwrap_or_default();
        let slowest = format!("{:.1} ms", slowest.as_secs_f64() * 1000.0);
        let per_second = sent as f64 / self.took.as_secs_f64();
        write!(f, "{sent:>6}{:>10}{replayed:>10}{refused:>9}{slowest:>11}{per_second:>12.0}", self.executed)
    }
}
