//! Which fields of a response are stored.

use std::collections::HashMap;

use http::header::{self, HeaderName};

use super::error::LayerError;

/// Which fields of a response and of its trailers are stored, and so replayed:
/// [`LayerBuilder::keep`](super::LayerBuilder::keep).
///
/// | fields | [`all`](Self::all) | [`only`](Self::only) |
/// |---|---|---|
/// | of the connection and of the one message: `Connection` and what it names, `Keep-Alive`, `Proxy-*`, `TE`, `Transfer-Encoding`, `Upgrade`, `Content-Length`, `Date`; the mark of a replay | never | never |
/// | that say how the body is read: `Content-Type`, `Content-Encoding`, `Content-Range`, `Grpc-Encoding`, `Grpc-Status`; `Trailer`, where there are trailers | always | always |
/// | of the moment: `Set-Cookie`, `Set-Cookie2`, `WWW-Authenticate`, `Authentication-Info`, `Authorization` | by name | by name |
/// | all others | yes | by name |
///
/// Those of the first row are those of RFC 9110, sections 7.6.1 and 11.7, that mean the next hop only; a replay has a length
/// and a date of its own. Those of the second row stay whatever is listed: a body without its type or its encoding is another
/// body, a part without its range looks like the whole, a gRPC answer without its status is none.
///
/// A field with several lines keeps them all, in order, byte for byte. Changing what is kept changes later responses only:
/// what is stored already is replayed as it is stored.
///
/// ```
/// use idem_layer::middleware::{IdempotencyLayer, KeptHeaders};
/// use idem_layer::{Guard, MemoryStore};
///
/// let layer = IdempotencyLayer::builder(Guard::at_least_once(MemoryStore::new()), "sessions.create")
///     .unscoped()
///     // Each answer counts its own requests. The cookie is the very thing that a client retries for.
///     .keep(KeptHeaders::all().without(["x-request-id", "x-ratelimit-remaining"]).with(["set-cookie"]))
///     .build()?;
/// # Ok::<(), idem_layer::middleware::LayerError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KeptHeaders {
    /// Whether fields are kept that are named nowhere.
    unnamed: bool,
    named: HashMap<HeaderName, bool>,
    mistake: Option<LayerError>,
}

impl KeptHeaders {
    /// Everything that is meant for the client for good: the default.
    pub fn all() -> Self {
        Self { unnamed: true, named: HashMap::new(), mistake: None }
    }

    /// An allow list: these fields, and those without which the body cannot be read. What is not named is not stored, whatever
    /// a handler may add one day.
    ///
    /// A name that no field can have, or of a field that is never kept, is an error of the layer's `build`.
    pub fn only<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { unnamed: false, ..Self::all() }.with(names)
    }

    /// These as well, cookies and authentication fields too. The last word on a name counts.
    ///
    /// A name that no field can have, or of a field that is never kept, is an error of the layer's `build`.
    pub fn with<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.named(names, true)
    }

    /// All but these, such as those that count or name the one request. The last word on a name counts.
    ///
    /// A name that no field can have, or of a field without which the body cannot be read, is an error of the layer's `build`.
    pub fn without<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.named(names, false)
    }

    fn named<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>, kept: bool) -> Self {
        for name in names {
            let name = name.as_ref();
            let checked = match HeaderName::from_bytes(name.as_bytes()) {
                Err(_) => Err(LayerError::HeaderName(name.to_owned())),
                Ok(name) if kept && is_of_one_message(&name) => Err(LayerError::NeverKept(name.to_string())),
                Ok(name) if !kept && is_of_the_body(&name) => Err(LayerError::AlwaysKept(name.to_string())),
                Ok(name) => Ok(name),
            };
            match checked {
                Ok(name) => drop(self.named.insert(name, kept)),
                Err(error) => drop(self.mistake.get_or_insert(error)),
            }
        }
        self
    }

    /// Reports what was wrong with the names. `marker` is the name of the mark of a replay.
    pub(super) fn check(&self, marker: &HeaderName) -> Result<(), LayerError> {
        match &self.mistake {
            Some(mistake) => Err(mistake.clone()),
            None if self.named.get(marker) == Some(&true) => Err(LayerError::NeverKept(marker.to_string())),
            None => Ok(()),
        }
    }

    /// Whether a field of this name is stored, where neither `Connection` names it nor it is the mark of a replay.
    pub(super) fn keeps(&self, name: &HeaderName) -> bool {
        if is_of_one_message(name) {
            return false;
        }
        if is_of_the_body(name) {
            return true;
        }
        self.named.get(name).copied().unwrap_or_else(|| self.unnamed && !is_of_the_moment(name))
    }
}

