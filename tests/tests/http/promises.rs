//! What `docs/promises.md` claims must be there to be run.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

const AREAS: [(&str, &str); 12] = [
    ("protocol", "idem-layer/src/protocol"),
    ("conformance", "idem-layer/src/testing/conformance"),
    ("memory", "idem-layer/src/store/memory"),
    ("redis", "idem-layer/src/store/redis"),
    ("stores", "tests/tests/stores"),
    ("guard", "idem-layer/src/guard"),
    ("http", "tests/tests/http"),
    ("middleware", "idem-layer/src/middleware"),
    ("functions", "tests/tests/functions.rs"),
    ("macros", "idem-macros/tests/ui.rs"),
    ("payments", "tests/tests/payments.rs"),
    ("sessions", "examples/tests/sessions"),
];

#[test]
fn every_test_that_a_promise_names_exists() {
    let tests: HashSet<String> = AREAS.iter().flat_map(|(area, place)| tests_of(area, place)).collect();
    let page = page("docs/promises.md");
    let (_, tables) = page.split_once("\n## ").expect("tables behind the legend");
    let named: Vec<_> = spans(tables).filter(|name| name.contains("::") && !name.contains("Guard::")).collect();
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/promises.md names what is no test: {missing:?}");
    assert!(named.len() > 100, "only {} tests are named: is the page still read right?", named.len());
}

#[test]
fn every_promise_has_a_state_and_none_is_kept_without_a_test() {
    let page = page("docs/promises.md");
    let rows: Vec<Vec<&str>> = page.lines().filter_map(row).filter(|cells| is_numbered(cells[0])).collect();
    for cells in &rows {
        let [id, _, state, tests] = cells[..] else { panic!("not four cells: {cells:?}") };
        match state.split(':').next() {
            Some("kept" | "in part") => assert!(tests.contains("::"), "{id} is {state}, but names no test"),
            Some("not yet") => {}
            _ => panic!("{id} has no state, but `{state}`"),
        }
    }
    let ids: Vec<_> = rows.iter().map(|cells| cells[0].to_owned()).collect();
    let topics = [("A", 5), ("B", 5), ("C", 6), ("D", 7), ("E", 2), ("F", 4), ("G", 5), ("", rules())];
    let expected = topics.iter().flat_map(|(topic, last)| (1..=*last).map(move |number| format!("{topic}{number}")));
    assert_eq!(ids, expected.collect::<Vec<_>>());
}

#[test]
fn a_test_is_found_in_whatever_folder_of_its_area_it_stands() {
    let tests = tests_of("http", "tests/tests/http");
    for name in [
        "http::safe_methods_pass_untouched",
        "http::draft_2_7_a_missing_key_is_answered_400_with_a_link",
        "http::stripe_a_key_is_optional",
    ] {
        assert!(tests.iter().any(|test| test == name), "{name}");
    }
}

/// How many rules `docs/design.md` has.
fn rules() -> usize {
    let page = page("docs/design.md");
    let (_, rules) = page.split_once("\n## Rules").expect("the rules");
    let rules = rules.split("\n## ").next().unwrap_or_default();
    let is_rule = |line: &&str| line.split_once(". **").is_some_and(|(number, _)| number.parse::<usize>().is_ok());
    rules.lines().filter(is_rule).count()
}

/// The cells of a line that is a row of a table.
fn row(line: &str) -> Option<Vec<&str>> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(line.split('|').map(str::trim).collect())
}

/// `A1`, `12`.
fn is_numbered(cell: &str) -> bool {
    let number = cell.strip_prefix(|topic: char| topic.is_ascii_uppercase()).unwrap_or(cell);
    number.parse::<usize>().is_ok()
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The functions of an area that are run as tests. Those of the conformance suite are run by `store_tests!`, all of them.
fn tests_of(area: &str, place: &str) -> Vec<String> {
    let source = source(&root().join(place));
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let Some((qualifiers, name)) = line.split_once("fn ") else { continue };
        if is_test || area == "conformance" && qualifiers == "pub async " {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            tests.push(format!("{area}::{name}"));
            is_test = false;
        }
    }
    tests
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// All Rust text of a file or folder.
fn source(place: &Path) -> String {
    if place.is_file() {
        return fs::read_to_string(place).expect("a source file");
    }
    let entries = fs::read_dir(place).unwrap_or_else(|why| panic!("{}: {why}", place.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_dir() || is_rust(path)).map(|path| source(&path)).collect()
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}
