//! What `docs/promises.md` claims must be there to be run.

use std::fs;
use std::path::Path;

const AREAS: [(&str, &str); 10] = [
    ("protocol", "idem-layer/src/protocol"),
    ("conformance", "idem-layer/src/testing/conformance"),
    ("memory", "idem-layer/src/store/memory"),
    ("stores", "tests/tests/stores.rs"),
    ("guard", "idem-layer/src/guard"),
    ("http", "tests/tests/http"),
    ("middleware", "idem-layer/src/middleware"),
    ("functions", "tests/tests/functions.rs"),
    ("payments", "tests/tests/payments.rs"),
    ("sessions", "examples/tests/sessions"),
];

#[test]
fn every_test_that_a_promise_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let promises = fs::read_to_string(root.join("docs/promises.md")).expect("the page of promises");
    let sources = AREAS.map(|(area, place)| (area, source(&root.join(place))));

    let mut named = 0;
    for name in promises.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
        let Some((area, test)) = name.split_once("::") else { continue };
        let Some((_, source)) = sources.iter().find(|(known, _)| *known == area) else {
            continue; // A type of the library, or the example of the legend.
        };
        if test != "a_test" {
            assert!(source.contains(&format!("fn {test}(")), "docs/promises.md names `{name}`, which does not exist");
            named += 1;
        }
    }
    assert!(named > 100, "only {named} tests are named: is the page still read right?");
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
