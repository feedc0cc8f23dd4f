use std::borrow::Cow;
use std::ops::Range;

use super::JsonError;
#[cfg(feature = "http")]
use super::pointer::Pointer;
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
    digest(json, &[])
}

/// The same without the values at these places: an object has no such member, an array is shorter.
///
/// # Errors
///
/// As [`canonical_digest`]; names that occur twice inside of what is left out do not matter.
#[cfg(feature = "http")]
pub(crate) fn canonical_digest_without<'p>(
    json: &[u8],
    places: impl IntoIterator<Item = &'p Pointer>,
) -> Result<[u8; 32], JsonError> {
    let places = places.into_iter().filter_map(|pointer| pointer.locate(json).transpose());
    digest(json, &places.collect::<Result<Vec<_>, _>>()?)
}

fn digest(json: &[u8], left_out: &[Range<usize>]) -> Result<[u8; 32], JsonError> {
    let mut scanner = Scanner::new(json)?;
    let mut encoder = Encoder::new(json.len());
    while let Some(event) = scanner.next()? {
        let place = left_out.iter().find(|place| event.begins_value() && place.start == scanner.value_at());
        let Some(place) = place else {
            encoder.add(event)?;
            continue;
        };
        encoder.leave_out();
        while scanner.at() < place.end {
            scanner.next()?;
        }
    }
    Ok(encoder.finish())
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
                self.members.push(Member { name, value: self.encoded.len()..0 });
            }
            Event::Close(Container::Object) => return self.end_object(),
        }
        Ok(())
    }

    /// The value that follows is not there, nor is the member whose name was the last to come.
    fn leave_out(&mut self) {
        let first = self.objects.last().map_or(0, |(first, _)| *first);
        let awaits_value = |member: &Member<'_>| member.value.start == self.encoded.len() && member.value.end == 0;
        if self.members[first..].last().is_some_and(awaits_value) {
            self.members.pop();
        }
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
        for member in members {
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

    fn finish(mut self) -> [u8; 32] {
        self.hasher.reset();
        self.hasher.update(b"document");
        self.hasher.update(&self.encoded);
        self.hasher.finalize().into()
    }
}
