//! Each mistake has a program that makes it, and the words that the compiler must find for it. The pairs live here and not
//! with the other tests, because every crate that a program could use is compiled once more for them.
//!
//! `TRYBUILD=overwrite cargo test -p idem-macros --test ui` writes the words down anew.

#[test]
fn each_mistake_is_reported_on_its_own_token() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
