//! Who is calling.
//!
//! The token stands for a principal: `USER` or `USER.SECRET` here, a session or a signed token in a real service. Keys are
//! scoped by the principal, so that two callers with the same key never meet, and a caller whose token has been renewed
//! still finds his own keys.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use idem_examples::Problem;

/// The caller that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(String);

impl Principal {
    /// Whose keys this caller's are: `user:USER`, or `public` for whoever does not say.
    pub(crate) fn scope(&self) -> &str {
        &self.0
    }
}

/// Names the caller in the request's extensions. Runs outside the idempotency layer: whoever is refused here claims nothing.
///
/// # Errors
///
/// 401 for an `Authorization` that is not one bearer token.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Result<Response, Problem> {
    let principal = principal(request.headers()).ok_or_else(|| {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Authorization is `Bearer USER` or `Bearer USER.SECRET`")
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    })?;
    request.extensions_mut().insert(principal);
    Ok(next.run(request).await)
}

fn principal(headers: &HeaderMap) -> Option<Principal> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let Some(field) = fields.next() else { return Some(Principal("public".into())) };
    if fields.next().is_some() {
        return None;
    }
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    user(token.trim_start_matches(' ')).map(|user| Principal(format!("user:{user}")))
}

/// The user of a token, whose characters are those of RFC 6750, section 2.1. A secret may contain further dots.
fn user(token: &str) -> Option<&str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
    if !token.bytes().all(allowed) {
        return None;
    }
    let (user, secret) = token.split_once('.').map_or((token, None), |(user, secret)| (user, Some(secret)));
    let complete = !user.is_empty() && secret != Some("");
    (complete && user.len() <= 200).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(fields: &[&str]) -> Option<String> {
        let headers =
            fields.iter().map(|field| (header::AUTHORIZATION, HeaderValue::from_str(field).unwrap())).collect();
        principal(&headers).map(|principal| principal.scope().to_owned())
    }

    #[test]
    fn a_token_stands_for_its_user_whatever_its_secret() {
        assert_eq!(scope(&[]).as_deref(), Some("public"));
        for field in ["Bearer alice", "bearer alice.s3cret", "Bearer  alice.other.secret="] {
            assert_eq!(scope(&[field]).as_deref(), Some("user:alice"), "{field}");
        }
    }

    #[test]
    fn everything_else_is_nobody() {
        let long = format!("Bearer {}", "a".repeat(201));
        for field in [
            "",
            "Bearer",
            "Bearer ",
            "Basic YWxpY2U6eA==",
            "alice",
            "Bearer .secret",
            "Bearer alice.",
            "Bearer a b",
            &long,
        ] {
            assert_eq!(scope(&[field]), None, "{field:?}");
        }
        assert_eq!(scope(&["Bearer alice", "Bearer alice"]), None);
    }
}
