//! HTTP over real sockets: a server for any Tower service on a free port, and clients that can leave in the middle.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tower::Service;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body of any kind, of requests and of responses.
pub type Content = UnsyncBoxBody<Bytes, BoxError>;

/// A body of known length.
pub fn whole(data: impl Into<Bytes>) -> Content {
    Full::new(data.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of unknown length, written frame by frame. Dropping the writer ends it.
pub fn streamed() -> (Writer, Content) {
    let (writer, frames) = mpsc::unbounded_channel();
    (Writer(writer), Streamed(frames).boxed_unsync())
}

/// A body of unknown length that is all there.
pub fn chunks<I: Into<Bytes>>(data: impl IntoIterator<Item = I>) -> Content {
    let (writer, body) = streamed();
    data.into_iter().for_each(|data| writer.data(data));
    body
}

/// Writes a streamed body.
#[derive(Clone, Debug)]
pub struct Writer(mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>);

impl Writer {
    /// Some data. A reader who has left does not matter.
    pub fn data(&self, data: impl Into<Bytes>) {
        let _ = self.0.send(Ok(Frame::data(data.into())));
    }

    /// Waits until nobody reads any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    /// The end, with trailers.
    pub fn trailers(self, trailers: HeaderMap) {
        let _ = self.0.send(Ok(Frame::trailers(trailers)));
    }

    /// Breaks off.
    pub fn fail(self) {
        let _ = self.0.send(Err("the body broke off".into()));
    }
}

struct Streamed(mpsc::UnboundedReceiver<Result<Frame<Bytes>, BoxError>>);

impl Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(context)
    }
}

/// Header fields from pairs.
pub fn fields<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let pairs = pairs.into_iter();
    pairs.map(|(name, value)| (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))).collect()
}

/// A server on a free port of this machine; it stops to accept when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    ends: Ends,
    accepting: JoinHandle<()>,
}

/// How the server's responses have ended, each counted once.
#[derive(Clone, Debug)]
struct Ends {
    left: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Ends {
    fn new() -> Self {
        Self { left: Arc::new(Semaphore::new(0)), all: Arc::new(Semaphore::new(0)) }
    }
}

impl Server {
    /// Serves HTTP/1.1 and HTTP/2, whichever a client speaks.
    pub async fn start<S, RB>(service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<RB>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        RB: Body + Send + 'static,
        RB::Data: Send,
        RB::Error: Into<BoxError>,
    {
        let (listener, address) = listen().await;
        let ends = Ends::new();
        let service = Watched { inner: service, ends: ends.clone() };
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { address, ends, accepting }
    }

    /// Serves an axum application the way axum does. Does not see who leaves.
    pub async fn axum(app: axum::Router) -> Self {
        let (listener, address) = listen().await;
        let accepting = tokio::spawn(async move { axum::serve(listener, app).await.expect("serving") });
        Self { address, ends: Ends::new(), accepting }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server has noticed that one more client is gone: it has dropped a response, or the future of one,
    /// before the end.
    pub async fn left(&self) {
        self.ends.left.acquire().await.expect("never closed").forget();
    }

    /// Waits until the server is done with one more request, one way or the other.
    pub async fn ended(&self) {
        self.ends.all.acquire().await.expect("never closed").forget();
    }

    /// As [`send`](Self::send), where the answer must come whole.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn answer(&self, request: Request<Content>) -> Answer {
        self.send(request).await.expect("an answer")
    }

    /// A connection of its own for one request, whose answer is read to its end.
    ///
    /// # Errors
    ///
    /// When the connection or the response breaks off.
    pub async fn send(&self, request: Request<Content>) -> Result<Answer, BoxError> {
        read(Client::http1(self).await.send(request).await?).await
    }
}

impl From<&Server> for SocketAddr {
    fn from(server: &Server) -> Self {
        server.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// One connection. Dropping it is what a client does who leaves.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    authority: String,
    driving: JoinHandle<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Content>),
    Http2(http2::SendRequest<Content>),
}

impl Client {
    /// Connects, for HTTP/1.1.
    pub async fn http1(server: impl Into<SocketAddr>) -> Self {
        let address = server.into();
        let (sender, connection) = http1::handshake(connect(address).await).await.expect("a connection");
        let driving = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::Http1(sender), authority: address.to_string(), driving }
    }

