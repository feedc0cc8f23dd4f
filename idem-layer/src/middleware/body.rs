use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::BoxError;
use super::budget::Share;
use super::capture::Capture;

pin_project! {
    /// The request body that the inner service gets: as it came where the request is not guarded, else what was read of it.
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestKind<B>,
    }
}

pin_project! {
    #[project = RequestProjection]
    enum RequestKind<B> {
        Passed { #[pin] body: B },
        Resumed { body: Resumed<B> },
        Read { body: Buffered },
    }
}

impl<B> RequestBody<B> {
    pub(super) fn passed(body: B) -> Self {
        Self { kind: RequestKind::Passed { body } }
    }

    /// A body of which `first` has been read already.
    pub(super) fn resumed(first: Bytes, body: Pin<Box<B>>) -> Self {
        Self { kind: RequestKind::Resumed { body: Resumed::new(first, body) } }
    }

    pub(super) fn read(body: Buffered) -> Self {
        Self { kind: RequestKind::Read { body } }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            RequestProjection::Passed { body } => body.poll_frame(context).map(|frame| frame.map(into_bytes)),
            RequestProjection::Resumed { body } => body.poll_frame(context),
            RequestProjection::Read { body } => Poll::Ready(body.next()),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestKind::Passed { body } => body.is_end_stream(),
            RequestKind::Resumed { body } => body.is_end(),
            RequestKind::Read { body } => body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestKind::Passed { body } => body.size_hint(),
            RequestKind::Resumed { body } => body.size_hint(),
            RequestKind::Read { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestBody")
    }
}

pin_project! {
    /// The response body that the client gets.
    ///
    /// A captured one hands its end out only after the outcome is stored; dropped before, the capture goes on on the
    /// runtime, because the outcome must be stored whether or not the client stays.
    pub struct ResponseBody<B> where B: Body, B: Send, B: 'static, B::Error: Into<BoxError> {
        #[pin]
        kind: ResponseKind<B>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    enum ResponseKind<B> where B: Body, B: Send, B: 'static, B::Error: Into<BoxError> {
        Passed { #[pin] body: B },
        Resumed { body: Resumed<B> },
        Whole { body: Buffered },
        Captured { body: Capture<B> },
    }
}

impl<B> ResponseBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// Not ours to keep.
    pub(super) fn passed(body: B) -> Self {
        Self { kind: ResponseKind::Passed { body } }
    }

    /// A body of which `first` has been read already, before it turned out to be too large to keep.
    pub(super) fn resumed(first: Bytes, body: Pin<Box<B>>) -> Self {
        Self { kind: ResponseKind::Resumed { body: Resumed::new(first, body) } }
    }

    /// In memory: a replay, a rejection, or what was stored before the head left.
    pub(super) fn whole(body: Buffered) -> Self {
        Self { kind: ResponseKind::Whole { body } }
    }

    /// Kept while it passes through.
    pub(super) fn captured(body: Capture<B>) -> Self {
        Self { kind: ResponseKind::Captured { body } }
    }
}

/// An empty body: what layers further out, such as tower-http's `TimeoutLayer`, answer with.
impl<B> Default for ResponseBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn default() -> Self {
        Self::whole(Buffered::default())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            ResponseProjection::Passed { body } => body.poll_frame(context).map(|frame| frame.map(into_bytes)),
            ResponseProjection::Resumed { body } => body.poll_frame(context),
            ResponseProjection::Whole { body } => Poll::Ready(body.next()),
            ResponseProjection::Captured { body } => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseKind::Passed { body } => body.is_end_stream(),
            ResponseKind::Resumed { body } => body.is_end(),
            ResponseKind::Whole { body } => body.is_end(),
            ResponseKind::Captured { body } => body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseKind::Passed { body } => body.size_hint(),
            ResponseKind::Resumed { body } => body.size_hint(),
            ResponseKind::Whole { body } => body.size_hint(),
            ResponseKind::Captured { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseBody")
    }
}

/// A body whose beginning has been read already.
struct Resumed<B> {
    first: Bytes,
    body: Pin<Box<B>>,
}

impl<B> Resumed<B> {
    fn new(first: Bytes, body: Pin<Box<B>>) -> Self {
        Self { first, body }
    }
}

impl<B> Resumed<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.first)))));
        }
        self.body.as_mut().poll_frame(context).map(|frame| frame.map(into_bytes))
    }

    fn is_end(&self) -> bool {
        self.first.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.len() as u64;
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(first)) {
            hint.set_upper(upper);
        }
        hint
    }
}

