use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::error::IdentityError;
use super::key::Key;

/// Stable name of what is executed once per key, such as `payments.create`: 1 to 64 of `A-Z a-z 0-9 . _ - /`.
///
/// Chosen by the developer and never derived from code, so that renaming a function forgets nothing. It is the only part
/// of an identity that becomes a metric label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation(Cow<'static, str>);

impl Operation {
    /// The operation of this name.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Operation`] for another length or other characters.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Result<Self, IdentityError> {
        let name = name.into();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
            return Err(IdentityError::Operation);
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whose key it is: tenant, account, principal. Two callers with the same key never meet.
///
/// Never a credential (it rotates, and it is a secret), never an address (people share one).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope(Option<Box<str>>);

impl Scope {
    /// The scope of this caller, 1 to 255 bytes.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Scope`] when it is empty or longer.
    pub fn new(caller: impl AsRef<str>) -> Result<Self, IdentityError> {
        match caller.as_ref() {
            caller if (1..=255).contains(&caller.len()) => Ok(Self(Some(caller.into()))),
            _ => Err(IdentityError::Scope),
        }
    }

    /// All callers share their keys: right only where keys are unguessable and one party makes them all.
    pub const fn unscoped() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Scope(..)" } else { "Scope(unscoped)" })
    }
}

/// Method and path as the client sent them, so that one key on two routes is two identities. HTTP only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target(Box<str>);

impl Target {
    /// The target of a request. The path is taken as it is: percent-encoding and trailing slash are left as sent.
    pub fn new(method: &str, path: &str) -> Self {
        Self(format!("{method} {path}").into())
    }

    /// Method, space, path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Operation, target, scope and key together: what a record is stored under.
///
/// The stored name is readable (`payments.create:POST+/payments:user%3Aalice:k-1`) and injective: two different tuples never
/// share one, whatever bytes their parts have. Everything but `A-Z a-z 0-9 - . _ / @ =` is escaped, braces among them, so
/// that a caller cannot choose a Redis Cluster slot. A name longer than [`Identity::MAX_NAME_BYTES`] is replaced by the
/// operation and a 256-bit digest.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Identity(Arc<Parts>);

struct Parts {
    operation: Operation,
    key: Key,
    name: Box<str>,
    digest: [u8; 32],
}

impl Identity {
    /// The longest name that is stored as it reads, in bytes.
    pub const MAX_NAME_BYTES: usize = 512;

    /// The identity of these parts; a function or message has no target.
    pub fn new(operation: Operation, target: Option<Target>, scope: Scope, key: Key) -> Self {
        let mut name = String::with_capacity(128);
        name.push_str(operation.as_str());
        name.push(':');
        if let Some(target) = &target {
            escape_into(&mut name, target.as_str().as_bytes());
        }
        name.push(':');
        if let Some(scope) = &scope.0 {
            escape_into(&mut name, scope.as_bytes());
        }
        name.push(':');
        name.push_str(key.encoded());

        let digest = blake3::hash(name.as_bytes());
        if name.len() > Self::MAX_NAME_BYTES {
            // A readable name has three colons, this one has one: the two kinds cannot collide.
            name = format!("{}:~{}", operation.as_str(), digest.to_hex());
        }
        Self(Arc::new(Parts { operation, key, name: name.into(), digest: digest.into() }))
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.0.operation
    }

    /// The key alone.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// What stores name the record by, without any prefix of theirs. At most [`Identity::MAX_NAME_BYTES`] bytes of ASCII.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// 256-bit digest of all parts. The record carries it, so that a record that answers for another identity is noticed.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0.digest
    }

    /// Sixteen hexadecimal digits for logs, where the key itself must not appear.
    pub fn key_hash(&self) -> KeyHash {
        KeyHash(u64::from_be_bytes(self.0.digest[..8].try_into().expect("eight of 32 bytes")))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} {})", self.0.operation.as_str(), self.key_hash())
    }
}

/// Stands for an identity in logs and events.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Appends `bytes` so that the result holds none of the marks that structure a name (`:` `,` `~` `#` `(` `)`), and can be
/// read back.
pub(super) fn escape_into(name: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' | b'@' | b'=' => name.push(byte.into()),
            b' ' => name.push('+'),
            _ => write!(name, "%{byte:02X}").expect("writing to a string"),
        }
    }
}

/// The reverse of [`escape_into`], for people: bytes that are not UTF-8 are replaced.
pub(super) fn unescape(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains(['%', '+']) {
        return Cow::Borrowed(escaped);
    }
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).unwrap_or_default() as u8;
                digit() << 4 | digit()
            }
            byte => byte,
        });
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identity(operation: &'static str, target: Option<&str>, scope: Option<&str>, key: &[u8]) -> Identity {
        Identity::new(
            Operation::new(operation).unwrap(),
            target.map(|path| Target::new("POST", path)),
            scope.map_or(Scope::unscoped(), |scope| Scope::new(scope).unwrap()),
            Key::new(key).unwrap(),
        )
    }

    #[test]
    fn names_read_well_and_never_change() {
        let name = |i: Identity| i.name().to_owned();
        assert_eq!(
            name(identity("payments.create", Some("/payments"), Some("user:alice"), b"k-1")),
            "payments.create:POST+/payments:user%3Aalice:k-1"
        );
        assert_eq!(name(identity("order.create", None, None, b"{1}")), "order.create:::%7B1%7D");
        assert_eq!(
            name(identity("long", Some(&"/a".repeat(300)), None, b"k")),
            "long:~0d0a970e237b07ceea57e1455f9715bc9b874c942699b42f4b60a547df020361"
        );
    }

    #[test]
    fn an_operation_and_a_scope_are_checked() {
        for bad in ["", "a b", "päy", "a:b", &"x".repeat(65)] {
            assert_eq!(Operation::new(bad.to_owned()), Err(IdentityError::Operation));
        }
        assert_eq!(Scope::new(""), Err(IdentityError::Scope));
        assert_eq!(Scope::new("s".repeat(256)), Err(IdentityError::Scope));
    }

    #[test]
    fn a_log_shows_no_part_but_the_operation() {
        let shown = format!("{:?}", identity("payments.create", None, Some("alice"), b"secret"));
        assert!(
            shown.starts_with("Identity(payments.create ") && !shown.contains("alice") && !shown.contains("secret")
        );
    }

    proptest! {
        #[test]
        fn different_tuples_never_share_a_name(
            a in ("[a:/%~,]{0,3}", proptest::option::of("[a:/%~,]{1,3}"), "[a:/%~,#+ ]{1,3}"),
            b in ("[a:/%~,]{0,3}", proptest::option::of("[a:/%~,]{1,3}"), "[a:/%~,#+ ]{1,3}"),
        ) {
            let named = |(target, scope, key): &(String, Option<String>, String)| {
                let target = if target.is_empty() { None } else { Some(target.as_str()) };
                identity("op", target, scope.as_deref(), key.as_bytes())
            };
            prop_assert_eq!(named(&a).name() == named(&b).name(), a == b);
            prop_assert_eq!(named(&a) == named(&b), a == b);
        }

        #[test]
        fn escaping_is_read_back(text in "\\PC{0,20}") {
            let mut escaped = String::new();
            escape_into(&mut escaped, text.as_bytes());
            prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
