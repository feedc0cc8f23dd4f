use std::fmt::Display;

use crate::protocol::{IdentityError, Key, KeyError, Scope};

/// What a function's key is made from: a [`Key`] as it is, anything else with `Display` by its text.
///
/// So text, integers, UUIDs and newtypes around them are keys. An empty text is refused. Options are not: decide what a call
/// without a key means, in the expression (`order.key.as_ref().ok_or(OrderError::NoKey)?`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of an idempotent function",
    label = "neither text nor a `Key`",
    note = "a key is a `Key`, or anything that implements `Display`, such as text, integers and UUIDs",
    note = "of an option, take what is in it and leave without a key: `key = order.key.as_ref().ok_or(OrderError::NoKey)?`",
    note = "of bytes, make a key: `key = Key::new(bytes)?`"
)]
pub trait ToKey {
    /// The key.
    ///
    /// # Errors
    ///
    /// When it is empty or too long to be one.
    fn to_key(&self) -> Result<Key, KeyError>;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ToKey for T {
    fn to_key(&self) -> Result<Key, KeyError> {
        Key::new(self.to_string())
    }
}

impl ToKey for Key {
    fn to_key(&self) -> Result<Key, KeyError> {
        Ok(self.clone())
    }
}

#[diagnostic::do_not_recommend]
impl ToKey for &Key {
    fn to_key(&self) -> Result<Key, KeyError> {
        Ok(Key::clone(self))
    }
}

/// What a function's scope is made from: a [`Scope`] as it is, anything else with `Display` by its text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the scope of an idempotent function",
    label = "neither text nor a `Scope`",
    note = "a scope is a `Scope`, or anything that implements `Display`, such as text, integers and UUIDs",
    note = "to let all callers share their keys, say `unscoped`"
)]
pub trait ToScope {
    /// The scope.
    ///
    /// # Errors
    ///
    /// When it is empty or too long to be one.
    fn to_scope(&self) -> Result<Scope, IdentityError>;
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ToScope for T {
    fn to_scope(&self) -> Result<Scope, IdentityError> {
        Scope::new(self.to_string())
    }
}

impl ToScope for Scope {
    fn to_scope(&self) -> Result<Scope, IdentityError> {
        Ok(self.clone())
    }
}

#[diagnostic::do_not_recommend]
impl ToScope for &Scope {
    fn to_scope(&self) -> Result<Scope, IdentityError> {
        Ok(Scope::clone(self))
    }
}
