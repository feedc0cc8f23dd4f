//! A strict reader of JSON text (RFC 8259) for two questions: do two bodies say the same, and what stands at a pointer.
//!
//! This is not left to a general JSON library, because both answers end up in the store and in decisions that must not
//! change from one build to the next:
//!
//! 1. `serde_json` answers differently when any crate of the program switches on `preserve_order`, `arbitrary_precision`
//!    or `float_roundtrip`. What one build has stored, another would not recognise.
//! 2. It reads numbers into 64 bits, so that `1` and `1.0`, or two long ids, can become equal. Here a number is its text.
//! 3. Of a name that occurs twice in an object it keeps the last. Here that is an error: the handler's parser may choose
//!    another one than we do.
//!
//! One pass over the bytes, no recursion and no tree: a stack of open arrays and objects, limited to [`MAX_DEPTH`].

use std::borrow::Cow;
use std::ops::Range;

/// How many arrays and objects may be open at once. No document that `serde_json` reads by default is too deep.
pub(super) const MAX_DEPTH: usize = 128;

/// Why a text gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonError {
    /// Not JSON: another grammar, not UTF-8, a byte order mark, half a surrogate pair.
    Invalid,
    /// More than [`MAX_DEPTH`] arrays and objects inside each other.
    TooDeep,
    /// A name occurs twice where it matters, so that the document means two things.
    DuplicateName,
}

/// Digest of the value that a text stands for.
///
/// Equal for texts that differ in white space, in the order of an object's members or in how characters are escaped;
/// different where array order, a number's text or any character differs. Nothing is normalised: two Unicode spellings of
/// one letter are two strings.
///
/// # Errors
///
/// A text with [`JsonError::DuplicateName`] anywhere, or any other [`JsonError`], has no value to compare.
pub(super) fn canonical_digest(json: &[u8]) -> Result<[u8; 32], JsonError> {
    let mut scanner = Scanner::new(json)?;
    let mut encoder = Encoder::new(json.len());
    while let Some(event) = scanner.next()? {
        encoder.add(event)?;
    }
    Ok(encoder.finish())
}

/// A path into a document (RFC 6901), such as `/order/lines/0/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Box<[Reference]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reference {
    name: Box<str>,
    /// What the name means in an array, if anything.
    index: Option<usize>,
}

