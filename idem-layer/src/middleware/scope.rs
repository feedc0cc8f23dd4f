//! Whose key it is.
//!
//! Two callers who send the same key must not meet: one would get the other's stored response. So the layer is not built
//! without a scope, or without saying `unscoped` by name.
//!
//! ```
//! use idem_layer::middleware::scope;
//!
//! #[derive(Clone)]
//! struct User {
//!     id: String,
//! }
//!
//! // What the auth layer has put into the request's extensions.
//! let user = scope::extension(|user: &User| Some(user.id.clone()));
//! // What a gateway sets, and removes from what clients send.
//! let tenant = scope::header("x-tenant");
//! # let _ = (user, tenant);
//! ```
//!
//! A scope is a stable name: a user's or account's id, and the tenant's with it where a user can act in several. Never a
//! credential (it rotates, and it is a secret), never an address (people behind one share it).

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use thiserror::Error;

use super::error::LayerError;
use crate::protocol::{Operation, Scope};

/// Finds out whose request it is. A source that finds nobody refuses the request. Cheap to clone; see the
/// [module docs](self).
#[derive(Clone)]
#[must_use]
pub struct ScopeSource(Kind);

#[derive(Clone)]
enum Kind {
    Unscoped,
    Header(Result<HeaderName, LayerError>),
    Extension(Arc<Find<Result<String, ScopeError>>>, &'static str),
    Custom(Arc<Find<Option<String>>>),
}

type Find<T> = dyn Fn(&Parts) -> T + Send + Sync;

/// The scope that an extension of the request stands for: something that an auth layer, further out on the stack, has
/// inserted.
///
/// A request without the extension is answered 500 and logged: the auth layer is missing, or stands inside of this one,
/// and nothing that a client does can mend that. A request whose extension has no scope (`None`) is answered 400.
pub fn extension<T, S, F>(scope_of: F) -> ScopeSource
where
    T: Send + Sync + 'static,
    S: Into<String>,
    F: Fn(&T) -> Option<S> + Send + Sync + 'static,
{
    let find = move |parts: &Parts| {
        let extension = parts.extensions.get::<T>().ok_or(ScopeError::NoExtension)?;
        scope_of(extension).map(S::into).ok_or(ScopeError::Missing)
    };
    ScopeSource(Kind::Extension(Arc::new(find), type_name::<T>()))
}

/// The value of a header field: exactly one line of 1 to 255 bytes of visible ASCII. Only for a field that somebody whom
/// you trust sets on every request, a gateway for instance: a client that chooses it chooses whose responses it gets.
///
/// A name that no field can have is an error of the layer's `build`.
pub fn header(name: impl AsRef<str>) -> ScopeSource {
    let name = name.as_ref();
    ScopeSource(Kind::Header(name.parse().map_err(|_| LayerError::HeaderName(name.to_owned()))))
}

/// A scope by code, from the head of the request. Without one (`None`) the request is answered 400.
pub fn from_fn<F>(find: F) -> ScopeSource
where
    F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
{
    ScopeSource(Kind::Custom(Arc::new(find)))
}

impl ScopeSource {
    /// All callers share their keys.
    pub(super) const fn unscoped() -> Self {
        Self(Kind::Unscoped)
    }

    /// Reports what was wrong with the source's description.
    pub(super) fn check(&self) -> Result<(), LayerError> {
        match &self.0 {
            Kind::Header(name) => name.clone().map(drop),
            Kind::Unscoped | Kind::Extension(..) | Kind::Custom(_) => Ok(()),
        }
    }

    /// Whose request it is. `operation` is named in the log where the server itself is to blame.
    pub(super) fn extract(&self, parts: &Parts, operation: &Operation) -> Result<Scope, ScopeError> {
        match &self.0 {
            Kind::Unscoped => Ok(Scope::unscoped()),
            // A name that is none is no request's, and does not get past `check`.
            Kind::Header(Err(_)) => Err(ScopeError::Missing),
            Kind::Header(Ok(name)) => field(parts, name),
            Kind::Custom(find) => {
                Scope::new(find(parts).ok_or(ScopeError::Missing)?).map_err(|_| ScopeError::Malformed)
            }
            Kind::Extension(find, extension) => {
                let found = find(parts).and_then(|scope| Scope::new(scope).map_err(|_| ScopeError::Unusable));
                if let Err(error @ (ScopeError::NoExtension | ScopeError::Unusable)) = &found {
                    tracing::error!(target: "idem", operation = operation.as_str(), extension, %error, "no scope");
                }
                found
            }
        }
    }
}

impl fmt::Debug for ScopeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unscoped => f.write_str("unscoped"),
            Kind::Header(name) => f.debug_tuple("header").field(name).finish(),
            Kind::Extension(_, extension) => write!(f, "extension({extension})"),
            Kind::Custom(_) => f.write_str("from_fn(..)"),
        }
    }
}

