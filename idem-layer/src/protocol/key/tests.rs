use proptest::prelude::*;
use sfv::{BareItem, Item, ItemSerializer, Parser, StringRef};

use super::*;

fn parsed(field: &str) -> Result<String, KeyError> {
    Key::from_field_value(field.as_bytes()).map(|key| key.text().into_owned())
}

#[test]
fn quoted_and_bare_name_the_same_key() {
    assert_eq!(Key::from_field_value(b"\"abc\""), Key::from_field_value(b"  abc\t"));
    assert_eq!(parsed(r#""a\"b\\c d""#).as_deref(), Ok(r#"a"b\c d"#));
    assert_eq!(parsed(r#""abc";v=1; w="x;y";?"#), Err(KeyError::Malformed));
    assert_eq!(parsed(r#""abc";v=1; w="x;y";z"#).as_deref(), Ok("abc"));
    assert_ne!(Key::from_field_value(b"abc"), Key::from_field_value(b"ABC"));
}

#[test]
fn each_malformed_field_has_its_own_error() {
    for (field, error) in [
        (&b""[..], KeyError::Empty),
        (b"   ", KeyError::Empty),
        (b"\"\"", KeyError::Empty),
        (b"\"abc", KeyError::Malformed),
        (b"\"abc\"x", KeyError::Malformed),
        (b"\"a\\b\"", KeyError::Malformed),
        (b"a b", KeyError::Character),
        (b"a\x07", KeyError::Character),
        (b"a\n", KeyError::Character),
        (b"caf\xc3\xa9", KeyError::Character),
        (b"\"caf\xc3\xa9\"", KeyError::Character),
        (&[b'k'; 256], KeyError::TooLong),
    ] {
        assert_eq!(Key::from_field_value(field).unwrap_err(), error, "{}", field.escape_ascii());
    }
    assert!(Key::from_field_value(&[b'k'; 255]).is_ok());
}

#[test]
fn where_quotes_are_asked_for_a_bare_value_has_an_error_of_its_own() {
    let quoted = |field: &str| Key::from_quoted_field_value(field.as_bytes());
    assert_eq!(quoted(r#" "abc";v=1 "#), Key::new("abc"));
    assert_eq!(quoted("abc"), Err(KeyError::Unquoted));
    assert_eq!(quoted("'abc'"), Err(KeyError::Unquoted));
    assert_eq!(quoted("  "), Err(KeyError::Empty));
    assert_eq!(quoted(r#""""#), Err(KeyError::Empty));
    assert_eq!(quoted(r#""abc"#), Err(KeyError::Malformed));
}

#[test]
fn parameters_of_every_type_are_read_to_the_letter() {
    for parameters in [
        ";a",
        ";a;a=1",
        ";  a",
        ";*a.b-c_d9",
        ";a=-0",
        ";a=999999999999999",
        ";a=-1.5",
        ";a=123456789012.125",
        ";a=tok/en:!",
        ";a=*",
        ";a=:YWJj:",
        ";a=::",
        ";a=:YQ==:",
        ";a=:YQ:",
        ";a=:YR==:",
        ";a=?0",
        ";a=?1",
        ";a=@0",
        ";a=@-1659578233",
        ";a=\"x;y \\\"\"",
        ";a=%\"\"",
        ";a=%\"f%c3%bc \"",
    ] {
        assert_eq!(parsed(&format!("\"k\"{parameters}")).as_deref(), Ok("k"), "{parameters}");
    }
    for parameters in [
        ";",
        ";A",
        ";9",
        ";a=",
        " ;a",
        ";\ta",
        ";a =1",
        ";a= 1",
        ";a,b",
        ";aB",
        ";a=1000000000000000",
        ";a=1.",
        ";a=.5",
        ";a=1.2345",
        ";a=1234567890123.1",
        ";a=-",
        ";a=+1",
        ";a=1a",
        ";a=:YWJj",
        ";a=:Y:",
        ";a=:YW=Jj:",
        ";a=:YWJj=:",
        ";a=:=:",
        ";a=:a_b-:",
        ";a=?2",
        ";a=?",
        ";a=@1.5",
        ";a=@",
        ";a=\"x",
        ";a=\"\\x\"",
        ";a=%x",
        ";a=%\"%C3%BC\"",
        ";a=%\"%c3\"",
        ";a=%\"%",
        ";a=(1)",
        ";a=!x",
    ] {
        assert_eq!(parsed(&format!("\"k\"{parameters}")), Err(KeyError::Malformed), "{parameters}");
    }
}

#[test]
fn position_and_grouping_tell_composed_keys_apart() {
    let part = |text: &str| Key::new(text).unwrap();
    let all = |parts: &[&str]| Key::all_of(parts.iter().map(|p| part(p))).unwrap();
    assert_ne!(all(&["a", "b"]), all(&["b", "a"]));
    assert_ne!(all(&["a,b"]), all(&["a", "b"]));
    assert_ne!(all(&["a%2Cb"]), all(&["a,b"]));
    assert_eq!(all(&["a,b"]).text(), "a,b");
    assert_eq!(Key::all_of([]), Err(KeyError::Empty));
    assert_eq!(Key::all_of([Key::new([7; 200]).unwrap(), Key::new([7; 56]).unwrap()]), Err(KeyError::TooLong));
}

#[test]
fn a_digest_never_changes_and_is_no_text() {
    let digest = Key::digest(["/order_no", "o-1"]);
    let golden = "#a0a11ac41f37959b68a3344ab6ee1426ae69eb482acc0e79899b0b44053fdeca";
    assert_eq!(digest.text(), golden);
    assert_ne!(Key::new(golden).unwrap(), digest);
    assert_ne!(Key::digest(["/order_no", "o-1"]), Key::digest(["/order_noo", "-1"]));
    assert_ne!(Key::digest(["a", ""]), Key::digest(["a"]));

    let composed = Key::all_of([digest.clone(), Key::new("#,~").unwrap()]).unwrap();
    assert_eq!(composed.text(), format!("{golden},%23%2C%7E"));
    assert_eq!(Key::all_of([digest.clone(), Key::new([7; 190]).unwrap()]).map(drop), Ok(()));
    assert_eq!(Key::all_of([digest, Key::new([7; 191]).unwrap()]), Err(KeyError::TooLong));
}

#[cfg(feature = "http")]
#[test]
fn an_absent_part_keeps_its_position() {
    let of = |parts: &[Option<Key>]| {
        let mut all = KeyParts::default();
        parts.iter().for_each(|part| all.add_varying(part.as_ref()));
        all.finish().unwrap().map(|key| key.encoded().to_owned())
    };
    let [a, tilde] = ["a", "~"].map(|text| Some(Key::new(text).unwrap()));
    let both = Some(Key::all_of([a.clone().unwrap(), tilde.clone().unwrap()]).unwrap());
    assert_eq!(of(&[a.clone(), None]).as_deref(), Some("a,~"));
    assert_eq!(of(&[None, a.clone()]).as_deref(), Some("~,a"));
    assert_eq!(of(&[tilde.clone(), a.clone()]).as_deref(), Some("%7E,a"));
    assert_eq!(of(&[both, None, a]).as_deref(), Some("(a,%7E),~,a"));
    assert_eq!(of(&[None, None]), None);
    assert_eq!(of(&[]), None);
}

#[cfg(feature = "http")]
#[test]
fn the_texts_of_a_key_are_what_somebody_has_chosen() {
    let texts = |key: &Key| key.texts().map(Cow::into_owned).collect::<Vec<_>>();
    let [a, b] = ["(a)", "b,c#"].map(|text| Key::new(text).unwrap());
    let mut all = KeyParts::default();
    all.add(&Key::digest(["x"]));
    all.add_varying(None);
    all.add_varying(Some(&Key::all_of([a.clone(), b.clone()]).unwrap()));
    assert_eq!(texts(&all.finish().unwrap().unwrap()), ["(a)", "b,c#"]);
    assert_eq!(texts(&b), ["b,c#"]);
    assert_eq!(texts(&Key::digest(["x"])), [""; 0]);
}

#[test]
fn debug_says_nothing() {
    assert_eq!(format!("{:?}", Key::new("secret").unwrap()), "Key(..)");
}

/// A field value that begins with a quote: well-formed as long as its parts are.
fn quoted_fields() -> impl Strategy<Value = Vec<u8>> {
    let bare = prop_oneof![
        "-?[0-9]{1,16}",
        "-?[0-9]{1,13}\\.[0-9]{0,4}",
        "[a-z*][a-zA-Z0-9!#$%&'*+.^_`|~:/-]{0,6}",
        ":[a-zA-Z0-9+/]{0,9}={0,3}:",
        "\\?[012]",
        "@-?[0-9]{1,4}(\\.5)?",
        "\"([ !#-\\[\\]-~]|\\\\[\"\\\\]){0,6}\"",
        "%\"([ !#$&-~]|%[0-9a-f]{2}|%c3%bc){0,4}\"",
    ];
    let parameter = ("; {0,2}[a-z*][a-z0-9_.*-]{0,3}", prop::option::of(bare))
        .prop_map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}")));
    let field = ("\"([ !#-\\[\\]-~]|\\\\[\"\\\\]){0,20}\"", prop::collection::vec(parameter, 0..3))
        .prop_map(|(text, parameters)| (text + &parameters.concat()).into_bytes());
    let byte = prop_oneof![3 => prop::sample::select(b"\";=\\ \t%:@?-.,*()aA0fg/+".to_vec()), 1 => any::<u8>()];
    let mutations = prop::collection::vec((any::<prop::sample::Index>(), byte, 0..3), 0..3);
    (field, mutations).prop_map(|(mut field, mutations)| {
        for (at, byte, how) in mutations {
            match (how, at.index(field.len())) {
                (0, at) if at > 0 => field[at] = byte,
                (1, at) if at > 0 => drop(field.remove(at)),
                (_, at) => field.insert(at + 1, byte),
            }
        }
        field
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn a_quoted_field_is_a_key_exactly_where_the_rfc_reads_a_string(field in quoted_fields()) {
        let ours = Key::from_field_value(&field);
        // HTTP has taken tabs around a value away before it is a structured field.
        let expected = match Parser::new(trim_field_value(&field)).parse::<Item>() {
            Ok(Item { bare_item: BareItem::String(text), .. }) => Key::new(text.as_str()),
            _ => {
                prop_assert!(matches!(ours, Err(KeyError::Malformed | KeyError::Character)), "{}", field.escape_ascii());
                return Ok(());
            }
        };
        prop_assert_eq!(&ours, &expected, "{}", field.escape_ascii());
        prop_assert_eq!(Key::from_quoted_field_value(&field), ours);
    }
}

proptest! {
    #[test]
    fn every_printable_text_can_be_quoted(text in "[ -~]{1,255}") {
        let serialized = ItemSerializer::new().bare_item(StringRef::from_str(&text).unwrap()).finish();
        prop_assert_eq!(parsed(&serialized), Ok(text));
    }

    #[test]
    fn any_bytes_make_a_key_of_their_own(a in prop::collection::vec(any::<u8>(), 1..40), b in prop::collection::vec(any::<u8>(), 1..40)) {
        prop_assert_eq!(Key::new(&a).unwrap() == Key::new(&b).unwrap(), a == b);
        let all = |bytes: &[u8]| Key::all_of(bytes.iter().map(|byte| Key::new([*byte]).unwrap())).unwrap();
        prop_assert_eq!(all(&a) == all(&b), a == b);
    }

    #[test]
    fn arbitrary_field_values_never_panic(value in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Key::from_field_value(&value);
        let _ = Key::from_field_value(&[b"\"", &*value].concat());
    }
}

#[cfg(feature = "http")]
proptest! {
    #[test]
    fn tuples_of_optional_parts_never_collide(a in tuples(), b in tuples()) {
        let key = |tuple: &Tuple| {
            let mut all = KeyParts::default();
            for part in tuple {
                let part = part.as_ref().map(|texts| Key::all_of(texts.iter().map(|text| Key::new(text).unwrap())).unwrap());
                all.add_varying(part.as_ref());
            }
            all.finish().unwrap()
        };
        let absent = |tuple: &Tuple| tuple.iter().all(Option::is_none);
        prop_assert_eq!(key(&a) == key(&b), a == b || (absent(&a) && absent(&b)));
        // What can be read back has no twin.
        match key(&a) {
            Some(key) => prop_assert_eq!(read_back(key.encoded()), a),
            None => prop_assert!(absent(&a)),
        }
    }

    #[test]
    fn the_texts_of_a_key_are_its_parts(texts in prop::collection::vec("[a(),~#%+ é]{1,4}", 1..4)) {
        let key = Key::all_of(texts.iter().map(|text| Key::new(text).unwrap())).unwrap();
        prop_assert_eq!(key.texts().collect::<Vec<_>>(), texts.clone());
        prop_assert_eq!(key.length(), texts.concat().len());
    }
}

/// Optional parts of one or more texts.
#[cfg(feature = "http")]
type Tuple = Vec<Option<Vec<Vec<u8>>>>;

/// Up to three parts of up to three texts, of bytes that could be taken for an encoding.
#[cfg(feature = "http")]
fn tuples() -> impl Strategy<Value = Tuple> {
    let byte = prop_oneof![4 => prop::sample::select(b"a,~#()%27".to_vec()), 1 => any::<u8>()];
    let text = prop::collection::vec(byte, 1..3);
    prop::collection::vec(prop::option::of(prop::collection::vec(text, 1..4)), 0..4)
}

#[cfg(feature = "http")]
fn read_back(encoded: &str) -> Tuple {
    let text = |escaped: &str| {
        let mut parts = escaped.split('%');
        let mut text = parts.next().unwrap().replace('+', " ").into_bytes();
        for part in parts {
            text.push(u8::from_str_radix(&part[..2], 16).unwrap());
            text.extend(part[2..].replace('+', " ").bytes());
        }
        text
    };
    let (mut tuple, mut rest) = (Vec::new(), Some(encoded));
    while let Some(at) = rest {
        let bracket = at.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        let (part, behind) = match bracket {
            Some((inside, behind)) => (inside, behind),
            None => at.split_at(at.find(',').unwrap_or(at.len())),
        };
        tuple.push((part != "~").then(|| part.split(',').map(text).collect()));
        rest = behind.strip_prefix(',');
    }
    tuple
}
