use std::fmt;

/// Digest of the request parts that may not change under one key, with the version of the rules that made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    version: u8,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The version of the rules by which this code makes fingerprints. Raised when equal requests would get another digest;
    /// the release that raises it can still make the version before, so that records written by it compare.
    pub const VERSION: u8 = 1;

    /// Starts a fingerprint by the present rules.
    pub fn digester() -> Digester {
        Digester(blake3::Hasher::new_derive_key("idem fingerprint v1"))
    }

    /// A fingerprint as it was stored.
    pub const fn from_parts(version: u8, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// The version of the rules that made it.
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The digest, as it is stored.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Fingerprint {
    /// Redacted: a digest of a short body can be guessed back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{})", self.version)
    }
}

/// Collects the parts of a fingerprint. Each part has a length, so that moving a byte from one to the next changes it.
#[derive(Clone, Debug)]
pub struct Digester(blake3::Hasher);

impl Digester {
    /// Adds one part.
    #[must_use]
    pub fn part(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// The fingerprint of all parts, in order.
    pub fn finish(self) -> Fingerprint {
        Fingerprint { version: Fingerprint::VERSION, digest: *self.0.finalize().as_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: &[&str]| parts.iter().fold(Fingerprint::digester(), |d, p| d.part(p)).finish();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
    }
}
