use std::borrow::Cow;
use std::ops::Range;

use super::JsonError;
#[cfg(feature = "http")]
use super::pointers::{Met, Pointers, Walk};
use super::scan::{Container, Event, Scanner};

/// Digest of the value that a text stands for.
///
/// Equal for texts that differ in white space, in the order of an object's members or in how characters are escaped;
/// different where array order, a number's text or any character differs. Nothing is normalised: two Unicode spellings of
/// one letter are two strings.
///
/// # Errors
///
/// A text with [`JsonError::DuplicateName`] anywhere, or any other [`JsonError`], has no value to compare.
pub(crate) fn canonical_digest(json: &[u8]) -> Result<[u8; 32], JsonError> {
    let mut scanner = Scanner::new(json)?;
    let mut encoder = Encoder::new(json.len());
    while let Some(event) = scanner.next()? {
        encoder.add(event)?;
    }
    Ok(encoder.digest(0))
}

/// The [`canonical_digest`] of what is left of a value without what stands at these pointers.
///
/// Of an object a member is gone with its name. Of an array an element is gone, and those behind it move up; pointers count
/// the elements as they are written. A pointer that leads nowhere changes nothing.
///
/// # Errors
///
/// As [`canonical_digest`], of the whole text: what is left out must have a value, too.
#[cfg(feature = "http")]
pub(crate) fn digest_without(json: &[u8], pointers: &Pointers) -> Result<[u8; 32], JsonError> {
    let mut encoder = encode(json, pointers, |encoder, met| encoder.leave_out(met))?;
    Ok(encoder.digest(0))
}

/// The [`canonical_digest`] of each of the values at these pointers, in the pointers' order; nothing where one leads nowhere.
///
/// # Errors
///
/// As [`canonical_digest`], of the whole text.
#[cfg(feature = "http")]
pub(crate) fn digests_at(json: &[u8], pointers: &Pointers) -> Result<Vec<Option<[u8; 32]>>, JsonError> {
    let mut digests = vec![None; pointers.len()];
    encode(json, pointers, |encoder, met| digests[met.pointer] = Some(encoder.digest(met.encoded_at)))?;
    Ok(digests)
}

/// Encodes a value. Each part of it that a pointer leads to is told of when it has been encoded.
#[cfg(feature = "http")]
fn encode<'a>(
    json: &'a [u8],
    pointers: &Pointers,
    mut tell: impl FnMut(&mut Encoder<'a>, Met),
) -> Result<Encoder<'a>, JsonError> {
    let mut scanner = Scanner::new(json)?;
    let mut encoder = Encoder::new(json.len());
    let mut walk = Walk::new(pointers);
    while let Some(event) = scanner.next()? {
        let met = walk.step(&event, encoder.encoded.len());
        encoder.add(event)?;
        if let Some(met) = met {
            tell(&mut encoder, met);
        }
    }
    Ok(encoder)
}

/// Writes values so that different ones never read the same: each begins with its type, and texts have a length.
///
/// An object's members are sorted and replaced by their digest when it ends, so that every byte is hashed once however
/// deep it lies.
struct Encoder<'a> {
    encoded: Vec<u8>,
    /// The members of all open objects, the innermost object's last.
    members: Vec<Member<'a>>,
    /// The open objects: where their members and their members' values begin.
    objects: Vec<(usize, usize)>,
    hasher: blake3::Hasher,
}

struct Member<'a> {
    name: Cow<'a, str>,
    value: Range<usize>,
    /// Neither its name nor its value counts. It is kept until its object ends, so that its name can be found twice.
    left_out: bool,
}

impl<'a> Encoder<'a> {
    fn new(room: usize) -> Self {
        Self {
            encoded: Vec::with_capacity(room),
            members: Vec::new(),
            objects: Vec::new(),
            hasher: blake3::Hasher::new_derive_key("idem json v1"),
        }
    }

    fn add(&mut self, event: Event<'a>) -> Result<(), JsonError> {
        match event {
            Event::Null => self.encoded.push(b'n'),
            Event::Bool(value) => self.encoded.push(if value { b't' } else { b'f' }),
            Event::Number(text) => self.text(b'0', text),
            Event::String(text) => self.text(b'"', &text),
            Event::Open(Container::Array) => self.encoded.push(b'['),
            Event::Close(Container::Array) => self.encoded.push(b']'),
            Event::Open(Container::Object) => self.objects.push((self.members.len(), self.encoded.len())),
            Event::Name(name) => {
                self.end_value();
                self.members.push(Member { name, value: self.encoded.len()..0, left_out: false });
            }
            Event::Close(Container::Object) => return self.end_object(),
        }
        Ok(())
    }

    fn text(&mut self, tag: u8, text: &str) {
        self.encoded.push(tag);
        self.encoded.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.encoded.extend_from_slice(text.as_bytes());
    }

    /// The value of the innermost object's last member, if it has any, ends here.
    fn end_value(&mut self) {
        let first = self.objects.last().map_or(0, |(first, _)| *first);
        if let Some(member) = self.members[first..].last_mut() {
            member.value.end = self.encoded.len();
        }
    }

    fn end_object(&mut self) -> Result<(), JsonError> {
        self.end_value();
        let (first, start) = self.objects.pop().expect("the scanner closes only what is open");
        let members = &mut self.members[first..];
        members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(JsonError::DuplicateName);
        }

        self.hasher.reset();
        self.hasher.update(b"object");
        for member in members.iter().filter(|member| !member.left_out) {
            self.hasher.update(&(member.name.len() as u64).to_le_bytes());
            self.hasher.update(member.name.as_bytes());
            self.hasher.update(&self.encoded[member.value.clone()]);
        }
        self.members.truncate(first);
        self.encoded.truncate(start);
        self.encoded.push(b'{');
        self.encoded.extend_from_slice(self.hasher.finalize().as_bytes());
        Ok(())
    }

    /// Takes back the value that has just ended.
    #[cfg(feature = "http")]
    fn leave_out(&mut self, met: Met) {
        self.encoded.truncate(met.encoded_at);
        if met.is_member
            && let Some(member) = self.members.last_mut()
        {
            member.left_out = true;
        }
    }

    /// The digest of the value whose encoding begins here and has just ended.
    fn digest(&mut self, from: usize) -> [u8; 32] {
        self.hasher.reset();
        self.hasher.update(b"document");
        self.hasher.update(&self.encoded[from..]);
        self.hasher.finalize().into()
    }
}
