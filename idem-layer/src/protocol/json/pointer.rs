use std::borrow::Cow;
use std::ops::Range;

use super::JsonError;
use super::scan::{Container, Event, Scanner};

/// A path into a document (RFC 6901), such as `/order/lines/0/id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pointer(pub(super) Box<[Reference]>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) name: Box<str>,
    /// What the name means in an array, if anything.
    pub(super) index: Option<usize>,
}

/// What stands at a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The path leads nowhere.
    Absent,
    Null,
    /// A string without its quotes and escapes.
    String(Cow<'a, str>),
    /// A number as it is written.
    Number(&'a str),
    Bool,
    /// An array or an object.
    Container,
}

impl Pointer {
    /// A pointer in its string form (RFC 6901, section 3), nothing if it is not one.
    pub(crate) fn parse(pointer: &str) -> Option<Self> {
        if pointer.is_empty() {
            return Some(Self(Box::default()));
        }
        pointer.strip_prefix('/')?.split('/').map(Reference::parse).collect::<Option<_>>().map(Self)
    }

    /// What stands at this place. The whole text is read, so that what follows is checked, too.
    ///
    /// # Errors
    ///
    /// [`JsonError::DuplicateName`] where one of the pointer's own names occurs twice, else as the text deserves. Other
    /// names may repeat: they do not change what is found.
    pub(crate) fn find<'a>(&self, json: &'a [u8]) -> Result<Found<'a>, JsonError> {
        let mut found = Found::Absent;
        self.follow(json, |value, _| found = value)?;
        Ok(found)
    }

    /// Where the text of the value at this place lies, without the space around it; nothing where the path leads nowhere.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub(crate) fn locate(&self, json: &[u8]) -> Result<Option<Range<usize>>, JsonError> {
        let mut located = None;
        self.follow(json, |_, place| located = Some(place))?;
        Ok(located)
    }

    /// Reads the whole text, and tells of the value at this place.
    fn follow<'a>(&self, json: &'a [u8], mut tell: impl FnMut(Found<'a>, Range<usize>)) -> Result<(), JsonError> {
        let mut scanner = Scanner::new(json)?;
        let mut walk = Walk { pointer: &self.0, open: 0, path: Vec::with_capacity(self.0.len()), chosen: true };
        while let Some(event) = scanner.next()? {
            let Some(value) = walk.step(event)? else { continue };
            let (start, inside) = (scanner.value_at(), walk.open);
            // An array or object ends where as many are open as before it.
            let outside = if value == Found::Container { inside - 1 } else { inside };
            while walk.open > outside {
                let event = scanner.next()?.ok_or(JsonError::Invalid)?;
                walk.step(event)?;
            }
            tell(value, start..scanner.at());
        }
        Ok(())
    }
}

impl Reference {
    fn parse(token: &str) -> Option<Self> {
        // Every `~` must begin `~0` or `~1`; `~1` is replaced first, so that `~01` ends as `~1` (RFC 6901, section 4).
        if token.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            return None;
        }
        let name = token.replace("~1", "/").replace("~0", "~");
        let is_index = name == "0" || (!name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit()));
        let index = if is_index { name.parse().ok() } else { None };
        Some(Self { name: name.into(), index })
    }
}

/// Follows a pointer through the events of a document.
struct Walk<'p> {
    pointer: &'p [Reference],
    /// Arrays and objects that are open now. The first `path.len()` of them lie on the way.
    open: usize,
    path: Vec<Place>,
    /// Whether the value that begins next, in the last of `path`, is the one that the pointer names.
    chosen: bool,
}

/// An array or object on the way.
enum Place {
    Array { next: usize },
    Object { met: bool },
}

impl Walk<'_> {
    /// Takes one event; what stands at the pointer, when it begins.
    fn step<'a>(&mut self, event: Event<'a>) -> Result<Option<Found<'a>>, JsonError> {
        let on_the_way = self.open == self.path.len();
        match event {
            Event::Name(name) => {
                if on_the_way {
                    self.name(&name)?;
                }
                return Ok(None);
            }
            Event::Close(_) => {
                self.open -= 1;
                self.path.truncate(self.open);
                return Ok(None);
            }
            Event::Open(_) | Event::Null | Event::Bool(_) | Event::String(_) | Event::Number(_) => {}
        }

        let named = on_the_way && self.is_chosen();
        let arrived = named && self.path.len() == self.pointer.len();
        if let Event::Open(container) = event {
            if named && !arrived {
                self.path.push(match container {
                    Container::Array => Place::Array { next: 0 },
                    Container::Object => Place::Object { met: false },
                });
            }
            self.open += 1;
        }
        Ok(arrived.then_some(match event {
            Event::Null => Found::Null,
            Event::String(text) => Found::String(text),
            Event::Number(text) => Found::Number(text),
            Event::Bool(_) => Found::Bool,
            _ => Found::Container,
        }))
    }

    fn name(&mut self, name: &str) -> Result<(), JsonError> {
        let Some(Place::Object { met }) = self.path.last_mut() else { return Ok(()) };
        self.chosen = *self.pointer[self.open - 1].name == *name;
        if self.chosen && std::mem::replace(met, true) {
            return Err(JsonError::DuplicateName);
        }
        Ok(())
    }

    fn is_chosen(&mut self) -> bool {
        if let Some(Place::Array { next }) = self.path.last_mut() {
            self.chosen = self.pointer[self.open - 1].index == Some(*next);
            *next += 1;
        }
        self.chosen
    }
}