    /// Connects, for HTTP/2.
    pub async fn http2(server: impl Into<SocketAddr>) -> Self {
        let address = server.into();
        let connecting = http2::handshake(TokioExecutor::new(), connect(address).await);
        let (sender, connection) = connecting.await.expect("a connection");
        let driving = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::Http2(sender), authority: address.to_string(), driving }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// When the connection breaks off.
    pub async fn send(&mut self, mut request: Request<Content>) -> Result<Response<Incoming>, hyper::Error> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                let host = HeaderValue::from_str(&self.authority).expect("an address");
                request.headers_mut().insert(http::header::HOST, host);
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                let path = request.uri().path_and_query().expect("a path").as_str();
                let uri = format!("http://{}{path}", self.authority).parse::<Uri>().expect("an address");
                *request.uri_mut() = uri;
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl Drop for Client {
    /// The connection is closed at once, whatever is under way on it.
    fn drop(&mut self) {
        self.driving.abort();
    }
}

async fn connect(address: SocketAddr) -> TokioIo<TcpStream> {
    TokioIo::new(TcpStream::connect(address).await.expect("a listener"))
}

/// A response, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers, if any.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The first line of a header field, empty without one.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("visible ASCII"))
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    /// Whether it is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    /// The code of an answer that is problem details, whose status must be the one that the details name.
    ///
    /// # Panics
    ///
    /// When it is not such an answer.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let details: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(details["status"], self.status.as_u16(), "{details}");
        let code = details["code"].as_str().expect("a code");
        assert_eq!(details["type"], format!("urn:idem:problem:{code}"));
        code.to_owned()
    }

    /// What `Retry-After` asks for, in seconds.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.headers.get("retry-after").map(|value| value.to_str().expect("digits").parse().expect("seconds"))
    }
}

/// Reads a response to its end.
///
/// # Errors
///
/// When it breaks off.
pub async fn read(response: Response<Incoming>) -> Result<Answer, BoxError> {
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    Ok(Answer { status: head.status, headers: head.headers, body: collected.to_bytes(), trailers })
}

/// The next piece of data of a response.
///
/// # Errors
///
/// When it breaks off.
///
/// # Panics
///
/// When it has ended.
pub async fn next_data(body: &mut Incoming) -> Result<Bytes, BoxError> {
    let frame = body.frame().await.expect("more of the body")?;
    Ok(frame.into_data().expect("data"))
}

/// Notices responses that are dropped before their end.
#[derive(Clone)]
struct Watched<S> {
    inner: S,
    ends: Ends,
}

/// Counts as left when it is dropped while present.
struct Presence {
    present: bool,
    ends: Ends,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.ends.all.add_permits(1);
        if self.present && !std::thread::panicking() {
            self.ends.left.add_permits(1);
        }
    }
}

impl<S, B, RB> Service<Request<B>> for Watched<S>
where
    S: Service<Request<B>, Response = Response<RB>>,
    S::Future: Send + 'static,
    RB: Body,
{
    type Response = Response<WatchedBody<RB>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut presence = Presence { present: true, ends: self.ends.clone() };
        let call = self.inner.call(request);
        Box::pin(async move {
            let response = call.await;
            presence.present = false;
            Ok(response?.map(|body| {
                presence.present = !body.is_end_stream();
                WatchedBody { body: Box::pin(body), presence }
            }))
        })
    }
}

struct WatchedBody<B> {
    body: Pin<Box<B>>,
    presence: Presence,
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(self.body.as_mut().poll_frame(context));
        let goes_on = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        self.presence.present = goes_on && !self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
