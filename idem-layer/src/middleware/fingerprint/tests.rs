use http::{HeaderValue, Request};

use proptest::prelude::*;

use super::*;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// Method and target, content type, body.
type Vector<'a> = (&'a str, &'a str, &'a [u8]);

fn request((line, content_type, body): Vector<'_>) -> (Target, Parts, Bytes) {
    let (method, uri) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(uri).body(()).unwrap();
    if !content_type.is_empty() {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    }
    let target = Target::new(method, request.uri().path());
    (target, request.into_parts().0, Bytes::copy_from_slice(body))
}

fn by(rules: &FingerprintRules, vector: Vector<'_>) -> Fingerprint {
    let (target, head, body) = request(vector);
    rules.of(&target, &head, &body).unwrap()
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
        let request = Request::builder().uri("/x?q").body(()).unwrap();
        enforced().of(&Target::new("POST", path), &request.into_parts().0, &Bytes::new())
    };
    assert_ne!(target("/a"), target("/b"), "the target is the client's, not the router's");
    assert_ne!(fingerprint(("POST /x?bytes", "", b"")), fingerprint(("POST /x", "", b"bytes")));
}

/// Fingerprints are stored: another digest for the same request is a new version.
#[test]
fn digests_never_change() {
    let hex = |vector| blake3::Hash::from(*fingerprint(vector).digest()).to_hex().to_string();
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
    let (target, head, body) = request(("POST /x", TEXT, b"a"));
    let request = enforced().apply(&target, &head, &body).unwrap();
    assert_eq!(request.digest(Fingerprint::VERSION).unwrap().version(), Fingerprint::VERSION);
    assert_eq!(request.digest(0), None);
    assert_eq!(request.digest(Fingerprint::VERSION + 1), None);
    assert_eq!(format!("{request:?}"), "Fingerprinted(Bytes, 1 bytes)");
    assert!(off().apply(&target, &head, &body).is_none());
}

fn json(rules: &FingerprintRules, body: &str) -> Fingerprint {
    by(rules, ("POST /x", JSON, body.as_bytes()))
}

#[test]
fn members_that_are_left_out_do_not_count_and_all_others_do() {
    let rules = observed().without(["/sent_at", "/order/note", "/lines/1"]);
    let same = [
        r#"{"id":1,"order":{"no":"A"},"lines":[1]}"#,
        r#"{"id":1,"order":{"no":"A"},"lines":[1],"sent_at":1}"#,
        r#"{"sent_at":{"deep":[1,{"a":1,"a":2}]},"lines":[1,{"x":[2]}],"order":{"note":null,"no":"A"},"id":1}"#,
        r#" {"order":{"no":"A","note":"n"},"id":1,"lines":[1,2] , "sent_at":[]}"#,
    ];
    for body in same {
        assert_eq!(json(&rules, body), json(&rules, same[0]), "{body}");
    }
    for other in [
        r#"{"id":2,"order":{"no":"A"},"lines":[1]}"#,
        r#"{"id":1,"order":{"no":"B"},"lines":[1]}"#,
        r#"{"id":1,"order":{},"lines":[1]}"#,
        r#"{"id":1,"order":{"no":"A"},"lines":[]}"#,
        r#"{"id":1,"order":{"no":"A"},"lines":[1,2,3]}"#,
        r#"{"id":1,"order":{"no":"A"},"lines":[1],"note":"n"}"#,
        r#"{"id":1,"order":{"no":"A","sent_at":1},"lines":[1]}"#,
    ] {
        assert_ne!(json(&rules, other), json(&rules, same[0]), "{other}");
    }
    // All of it, and everything but nothing, are not the same rule.
    assert_ne!(json(&enforced(), "{}"), json(&rules, "{}"));
    let all = enforced().without([""]);
    assert_eq!(json(&all, "{}"), json(&all, "[1]"));
}

