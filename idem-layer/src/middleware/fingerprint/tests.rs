use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// Method and target, content type, body.
type Vector<'a> = (&'a str, &'a str, &'a [u8]);

/// Lines of header fields.
type Fields<'a> = &'a [(&'static str, &'a [u8])];

/// A request's head and target.
fn head(line: &str, content_type: &str, fields: Fields<'_>) -> (Target, Parts) {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
    if !content_type.is_empty() {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    }
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    (Target::new(method, request.uri().path()), request.into_parts().0)
}

fn fingerprinted((line, content_type, body): Vector<'_>) -> Fingerprinted {
    let (target, head) = head(line, content_type, &[]);
    Fingerprinted::new(&enforced(), target, &head, Bytes::copy_from_slice(body)).unwrap()
}

fn by(rules: &FingerprintRules, (line, content_type, body): Vector<'_>) -> Fingerprint {
    let (target, head) = head(line, content_type, &[]);
    rules.of(&target, &head, &Bytes::copy_from_slice(body)).unwrap()
}

/// Of a JSON body.
fn of_json(rules: &FingerprintRules, body: &str) -> Fingerprint {
    by(rules, ("POST /x", JSON, body.as_bytes()))
}

/// Of a request with these fields.
fn of_fields(rules: &FingerprintRules, fields: Fields<'_>) -> Fingerprint {
    let (target, head) = head("POST /x", TEXT, fields);
    rules.of(&target, &head, &Bytes::from_static(b"hi")).unwrap()
}

fn fingerprint(vector: Vector<'_>) -> Fingerprint {
    by(&enforced(), vector)
}