impl Default for KeptHeaders {
    fn default() -> Self {
        Self::all()
    }
}

/// Fields of the connection, or of which every message has its own.
pub(super) fn is_of_one_message(name: &HeaderName) -> bool {
    const OTHERS: [&str; 3] = ["keep-alive", "proxy-authentication-info", "proxy-connection"];
    matches!(
        *name,
        header::CONNECTION
            | header::CONTENT_LENGTH
            | header::DATE
            | header::PROXY_AUTHENTICATE
            | header::PROXY_AUTHORIZATION
            | header::TE
            | header::TRANSFER_ENCODING
            | header::UPGRADE
    ) || OTHERS.contains(&name.as_str())
}

/// Fields without which the stored bytes would be read as something else. `Trailer` is among them because HTTP/1.1 sends no
/// trailers without it.
pub(super) fn is_of_the_body(name: &HeaderName) -> bool {
    const OTHERS: [&str; 2] = ["grpc-encoding", "grpc-status"];
    matches!(*name, header::CONTENT_ENCODING | header::CONTENT_RANGE | header::CONTENT_TYPE | header::TRAILER)
        || OTHERS.contains(&name.as_str())
}

/// Fields that belong to the moment, and perhaps to a session that has ended since.
fn is_of_the_moment(name: &HeaderName) -> bool {
    const OTHERS: [&str; 2] = ["authentication-info", "set-cookie2"];
    matches!(*name, header::AUTHORIZATION | header::SET_COOKIE | header::WWW_AUTHENTICATE)
        || OTHERS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: HeaderName = HeaderName::from_static("idempotent-replayed");

    fn keeps<const N: usize>(kept: &KeptHeaders, names: [&str; N]) -> [bool; N] {
        kept.check(&MARKER).unwrap();
        names.map(|name| kept.keeps(&name.parse().unwrap()))
    }

    #[test]
    fn a_list_decides_but_for_what_is_always_and_what_is_never_kept() {
        let names = ["etag", "x-request-id", "set-cookie", "content-type", "date", "connection"];
        for (kept, expected) in [
            (KeptHeaders::all(), [true, true, false, true, false, false]),
            (KeptHeaders::default(), [true, true, false, true, false, false]),
            (KeptHeaders::all().without(["X-Request-Id", "date"]), [true, false, false, true, false, false]),
            (KeptHeaders::all().with(["Set-Cookie", "etag"]), [true, true, true, true, false, false]),
            (KeptHeaders::only(["ETag"]), [true, false, false, true, false, false]),
            (KeptHeaders::only(["content-type"; 2]), [false, false, false, true, false, false]),
            (KeptHeaders::only(["etag"]).with(["set-cookie"]), [true, false, true, true, false, false]),
            (KeptHeaders::only(["etag", "x-request-id"]).without(["etag"]), [false, true, false, true, false, false]),
            (KeptHeaders::all().without(["etag"]).with(["etag"]), [true, true, false, true, false, false]),
        ] {
            assert_eq!(keeps(&kept, names), expected, "{kept:?}");
        }
        let nothing = KeptHeaders::only([""; 0]);
        assert_eq!(keeps(&nothing, ["content-encoding", "content-range", "grpc-status", "trailer"]), [true; 4]);
    }

    #[test]
    fn a_name_that_cannot_be_obeyed_is_an_error() {
        let mistake = |kept: KeptHeaders| kept.check(&MARKER).unwrap_err();
        for malformed in ["", "two words", "caf\u{e9}", "a:b"] {
            for kept in [KeptHeaders::only([malformed]), KeptHeaders::all().without(["x-a", malformed])] {
                assert_eq!(mistake(kept), LayerError::HeaderName(malformed.into()));
            }
        }
        for never in [
            "connection",
            "content-length",
            "date",
            "idempotent-replayed",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authentication-info",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "transfer-encoding",
            "upgrade",
        ] {
            assert_eq!(mistake(KeptHeaders::all().with([never])), LayerError::NeverKept(never.into()));
            assert_eq!(mistake(KeptHeaders::only(["x-a", never])), LayerError::NeverKept(never.into()));
            KeptHeaders::all().without([never]).check(&MARKER).unwrap();
        }
        for always in ["content-encoding", "content-range", "content-type", "grpc-encoding", "grpc-status", "trailer"] {
            assert_eq!(mistake(KeptHeaders::all().without([always])), LayerError::AlwaysKept(always.into()));
            KeptHeaders::only([always]).check(&MARKER).unwrap();
        }
        // The first mistake is the one that is told.
        assert_eq!(mistake(KeptHeaders::all().with(["te", " "])), LayerError::NeverKept("te".into()));
    }
}
