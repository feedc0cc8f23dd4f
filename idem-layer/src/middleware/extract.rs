//! What the layer gets out of a request before anything is claimed for it: an arrival, or a reason to refuse.

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::request;
use http_body::Body;

use super::BoxError;
use super::body::{Buffered, Chunks, Collected, RequestBody, collect};
use super::budget::Share;
use super::builder::KeyMissing;
use super::fingerprint::Fingerprinted;
use super::handle::Idempotency;
use super::layer::Config;
use super::rejection::Rejection;
use crate::guard::Arrival;
use crate::protocol::{Fingerprint, Identity, Key, Token};

/// What a request is to its layer.
#[expect(clippy::large_enum_variant, reason = "moved once, then taken apart")]
pub(super) enum Extracted<B> {
    /// To be run once.
    Guarded(Guarded<B>),
    /// None of the layer's business; with what its body takes of the budget, where it has been read.
    Passed(RequestBody<B>, Option<Share>),
}

/// A request that is to be run once.
pub(super) struct Guarded<B> {
    pub(super) arrival: Arrival,
    pub(super) body: RequestBody<B>,
    /// What the body takes of the budget.
    pub(super) share: Share,
    /// The field with the key that the request was given, having brought none.
    pub(super) given: Option<(HeaderName, HeaderValue)>,
}

/// A request that cannot be guarded, with its body, for whoever takes it all the same.
pub(super) struct Refused<B> {
    pub(super) rejection: Rejection,
    pub(super) body: RequestBody<B>,
    /// What the body takes of the budget, where it has been read.
    pub(super) share: Option<Share>,
}

impl<B> Refused<B> {
    /// Before anything of the body has been read.
    fn unread(rejection: Rejection, body: B) -> Self {
        Self { rejection, body: RequestBody::passed(body), share: None }
    }
}

/// Gets the arrival out of a request, and reads its body.
pub(super) async fn extract<B>(config: &Config, head: &mut request::Parts, body: B) -> Result<Extracted<B>, Refused<B>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut key = None;
    if !config.settings.key.needs_body() {
        key = match config.settings.key.extract(head, None) {
            Ok(key) => key,
            Err(error) => return Err(Refused::unread(error.into(), body)),
        };
        if key.is_none() {
            match key_missing(config) {
                KeyMissing::Pass => return Ok(Extracted::Passed(RequestBody::passed(body), None)),
                KeyMissing::Refuse => {
                    return Err(Refused::unread(Rejection::key_missing(), body));
                }
                KeyMissing::Generate => {}
            }
        }
    }
    let (body, share) = read(config, head, body).await?;
    match identify(config, head, key, &body) {
        Ok(Some((arrival, given))) => {
            Ok(Extracted::Guarded(Guarded { arrival, body: RequestBody::read(body), share, given }))
        }
        Ok(None) => {
            // A layer further out that has read the same bytes counts them.
            let counted = head.extensions.get::<Idempotency>().is_some();
            Ok(Extracted::Passed(RequestBody::read(body), (!counted).then_some(share)))
        }
        Err(rejection) => Err(Refused { rejection, body: RequestBody::read(body), share: Some(share) }),
    }
}

/// A request that would be given a key is in shadow mode as it would be without the layer.
fn key_missing(config: &Config) -> KeyMissing {
    match config.settings.key_missing {
        KeyMissing::Generate if config.settings.shadow => KeyMissing::Pass,
        otherwise => otherwise,
    }
}

type Identified = Option<(Arrival, Option<(HeaderName, HeaderValue)>)>;

/// The arrival of a request whose body is known, nothing if it is not guarded. `key` where it has been found already.
fn identify(
    config: &Config,
    head: &mut request::Parts,
    key: Option<Key>,
    body: &Buffered,
) -> Result<Identified, Rejection> {
    let settings = &config.settings;
    let mut given = None;
    let key = match key {
        Some(key) => key,
        None => match (settings.key.extract(head, Some(body.data()))?, key_missing(config)) {
            (Some(key), _) => key,
            (None, KeyMissing::Pass) => return Ok(None),
            (None, KeyMissing::Refuse) => return Err(Rejection::key_missing()),
            (None, KeyMissing::Generate) => {
                let (key, value) = generate();
                let name = settings.key.header_name();
                given = Some((name.cloned().unwrap_or(HeaderName::from_static("idempotency-key")), value));
                key
            }
        },
    };

    let scope = config.scope.extract(head, &config.operation)?;
    let target = config.target(head);
    let in_identity = settings.target_in_identity.then(|| target.clone());
    let identity = Identity::new(config.operation.clone(), in_identity, scope, key);
    if head.extensions.get::<Idempotency>().is_some_and(|outer| outer.guards(&identity, &config.guard)) {
        // The same layer further out on this stack holds the claim.
        return Ok(None);
    }

    let mut arrival = Arrival::new(identity);
    if let Some(request) = Fingerprinted::new(&settings.fingerprint, target, head, body.data().clone())
        && let Some(fingerprint) = request.digest(Fingerprint::VERSION)
    {
        arrival = arrival.fingerprint(fingerprint).redigest(move |version| request.digest(version));
    }
    if settings.fingerprint.is_observed() {
        arrival = arrival.observed();
    }
    if settings.shadow {
        arrival = arrival.shadow();
    }
    if let Some((name, value)) = &given {
        head.headers.insert(name, value.clone());
    }
    Ok(Some((arrival, given)))
}

/// A key of 128 random bits, and the field value that names it, in the quoted form.
fn generate() -> (Key, HeaderValue) {
    let text = format!("{:032x}", u128::from_be_bytes(*Token::mint().as_bytes()));
    let value = HeaderValue::try_from(format!("\"{text}\"")).expect("hexadecimal digits in quotes");
    (Key::new(text).expect("32 bytes"), value)
}

/// Reads the request body under the route's limits.
async fn read<B>(config: &Config, head: &request::Parts, body: B) -> Result<(Buffered, Share), Refused<B>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let settings = &config.settings;
    let declared = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let least = usize::try_from(declared.unwrap_or(0).max(body.size_hint().lower())).unwrap_or(usize::MAX);
    // What is larger than the whole budget would be told to come back for ever.
    let limit = settings.request_limit.min(settings.budget.limit());
    if least > limit {
        return Err(Refused::unread(Rejection::body_too_large(), body));
    }
    // What is announced is counted from the start: a crowd of uploads is refused before it has been sent, not half-way.
    let mut share = settings.budget.share();
    if !share.raise_to(least) {
        return Err(Refused::unread(Rejection::overloaded(), body));
    }

    let mut body = Box::pin(body);
    let mut chunks = Chunks::default();
    let collecting = collect(body.as_mut(), limit, &mut share, &mut chunks);
    let rejection = match tokio::time::timeout(settings.request_time_limit, collecting).await {
        Ok(Collected::Whole(trailers)) => return Ok((Buffered::new(chunks.join(), trailers), share)),
        Ok(Collected::TooLarge) => Rejection::body_too_large(),
        Ok(Collected::NoRoom) => Rejection::overloaded(),
        Ok(Collected::Broken(error)) => {
            let body = RequestBody::read(Buffered::broken(chunks.join(), error));
            return Err(Refused { rejection: Rejection::body_incomplete(), body, share: Some(share) });
        }
        Err(_) => Rejection::body_timeout(),
    };
    Err(Refused { rejection, body: RequestBody::resumed(chunks.join(), body), share: Some(share) })
}
