//! A key at a JSON pointer: the first line is the pointer, the rest the body. `serde_json` must find the same there.

#![no_main]

use bytes::Bytes;
use idem_fuzz::{head, line_and_rest, spaced};
use idem_layer::middleware::{RejectionKind, key};
use idem_layer::protocol::Key;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let Some((pointer, body)) = line_and_rest(input) else { return };
    let head = head(b"/", "application/json").expect("a path");
    let find = |body: &[u8]| key::json(pointer).find(&head, &Bytes::copy_from_slice(body));

    let found = find(body);
    if !is_pointer(pointer) {
        // The layer is not built with it.
        assert!(matches!(found, Ok(None)), "{found:?}");
        return;
    }
    let value = serde_json::from_slice::<Value>(body);
    let there = value.as_ref().ok().map(|value| value.pointer(pointer).unwrap_or(&Value::Null));
    match &found {
        Ok(key) => {
            assert!(serde_json::from_slice::<IgnoredAny>(body).is_ok(), "read, but no JSON");
            assert_eq!(*key, find(&spaced(body)).expect("the same in another layout"));
            match (key, there) {
                // A number beyond 64 bits, or what is too deep for it.
                (_, None) => {}
                (None, Some(there)) => assert_eq!(there, &Value::Null),
                (Some(key), Some(Value::String(text))) => assert_eq!(Key::new(text).as_ref(), Ok(key)),
                (Some(key), Some(Value::Number(number))) => {
                    assert_eq!(serde_json::from_str::<serde_json::Number>(&key.text()).ok().as_ref(), Some(number));
                }
                (Some(_), Some(there)) => panic!("no key: {there}"),
            }
        }
        Err(rejection) if rejection.kind() == RejectionKind::BodyMalformed => {
            assert!(value.is_err(), "JSON, but not read")
        }
        Err(rejection) => assert_eq!(rejection.kind(), RejectionKind::KeyMalformed),
    }
});

/// RFC 6901, section 3.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1);
    (text.is_empty() || text.starts_with('/')) && escapes.into_iter().all(|rest| rest.starts_with(['0', '1']))
}
