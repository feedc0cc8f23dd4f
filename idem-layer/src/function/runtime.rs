//! What `#[idempotent]` expands into. Not for use by hand: anything here may change in any release, together with the macro.

use std::fmt::Arguments;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::refused::{Refused, RefusedKind};
use super::run::{Returns, run};
use super::source::{ToKey, ToScope};
use crate::guard::Arrival;
use crate::protocol::json::canonical_digest;
use crate::protocol::{Digester, Fingerprint, Identity, IdentityError, Key, KeyError, Operation, Policy, Scope};

pub use crate::guard::Guard;

/// One call of a guarded function, from its arguments.
#[derive(Debug)]
pub struct Call {
    operation: &'static str,
    key: Result<Key, KeyError>,
    scope: Result<Scope, IdentityError>,
    fingerprint: Option<serde_json::Result<Fingerprint>>,
    retention: Option<Duration>,
    lease: Option<Duration>,
}

impl Call {
    /// The macro has checked the operation.
    pub fn new(operation: &'static str, key: Result<Key, KeyError>, scope: Result<Scope, IdentityError>) -> Self {
        Self { operation, key, scope, fingerprint: None, retention: None, lease: None }
    }

    /// Compares by these parts.
    #[must_use]
    pub fn fingerprint(mut self, parts: Parts) -> Self {
        self.fingerprint = Some(parts.0.map(Digester::finish));
        self
    }

    /// Replaces the policy's retention.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Replaces the policy's lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// [`Guard::run`]. No bound of it can fail where it is called: each has been asked for at its own place.
    pub async fn run<R, T, E, W>(self, guard: &Guard, kept: Kept<R, T, E>, failure: fn(&E) -> Failure, work: W) -> R
    where
        W: Future<Output = R>,
    {
        let Kept { returns, split, join } = kept;
        join(match self.arrival(guard) {
            Ok(arrival) => run(guard, arrival, returns, failure, async { split(work.await) }).await,
            Err(refused) => Err(returns.refuse(refused)),
        })
    }

    fn arrival(self, guard: &Guard) -> Result<Arrival, Refused> {
        let operation = Operation::new(self.operation).expect("checked by the macro");
        let refused = |kind| Refused::new(kind, &operation);
        let key = self.key.map_err(|error| refused(RefusedKind::InvalidKey).because(error))?;
        let scope = self.scope.map_err(|error| refused(RefusedKind::InvalidScope).because(error))?;
        let fingerprint =
            (self.fingerprint.transpose()).map_err(|error| refused(RefusedKind::InvalidFingerprint).because(error))?;
        let policy = policy(guard.policy(), self.retention, self.lease)
            .map_err(|error| refused(RefusedKind::InvalidPolicy).because(error))?;

        let mut arrival = Arrival::new(Identity::new(operation, None, scope, key));
        if let Some(fingerprint) = fingerprint {
            arrival = arrival.fingerprint(fingerprint);
        }
        Ok(arrival.policy(policy))
    }
}

fn policy(
    policy: &Policy,
    retention: Option<Duration>,
    lease: Option<Duration>,
) -> Result<Policy, crate::protocol::PolicyError> {
    let mut builder = policy.to_builder();
    if let Some(retention) = retention {
        builder = builder.retention(retention);
    }
    if let Some(lease) = lease {
        builder = builder.lease(lease);
    }
    builder.build()
}

/// `Result`, by whatever alias it is written.
#[diagnostic::on_unimplemented(
    message = "an idempotent function returns `Result<T, E>`, not `{Self}`",
    label = "not a `Result`",
    note = "repeats get the stored `T`; a call that may not run gets a `Refused`, made into `E`"
)]
pub trait Outcome: sealed::Sealed {
    /// What is stored.
    type Value;
    /// What a refusal becomes.
    type Error;

    /// Itself.
    fn split(self) -> Result<Self::Value, Self::Error>;
    /// Itself.
    fn join(result: Result<Self::Value, Self::Error>) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl<T, E> Sealed for Result<T, E> {}
}

impl<T, E> Outcome for Result<T, E> {
    type Value = T;
    type Error = E;

    fn split(self) -> Self {
        self
    }

    fn join(result: Self) -> Self {
        result
    }
}