/// A body in memory: its data as one frame, then its trailers or the error with which it broke off.
#[derive(Debug, Default)]
pub(super) struct Buffered {
    data: Bytes,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Trailers(HeaderMap),
    Broken(BoxError),
}

impl Buffered {
    pub(super) fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data, end: trailers.map(End::Trailers) }
    }

    /// A body that breaks off after `data`.
    pub(super) fn broken(data: Bytes, error: BoxError) -> Self {
        Self { data, end: Some(End::Broken(error)) }
    }

    pub(super) fn data(&self) -> &Bytes {
        &self.data
    }

    fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        if !self.data.is_empty() {
            return Some(Ok(Frame::data(std::mem::take(&mut self.data))));
        }
        match self.end.take()? {
            End::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            End::Broken(error) => Some(Err(error)),
        }
    }

    fn is_end(&self) -> bool {
        self.data.is_empty() && self.end.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.end {
            // Its length is not known: a message that breaks off must not look whole.
            Some(End::Broken(_)) => SizeHint::new(),
            // With a length, which a server takes from here, HTTP/1.1 has no place for trailers.
            Some(End::Trailers(_)) => {
                let mut at_least = SizeHint::new();
                at_least.set_lower(self.data.len() as u64);
                at_least
            }
            None => SizeHint::with_exact(self.data.len() as u64),
        }
    }
}

/// How the reading of a body ended.
#[derive(Debug)]
pub(super) enum Collected {
    /// It has been read to its end.
    Whole(Option<HeaderMap>),
    /// More than the limit has come.
    TooLarge,
    /// The budget has no room for what has come.
    NoRoom,
    /// It broke off.
    Broken(BoxError),
}

/// Reads a body into `chunks` until its end, or until more than `limit` bytes or more than the budget allows have come.
pub(super) async fn collect<B>(mut body: Pin<&mut B>, limit: usize, share: &mut Share, chunks: &mut Chunks) -> Collected
where
    B: Body,
    B::Error: Into<BoxError>,
{
    loop {
        let frame = match std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
            None => return Collected::Whole(None),
            Some(Err(error)) => return Collected::Broken(error.into()),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(mut data) => {
                chunks.push(data.copy_to_bytes(data.remaining()));
                if chunks.len() > limit {
                    return Collected::TooLarge;
                }
                if !share.raise_to(chunks.len()) {
                    return Collected::NoRoom;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Collected::Whole(Some(trailers));
                }
            }
        }
    }
}

/// Pieces of a body, joined without a copy where there is one only.
///
/// Others are copied as they come. Kept as they are, each would hold on to the buffer that it was read into: a body that is
/// sent byte by byte would take many times its length, which no budget counts.
#[derive(Default)]
pub(super) struct Chunks {
    first: Bytes,
    /// All of them, as soon as there are two.
    joined: Vec<u8>,
}

impl Chunks {
    pub(super) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
        } else {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
            self.joined.extend_from_slice(&piece);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    pub(super) fn join(&mut self) -> Bytes {
        let Self { first, joined } = std::mem::take(self);
        if joined.is_empty() { first } else { joined.into() }
    }
}

/// A frame with its data as [`Bytes`] and its error boxed.
pub(super) fn into_bytes<D: Buf, E: Into<BoxError>>(frame: Result<Frame<D>, E>) -> Result<Frame<Bytes>, BoxError> {
    frame.map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The buffer that a piece was read into.
    struct Buffer(Arc<()>);

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            assert_ne!(Arc::strong_count(&self.0), 0);
            b"x"
        }
    }

    /// A mebibyte that was sent byte by byte took more than thirty.
    #[test]
    fn a_body_in_many_pieces_holds_none_of_their_buffers() {
        let (mut chunks, buffers) = (Chunks::default(), Arc::new(()));
        for length in 1..=1000 {
            chunks.push(Bytes::from_owner(Buffer(Arc::clone(&buffers))));
            chunks.push(Bytes::new());
            assert_eq!(chunks.len(), length);
        }
        assert_eq!(Arc::strong_count(&buffers), 1);
        assert_eq!(chunks.join(), vec![b'x'; 1000]);
        assert_eq!((chunks.len(), chunks.join()), (0, Bytes::new()));
    }

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let (mut chunks, piece) = (Chunks::default(), Bytes::from(vec![1, 2, 3]));
        chunks.push(Bytes::new());
        chunks.push(piece.clone());
        assert_eq!(chunks.join().as_ptr(), piece.as_ptr());
    }
}
