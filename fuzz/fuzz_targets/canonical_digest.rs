//! The fingerprint of a JSON body: the same for the same bytes, and for the same value however it is laid out.

#![no_main]

use bytes::Bytes;
use idem_fuzz::{head, is_of_integers, members_in_text, members_in_value, spaced};
use idem_layer::middleware::fingerprint;
use idem_layer::protocol::{Fingerprint, Target};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let fingerprint = of(body);
    assert_eq!(fingerprint, of(body));

    let relaid = spaced(body);
    match serde_json::from_slice::<Value>(body) {
        // Every name of an object is there once: the text has a value.
        Ok(value) if members_in_text(body) == members_in_value(&value) => {
            assert_eq!(fingerprint, of(&relaid), "another layout");
            let members = Value::Array(vec![value.clone()]);
            assert_ne!(fingerprint, of(members.to_string().as_bytes()), "another value");
            if is_of_integers(&value) {
                // Sorted, without space, escaped as little as possible.
                assert_eq!(fingerprint, of(value.to_string().as_bytes()), "another spelling");
            }
        }
        // It has none, and is compared as bytes.
        Ok(_) if relaid != body => assert_ne!(fingerprint, of(&relaid), "a repeated name"),
        _ => {}
    }
});

fn of(body: &[u8]) -> Fingerprint {
    let head = head(b"/", "application/json").expect("a path");
    let rules = fingerprint::enforced();
    rules.of(&Target::new("POST", "/"), &head, &Bytes::copy_from_slice(body)).expect("a fingerprint")
}