#[test]
fn equal_requests_have_equal_fingerprints() {
    let pairs: &[(Vector<'_>, Vector<'_>)] = &[
        (("POST /x?a=1&b=2", TEXT, b"hi"), ("POST /x?a=1&b=2", TEXT, b"hi")),
        // Member order at depth, white space, escapes.
        (
            ("POST /x", JSON, br#"{"a":1,"b":{"c":1,"d":2}}"#),
            ("POST /x", JSON, b"{ \"b\":{\"d\":2,\"c\":1}, \"a\":1}\n"),
        ),
        (("POST /x", JSON, br#""\u00e9""#), ("POST /x", JSON, "\"é\"".as_bytes())),
        // Parameters and case of the content type; types that are JSON by their suffix.
        (("POST /x", JSON, b"[1]"), ("POST /x", "Application/JSON; charset=utf-8", b"[ 1 ]")),
        (("POST /x", JSON, b"[1]"), ("POST /x", "application/cloudevents+json", b"[ 1 ]")),
        // An upload that is retried has another boundary.
        (
            ("POST /x", "multipart/form-data; boundary=a", b"--a\r\n\r\nx\r\n--a--"),
            ("POST /x", "Multipart/Form-Data; boundary=b", b"--b\r\n\r\nx\r\n--b--"),
        ),
        // What is not JSON counts as bytes, whatever it calls itself.
        (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", TEXT, b"{\"a\":1,\"a\":2}")),
        (("POST /x", TEXT, b"a"), ("POST /x", "application/octet-stream", b"a")),
        (("POST /x", "", b"a"), ("POST /x", TEXT, b"a")),
        (("POST /x", JSON, b""), ("POST /x", "", b"")),
    ];
    for (a, b) in pairs {
        assert_eq!(fingerprint(*a), fingerprint(*b), "{a:?} {b:?}");
    }
}

#[test]
fn different_requests_have_different_fingerprints() {
    let deep = |depth: usize, leaf: &str| format!("{}{leaf}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let (deep_1, deep_2) = (deep(10_000, "1"), deep(10_000, " 1"));
    let pairs: &[(Vector<'_>, Vector<'_>)] = &[
        // Target.
        (("POST /x", TEXT, b"a"), ("PUT /x", TEXT, b"a")),
        (("POST /x", TEXT, b"a"), ("POST /y", TEXT, b"a")),
        (("POST /x", TEXT, b"a"), ("POST /x/", TEXT, b"a")),
        (("POST /x%41", TEXT, b"a"), ("POST /xA", TEXT, b"a")),
        // Query: there or not, order of names, order of a repeated name.
        (("POST /x?dry=1", TEXT, b"a"), ("POST /x", TEXT, b"a")),
        (("POST /x?", TEXT, b"a"), ("POST /x", TEXT, b"a")),
        (("POST /x?a=1&b=2", TEXT, b"a"), ("POST /x?b=2&a=1", TEXT, b"a")),
        (("POST /x?a=1&a=2", TEXT, b"a"), ("POST /x?a=2&a=1", TEXT, b"a")),
        (("POST /x?a=1", TEXT, b"b"), ("POST /x", TEXT, b"a=1b")),
        // JSON: a leaf, array order, number literals, 64-bit numbers, Unicode spellings.
        (("POST /x", JSON, b"{\"a\":1}"), ("POST /x", JSON, b"{\"a\":2}")),
        (("POST /x", JSON, b"[1,2]"), ("POST /x", JSON, b"[2,1]")),
        (("POST /x", JSON, b"1"), ("POST /x", JSON, b"1.0")),
        (("POST /x", JSON, b"1e0"), ("POST /x", JSON, b"1")),
        (("POST /x", JSON, b"0"), ("POST /x", JSON, b"-0")),
        (("POST /x", JSON, b"9007199254740993"), ("POST /x", JSON, b"9007199254740992")),
        (("POST /x", JSON, b"1E400"), ("POST /x", JSON, b"1E401")),
        (("POST /x", JSON, "\"\u{e9}\"".as_bytes()), ("POST /x", JSON, "\"e\u{301}\"".as_bytes())),
        // Not JSON: a changed byte counts. Duplicate names, half a surrogate pair, byte order mark, depth.
        (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", JSON, b"{\"a\":2,\"a\":1}")),
        (("POST /x", JSON, b"{\"a\":1,\"a\":2}"), ("POST /x", JSON, b"{\"a\":2}")),
        (("POST /x", JSON, b"\"\\ud800\""), ("POST /x", JSON, b"\"\\uD800\"")),
        (("POST /x", JSON, b"\xef\xbb\xbf1"), ("POST /x", JSON, b"\xef\xbb\xbf 1")),
        (("POST /x", JSON, b"\xef\xbb\xbf1"), ("POST /x", JSON, b"1")),
        (("POST /x", JSON, &deep_1), ("POST /x", JSON, &deep_2)),
        // Bytes.
        (("POST /x", TEXT, b"[1]"), ("POST /x", TEXT, b"[ 1]")),
        (("POST /x", TEXT, b"[1]"), ("POST /x", JSON, b"[1]")),
        (("POST /x", "text/json", b"[1]"), ("POST /x", "text/json", b"[ 1]")),
        (("POST /x", TEXT, b""), ("POST /x", "multipart/mixed; boundary=a", b"")),
    ];
    for (a, b) in pairs {
        assert_ne!(fingerprint(*a), fingerprint(*b), "{a:?} {b:?}");
    }
}

#[test]
fn a_part_cannot_pass_for_its_neighbour() {
    let target = |path: &str| {
        let (_, head) = head("POST /x?q", TEXT, &[]);
        enforced().of(&Target::new("POST", path), &head, &Bytes::new())
    };
    assert_ne!(target("/a"), target("/b"), "the target is the client's, not the router's");
    assert_ne!(fingerprint(("POST /x?bytes", "", b"")), fingerprint(("POST /x", "", b"bytes")));
}

fn hex(fingerprint: Fingerprint) -> String {
    blake3::Hash::from(*fingerprint.digest()).to_hex().to_string()
}

/// Fingerprints are stored: another digest for the same request is a new version.
#[test]
fn digests_never_change() {
    let hex = |vector| hex(fingerprint(vector));
    assert_eq!(
        hex(("POST /x?a=1", JSON, br#"{"a":[1,"x"]}"#)),
        "7cd78c02943578f4bf823cef6410ff2657e3e8a9dde6451b4a57041c49722bf3"
    );
    assert_eq!(hex(("POST /x", TEXT, b"hi")), "b7de8e8dbf18a6e96869c30cd864f3c99e68ce22b4411f767312eec0c446ab8c");
    assert_eq!(
        hex(("POST /x", "multipart/mixed", b"hi")),
        "b20bc216e967f3e28ccce05d088c658cc550765239875e55f666fec099f2e24b"
    );
}

#[test]
fn an_unknown_version_has_no_digest_here() {
    let request = fingerprinted(("POST /x", TEXT, b"a"));
    assert_eq!(request.digest(Fingerprint::VERSION).unwrap().version(), Fingerprint::VERSION);
    assert_eq!(request.digest(0), None);
    assert_eq!(request.digest(Fingerprint::VERSION + 1), None);
    assert_eq!(format!("{request:?}"), "Fingerprinted(Bytes, 1 bytes)");
}

#[test]
fn the_default_is_enforced_by_content_type() {
    let plain = fingerprint(("POST /x", JSON, b"[1]"));
    assert_eq!(by(&observed(), ("POST /x", JSON, b"[1]")), plain);
    assert!(observed().is_observed() && !enforced().is_observed() && !off().is_observed());
    let (target, head) = head("POST /x", JSON, &[]);
    assert_eq!(off().of(&target, &head, &Bytes::new()), None);
}

#[test]
fn what_is_left_out_does_not_count_and_all_else_does() {
    let without = |pointers: &[&str]| enforced().without(pointers);
    let sent_at = without(&["/sent_at"]);
    for (rules, a, b) in [
        // Another value of any type, none, another place.
        (&sent_at, r#"{"a":1,"sent_at":"9:00"}"#, r#"{"a":1,"sent_at":"9:05"}"#),
        (&sent_at, r#"{"a":1,"sent_at":"9:00"}"#, r#"{"sent_at":{"h":[9,{}]},"a":1}"#),
        (&sent_at, r#"{"a":1,"sent_at":null}"#, r#"{"a":1}"#),
        (&sent_at, r#"{"sent_at":1}"#, "{}"),
        (&sent_at, r#"{"a":1,"s\u0065nt_at":1}"#, r#"{ "a" : 1 }"#),
        // At depth, in array elements, beside each other, inside each other, array elements themselves.
        (&without(&["/a/b"]), r#"{"a":{"b":1,"c":2},"b":3}"#, r#"{"b":3,"a":{"c":2}}"#),
        (&without(&["/a/0/b"]), r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":[{},{"b":2}]}"#),
        (&without(&["/a", "/c"]), r#"{"a":1,"b":2,"c":3}"#, r#"{"c":5,"b":2,"a":4}"#),
        (&without(&["/a", "/a/b"]), r#"{"a":{"b":1,"c":2},"d":3}"#, r#"{"d":3}"#),
        (&without(&["/a/1"]), r#"{"a":[1,2]}"#, r#"{"a":[1,9]}"#),
        (&without(&["/a/1"]), r#"{"a":[1,2]}"#, r#"{"a":[1]}"#),
        (&without(&["/a/0", "/a/2"]), r#"{"a":[1,2,3,4]}"#, r#"{"a":[5,2,[],4]}"#),
        (&without(&["/a~1b~0"]), r#"{"a/b~":1,"c":2}"#, r#"{"c":2}"#),
        // No such place anywhere: all of it counts, as a value.
        (&without(&["/a/b/c", "/0"]), r#"{"a":1,"b":[2]}"#, r#"{"b":[2],"a":1}"#),
        (&sent_at, "[1]", " [ 1 ] "),
    ] {
        assert_eq!(of_json(rules, a), of_json(rules, b), "{rules:?} {a} {b}");
    }
    for (rules, a, b) in [
        (&sent_at, r#"{"a":1,"sent_at":1}"#, r#"{"a":2,"sent_at":1}"#),
        (&sent_at, r#"{"a":1,"sent_at":1}"#, r#"{"sent_at":1}"#),
        // The same name elsewhere.
        (&sent_at, r#"{"a":{"sent_at":1}}"#, r#"{"a":{"sent_at":2}}"#),
        (&sent_at, r#"{"a":{"sent_at":1}}"#, r#"{"a":{}}"#),
        (&sent_at, r#"[{"sent_at":1}]"#, r#"[{"sent_at":2}]"#),
        (&without(&["/a/b"]), r#"{"a":{"b":1}}"#, "{}"),
        (&without(&["/a/0/b"]), r#"{"a":[{"b":1},{"b":2}]}"#, r#"{"a":[{"b":1},{"b":3}]}"#),
        (&without(&["/a/1"]), r#"{"a":[1,2,3]}"#, r#"{"a":[1,2,4]}"#),
        (&without(&["/a/1"]), r#"{"a":[1,2,3]}"#, r#"{"a":[1,2]}"#),
        (&without(&["/a/01"]), r#"{"a":[1,2]}"#, r#"{"a":[1,3]}"#),
    ] {
        assert_ne!(of_json(rules, a), of_json(rules, b), "{rules:?} {a} {b}");
    }
}

#[test]
fn what_is_chosen_counts_and_nothing_else_does() {
    let only = |pointers: &[&str]| enforced().only(pointers);
    let amount = only(&["/amount"]);
    let two = only(&["/a", "/b"]);
    for (rules, a, b) in [
        (&amount, r#"{"amount":{"v":1,"c":"EUR"},"x":1}"#, r#"{"y":[2],"amount":{"c":"EUR", "v":1}}"#),
        (&amount, r#"{"amount":null,"x":1}"#, r#"{"amount":null}"#),
        (&amount, r#"{"x":1}"#, r#"{"y":{"amount":1}}"#),
        (&amount, "{}", "[1]"),
        (&only(&["/a/1/b"]), r#"{"a":[1,{"b":2,"c":3}]}"#, r#"{"a":[{},{"b":2},3]}"#),
        (&only(&[""]), r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
        (&only(&["/a", "/a/b"]), r#"{"a":{"b":1,"c":2},"d":1}"#, r#"{"a":{"c":2,"b":1}}"#),
    ] {
        assert_eq!(of_json(rules, a), of_json(rules, b), "{rules:?} {a} {b}");
    }
    for (rules, a, b) in [
        (&amount, r#"{"amount":1}"#, r#"{"amount":1.0}"#),
        (&amount, r#"{"amount":1}"#, r#"{"amount":"1"}"#),
        (&amount, r#"{"amount":null}"#, "{}"),
        (&amount, r#"{"amount":{"v":1}}"#, r#"{"amount":{"v":2}}"#),
        (&amount, r#"{"amount":[1,2]}"#, r#"{"amount":[2,1]}"#),
        (&two, r#"{"a":1}"#, r#"{"b":1}"#),
        (&two, r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
        (&two, r#"{"a":1,"b":2}"#, r#"{"a":1}"#),
        (&two, r#"{"a":[1],"b":2}"#, r#"{"a":1,"b":[2]}"#),
        (&only(&["/a/b"]), r#"{"a":{"b":1}}"#, r#"{"a":{}}"#),
        (&only(&["/a/1"]), r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
    ] {
        assert_ne!(of_json(rules, a), of_json(rules, b), "{rules:?} {a} {b}");
    }
}

/// What a selection cannot be read from is compared whole, by its bytes.
#[test]
fn nothing_is_left_out_of_what_is_not_json() {
    let deep = format!("{{\"x\":1,\"d\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for rules in [enforced().without(["/x"]), enforced().only(["/a"])] {
        for (content_type, a, b) in [
            (JSON, r#"{"a":1,"x":1"#, r#"{"a":1,"x":2"#),
            // Names that occur twice: beside what counts, in what does not, the one that is named.
            (JSON, r#"{"a":1,"x":1,"y":1,"y":1}"#, r#"{"a":1,"x":2,"y":1,"y":1}"#),
            (JSON, r#"{"a":1,"x":{"y":1,"y":1}}"#, r#"{"a":1,"x":{"y":1,"y":2}}"#),
            (JSON, r#"{"a":1,"x":1,"x":1}"#, r#"{"a":1,"x":1,"x":2}"#),
            (JSON, r#"{"a":1,"a":1,"x":1}"#, r#"{"a":1,"a":1,"x":2}"#),
            (JSON, &deep, &deep.replace('1', "2")),
            (JSON, "", " "),
            (TEXT, r#"{"a":1,"x":1}"#, r#"{"a":1,"x":2}"#),
            ("", r#"{"a":1,"x":1}"#, r#"{"x":1,"a":1}"#),
        ] {
            let (a, b) = (("POST /x", content_type, a.as_bytes()), ("POST /x", content_type, b.as_bytes()));
            assert_ne!(by(&rules, a), by(&rules, b), "{rules:?} {a:?} {b:?}");
            assert_eq!(by(&rules, a), fingerprint(a), "the same bytes are the same under all rules");
        }
        let upload = |body: &'static str| ("POST /x", "multipart/form-data", body.as_bytes());
        assert_eq!(by(&rules, upload("--a")), by(&rules, upload("--b")));
    }
}

#[test]
fn raw_bodies_are_bytes_whatever_their_type() {
    let raw = enforced().raw();
    for (content_type, a, b) in [
        (JSON, &br#"{"a":1,"b":2}"#[..], &br#"{"b":2,"a":1}"#[..]),
        (JSON, b"[1]", b"[ 1]"),
        ("multipart/form-data; boundary=a", b"--a", b"--b"),
        (TEXT, b"a", b"b"),
    ] {
        assert_ne!(by(&raw, ("POST /x", content_type, a)), by(&raw, ("POST /x", content_type, b)), "{content_type}");
        assert_eq!(by(&raw, ("POST /x", content_type, a)), by(&raw.clone().raw(), ("POST /x", content_type, a)));
        assert_eq!(by(&raw, ("POST /x", content_type, a)), by(&raw, ("POST /x", "", a)), "{content_type}");
    }
    assert_ne!(by(&raw, ("POST /x?a", TEXT, b"a")), by(&raw, ("POST /x?b", TEXT, b"a")));
    assert_ne!(by(&raw, ("POST /x", TEXT, b"a")), by(&raw, ("PUT /x", TEXT, b"a")));
}

#[test]
fn header_fields_count_line_by_line() {
    let rules = enforced().header("X-Api-Version").header("x-mode");
    let equal: &[(Fields<'_>, Fields<'_>)] = &[
        (&[], &[("x-other", b"1")]),
        (&[("x-api-version", b"1"), ("x-mode", b"t")], &[("x-mode", b"t"), ("x-api-version", b"1"), ("date", b"x")]),
        (&[("x-mode", b"\xff")], &[("x-mode", b"\xff")]),
    ];
    for (a, b) in equal {
        assert_eq!(of_fields(&rules, a), of_fields(&rules, b), "{a:?} {b:?}");
    }
    let different: &[(Fields<'_>, Fields<'_>)] = &[
        (&[("x-api-version", b"1")], &[("x-api-version", b"2")]),
        (&[("x-api-version", b"1")], &[]),
        (&[("x-api-version", b"")], &[]),
        (&[("x-api-version", b"1")], &[("x-mode", b"1")]),
        (&[("x-mode", b"a"), ("x-mode", b"b")], &[("x-mode", b"b"), ("x-mode", b"a")]),
        (&[("x-mode", b"a"), ("x-mode", b"b")], &[("x-mode", b"a, b")]),
        (&[("x-mode", b"a"), ("x-mode", b"")], &[("x-mode", b"a")]),
        (&[("x-mode", b"a")], &[("x-mode", b"A")]),
        // Values that read like the next field.
        (
            &[("x-api-version", b"header"), ("x-api-version", b"x-mode")],
            &[("x-mode", b"header"), ("x-mode", b"x-mode")],
        ),
    ];
    for (a, b) in different {
        assert_ne!(of_fields(&rules, a), of_fields(&rules, b), "{a:?} {b:?}");
    }
    let reversed = enforced().header("x-mode").header("x-api-version").header("x-mode");
    assert_eq!(of_fields(&rules, &[("x-mode", b"t")]), of_fields(&reversed, &[("x-mode", b"t")]));
    assert_ne!(of_fields(&rules, &[]), of_fields(&enforced(), &[]));
    assert_ne!(of_fields(&rules, &[]), of_fields(&enforced().header("x-mode"), &[]));
}

#[test]
fn header_fields_count_beside_any_rule_for_the_body() {
    for rules in [enforced(), enforced().raw(), enforced().only(["/a"]), enforced().without(["/b"])] {
        let rules = rules.header("x-mode");
        for content_type in [JSON, TEXT, "multipart/mixed"] {
            let of = |mode: &[u8]| {
                let (target, head) = head("POST /x", content_type, &[("x-mode", mode)]);
                rules.of(&target, &head, &Bytes::from_static(br#"{"a":1}"#))
            };
            assert_eq!(of(b"a"), of(b"a"));
            assert_ne!(of(b"a"), of(b"b"), "{rules:?} {content_type}");
        }
    }
}

#[test]
fn selections_never_meet_each_other_or_the_default() {
    // Each of them finds in each body the same: all of it, nothing, or the value 1.
    let rules = [
        enforced(),
        enforced().raw(),
        enforced().only([""]),
        enforced().only(["/a"]),
        enforced().only(["/b"]),
        enforced().only(["/0"]),
        enforced().only(["/a", "/b"]),
        enforced().without(["/a"]),
        enforced().without(["/b"]),
        enforced().without(["/a", "/b"]),
        enforced().without(["/x"]),
        enforced().without(["/x"]).header("x-mode"),
        enforced().header("x-mode"),
    ];
    let bodies = ["{}", "[]", "1", r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1,"b":1}"#, "[1]", r#"{"x":1}"#];
    let digests = rules.each_ref().map(|rules| bodies.map(|body| hex(of_json(rules, body))));
    for (i, these) in digests.iter().enumerate() {
        for (j, those) in digests.iter().enumerate().skip(i + 1) {
            let shared = these.iter().find(|digest| those.contains(digest));
            assert_eq!(shared, None, "{:?} {:?}", rules[i], rules[j]);
        }
    }
}

#[test]
fn the_order_of_names_and_repetition_make_no_difference() {
    let body = r#"{"a":1,"b":2,"c":{"d":3,"e":4}}"#;
    let digest = |rules: FingerprintRules| of_json(&rules, body);
    assert_eq!(digest(enforced().only(["/a", "/c/d"])), digest(enforced().only(["/c/d", "/a", "/a"])));
    assert_eq!(digest(enforced().only(["/a", "/c/d"])), digest(enforced().only(["/c/d"]).only(["/a"])));
    assert_eq!(digest(enforced().without(["/a", "/c/d"])), digest(enforced().without(["/c/d"]).without(["/a"])));
}

/// Stored like those of the default rules.
#[test]
fn digests_of_selections_never_change() {
    let body = r#"{"amount":{"v":1},"sent_at":null,"lines":[1,2]}"#;
    let digest = |rules: FingerprintRules| hex(of_json(&rules, body));
    assert_eq!(
        digest(enforced().only(["/amount", "/gone"])),
        "d05dcacce9eaf3765a4715ce079b4175039f9f634cb4f1f61c897bc6c1cad763"
    );
    assert_eq!(
        digest(enforced().without(["/sent_at", "/lines/0"])),
        "1e186f53126b70ac2686f0e9b6c048dbb416b1d3082c041ec67c3f26375cec4b"
    );
    assert_eq!(digest(enforced().raw()), "d4ff07a5f46db175390e97fed2ef9614e45cdf7629553683dd9ed058dfeacda0");
    let rules = enforced().header("x-mode").header("a");
    assert_eq!(
        hex(of_fields(&rules, &[("x-mode", b"t"), ("x-mode", b"u")])),
        "2b50980327b247711fa181a81f4ebb260a2a3d3e8180a8f60efa45d535a4ad7d"
    );
}

#[test]
fn mistakes_are_found_when_the_layer_is_built() {
    let many = |count: usize| (0..count).map(|i| format!("/{i}"));
    let fields = |count: usize| (0..count).fold(enforced(), |rules, i| rules.header(format!("x-{i}")));
    let pointers = LayerError::TooManyNamed { what: "pointers", limit: 32 };
    let header_fields = LayerError::TooManyNamed { what: "header fields", limit: 32 };
    for (rules, mistake) in [
        (enforced().only(["a"]), LayerError::Pointer("a".into())),
        (observed().without(["/a", "/~2"]), LayerError::Pointer("/~2".into())),
        (enforced().header("x y"), LayerError::HeaderName("x y".into())),
        (enforced().header(""), LayerError::HeaderName(String::new())),
        (enforced().only(Vec::<String>::new()), LayerError::NoPointer),
        (enforced().without(Vec::<String>::new()), LayerError::NoPointer),
        (enforced().without(["/a", ""]), LayerError::WithoutBody),
        (enforced().only(["/a"]).without(["/b"]), LayerError::TwoSelections),
        (enforced().without(["/a"]).only(["/b"]), LayerError::TwoSelections),
        (enforced().raw().only(["/a"]), LayerError::TwoSelections),
        (enforced().raw().without(["/a"]), LayerError::TwoSelections),
        (enforced().only(["/a"]).raw(), LayerError::TwoSelections),
        (enforced().only(many(33)), pointers.clone()),
        (enforced().without(many(20)).without(many(33)), pointers),
        (fields(33), header_fields),
        (off().raw(), LayerError::OffWithRules),
        (off().only(["/a"]), LayerError::OffWithRules),
        (off().header("x-mode"), LayerError::OffWithRules),
        // The first one is told.
        (enforced().header("x y").only(["a"]), LayerError::HeaderName("x y".into())),
    ] {
        assert_eq!(rules.check(), Err(mistake), "{rules:?}");
    }
    for rules in [
        enforced(),
        observed(),
        off(),
        enforced().raw().raw().header("x-mode"),
        observed().only(["", "/a"]),
        enforced().only(many(32)).only(many(32)),
        enforced().without(many(32)),
        fields(32),
    ] {
        assert_eq!(rules.check(), Ok(()), "{rules:?}");
    }
}

#[test]
fn rules_are_shown_as_they_were_built() {
    let rules = observed().without(["/b", "/a"]).header("X-Mode");
    assert_eq!(format!("{rules:?}"), r#"Observed.Without(["/a", "/b"]).Header("x-mode")"#);
    assert_eq!(format!("{:?}", off()), "Off");
}

/// An object of these members, in this order.
fn object(members: &[(String, i64)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", members.join(","))
}

proptest! {
    #[test]
    fn only_what_counts_decides(
        counted in prop::collection::btree_map("[a-m]{1,3}", any::<i64>(), 1..6),
        ignored in prop::collection::btree_map("[n-z]{1,3}", any::<i64>(), 1..6),
        others in prop::collection::btree_map("[n-z]{1,3}", any::<i64>(), 0..6),
        (shuffled, at) in (any::<u64>(), any::<prop::sample::Index>()),
    ) {
        let counted: Vec<_> = counted.into_iter().collect();
        let first: Vec<_> = counted.iter().cloned().chain(ignored.clone()).collect();
        // What is ignored is changed, taken away and added to; the order is another one.
        let mut again: Vec<_> = counted.iter().cloned().chain(others.clone()).collect();
        let by = shuffled as usize % again.len();
        again.rotate_left(by);
        let mut changed = again.clone();
        let name = at.get(&counted).0.clone();
        changed.iter_mut().find(|member| member.0 == name).unwrap().1 ^= 1;
        let without_it: Vec<_> = again.iter().filter(|member| member.0 != name).cloned().collect();

        let names = |names: Vec<&String>| names.into_iter().map(|name| format!("/{name}")).collect::<Vec<_>>();
        let only = enforced().only(names(counted.iter().map(|(name, _)| name).collect()));
        let without = enforced().without(names(ignored.keys().chain(others.keys()).collect()));
        for rules in [only, without] {
            let of = |members: &[_]| of_json(&rules, &object(members));
            prop_assert_eq!(rules.check(), Ok(()));
            prop_assert_eq!(of(&first), of(&again));
            prop_assert_ne!(of(&first), of(&changed));
            prop_assert_ne!(of(&first), of(&without_it));
        }
    }

    #[test]
    fn arbitrary_requests_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..60), value in "[ -~]{0,8}", pointer in "(/[a0]{0,2}){0,3}"
    ) {
        for rules in [enforced(), enforced().raw(), enforced().only([&pointer]), enforced().without([&pointer])] {
            let rules = rules.header("x-mode");
            let (target, head) = head("POST /x", JSON, &[("x-mode", value.as_bytes())]);
            prop_assert!(rules.of(&target, &head, &Bytes::copy_from_slice(&body)).is_some());
        }
    }
}
