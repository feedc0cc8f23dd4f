//! Reads a structured field (RFC 9651) whose value is a string. Errors are exact: nothing is read that the RFC's algorithms
//! refuse, and nothing is refused that they read.

use std::borrow::Cow;

use crate::protocol::KeyError;

/// The string of an item (section 4.2.3), whose parameters are read to their end and then ignored. The value begins with a
/// quote and has no spaces around it.
pub(super) fn string(value: &[u8]) -> Result<Cow<'_, [u8]>, KeyError> {
    let mut reader = Reader { rest: value };
    let string = reader.string()?;
    reader.parameters()?;
    match reader.rest {
        [] => Ok(string),
        _ => Err(KeyError::Malformed),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Section 4.2.5.
    fn string(&mut self) -> Result<Cow<'a, [u8]>, KeyError> {
        self.expect(b'"')?;
        let plain = self.take_while(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(byte));
        if self.eat(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut text = plain.to_vec();
        loop {
            match self.next() {
                Some(b'"') => return Ok(Cow::Owned(text)),
                Some(b'\\') => match self.next() {
                    Some(escaped @ (b'"' | b'\\')) => text.push(escaped),
                    _ => return Err(KeyError::Malformed),
                },
                Some(byte @ b' '..=b'~') => text.push(byte),
                Some(_) => return Err(KeyError::Character),
                None => return Err(KeyError::Malformed),
            }
        }
    }

    /// Section 4.2.3.2. A name that occurs twice is no error there.
    fn parameters(&mut self) -> Result<(), KeyError> {
        while self.eat(b';') {
            self.take_while(|byte| *byte == b' ');
            if !matches!(self.next(), Some(b'a'..=b'z' | b'*')) {
                return Err(KeyError::Malformed);
            }
            self.take_while(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(byte));
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Ok(())
    }

    /// Section 4.2.3.1.
    fn bare_item(&mut self) -> Result<(), KeyError> {
        match self.rest.first() {
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            Some(b':') => self.byte_sequence(),
            Some(b'?') => self.boolean(),
            Some(b'@') => self.date(),
            Some(b'%') => self.display_string(),
            Some(first) if first.is_ascii_alphabetic() || *first == b'*' => {
                // A token, section 4.2.6.
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte));
                Ok(())
            }
            _ => Err(KeyError::Malformed),
        }
    }

    /// Section 4.2.4: at most 15 digits, or 12 before a decimal point and one to three behind it.
    fn number(&mut self) -> Result<Number, KeyError> {
        self.eat(b'-');
        let digits = self.take_while(u8::is_ascii_digit).len();
        if !self.eat(b'.') {
            return if (1..=15).contains(&digits) { Ok(Number::Integer) } else { Err(KeyError::Malformed) };
        }
        let decimals = self.take_while(u8::is_ascii_digit).len();
        match (digits, decimals) {
            (1..=12, 1..=3) => Ok(Number::Decimal),
            _ => Err(KeyError::Malformed),
        }
    }

    /// Section 4.2.9.
    fn date(&mut self) -> Result<(), KeyError> {
        self.expect(b'@')?;
        match self.number()? {
            Number::Integer => Ok(()),
            Number::Decimal => Err(KeyError::Malformed),
        }
    }

    /// Section 4.2.8.
    fn boolean(&mut self) -> Result<(), KeyError> {
        self.expect(b'?')?;
        match self.next() {
            Some(b'0' | b'1') => Ok(()),
            _ => Err(KeyError::Malformed),
        }
    }

    /// Section 4.2.7: Base64, whose padding may be missing and whose last bits may be anything.
    fn byte_sequence(&mut self) -> Result<(), KeyError> {
        self.expect(b':')?;
        let digits = self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)).len();
        let padding = self.take_while(|byte| *byte == b'=').len();
        self.expect(b':')?;
        let most = match digits % 4 {
            0 => 0,
            2 => 2,
            3 => 1,
            // Six bits are no byte.
            _ => return Err(KeyError::Malformed),
        };
        if padding <= most { Ok(()) } else { Err(KeyError::Malformed) }
    }

    /// Section 4.2.10: UTF-8, in which everything that is not printable ASCII is written `%` and two hexadecimal digits of
    /// lower case.
    fn display_string(&mut self) -> Result<(), KeyError> {
        self.expect(b'%')?;
        self.expect(b'"')?;
        let mut text = Vec::new();
        loop {
            match self.next() {
                Some(b'"') => break,
                Some(b'%') => {
                    let high = self.lowercase_digit()?;
                    text.push(high << 4 | self.lowercase_digit()?);
                }
                Some(byte @ b' '..=b'~') => text.push(byte),
                _ => return Err(KeyError::Malformed),
            }
        }
        std::str::from_utf8(&text).map(drop).map_err(|_| KeyError::Malformed)
    }

    fn lowercase_digit(&mut self) -> Result<u8, KeyError> {
        match self.next() {
            Some(digit @ b'0'..=b'9') => Ok(digit - b'0'),
            Some(digit @ b'a'..=b'f') => Ok(digit - b'a' + 10),
            _ => Err(KeyError::Malformed),
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), KeyError> {
        if self.eat(byte) { Ok(()) } else { Err(KeyError::Malformed) }
    }

    fn take_while(&mut self, belongs: impl Fn(&u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().position(|byte| !belongs(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

enum Number {
    Integer,
    Decimal,
}