/// What stands at a pointer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// The path leads nowhere.
    Absent,
    Null,
    /// A string without its quotes and escapes.
    String(Cow<'a, str>),
    /// A number as it is written.
    Number(&'a str),
    /// A boolean, an array or an object.
    Other,
}

impl Pointer {
    /// A pointer in its string form (RFC 6901, section 3), nothing if it is not one.
    pub(super) fn parse(pointer: &str) -> Option<Self> {
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
    pub(super) fn find<'a>(&self, json: &'a [u8]) -> Result<Found<'a>, JsonError> {
        let mut scanner = Scanner::new(json)?;
        let mut walk = Walk { pointer: &self.0, open: 0, path: Vec::with_capacity(self.0.len()), chosen: true };
        let mut found = Found::Absent;
        while let Some(event) = scanner.next()? {
            if let Some(value) = walk.step(event)? {
                found = value;
            }
        }
        Ok(found)
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
            _ => Found::Other,
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

/// Reads a document event by event.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Container>,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

/// What a document consists of. Every value is one event, or everything from an `Open` to its `Close`.
enum Event<'a> {
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
    fn new(json: &'a [u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(json).map_err(|_| JsonError::Invalid)?;
        Ok(Self { text, at: 0, open: Vec::new(), expected: Expected::Value })
    }

    /// The next event, nothing at the end of a well-formed document.
    fn next(&mut self) -> Result<Option<Event<'a>>, JsonError> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn digest(json: &str) -> Result<[u8; 32], JsonError> {
        canonical_digest(json.as_bytes())
    }

    #[test]
    fn texts_of_one_value_are_equal() {
        for (a, b) in [
            (r#"{"a":1,"b":{"c":1,"d":2}}"#, "{ \"b\" : {\"d\":2,\t\"c\":1},\r\n\"a\":1 }\n"),
            (r#"["\u00e9\/\ud83d\ude00"]"#, "[\"é/😀\"]"),
            (r#"{"\u0061":[]}"#, r#"{"a":[ ]}"#),
            (r#""\u0041""#, r#""A""#),
        ] {
            assert_eq!(digest(a).unwrap(), digest(b).unwrap(), "{a} {b}");
        }
    }

    #[test]
    fn different_values_differ() {
        let values: Vec<_> = r#"
            1 1.0 1e0 10e-1 0.1e1 -0 0 1E400 1e400 "1" null "null" true false "" "\u0000" [] {} [[]] [{}]
            9007199254740993 9007199254740992 18446744073709551616 18446744073709551617
            [1,2] [2,1] [12] [[1],2] [[1,2]] [1,[2]] ["1,2"] ["1","2"]
            {"a":1} {"a":"1"} {"a":[1]} {"a":{"b":1}} {"a":1,"b":2} {"a":2,"b":1} {"a":{"b":1},"c":2} {"a":{"b":1,"c":2}}
            {"ab":""} {"a":"b"} {"":"ab"} "\u00e9" "e\u0301"
        "#
        .split_ascii_whitespace()
        .collect();
        for (i, a) in values.iter().enumerate() {
            for b in &values[i + 1..] {
                assert_ne!(digest(a).unwrap(), digest(b).unwrap(), "{a} {b}");
            }
        }
    }

    /// Fingerprints are stored: another digest for the same value is a new fingerprint version.
    #[test]
    fn digests_never_change() {
        let hex = |json| blake3::Hash::from(digest(json).unwrap()).to_hex().to_string();
        let golden = "c42bc5e6159f61c7d28eaba255fd0e764e21283b0dfc12bec8e806ee23718998";
        assert_eq!(hex(r#"{"b":[1,"x",null],"a":{"c":true}}"#), golden);
    }

    #[test]
    fn what_is_not_json_has_no_value() {
        let one_a_line = r#"
            {
            }
            [1,]
            [,1]
            {,}
            {"a":1,}
            {"a"}
            {"a":}
            {a:1}
            {1:1}
            {"a" 1}
            [1 2]
            1 2
            {}{}
            [}
            {]
            [
            [1
            {"a":1
            {"a
        "#;
        let words = r#"01 - + +1 .5 1. 1.e1 1e 1e+ --1 -a 0x1 NaN Infinity nul nullx True 'a' " "\" "\x" "\u12" "\u12g4"
            "\u+123" "\ud800" "\udc00" "\ud800\u0041" "\ud800x" "\ud800\" /**/1 [1]// , :"#;
        let bytes = [
            &b""[..],
            b" ",
            b"\xef\xbb\xbf{}",
            b"\"\n\"",
            b"\"\0\"",
            b"\"\xff\"",
            b"\"\xed\xa0\x80\"",
            b"\x0b1",
            b"\xc2\xa01",
        ];
        let lines = one_a_line.lines().skip(1).map(str::as_bytes);
        for json in lines.chain(words.split_ascii_whitespace().map(str::as_bytes)).chain(bytes) {
            assert_eq!(canonical_digest(json), Err(JsonError::Invalid), "{}", json.escape_ascii());
        }
    }

    #[test]
    fn a_name_that_occurs_twice_leaves_no_value() {
        for json in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"\u0061":3}}]"#, r#"{"":0,"":0}"#] {
            assert_eq!(digest(json), Err(JsonError::DuplicateName), "{json}");
        }
        assert!(digest(r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#).is_ok());
    }

    #[test]
    fn depth_is_limited_and_costs_no_stack() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(digest(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(digest(&nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep));
        assert_eq!(digest(&"[".repeat(1_000_000)), Err(JsonError::TooDeep));
        assert_eq!(digest(&"{\"a\":".repeat(1_000_000)), Err(JsonError::TooDeep));
        assert_eq!(Pointer::parse("/0").unwrap().find("[".repeat(1_000_000).as_bytes()), Err(JsonError::TooDeep));
    }

    /// The examples of RFC 6901, section 5, where they lead to a number.
    #[test]
    fn pointers_lead_where_the_rfc_says() {
        let document = br#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
        for (pointer, number) in [
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ] {
            assert_eq!(Pointer::parse(pointer).unwrap().find(document), Ok(Found::Number(number)), "{pointer}");
        }
        let at = |pointer: &str| Pointer::parse(pointer).unwrap().find(document);
        assert_eq!(at(""), Ok(Found::Other));
        assert_eq!(at("/foo"), Ok(Found::Other));
        assert_eq!(at("/foo/0"), Ok(Found::String("bar".into())));
        assert_eq!(at("/foo/1"), Ok(Found::String("baz".into())));
        for nowhere in ["/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/+1", "/foo/", "/foo/0/x", "/x", "/a~1b/0", "//"]
        {
            assert_eq!(at(nowhere), Ok(Found::Absent), "{nowhere}");
        }
        for wrong in ["foo", "#/foo", "/~", "/~2", "/a~", " /a"] {
            assert_eq!(Pointer::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Pointer::parse("/~01").unwrap().find(br#"{"~1":1}"#), Ok(Found::Number("1")));
    }

    #[test]
    fn a_pointer_finds_exactly_its_own_place() {
        for (pointer, json, found) in [
            ("/id", r#"{"x":{"id":1},"id":2,"y":[{"id":3}]}"#, Found::Number("2")),
            ("/a/id", r#"{"id":1,"b":{"id":2},"a":{"x":{"id":3},"id":4},"c":{"a":{"id":5}}}"#, Found::Number("4")),
            ("/1/1", r#"[[1,2],[3,[9,9],5],[6,7]]"#, Found::Other),
            ("/2/1", r#"[[1,2],[3,[9,9],5],[6,7]]"#, Found::Number("7")),
            ("/1", r#"{"0":1,"1":2}"#, Found::Number("2")),
            ("/\u{e9}", r#"{"\u00e9":"\u0041"}"#, Found::String("A".into())),
            ("/a", r#"{"a":null}"#, Found::Null),
            ("/a", r#"{"a":true}"#, Found::Other),
            ("/a", r#"{"a":""}"#, Found::String("".into())),
            ("/a/b", r#"{"a":"b"}"#, Found::Absent),
            ("/a", "[]", Found::Absent),
            ("/a", "{}", Found::Absent),
            ("", "18446744073709551616", Found::Number("18446744073709551616")),
            ("", " \"x\" ", Found::String("x".into())),
        ] {
            assert_eq!(Pointer::parse(pointer).unwrap().find(json.as_bytes()), Ok(found), "{pointer} {json}");
        }
    }

    #[test]
    fn a_name_on_the_way_that_occurs_twice_is_an_error() {
        let find = |pointer: &str, json: &'static str| Pointer::parse(pointer).unwrap().find(json.as_bytes());
        assert_eq!(find("/a", r#"{"a":1,"a":1}"#), Err(JsonError::DuplicateName));
        assert_eq!(find("/a", r#"{"a":1,"\u0061":2}"#), Err(JsonError::DuplicateName));
        assert_eq!(find("/a/b", r#"{"a":{"b":1},"a":{}}"#), Err(JsonError::DuplicateName));
        assert_eq!(find("/a/b", r#"{"a":{"b":1,"c":0,"b":2}}"#), Err(JsonError::DuplicateName));
        assert_eq!(find("/a", r#"{"a":1,"b":2,"b":3}"#), Ok(Found::Number("1")));
        assert_eq!(find("/a", r#"{"a":{"b":1,"b":2}}"#), Ok(Found::Other));
    }

    #[test]
    fn what_follows_the_place_is_read_too() {
        assert_eq!(Pointer::parse("/a").unwrap().find(br#"{"a":1,"b":tru}"#), Err(JsonError::Invalid));
        assert_eq!(Pointer::parse("/a").unwrap().find(br#"{"a":1}}"#), Err(JsonError::Invalid));
    }

    /// A value as it is written down by [`written`]. Numbers are text.
    #[derive(Clone, Debug, PartialEq)]
    enum Tree {
        Plain(&'static str),
        Number(String),
        String(String),
        Array(Vec<Tree>),
        Object(BTreeMap<String, Tree>),
    }

    fn trees() -> impl Strategy<Value = Tree> {
        let text = prop_oneof!["[ab]{0,2}", any::<String>(), "[\"\\\\/\u{0}-\u{1f}\u{7f}\u{10000}]{1,3}"];
        let leaf = prop_oneof![
            prop::sample::select(vec!["null", "true", "false"]).prop_map(Tree::Plain),
            "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?".prop_map(Tree::Number),
            text.clone().prop_map(Tree::String),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::Array),
                prop::collection::btree_map(text.clone(), inner, 0..5).prop_map(Tree::Object),
            ]
        })
    }

    /// Writes a tree in one of its many spellings, chosen by `style`.
    fn written(tree: &Tree, style: &mut u64, out: &mut String) {
        let mut choose = |ways: u64| {
            *style = style.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*style >> 33) % ways
        };
        out.push_str(["", " ", "\n", "\t\r "][choose(4) as usize]);
        match tree {
            Tree::Plain(text) => out.push_str(text),
            Tree::Number(text) => out.push_str(text),
            Tree::String(text) => {
                out.push('"');
                for c in text.chars() {
                    match (c, choose(3)) {
                        ('"' | '\\', 0) => out.extend(['\\', c]),
                        ('/', 0) => out.push_str("\\/"),
                        ('\n', 0) => out.push_str("\\n"),
                        ('\u{8}', 0) => out.push_str("\\b"),
                        ('"' | '\\' | ..' ', _) | (_, 1) => {
                            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
                        }
                        _ => out.push(c),
                    }
                }
                out.push('"');
            }
            Tree::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    written(item, style, out);
                }
                out.push_str([" ]", "]"][items.len() % 2]);
            }
            Tree::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if !members.is_empty() {
                    let by = choose(members.len() as u64) as usize;
                    members.rotate_left(by);
                }
                if choose(2) == 0 {
                    members.reverse();
                }
                out.push('{');
                for (i, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    written(&Tree::String(name.clone()), style, out);
                    out.push_str(" :");
                    written(value, style, out);
                }
                out.push('}');
            }
        }
    }

    fn spelled(tree: &Tree, mut style: u64) -> String {
        let mut out = String::new();
        written(tree, &mut style, &mut out);
        out
    }

    /// Changes one leaf, or adds one to an empty array or object.
    fn changed(tree: &Tree, mut at: usize) -> Tree {
        match tree {
            Tree::Plain("null") => Tree::Plain("true"),
            Tree::Plain(_) => Tree::Plain("null"),
            Tree::Number(text) => Tree::Number(if text == "7" { "7.0" } else { "7" }.into()),
            Tree::String(text) => Tree::String(format!("{text}x")),
            Tree::Array(items) if items.is_empty() => Tree::Array(vec![Tree::Plain("null")]),
            Tree::Array(items) => {
                let mut items = items.clone();
                at %= items.len();
                items[at] = changed(&items[at], at);
                Tree::Array(items)
            }
            Tree::Object(members) => {
                let mut members = members.clone();
                let name = members.keys().nth(at % members.len().max(1)).cloned();
                let value = name.as_ref().map_or(Tree::Plain("null"), |name| changed(&members[name], at));
                members.insert(name.unwrap_or_default(), value);
                Tree::Object(members)
            }
        }
    }

    /// Whether serde_json reads the text; nothing where a number is beyond what it can hold, which says nothing of ours.
    fn serde_json_reads(json: &[u8]) -> Option<bool> {
        match serde_json::from_slice::<serde_json::Value>(json) {
            Err(error) if error.to_string().contains("out of range") => None,
            result => Some(result.is_ok()),
        }
    }

    proptest! {
        #[test]
        fn every_spelling_of_a_value_has_its_digest_and_no_other_value_has(
            a in trees(), b in trees(), styles in any::<[u64; 3]>(), at in any::<usize>()
        ) {
            let first = digest(&spelled(&a, styles[0])).unwrap();
            prop_assert_eq!(first, digest(&spelled(&a, styles[1])).unwrap());
            prop_assert_ne!(first, digest(&spelled(&changed(&a, at), styles[1])).unwrap());
            prop_assert_eq!(first == digest(&spelled(&b, styles[2])).unwrap(), a == b);
        }

        #[test]
        fn reads_what_serde_json_reads(
            tree in trees(), style in any::<u64>(), noise in "[\\[\\]{}\",:0-9eE+. \\\\utnfalsr-]{0,16}",
            cut in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..4
        ) {
            let mut json = spelled(&tree, style).into_bytes();
            let at = cut.index(json.len());
            match how {
                0 => {}
                1 => json[at] = byte,
                2 => drop(json.remove(at)),
                _ => json = noise.into_bytes(),
            }
            let ours = canonical_digest(&json);
            if let Some(reads) = serde_json_reads(&json) {
                prop_assert_eq!(ours.is_ok() || ours == Err(JsonError::DuplicateName), reads, "{}", json.escape_ascii());
            }
            prop_assert_eq!(Pointer::parse("/nowhere~0/0").unwrap().find(&json).is_ok(),
                ours != Err(JsonError::Invalid), "{}", json.escape_ascii());
        }

        #[test]
        fn finds_what_serde_json_finds(tree in trees(), style in any::<u64>(), path in prop::collection::vec("[ab]{0,2}|[0-3]", 0..4)) {
            let json = spelled(&tree, style);
            let pointer: String = path.iter().map(|token| format!("/{token}")).collect();
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&json) {
                use serde_json::Value;
                let found = Pointer::parse(&pointer).unwrap().find(json.as_bytes()).unwrap();
                match value.pointer(&pointer) {
                    None => prop_assert_eq!(found, Found::Absent),
                    Some(Value::Null) => prop_assert_eq!(found, Found::Null),
                    Some(Value::String(text)) => prop_assert_eq!(found, Found::String(text.into())),
                    Some(Value::Number(_)) => prop_assert!(matches!(found, Found::Number(_))),
                    Some(_) => prop_assert_eq!(found, Found::Other),
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(json in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = canonical_digest(&json);
            let _ = Pointer::parse("/a/0").unwrap().find(&json);
        }
    }
}
