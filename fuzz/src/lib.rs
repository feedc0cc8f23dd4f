//! What several targets need.

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request};

/// The head of a POST to this path (and query).
///
/// # Errors
///
/// When there is no such path.
pub fn head(path: &[u8], content_type: &'static str) -> Result<Parts, http::Error> {
    let (mut head, ()) = Request::post(path).body(())?.into_parts();
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(head)
}

/// The first line of an input as text, and what follows it. Nothing for an input without a line of text.
pub fn line_and_rest(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&input[..end]).ok()?, &input[end + 1..]))
}

/// Lays out JSON otherwise, without changing what it says: space before and behind whatever stands outside of strings.
pub fn spaced(json: &[u8]) -> Vec<u8> {
    let mut spaced = Vec::with_capacity(3 * json.len());
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        let structural = !in_string && b"{}[],:".contains(byte);
        if structural {
            spaced.extend_from_slice(b" \t");
        }
        spaced.push(*byte);
        if structural {
            spaced.extend_from_slice(b"\r\n");
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    spaced
}

/// How many members all objects in a text of JSON have together, repeated names counted each time.
pub fn members_in_text(json: &[u8]) -> usize {
    let (mut members, mut in_string, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b':' if !in_string => members += 1,
            _ => {}
        }
    }
    members
}

/// How many members all objects in a value have together.
pub fn members_in_value(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => items.iter().map(members_in_value).sum(),
        serde_json::Value::Object(members) => members.len() + members.values().map(members_in_value).sum::<usize>(),
        _ => 0,
    }
}

/// Whether all numbers in a value are integers of 64 bits, so that they have one spelling.
pub fn is_of_integers(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Array(items) => items.iter().all(is_of_integers),
        serde_json::Value::Object(members) => members.values().all(is_of_integers),
        serde_json::Value::Number(number) => number.is_i64() || number.is_u64(),
        _ => true,
    }
}