/// An error that a refusal can be returned as.
#[diagnostic::on_unimplemented(
    message = "a refused call is returned as the function's error, but `{Self}` is not made from `Refused`",
    label = "lacks `From<idem_layer::Refused>`",
    note = "give the enum a variant for it: with thiserror `#[error(transparent)] Refused(#[from] idem_layer::Refused)`",
    note = "or return an error that is made from any other, such as `anyhow::Error`, or `Refused` itself"
)]
pub trait FromRefused: From<Refused> {}

#[diagnostic::do_not_recommend]
impl<E: From<Refused>> FromRefused for E {}

/// What a record can hold and give back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored for repeats of the call",
    label = "lacks `Serialize`, or `Deserialize` without a lifetime of its own",
    note = "derive both: `#[derive(serde::Serialize, serde::Deserialize)]`"
)]
pub trait Stored: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Stored for T {}

/// What a fingerprint can be made of.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a fingerprint",
    label = "lacks `Serialize`",
    note = "derive it, `#[derive(serde::Serialize)]`, or name the fields that count: `fingerprint(order.amount)`"
)]
pub trait Compared: Serialize {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Compared for T {}

/// What must be known of a return type `R`, which is a `Result<T, E>` or already reported not to be.
#[derive(Debug)]
pub struct Kept<R, T, E> {
    returns: Returns<T, E>,
    split: fn(R) -> Result<T, E>,
    join: fn(Result<T, E>) -> R,
}

/// What must be known of this return type.
pub fn returns<R>() -> Kept<R, R::Value, R::Error>
where
    R: Outcome<Value: Stored, Error: FromRefused>,
{
    Kept { returns: Returns::new(), split: R::split, join: R::join }
}

/// The same where final errors are replayed.
pub fn returns_replaying_errors<R>() -> Kept<R, R::Value, R::Error>
where
    R: Outcome<Value: Stored, Error: FromRefused + Stored>,
{
    Kept { returns: Returns::new().replaying_errors(), split: R::split, join: R::join }
}

/// Stands for a value of the return type in code that never runs.
pub fn returned<R>() -> R {
    unreachable!("stands for a type")
}

/// What an `Err` means where no `failure` is given.
pub fn unclassified<E>(_: &E) -> Failure {
    Failure::Unknown
}

/// `key = <expression>`.
///
/// # Errors
///
/// As [`ToKey::to_key`].
pub fn to_key<T: ToKey + ?Sized>(value: &T) -> Result<Key, KeyError> {
    value.to_key()
}

/// `scope = <expression>`.
///
/// # Errors
///
/// As [`ToScope::to_scope`].
pub fn to_scope<T: ToScope + ?Sized>(value: &T) -> Result<Scope, IdentityError> {
    value.to_scope()
}

/// `unscoped`.
pub fn unscoped() -> Result<Scope, IdentityError> {
    Ok(Scope::unscoped())
}

/// The parts of a fingerprint, until one cannot be serialised.
#[derive(Debug)]
pub struct Parts(serde_json::Result<Digester>);

impl Parts {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "only the macro makes one")]
    pub fn new() -> Self {
        Self(Ok(Fingerprint::digester()))
    }

    /// Adds one part, by its canonical JSON.
    #[must_use]
    pub fn part<T: Compared + ?Sized>(self, part: &T) -> Self {
        Self(self.0.and_then(|digester| {
            let json = serde_json::to_vec(part)?;
            // Text that a type writes with one name twice has no value to compare; it is compared as it is.
            Ok(match canonical_digest(&json) {
                Ok(digest) => digester.part("value").part(digest),
                Err(_) => digester.part("text").part(json),
            })
        }))
    }
}

