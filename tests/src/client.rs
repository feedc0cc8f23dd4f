use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AsHeaderName, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends requests to one address, each over a connection of its own.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
}

/// A request that is being put together.
#[derive(Clone, Debug)]
pub struct Call {
    address: SocketAddr,
    request: Request<Full<Bytes>>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, in order.
    pub headers: HeaderMap,
    /// Its body, to the end.
    pub body: Bytes,
}

impl Client {
    /// A client of whoever listens there.
    pub fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// A POST without a body so far.
    pub fn post(&self, path: &str) -> Call {
        self.call(Method::POST, path)
    }

    /// A GET.
    pub fn get(&self, path: &str) -> Call {
        self.call(Method::GET, path)
    }

    /// A request of any method.
    ///
    /// # Panics
    ///
    /// When the path is none.
    pub fn call(&self, method: Method, path: &str) -> Call {
        let host = HeaderValue::from_str(&self.address.to_string()).expect("an address is a field value");
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        request.headers_mut().insert(HOST, host);
        Call { address: self.address, request }
    }
}

impl Call {
    /// Adds a field line.
    ///
    /// # Panics
    ///
    /// When it cannot be sent.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name: HeaderName = name.parse().expect("a field name");
        self.request.headers_mut().append(name, HeaderValue::from_bytes(value.as_ref()).expect("a field value"));
        self
    }

    /// The key, in `Idempotency-Key`.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// A JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// A body of any bytes.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = Full::new(body.into());
        self
    }

    /// Sends it and reads the answer.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub async fn send(self) -> Reply {
        self.try_send().await.expect("an answer")
    }

    /// Sends it and reads the answer. The connection lives in this future: dropping it is a client that leaves.
    ///
    /// # Errors
    ///
    /// When the connection breaks before the answer is whole.
    pub async fn try_send(self) -> anyhow::Result<Reply> {
        timeout(PATIENCE, self.exchange()).await.context("no answer in time")?
    }

    async fn exchange(self) -> anyhow::Result<Reply> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut connection = pin!(connection);
        let mut answer = pin!(async {
            let (head, body) = sender.send_request(self.request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Reply { status: head.status, headers: head.headers, body })
        });
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // It has ended, perhaps with the last of the answer.
            _ = &mut connection => answer.await,
        }
    }
}

impl Reply {
    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The body as text.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The value of a field, if it is there once or more.
    pub fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether it is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The `code` of a problem; empty when it is none.
    pub fn code(&self) -> String {
        match self.header("content-type") {
            Some("application/problem+json") => self.json()["code"].as_str().unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }
}
