//! `application/x-www-form-urlencoded` (WHATWG URL, section 5.1): pairs between `&`, name and value around the first `=`.

use std::borrow::Cow;

use super::percent::{BadEscape, Rules};

/// Why a form has no one value for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormError {
    /// A malformed escape in any of its pairs.
    Malformed,
    /// The name occurs more than once.
    Repeated,
}

/// The value of a name, decoded; nothing where there is no such name. A name without `=` has an empty value.
pub(super) fn value<'a>(form: &'a [u8], name: &str) -> Result<Option<Cow<'a, [u8]>>, FormError> {
    // All of it is checked, as all of a JSON body is: the handler reads all of it.
    Rules::Form.check(form)?;
    let mut values = form.split(|byte| *byte == b'&').filter_map(|pair| {
        let (found, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            // Nothing at all between two `&` is no pair.
            None if pair.is_empty() => return None,
            None => (pair, &[][..]),
        };
        Rules::Form.stands_for(found, name.as_bytes()).then_some(value)
    });
    let value = values.next();
    match values.next() {
        Some(_) => Err(FormError::Repeated),
        None => Ok(value.map(|value| Rules::Form.decode(value))),
    }
}

impl From<BadEscape> for FormError {
    fn from(_: BadEscape) -> Self {
        Self::Malformed
    }
}

#[cfg(test)]
mod tests {
    use form_urlencoded::Serializer;
    use proptest::prelude::*;

    use super::*;

    fn text(form: &str, name: &str) -> Result<Option<String>, FormError> {
        value(form.as_bytes(), name).map(|value| value.map(|value| String::from_utf8(value.into_owned()).unwrap()))
    }

    fn is(value: &str) -> Result<Option<String>, FormError> {
        Ok(Some(value.to_owned()))
    }

    #[test]
    fn a_name_has_one_value_or_none() {
        for (form, expected) in [
            ("", Ok(None)),
            ("&&", Ok(None)),
            ("a", is("")),
            ("a=", is("")),
            ("a=1", is("1")),
            ("&x=2&&a=1&", is("1")),
            ("a=1=2", is("1=2")),
            ("%61=1", is("1")),
            ("a=%61+b%2B%26%3d", is("a b+&=")),
            ("A=1", Ok(None)),
            ("aa=1&=a", Ok(None)),
            ("a=1&a=1", Err(FormError::Repeated)),
            ("a&%61=1", Err(FormError::Repeated)),
        ] {
            assert_eq!(text(form, "a"), expected, "{form}");
        }
        assert_eq!(text("a+b=1", "a b"), is("1"));
    }

    #[test]
    fn a_malformed_escape_anywhere_is_an_error() {
        for form in ["a=%", "a=%4", "a=%zz", "a=%+41", "a=1&b=%4g", "a=1&%=2", "%", "a=%%41", "a=%4&1=2"] {
            assert_eq!(value(form.as_bytes(), "a"), Err(FormError::Malformed), "{form}");
        }
    }

    #[test]
    fn what_needs_no_decoding_is_borrowed() {
        assert!(matches!(value(b"a=abc", "a"), Ok(Some(Cow::Borrowed(b"abc")))));
    }

    proptest! {
        #[test]
        fn reads_what_the_standard_serializer_writes(pairs in prop::collection::btree_map("\\PC{0,4}|[ab+%&=]{0,3}", "\\PC{0,8}|[ab+%&= ]{0,8}", 0..5)) {
            let form = Serializer::new(String::new()).extend_pairs(&pairs).finish();
            for (name, expected) in &pairs {
                prop_assert_eq!(text(&form, name), is(expected));
            }
            prop_assert_eq!(text(&form, "another name"), Ok(None));
        }

        #[test]
        fn reads_what_the_standard_parser_reads(form in "[ab&=+]{0,12}|([ab&=+]|%[0-9a-fA-F]{2}){0,8}", name in "[ab ]{0,2}") {
            let values: Vec<_> =
                form_urlencoded::parse(form.as_bytes()).filter(|(found, _)| *found == name).map(|(_, value)| value).collect();
            match (value(form.as_bytes(), &name), &*values) {
                (Err(error), values) => prop_assert!(error == FormError::Repeated && values.len() > 1),
                (Ok(found), values) => {
                    let found = found.map(|found| String::from_utf8_lossy(&found).into_owned());
                    prop_assert_eq!(found.as_deref(), values.first().map(|value| &**value));
                    prop_assert!(values.len() < 2);
                }
            }
        }
    }
}