/// A key from a format string: `texts` are one more than `values`, which stand between them.
///
/// # Errors
///
/// [`KeyError::Empty`] for an empty value, [`KeyError::TooLong`].
pub fn template_key(texts: &[&str], values: &[Arguments<'_>]) -> Result<Key, KeyError> {
    let values: Vec<String> = values.iter().map(Arguments::to_string).collect();
    if values.iter().any(String::is_empty) {
        return Err(KeyError::Empty);
    }
    let text = joined(texts, &values);
    if reads_back(texts, &values, &text) {
        return Key::new(text);
    }
    let last = values.len() - 1;
    Key::all_of(
        (values.iter().enumerate())
            .map(|(i, value)| match i {
                i if i == last => Key::new([texts[i], value, texts[i + 1]].concat()),
                i => Key::new([texts[i], value].concat()),
            })
            .collect::<Result<Vec<_>, _>>()?,
    )
}

/// A scope from a format string with one value at the most.
///
/// # Errors
///
/// [`IdentityError::Scope`] for an empty value, or beyond 255 bytes.
pub fn template_scope(texts: &[&str], values: &[Arguments<'_>]) -> Result<Scope, IdentityError> {
    let values: Vec<String> = values.iter().map(Arguments::to_string).collect();
    if values.iter().any(String::is_empty) {
        return Err(IdentityError::Scope);
    }
    Scope::new(joined(texts, &values))
}

fn joined(texts: &[&str], values: &[String]) -> String {
    let mut joined = String::new();
    for (text, value) in texts.iter().zip(values.iter().map(String::as_str).chain([""])) {
        joined.push_str(text);
        joined.push_str(value);
    }
    joined
}

/// Whether `text`, cut at the first place where each text between two values occurs, falls into these values. Then no other
/// values make the same text.
fn reads_back(texts: &[&str], values: &[String], text: &str) -> bool {
    let Some((_, between)) = values.split_last() else { return true };
    let mut rest = &text[texts[0].len()..];
    between.iter().zip(&texts[1..]).all(|(value, separator)| {
        let fits = !separator.is_empty() && rest.find(separator) == Some(value.len());
        if fits {
            rest = &rest[value.len() + separator.len()..];
        }
        fits
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(texts: &[&str], values: &[&str]) -> Result<Key, KeyError> {
        match values {
            [a] => template_key(texts, &[format_args!("{a}")]),
            [a, b] => template_key(texts, &[format_args!("{a}"), format_args!("{b}")]),
            _ => unreachable!(),
        }
    }

    /// Keys are stored: what a format string makes of its values never changes.
    #[test]
    fn a_key_reads_as_it_is_written_unless_that_is_ambiguous() {
        let text = |texts: &[&str], values: &[&str]| key(texts, values).unwrap().text().into_owned();
        assert_eq!(text(&["order-", ""], &["7"]), "order-7");
        assert_eq!(text(&["", "-", ""], &["o1", "7"]), "o1-7");
        assert_eq!(text(&["", "-", ""], &["o1", "7-8"]), "o1-7-8");
        assert_eq!(text(&["", "-", "/"], &["o-1", "7"]), "o-1,-7/");
        assert_eq!(text(&["", "", ""], &["a", "b"]), "a,b");
        assert_eq!(text(&["", "--", ""], &["a-", "b"]), "a-,--b");
    }

    #[test]
    fn an_empty_value_is_refused_wherever_it_stands() {
        assert_eq!(key(&["order-", ""], &[""]), Err(KeyError::Empty));
        assert_eq!(key(&["", "-", ""], &["a", ""]), Err(KeyError::Empty));
        assert_eq!(key(&["", ""], &[&"x".repeat(256)]), Err(KeyError::TooLong));
        assert_eq!(template_scope(&["user:", ""], &[format_args!("")]), Err(IdentityError::Scope));
        assert_eq!(template_scope(&["user:", ""], &[format_args!("7")]), Scope::new("user:7"));
    }

    #[test]
    fn equal_maps_have_equal_fingerprints() {
        let finished = |parts: Parts| parts.0.unwrap().finish();
        let forwards: HashMap<String, u32> = (0..50).map(|i| (format!("k{i}"), i)).collect();
        let backwards: HashMap<String, u32> = (0..50).rev().map(|i| (format!("k{i}"), i)).collect();
        assert_eq!(finished(Parts::new().part(&forwards)), finished(Parts::new().part(&backwards)));
        assert_ne!(finished(Parts::new().part("ab").part("c")), finished(Parts::new().part("a").part("bc")));
        assert!(Parts::new().part(&HashMap::from([((1, 2), 3)])).0.is_err());
    }

    proptest! {
        #[test]
        fn two_calls_share_a_key_only_if_they_share_its_values(
            a in ("[a-]{1,4}", "[a-]{1,4}"),
            b in ("[a-]{1,4}", "[a-]{1,4}"),
            between in "[a-]{0,2}",
        ) {
            let of = |(x, y): &(String, String)| key(&["", &between, ""], &[x, y]).unwrap();
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }
    }
}