/// Why it is not known whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ScopeError {
    /// The client's fault, like the next.
    #[error("the request does not say whose it is")]
    Missing,
    #[error("what says whose request it is, is malformed")]
    Malformed,
    /// The server's fault, like the next.
    #[error("the request has no such extension: the layer that inserts it is missing, or stands inside of this one")]
    NoExtension,
    #[error("the scope is empty or longer than 255 bytes")]
    Unusable,
}

fn field(parts: &Parts, name: &HeaderName) -> Result<Scope, ScopeError> {
    let mut lines = parts.headers.get_all(name).iter();
    let line = lines.next().ok_or(ScopeError::Missing)?.as_bytes().trim_ascii();
    if lines.next().is_some() || !line.iter().all(u8::is_ascii_graphic) {
        return Err(ScopeError::Malformed);
    }
    let line = std::str::from_utf8(line).map_err(|_| ScopeError::Malformed)?;
    Scope::new(line).map_err(|_| ScopeError::Malformed)
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[derive(Clone)]
    struct User {
        id: String,
    }

    fn extract(source: &ScopeSource, change: impl FnOnce(&mut Request<()>)) -> Result<Scope, ScopeError> {
        let mut request = Request::new(());
        change(&mut request);
        source.extract(&request.into_parts().0, &Operation::new("test").unwrap())
    }

    fn scope(text: &str) -> Result<Scope, ScopeError> {
        Ok(Scope::new(text).unwrap())
    }

    #[test]
    fn an_extension_names_the_caller_and_a_missing_one_is_the_servers_fault() {
        let source = extension(|user: &User| Some(user.id.clone()));
        let user = |id: &str| User { id: id.to_owned() };
        assert_eq!(extract(&source, |r| drop(r.extensions_mut().insert(user("alice")))), scope("alice"));
        assert_eq!(extract(&source, |_| ()), Err(ScopeError::NoExtension));
        assert_eq!(
            extract(&source, |r| drop(r.extensions_mut().insert("alice".to_owned()))),
            Err(ScopeError::NoExtension)
        );
        assert_eq!(extract(&source, |r| drop(r.extensions_mut().insert(user("")))), Err(ScopeError::Unusable));

        let anonymous = extension(|_: &User| None::<String>);
        assert_eq!(extract(&anonymous, |r| drop(r.extensions_mut().insert(user("a")))), Err(ScopeError::Missing));
        let fixed = extension(|_: &User| Some("all of them"));
        assert_eq!(extract(&fixed, |r| drop(r.extensions_mut().insert(user("a")))), scope("all of them"));
    }

    #[test]
    fn a_header_is_exactly_one_visible_line() {
        let source = header("X-Tenant");
        let lines = |lines: &[&[u8]]| {
            extract(&source, |r| {
                for line in lines {
                    r.headers_mut().append("x-tenant", HeaderValue::from_bytes(line).unwrap());
                }
            })
        };
        assert_eq!(lines(&[b"t1"]), scope("t1"));
        assert_eq!(lines(&[b" t1\t"]), scope("t1"));
        assert_eq!(lines(&[]), Err(ScopeError::Missing));
        let long = [b't'; 256];
        for malformed in [&[&b""[..]][..], &[b"  "], &[b"a b"], &[b"\xc3\xa9"], &[&long], &[b"t1", b"t1"]] {
            assert_eq!(lines(malformed), Err(ScopeError::Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn code_can_name_the_caller() {
        let source = from_fn(|parts| parts.uri.host().map(str::to_owned));
        assert_eq!(extract(&source, |r| *r.uri_mut() = "http://t1/x".parse().unwrap()), scope("t1"));
        assert_eq!(extract(&source, |_| ()), Err(ScopeError::Missing));
        assert_eq!(extract(&from_fn(|_| Some(String::new())), |_| ()), Err(ScopeError::Malformed));
    }

    #[test]
    fn no_scope_is_said_by_name() {
        assert_eq!(extract(&ScopeSource::unscoped(), |_| ()), Ok(Scope::unscoped()));
        assert_eq!(format!("{:?}", ScopeSource::unscoped()), "unscoped");
    }

    #[test]
    fn mistakes_are_found_when_the_layer_is_built() {
        assert_eq!(header("x y").check(), Err(LayerError::HeaderName("x y".into())));
        assert_eq!(header("x-tenant").check(), Ok(()));
    }
}
