use std::borrow::Cow;

use super::{JsonError, MAX_DEPTH};

/// Reads a document event by event.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Where the last value began.
    value_at: usize,
    open: Vec<Container>,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Array,
    Object,
}

/// What a document consists of. Every value is one event, or everything from an `Open` to its `Close`.
pub(super) enum Event<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Open(Container),
    Close(Container),
    Name(Cow<'a, str>),
}

#[derive(Clone, Copy)]
enum Expected {
    Value,
    /// Behind an opening bracket: a member, or the end.
    First(Container),
    /// Behind a value in an array or object: a comma and a member, or the end.
    Next(Container),
    End,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(json: &'a [u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(json).map_err(|_| JsonError::Invalid)?;
        Ok(Self { text, at: 0, value_at: 0, open: Vec::new(), expected: Expected::Value })
    }

    /// The next event, nothing at the end of a well-formed document.
    pub(super) fn next(&mut self) -> Result<Option<Event<'a>>, JsonError> {
        let byte = self.skip_space();
        let event = match (self.expected, byte) {
            (Expected::End, None) => return Ok(None),
            (Expected::Value, Some(_)) => self.value()?,
            (Expected::First(Container::Array) | Expected::Next(Container::Array), Some(b']')) => self.close(),
            (Expected::First(Container::Object) | Expected::Next(Container::Object), Some(b'}')) => self.close(),
            (Expected::First(container), Some(_)) => self.member(container)?,
            (Expected::Next(container), Some(b',')) => {
                self.at += 1;
                self.skip_space();
                self.member(container)?
            }
            _ => return Err(JsonError::Invalid),
        };
        Ok(Some(event))
    }

    /// Where the value of the last event begins: the byte at its first character.
    #[cfg(feature = "http")]
    pub(super) fn value_at(&self) -> usize {
        self.value_at
    }

    /// How far the text has been read.
    #[cfg(feature = "http")]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn member(&mut self, container: Container) -> Result<Event<'a>, JsonError> {
        if container == Container::Array {
            return self.value();
        }
        let name = self.string()?;
        self.skip_space();
        self.eat(":")?;
        self.expected = Expected::Value;
        Ok(Event::Name(name))
    }

    fn value(&mut self) -> Result<Event<'a>, JsonError> {
        self.value_at = self.at;
        let event = match self.peek() {
            Some(b'{') => return self.open(Container::Object),
            Some(b'[') => return self.open(Container::Array),
            Some(b'"') => Event::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Event::Number(self.number()?),
            Some(b'n') => self.eat("null").map(|()| Event::Null)?,
            Some(b't') => self.eat("true").map(|()| Event::Bool(true))?,
            Some(b'f') => self.eat("false").map(|()| Event::Bool(false))?,
            _ => return Err(JsonError::Invalid),
        };
        self.expected = self.behind_value();
        Ok(event)
    }

    fn open(&mut self, container: Container) -> Result<Event<'a>, JsonError> {
        if self.open.len() == MAX_DEPTH {
            return Err(JsonError::TooDeep);
        }
        self.at += 1;
        self.open.push(container);
        self.expected = Expected::First(container);
        Ok(Event::Open(container))
    }

    fn close(&mut self) -> Event<'a> {
        self.at += 1;
        let container = self.open.pop().expect("an end is expected only inside an array or object");
        self.expected = self.behind_value();
        Event::Close(container)
    }

    fn behind_value(&self) -> Expected {
        self.open.last().map_or(Expected::End, |container| Expected::Next(*container))
    }

    /// RFC 8259, section 7. Borrowed unless something in it is escaped.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.eat("\"")?;
        let mut unescaped = String::new();
        let mut from = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &self.text[from..self.at];
                    self.at += 1;
                    if unescaped.is_empty() {
                        return Ok(Cow::Borrowed(rest));
                    }
                    unescaped.push_str(rest);
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => {
                    unescaped.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    unescaped.push(self.escaped()?);
                    from = self.at;
                }
                None | Some(..b' ') => return Err(JsonError::Invalid),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escaped(&mut self) -> Result<char, JsonError> {
        let byte = self.peek().ok_or(JsonError::Invalid)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte.into(),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => match self.four_digits()? {
                // Characters beyond the first 65,536 are written as two halves. A half alone is no character.
                high @ 0xd800..=0xdbff => {
                    self.eat("\\u")?;
                    let low @ 0xdc00..=0xdfff = self.four_digits()? else { return Err(JsonError::Invalid) };
                    char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(JsonError::Invalid)?
                }
                unit => char::from_u32(unit).ok_or(JsonError::Invalid)?,
            },
            _ => return Err(JsonError::Invalid),
        })
    }

    fn four_digits(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(JsonError::Invalid)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, &digit| {
            char::from(digit).to_digit(16).map(|digit| unit << 4 | digit).ok_or(JsonError::Invalid)
        })
    }

    /// RFC 8259, section 6.
    fn number(&mut self) -> Result<&'a str, JsonError> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(&self.text[from..self.at])
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == from { Err(JsonError::Invalid) } else { Ok(()) }
    }

    fn eat(&mut self, expected: &str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(expected.as_bytes()) {
            return Err(JsonError::Invalid);
        }
        self.at += expected.len();
        Ok(())
    }

    /// Skips white space; the byte behind it.
    fn skip_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}
