mod selections;

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
    assert_eq!(at(""), Ok(Found::Container));
    assert_eq!(at("/foo"), Ok(Found::Container));
    assert_eq!(at("/foo/0"), Ok(Found::String("bar".into())));
    assert_eq!(at("/foo/1"), Ok(Found::String("baz".into())));
    for nowhere in ["/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/+1", "/foo/", "/foo/0/x", "/x", "/a~1b/0", "//"] {
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
        ("/1/1", r#"[[1,2],[3,[9,9],5],[6,7]]"#, Found::Container),
        ("/2/1", r#"[[1,2],[3,[9,9],5],[6,7]]"#, Found::Number("7")),
        ("/1", r#"{"0":1,"1":2}"#, Found::Number("2")),
        ("/\u{e9}", r#"{"\u00e9":"\u0041"}"#, Found::String("A".into())),
        ("/a", r#"{"a":null}"#, Found::Null),
        ("/a", r#"{"a":true}"#, Found::Bool),
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
    assert_eq!(find("/a", r#"{"a":{"b":1,"b":2}}"#), Ok(Found::Container));
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
            let pointed = Pointer::parse(&pointer).unwrap();
            let place = pointed.locate(json.as_bytes()).unwrap();
            let located = place.map(|place| serde_json::from_str::<Value>(&json[place]).unwrap());
            prop_assert_eq!(located.as_ref(), value.pointer(&pointer));
            let found = pointed.find(json.as_bytes()).unwrap();
            match value.pointer(&pointer) {
                None => prop_assert_eq!(found, Found::Absent),
                Some(Value::Null) => prop_assert_eq!(found, Found::Null),
                Some(Value::String(text)) => prop_assert_eq!(found, Found::String(text.into())),
                Some(Value::Number(_)) => prop_assert!(matches!(found, Found::Number(_))),
                Some(Value::Bool(_)) => prop_assert_eq!(found, Found::Bool),
                Some(_) => prop_assert_eq!(found, Found::Container),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(json in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = canonical_digest(&json);
        let _ = Pointer::parse("/a/0").unwrap().find(&json);
    }
}
