use std::fmt;
use std::ops::Range;

use super::Pointer;
use super::scan::{Container, Event};

/// Different pointers, in an order of their own: the order in which they are named does not matter.
#[derive(Clone, Default)]
pub(crate) struct Pointers(Vec<(Pointer, Box<str>)>);

impl Pointers {
    /// Adds a pointer in its string form; says whether it is one. One that is there already is not added again.
    #[must_use]
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let Some(pointer) = Pointer::parse(text) else { return false };
        if let Err(at) = self.0.binary_search_by(|(other, _)| other.cmp(&pointer)) {
            self.0.insert(at, (pointer, text.into()));
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of them is the empty pointer, at which the whole document stands.
    pub(crate) fn has_whole(&self) -> bool {
        self.0.iter().any(|(pointer, _)| pointer.0.is_empty())
    }

    /// Their string forms, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, text)| &**text)
    }
}

impl fmt::Debug for Pointers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.texts()).finish()
    }
}

/// A value to which a pointer leads, when it has ended.
pub(super) struct Met {
    /// Which of the pointers.
    pub(super) pointer: usize,
    /// How much had been encoded when the value began.
    pub(super) encoded_at: usize,
    /// Whether it is a member of an object, not an element of an array nor the document.
    pub(super) is_member: bool,
}

/// Follows many pointers at once through the events of a document.
///
/// The order of the pointers makes this cheap: those that begin with the same names stand next to each other, and the one
/// that ends there is the first of them. So a place in the document is a range of pointers, and most places an empty one.
pub(super) struct Walk<'p> {
    pointers: &'p [(Pointer, Box<str>)],
    open: Vec<Level>,
    /// The pointers that lead to the value that begins next or through it, where it is not an element of an array.
    next: Range<usize>,
}

/// An open array or object.
struct Level {
    /// The pointers that lead to it or through it.
    pointers: Range<usize>,
    /// In an array: the index of the element that begins next.
    index: Option<usize>,
    /// What to tell when it ends.
    met: Option<Met>,
}

impl<'p> Walk<'p> {
    pub(super) fn new(pointers: &'p Pointers) -> Self {
        Self { pointers: &pointers.0, open: Vec::new(), next: 0..pointers.len() }
    }

    /// Takes one event, and how much has been encoded before it; tells of the value that ends with it, if a pointer leads
    /// there.
    pub(super) fn step(&mut self, event: &Event<'_>, encoded_at: usize) -> Option<Met> {
        match event {
            Event::Name(name) => {
                self.next = self.leading_on(|reference_name, _| reference_name == name);
                None
            }
            Event::Close(_) => self.open.pop()?.met,
            Event::Open(container) => {
                let (pointers, met) = self.begin(encoded_at);
                let index = (*container == Container::Array).then_some(0);
                self.open.push(Level { pointers, index, met });
                None
            }
            Event::Null | Event::Bool(_) | Event::Number(_) | Event::String(_) => self.begin(encoded_at).1,
        }
    }

    /// A value begins: the pointers that lead to it or through it, and what to tell when it ends.
    fn begin(&mut self, encoded_at: usize) -> (Range<usize>, Option<Met>) {
        let element = self.open.last_mut().and_then(|level| level.index.as_mut());
        let in_array = element.is_some();
        if let Some(next_index) = element {
            let index = *next_index;
            *next_index += 1;
            self.next = self.leading_on(|_, reference_index| reference_index == Some(index));
        }
        let pointers = self.next.clone();
        let ends_here = !pointers.is_empty() && self.pointers[pointers.start].0.0.len() == self.open.len();
        let is_member = !in_array && !self.open.is_empty();
        let met = ends_here.then_some(Met { pointer: pointers.start, encoded_at, is_member });
        (pointers, met)
    }

    /// Those of the innermost container's pointers that lead on to a member or element of it.
    fn leading_on(&self, is_meant: impl Fn(&str, Option<usize>) -> bool) -> Range<usize> {
        let Some(level) = self.open.last() else { return 0..0 };
        let depth = self.open.len() - 1;
        let leads_on = |at: &usize| {
            let reference = self.pointers[*at].0.0.get(depth);
            reference.is_some_and(|reference| is_meant(&reference.name, reference.index))
        };
        let Some(first) = level.pointers.clone().find(leads_on) else { return 0..0 };
        first..first + (first..level.pointers.end).take_while(leads_on).count()
    }
}
