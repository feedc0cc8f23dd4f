//! The value of an `Idempotency-Key` field: the `sfv` crate must read the same string, and what is accepted is one printable
//! key that can be written again in each form without becoming another.

#![no_main]

use idem_layer::protocol::{Key, KeyError};
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, Item, Parser};

fuzz_target!(|field: &[u8]| {
    let read = Key::from_field_value(field);
    let value = trimmed(field);
    match value.first() {
        None => assert_eq!(read, Err(KeyError::Empty)),
        Some(b'"') => assert_eq!(read.as_ref().ok(), oracle(value).as_ref()),
        Some(_) => assert_eq!(read.as_ref().ok(), Key::new(value).ok().filter(|_| is_visible(value)).as_ref()),
    }
    match Key::from_quoted_field_value(field) {
        Err(KeyError::Unquoted) => assert!(value.first().is_some_and(|first| *first != b'"')),
        quoted => assert_eq!(quoted, read),
    }
    let Ok(key) = read else { return };

    let text = key.text();
    assert!((1..=Key::MAX_BYTES).contains(&text.len()));
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert_eq!(Key::new(&*text).as_ref(), Ok(&key));

    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    for spelling in [quoted.clone(), format!(" {quoted}\t"), format!("{quoted};v=1; w=\"x;y\";z")] {
        assert_eq!(Key::from_field_value(spelling.as_bytes()).as_ref(), Ok(&key), "{spelling}");
    }
    if !text.starts_with('"') && is_visible(text.as_bytes()) {
        assert_eq!(Key::from_field_value(text.as_bytes()).as_ref(), Ok(&key));
    }
    // A list of two, and an item with something behind it, are no item.
    assert!(Key::from_field_value(format!("{quoted}, {quoted}").as_bytes()).is_err());
    assert!(Key::from_field_value(format!("{quoted} x").as_bytes()).is_err());
});

/// The key that the string of an item is (RFC 9651), nothing where it is no item, no string or no key.
fn oracle(value: &[u8]) -> Option<Key> {
    match Parser::new(value).parse::<Item>() {
        Ok(Item { bare_item: BareItem::String(text), .. }) => Key::new(text.as_str()).ok(),
        _ => None,
    }
}

/// Without the space around it (RFC 9110, section 5.5).
fn trimmed(field: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| b" \t".contains(byte);
    let Some(from) = field.iter().position(|byte| !is_space(byte)) else { return b"" };
    let to = field.iter().rposition(|byte| !is_space(byte)).unwrap_or(from);
    &field[from..=to]
}

fn is_visible(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_graphic)
}
