/// Brings JSON text into one form: no white space, the members of every object sorted. Numbers and escapes stay as they are.
///
/// It works on the text that `serde_json` writes, and not on its `Value`, whose order and numbers depend on features that
/// any crate may switch on. Nothing is checked: text that is not JSON comes out as some other text.
pub(super) fn canonical(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    value(json, 0, &mut out);
    out
}

/// Appends the value that begins at `at` or behind white space there, and says where it ends.
fn value(json: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let at = skip_space(json, at);
    match json.get(at) {
        Some(b'{') => elements(json, at, b'}', out),
        Some(b'[') => elements(json, at, b']', out),
        Some(b'"') => copy(out, json, at, string_end(json, at)),
        _ => {
            let length = json[at..].iter().take_while(|b| !b",:]}\" \t\r\n".contains(b)).count();
            copy(out, json, at, at + length.max(1))
        }
    }
}

/// An array, or an object with its members sorted: by name, and where one name stands twice by value.
fn elements(json: &[u8], mut at: usize, close: u8, out: &mut Vec<u8>) -> usize {
    let mut elements = Vec::new();
    at = skip_space(json, at + 1);
    while at < json.len() && json[at] != close {
        let mut element = Vec::new();
        at = skip_space(json, value(json, at, &mut element));
        if json.get(at) == Some(&b':') {
            element.push(b':');
            at = skip_space(json, value(json, at + 1, &mut element));
        }
        elements.push(element);
        if json.get(at) == Some(&b',') {
            at = skip_space(json, at + 1);
        }
    }
    if close == b'}' {
        elements.sort_unstable();
    }
    out.push(close - 2);
    out.extend(elements.join(&b','));
    out.push(close);
    (at + 1).min(json.len())
}

fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < json.len() && json[at] != b'"' {
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn skip_space(json: &[u8], at: usize) -> usize {
    at + json.get(at..).unwrap_or_default().iter().take_while(|b| b.is_ascii_whitespace()).count()
}

fn copy(out: &mut Vec<u8>, json: &[u8], from: usize, to: usize) -> usize {
    let to = to.min(json.len());
    out.extend_from_slice(&json[from.min(to)..to]);
    to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(json: &str) -> String {
        String::from_utf8(canonical(json.as_bytes())).unwrap()
    }

    #[test]
    fn members_are_sorted_at_every_depth_and_nothing_else_is() {
        assert_eq!(
            text(r#" {"b" : [ 3, 1 , {"z":1.0,"a":-1e5} ],"a":"}\"\\",  "":{} } "#),
            r#"{"":{},"a":"}\"\\","b":[3,1,{"a":-1e5,"z":1.0}]}"#
        );
        for same in ["null", "true", "\"\"", "0", "[]", "{}", "[[],[{}]]", "18446744073709551616", "1.10"] {
            assert_eq!(text(same), same);
        }
    }

    #[test]
    fn members_of_one_name_have_one_order() {
        assert_eq!(text(r#"{"a":2,"a":1}"#), text(r#"{"a":1,"a":2}"#));
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(json in "[\\[\\]{},:\"\\\\a1 ]{0,24}") {
            canonical(json.as_bytes());
        }

        #[test]
        fn the_order_of_a_map_does_not_matter(map in prop::collection::btree_map(".{0,4}", ".{0,4}", 0..6)) {
            let write = |members: Vec<(&String, &String)>| {
                let members: Vec<String> = members.into_iter().map(|(name, value)| {
                    format!("{}:{}", serde_json::to_string(name).unwrap(), serde_json::to_string(value).unwrap())
                }).collect();
                format!("{{{}}}", members.join(","))
            };
            prop_assert_eq!(text(&write(map.iter().collect())), text(&write(map.iter().rev().collect())));
            prop_assert_eq!(serde_json::from_str::<std::collections::BTreeMap<String, String>>(&text(&write(map.iter().collect()))).unwrap(), map);
        }
    }
}
