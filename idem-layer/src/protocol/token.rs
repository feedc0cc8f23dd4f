use std::fmt;

/// 128 random bits, minted for one claim. Every later write of that claim is conditional on it.
///
/// A token is never shared by a process, a worker or a key: two claims of one key by one process must not be able to settle
/// each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A fresh token from the operating system's random source.
    ///
    /// # Panics
    ///
    /// When the operating system has no random bytes to give: no claim could be told from another.
    pub fn mint() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    /// A token of these bytes, for stores that read one back.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The sixteen bytes, as they are stored.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    /// Redacted: who knows a token can settle its claim.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
