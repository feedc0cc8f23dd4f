//! A key in a form or a query: the first line is the field's name, the rest the form. The `form_urlencoded` crate must find
//! the same, and a query must be read as a body is.

#![no_main]

use bytes::Bytes;
use idem_fuzz::{head, line_and_rest};
use idem_layer::middleware::key;
use idem_layer::protocol::Key;
use libfuzzer_sys::fuzz_target;

const FORM: &str = "application/x-www-form-urlencoded";

fuzz_target!(|input: &[u8]| {
    let Some((name, form)) = line_and_rest(input) else { return };
    // No field has no name, and the crate reads names that are not UTF-8 as if they had a replacement character.
    if name.is_empty() || name.contains(char::REPLACEMENT_CHARACTER) {
        return;
    }
    let in_body = key::form(name).find(&head(b"/", FORM).expect("a path"), &Bytes::copy_from_slice(form));

    let named: Vec<_> = form_urlencoded::parse(form).filter(|(other, _)| other == name).collect();
    match &in_body {
        Ok(None) => assert!(named.is_empty(), "overlooked: {named:?}"),
        Ok(Some(key)) => {
            let [(_, text)] = &named[..] else { panic!("not one: {named:?}") };
            // The crate replaces what is not UTF-8, so that only texts without a replacement can be compared.
            if !text.contains(char::REPLACEMENT_CHARACTER) {
                assert_eq!(Key::new(&**text).as_ref(), Ok(key));
            }
        }
        Err(_) => {}
    }

    // What cannot stand in a target, or would end the query, is no query.
    if form.contains(&b'#') {
        return;
    }
    let Ok(with_query) = head(&[b"/?", form].concat(), FORM) else { return };
    let in_query = key::query(name).find(&with_query, &Bytes::new());
    assert_eq!(in_query.ok(), in_body.ok());
});
