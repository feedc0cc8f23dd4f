use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::SnapshotError;

/// The stored outcome: a versioned envelope around a response or a value. Stores keep its bytes and never look inside.
///
/// # Stored form
///
/// | bytes | what |
/// |---|---|
/// | 0 | version of this form, [`Snapshot::VERSION`] |
/// | 1 | kind: `R` response, `V` value, `E` the error of a function |
/// | 2.. | response: status, headers and trailers in postcard's encoding, then the body up to the end; else the value |
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(Bytes);

/// What a snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An HTTP or gRPC response.
    Response(ResponseSnapshot),
    /// The value of a function, as JSON (RFC 8259).
    Value(Bytes),
    /// The error of a function that was declared final, as JSON.
    Error(Bytes),
}

/// A response as it is stored. Names are as `http` gives them (lower case), values raw bytes, order kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSnapshot {
    /// Status code.
    pub status: u16,
    /// End-to-end header fields.
    pub headers: Vec<(String, Bytes)>,
    /// Body bytes.
    pub body: Bytes,
    /// Trailer fields, if the body ended with any.
    pub trailers: Option<Vec<(String, Bytes)>>,
}

impl Snapshot {
    /// The version of the stored form that this code writes.
    pub const VERSION: u8 = 1;

    /// A snapshot as a store gave it back. Checked by [`Snapshot::decode`].
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// A snapshot of a response.
    pub fn response(response: &ResponseSnapshot) -> Self {
        let head = Head {
            status: response.status,
            headers: response.headers.iter().map(|(name, value)| (name.as_str(), &value[..])).collect(),
            trailers: (response.trailers.as_ref())
                .map(|fields| fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect()),
        };
        let fields = response.headers.iter().chain(response.trailers.iter().flatten());
        let room: usize = fields.map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut bytes = Vec::with_capacity(16 + room + response.body.len());
        bytes.extend([Self::VERSION, b'R']);
        let mut bytes = postcard::to_extend(&head, bytes).expect("plain fields always encode");
        bytes.extend_from_slice(&response.body);
        Self(bytes.into())
    }

    /// A snapshot of a function's value, given as JSON.
    pub fn value(json: &[u8]) -> Self {
        Self([&[Self::VERSION, b'V'], json].concat().into())
    }

    /// A snapshot of a function's final error, given as JSON.
    pub fn error(json: &[u8]) -> Self {
        Self([&[Self::VERSION, b'E'], json].concat().into())
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// What it holds. Body and values share memory with the snapshot.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::UnknownVersion`] and [`SnapshotError::Damaged`].
    pub fn decode(&self) -> Result<Content, SnapshotError> {
        match self.0[..] {
            [version, _, ..] if version != Self::VERSION => Err(SnapshotError::UnknownVersion(version)),
            [_, b'V', ..] => Ok(Content::Value(self.0.slice(2..))),
            [_, b'E', ..] => Ok(Content::Error(self.0.slice(2..))),
            [_, b'R', ..] => {
                let (head, body) =
                    postcard::take_from_bytes::<Head<'_>>(&self.0[2..]).map_err(|_| SnapshotError::Damaged)?;
                let owned = |fields: Vec<(&str, &[u8])>| {
                    fields.into_iter().map(|(name, value)| (name.to_owned(), self.0.slice_ref(value))).collect()
                };
                Ok(Content::Response(ResponseSnapshot {
                    status: head.status,
                    headers: owned(head.headers),
                    body: self.0.slice_ref(body),
                    trailers: head.trailers.map(owned),
                }))
            }
            _ => Err(SnapshotError::Damaged),
        }
    }
}

impl std::fmt::Debug for Snapshot {
    /// Redacted: a snapshot is somebody's response.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} bytes)", self.0.len())
    }
}

/// What stands before the body. Changing anything here is a new [`Snapshot::VERSION`].
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    status: u16,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a [u8])>,
    #[serde(borrow)]
    trailers: Option<Vec<(&'a str, &'a [u8])>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// These bytes never change: a new form is a new version.
    #[test]
    fn a_stored_snapshot_reads_the_same_for_good() {
        let fields = |name: &str, value: &'static [u8]| vec![(name.to_owned(), Bytes::from_static(value))];
        let response = ResponseSnapshot {
            status: 201,
            headers: fields("etag", b"\xff"),
            body: Bytes::from_static(b"hi"),
            trailers: Some(fields("t", b"0")),
        };
        assert_eq!(
            &Snapshot::response(&response).as_bytes()[..],
            b"\x01R\xc9\x01\x01\x04etag\x01\xff\x01\x01\x01t\x010hi"
        );
        assert_eq!(Snapshot::response(&response).decode(), Ok(Content::Response(response)));
        assert_eq!(&Snapshot::response(&ResponseSnapshot::default()).as_bytes()[..], b"\x01R\0\0\0");
        assert_eq!(&Snapshot::value(b"null").as_bytes()[..], b"\x01Vnull");
        assert_eq!(&Snapshot::error(b"3").as_bytes()[..], b"\x01E3");
    }

    #[test]
    fn a_newer_version_is_named_and_garbage_is_damaged() {
        let decode = |bytes: &'static [u8]| Snapshot::from_bytes(Bytes::from_static(bytes)).decode();
        assert_eq!(decode(b"\x02Vnull"), Err(SnapshotError::UnknownVersion(2)));
        for garbage in [&b""[..], b"\x01", b"\x01X", b"\x01R", b"\x01R\xc9\x01\x09"] {
            assert_eq!(decode(garbage), Err(SnapshotError::Damaged));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..200)) {
            bytes[..2].copy_from_slice(b"\x01R");
            let _ = Snapshot::from_bytes(bytes.into()).decode();
        }
    }
}