#[test]
fn only_the_chosen_members_count() {
    let rules = enforced().only(["/amount", "/order/no"]);
    let same = json(&rules, r#"{"amount":1,"order":{"no":"A","x":1}}"#);
    for body in [r#"{"order":{"no":"A"},"amount": 1}"#, r#"{"amount":1,"order":{"no":"\u0041"},"y":{"b":1,"b":2}}"#] {
        assert_eq!(json(&rules, body), same, "{body}");
    }
    for other in [
        r#"{"amount":2,"order":{"no":"A"}}"#,
        r#"{"amount":1.0,"order":{"no":"A"}}"#,
        r#"{"amount":"1","order":{"no":"A"}}"#,
        r#"{"amount":1,"order":{"no":1}}"#,
        r#"{"amount":1,"order":{}}"#,
        r#"{"amount":1,"order":{"no":null}}"#,
        r#"{"amount":"A","order":{"no":1}}"#,
        r#"{"order":{"no":"A"}}"#,
        "{}",
    ] {
        assert_ne!(json(&rules, other), same, "{other}");
    }
    let reordered = enforced().only(["/order/no", "/amount", "/amount"]);
    assert_eq!(json(&reordered, r#"{"amount":1,"order":{"no":"A","x":1}}"#), same);
}

#[test]
fn what_is_not_json_counts_as_a_whole_whatever_was_chosen() {
    for rules in [enforced().only(["/a"]), enforced().without(["/b"])] {
        for (body, other) in [
            ("a=1&b=1", "a=1&b=2"),
            (r#"{"a":1,"b":1"#, r#"{"a":1,"b":2"#),
            (r#"{"a":1,"a":2,"b":1}"#, r#"{"a":1,"a":2,"b":2}"#),
            (r#"{"a":{"x":1,"x":2},"b":1}"#, r#"{"a":{"x":1,"x":2},"b":2}"#),
        ] {
            assert_ne!(json(&rules, body), json(&rules, other), "{body}");
        }
        let text = |body: &str| by(&rules, ("POST /x", TEXT, body.as_bytes()));
        assert_ne!(text(r#"{"a":1,"b":1}"#), text(r#"{"a":1,"b":2}"#));
    }
}

#[test]
fn raw_bodies_are_bytes_whatever_their_type() {
    let rules = enforced().raw();
    assert_ne!(json(&rules, "[1]"), json(&rules, "[ 1]"));
    assert_eq!(json(&rules, "[1]"), by(&rules, ("POST /x", TEXT, b"[1]")));
    assert_ne!(by(&rules, ("POST /x", "multipart/mixed", b"a")), by(&rules, ("POST /x", "multipart/mixed", b"b")));
}

#[test]
fn named_header_fields_count_with_all_their_lines() {
    let of = |rules: &FingerprintRules, fields: &[(&'static str, &'static str)]| {
        let (target, mut head, body) = request(("POST /x", TEXT, b"a"));
        for (name, value) in fields {
            head.headers.append(*name, HeaderValue::from_static(value));
        }
        rules.of(&target, &head, &body).unwrap()
    };
    let rules = enforced().header("X-Version").header("x-mode");
    let one = of(&rules, &[("x-version", "1")]);
    assert_eq!(of(&rules, &[("x-other", "2"), ("x-version", "1")]), one);
    for other in [
        &[][..],
        &[("x-version", "")],
        &[("x-version", "2")],
        &[("x-version", "1"), ("x-version", "1")],
        &[("x-mode", "1")],
        &[("x-version", "1"), ("x-mode", "")],
    ] {
        assert_ne!(of(&rules, other), one, "{other:?}");
    }
    let two = [("x-version", "1"), ("x-version", "2")];
    assert_ne!(of(&rules, &two), of(&rules, &[two[1], two[0]]));
    assert_eq!(of(&enforced().header("x-mode").header("x-version").header("x-mode"), &two), of(&rules, &two));
    assert_ne!(of(&enforced(), &[]), of(&rules, &[]));
}

#[test]
fn each_mistake_is_named() {
    let many: Vec<_> = (0..=FingerprintRules::MAX_MEMBERS).map(|n| format!("/{n}")).collect();
    assert_eq!(enforced().only(&many[1..]).check(), Ok(()));
    for (rules, mistake) in [
        (enforced().only(["a"]), LayerError::Pointer("a".into())),
        (enforced().without(["/a~2"]), LayerError::Pointer("/a~2".into())),
        (enforced().header("a b"), LayerError::HeaderName("a b".into())),
        (enforced().only(&many), LayerError::FingerprintMembers("more than 32 members are chosen")),
        (enforced().only(["/a"]).without(["/b"]), LayerError::FingerprintMembers("members are chosen twice")),
        (enforced().raw().only(["/a"]), LayerError::FingerprintMembers("bytes have no members to choose")),
    ] {
        assert_eq!(rules.check(), Err(mistake));
    }
}

#[test]
fn rules_describe_themselves() {
    let rules = observed().without(["/b", "/a"]).header("x-v");
    assert_eq!(
        format!("{rules:?}"),
        r#"FingerprintRules { mode: Observed, raw: false, members: without ["/a", "/b"], headers: ["x-v"] }"#
    );
}

/// Digests by chosen members are stored, too.
#[test]
fn digests_of_chosen_members_never_change() {
    let hex = |rules: FingerprintRules| {
        blake3::Hash::from(*json(&rules, r#"{"a":[1,"x"],"b":null}"#).digest()).to_hex().to_string()
    };
    let digests = [enforced().without(["/b"]), enforced().only(["/a", "/c"]), enforced().header("x-v")].map(hex);
    assert_eq!(
        digests,
        [
            "41a2c69d578216db0b1bbc7598d89de23f47a81aeb4db0b3e9964bb0ff38e25e",
            "893ec22142fc8ced7f067cba67dfcbd720186ef954e0d4098afee5f16a96ce03",
            "930bb07f1ce19132ba90e5508312ba602d9646d4eb730f8bcd498cc33298b182",
        ]
    );
}

proptest! {
    #[test]
    fn whatever_is_left_out_may_be_anything(
        kept in prop::collection::btree_map("[a-c]{1,2}", 0..9u8, 0..4), left in "[x-z]{0,3}|\\[1,\\{\\}\\]", at in 0..4usize, value in 0..9u8
    ) {
        let rules = enforced().without(["/out"]);
        let member = |(name, value): (&String, &u8)| format!("{name:?}:{value}");
        let plain: Vec<_> = kept.iter().map(member).collect();
        let value_of = if left.starts_with('[') { left } else { format!("{left:?}") };
        let mut with = plain.clone();
        with.insert(at.min(plain.len()), format!("\"out\":{value_of}"));
        let of = |members: &[String]| json(&rules, &format!("{{{}}}", members.join(",")));
        prop_assert_eq!(of(&plain), of(&with));

        let mut changed = kept.clone();
        changed.insert("d".into(), value);
        let changed: Vec<_> = changed.iter().map(member).collect();
        prop_assert_ne!(of(&plain), of(&changed));
    }
}
