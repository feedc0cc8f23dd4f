use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

type Extracted = Result<Option<Key>, ExtractError>;

fn with(fields: &[(&'static str, &[u8])]) -> Parts {
    let mut request = Request::new(());
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    request.into_parts().0
}

fn from_header(fields: &[(&'static str, &[u8])]) -> Extracted {
    header("Idempotency-Key").extract(&with(fields), None)
}

fn from_body(source: &KeySource, body: &str) -> Extracted {
    source.extract(&with(&[]), Some(&Bytes::copy_from_slice(body.as_bytes())))
}

fn key(text: &str) -> Extracted {
    Ok(Some(Key::new(text).unwrap()))
}

fn refused(error: KeyError) -> Extracted {
    Err(ExtractError::Key(error))
}

#[test]
fn a_header_is_one_line_or_no_key() {
    assert_eq!(from_header(&[]), Ok(None));
    assert_eq!(from_header(&[("x-other", b"a")]), Ok(None));
    assert_eq!(from_header(&[("idempotency-key", b"abc")]), key("abc"));
    assert_eq!(from_header(&[("idempotency-key", b"\"abc\"")]), key("abc"));
    for (fields, error) in [
        (&[("idempotency-key", &b""[..])][..], KeyError::Empty),
        (&[("idempotency-key", b"  ")], KeyError::Empty),
        (&[("idempotency-key", b"\"\"")], KeyError::Empty),
        (&[("idempotency-key", &[b'k'; 256])], KeyError::TooLong),
        (&[("idempotency-key", b"caf\xc3\xa9")], KeyError::Character),
        (&[("idempotency-key", b"a, a")], KeyError::Character),
        (&[("idempotency-key", b"\"a")], KeyError::Malformed),
        (&[("idempotency-key", b"a"), ("idempotency-key", b"a")], KeyError::Repeated),
        (&[("idempotency-key", b""), ("idempotency-key", b"a")], KeyError::Repeated),
    ] {
        assert_eq!(from_header(fields), refused(error), "{fields:?}");
    }
}

#[test]
fn a_json_key_is_a_string_or_the_digits_of_a_number() {
    let id = json("/id");
    for (body, expected) in [
        (r#"{"id":"a"}"#, key("a")),
        (r#"{"id":"\u0061"}"#, key("a")),
        (r#"{"id":"ключ 1"}"#, key("ключ 1")),
        (r#"{"id":7773749793478223190}"#, key("7773749793478223190")),
        (r#"{"id":"7773749793478223190"}"#, key("7773749793478223190")),
        (r#"{"id":123456789012345678901234567890}"#, key("123456789012345678901234567890")),
        (r#"{"id":0}"#, key("0")),
        (r#"{"id":1.0}"#, key("1.0")),
        (r#"{"id":1e2}"#, key("1e2")),
        (r#"{}"#, Ok(None)),
        (r#"[]"#, Ok(None)),
        (r#""id""#, Ok(None)),
        (r#"{"id":null}"#, Ok(None)),
        (r#"{"ID":"a"}"#, Ok(None)),
        (r#"{"id":""}"#, refused(KeyError::Empty)),
        (r#"{"id":" \t"}"#, refused(KeyError::Empty)),
        (r#"{"id":"a\r\nb"}"#, refused(KeyError::Character)),
        (r#"{"id":"a\u0000"}"#, refused(KeyError::Character)),
        (r#"{"id":"a","id":"b"}"#, refused(KeyError::Repeated)),
        (r#"{"id":true}"#, Err(ExtractError::NotAKey)),
        (r#"{"id":["a"]}"#, Err(ExtractError::NotAKey)),
        (r#"{"id":{}}"#, Err(ExtractError::NotAKey)),
        (r#"{"id":"a""#, Err(ExtractError::NotJson)),
        (r#"id=a"#, Err(ExtractError::NotJson)),
        ("", Err(ExtractError::NotJson)),
    ] {
        assert_eq!(from_body(&id, body), expected, "{body}");
    }
    assert_eq!(from_body(&id, &format!(r#"{{"id":"{}"}}"#, "€".repeat(86))), refused(KeyError::TooLong));
    assert_eq!(from_body(&id, &format!(r#"{{"id":{}}}"#, "9".repeat(256))), refused(KeyError::TooLong));
}

#[test]
fn a_key_is_never_made_of_half_its_parts() {
    let source = all_of([json("/a"), json("/b")]);
    assert_eq!(from_body(&source, r#"{"a":"x"}"#), Ok(None));
    assert_eq!(from_body(&source, r#"{"b":"x"}"#), Ok(None));
    assert_eq!(from_body(&source, r#"{"a":null,"b":"x"}"#), Ok(None));
    assert_eq!(from_body(&source, r#"{}"#), Ok(None));
    assert_eq!(from_body(&source, r#"{"a":"x","b":""}"#), refused(KeyError::Empty));
    assert_eq!(from_body(&source, r#"{"b":""}"#), refused(KeyError::Empty));

    let whole = |body| from_body(&source, body).unwrap().unwrap();
    assert_eq!(whole(r#"{"a":"x","b":1}"#), whole(r#"{"b":"1","a":"x"}"#));
    assert_ne!(whole(r#"{"a":"x","b":"y"}"#), whole(r#"{"a":"y","b":"x"}"#));
    assert_ne!(whole(r#"{"a":"x,y","b":"z"}"#), whole(r#"{"a":"x","b":"y,z"}"#));
}

#[test]
fn the_first_source_that_has_a_key_decides_and_a_broken_one_is_not_skipped() {
    let source = first_of([header("idempotency-key"), json("/id")]);
    let body = Some(Bytes::from_static(br#"{"id":"b"}"#));
    let extract = |fields: &[(&'static str, &[u8])]| source.extract(&with(fields), body.as_ref());
    assert_eq!(extract(&[("idempotency-key", b"a")]), key("a"));
    assert_eq!(extract(&[]), key("b"));
    assert_eq!(extract(&[("idempotency-key", b"b")]), extract(&[]));
    assert_eq!(extract(&[("idempotency-key", b"")]), refused(KeyError::Empty));
    assert_eq!(from_body(&source, r#"{"id":""}"#), refused(KeyError::Empty));
    assert_eq!(from_body(&source, "{}"), Ok(None));
    assert_eq!(source.extract(&with(&[("idempotency-key", b"a")]), Some(&Bytes::from_static(b"not json"))), key("a"));
}

#[test]
fn code_can_be_a_source() {
    let source = from_fn(|parts, body| if parts.uri.path() == "/" { Key::new(body).map(Some) } else { Ok(None) });
    assert_eq!(from_body(&source, "k"), key("k"));
    assert_eq!(from_body(&source, ""), refused(KeyError::Empty));
    assert_eq!(
        from_body(&all_of([source, json("/id")]), r#"{"id":1}"#).unwrap().unwrap().text(),
        "%7B%22id%22%3A1%7D,1"
    );
}

#[test]
fn a_source_says_whether_it_needs_the_body() {
    assert!(!header("a").needs_body());
    assert!(!first_of([header("a"), header("b")]).needs_body());
    assert!(json("/a").needs_body());
    assert!(from_fn(|_, _| Ok(None)).needs_body());
    assert!(all_of([header("a"), first_of([header("b"), json("/c")])]).needs_body());
    assert_eq!(json("/a").extract(&with(&[]), None), Err(ExtractError::NotJson));
}

#[test]
fn mistakes_are_found_when_the_layer_is_built() {
    assert_eq!(header("x y").check(), Err(LayerError::HeaderName("x y".into())));
    assert_eq!(header("").check(), Err(LayerError::HeaderName(String::new())));
    assert_eq!(json("id").check(), Err(LayerError::Pointer("id".into())));
    assert_eq!(all_of([]).check(), Err(LayerError::NoKeySource));
    assert_eq!(first_of([header("a"), all_of([json("/a"), json("~")])]).check(), Err(LayerError::Pointer("~".into())));
    assert_eq!(first_of([header("A-b"), all_of([json(""), json("/a/0")])]).check(), Ok(()));
}

#[test]
fn a_query_or_form_has_one_value_of_a_name() {
    let from_query = |text: &str| {
        let parts = Request::post(format!("/x{text}")).body(()).unwrap().into_parts().0;
        query("id").extract(&parts, None)
    };
    let form = form("id");
    for (pairs, expected) in [
        ("", Ok(None)),
        ("other=1", Ok(None)),
        ("ID=1", Ok(None)),
        ("id=a%20b+c%2Bd", key("a b c+d")),
        ("x=1&%69d=7", key("7")),
        ("id=%E2%82%AC", key("€")),
        ("id=", refused(KeyError::Empty)),
        ("id", refused(KeyError::Empty)),
        ("id=+%20", refused(KeyError::Empty)),
        ("id=a%00", refused(KeyError::Character)),
        ("id=a%0D%0Ab", refused(KeyError::Character)),
        ("id=%ff", refused(KeyError::Character)),
        ("id=%C3", refused(KeyError::Character)),
        ("id=1&id=1", refused(KeyError::Repeated)),
        ("id=&id=1", refused(KeyError::Repeated)),
    ] {
        assert_eq!(from_query(&format!("?{pairs}")), expected, "{pairs}");
        assert_eq!(from_body(&form, pairs), expected, "{pairs}");
    }
    assert_eq!(from_query(""), Ok(None));
    for malformed in ["id=%", "id=%4", "id=%zz", "id=1&other=100%", "%=&id=1"] {
        assert_eq!(from_query(&format!("?{malformed}")), Err(ExtractError::Escape("query")), "{malformed}");
        assert_eq!(from_body(&form, malformed), Err(ExtractError::NotAForm), "{malformed}");
    }
    assert_eq!(from_body(&form, &format!("id={}", "k".repeat(256))), refused(KeyError::TooLong));
    assert_eq!(from_body(&form, r#"{"id":"a"}"#), Ok(None));
}

#[test]
fn one_rule_is_for_the_text_of_every_source() {
    for (text, error) in [
        ("", KeyError::Empty),
        ("\u{a0} ", KeyError::Empty),
        ("a\u{7f}", KeyError::Character),
        ("\u{85}a", KeyError::Character),
    ] {
        let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let parts = Request::post(format!("/{escaped}?id={escaped}")).body(()).unwrap().into_parts().0;
        let body = |body: String| Some(Bytes::from(body));
        assert_eq!(query("id").extract(&parts, None), refused(error), "{text:?}");
        assert_eq!(path("/{id}").extract(&parts, None), refused(error), "{text:?}");
        assert_eq!(form("id").extract(&parts, body(format!("id={escaped}")).as_ref()), refused(error), "{text:?}");
        assert_eq!(
            json("/id").extract(&parts, body(format!("{{\"id\":\"{text}\"}}")).as_ref()),
            refused(error),
            "{text:?}"
        );
    }
}

#[test]
fn the_same_text_is_the_same_key_wherever_it_is_read() {
    let parts = Request::post("/k%201?id=k+1").header("x-key", "\"k 1\"").body(()).unwrap().into_parts().0;
    let find = |source: KeySource, body: &'static str| source.extract(&parts, Some(&Bytes::from(body)));
    assert_eq!(find(header("x-key"), ""), key("k 1"));
    assert_eq!(find(query("id"), ""), key("k 1"));
    assert_eq!(find(path("/{id}"), ""), key("k 1"));
    assert_eq!(find(form("id"), "id=k%201"), key("k 1"));
    assert_eq!(find(json("/id"), r#"{"id":"k 1"}"#), key("k 1"));
    assert_eq!(find(first_of([header("x-other"), json("/id")]), r#"{"id":"k 1"}"#), find(header("x-key"), ""));
}

#[derive(Clone)]
struct Verified(Option<&'static str>);

#[test]
fn an_extension_has_a_key_or_none() {
    let source = extension(|verified: &Verified| verified.0);
    let find = |extension: Option<Verified>| {
        let mut parts = with(&[]);
        extension.map(|extension| parts.extensions.insert(extension));
        source.extract(&parts, None)
    };
    assert_eq!(find(None), Ok(None));
    assert_eq!(find(Some(Verified(None))), Ok(None));
    assert_eq!(find(Some(Verified(Some("e-1")))), key("e-1"));
    assert_eq!(find(Some(Verified(Some("")))), refused(KeyError::Empty));
    assert!(format!("{source:?}").ends_with("Verified)"), "{source:?}");
}

#[test]
fn a_digest_is_of_the_values_that_were_chosen() {
    let source = digest(["/order", "/amount"]);
    let of = |body: &str| from_body(&source, body);
    let first = of(r#"{"order":{"no":"o-1","lines":[1,2]},"amount":7,"sent_at":1}"#).unwrap().unwrap();
    assert!(first.text().starts_with('#'), "{}", first.text());
    let same = r#"{ "sent_at":2, "amount":7, "order" : {"lines":[ 1, 2 ], "no":"\u006f-1"}, "a":1, "a":2 }"#;
    assert_eq!(of(same).unwrap().unwrap(), first);
    for other in [
        r#"{"order":{"no":"o-1","lines":[2,1]},"amount":7}"#,
        r#"{"order":{"no":"o-2","lines":[1,2]},"amount":7}"#,
        r#"{"order":{"no":"o-1","lines":[1,2]},"amount":"7"}"#,
        r#"{"order":{"no":"o-1","lines":[1,2]},"amount":7.0}"#,
        r#"{"order":7,"amount":{"no":"o-1","lines":[1,2]}}"#,
    ] {
        assert_ne!(of(other).unwrap().unwrap(), first, "{other}");
    }
    for any in ["true", "[]", "{}", "\"\"", "0"] {
        assert!(of(&format!(r#"{{"order":{any},"amount":{any}}}"#)).unwrap().is_some(), "{any}");
    }
    for absent in [r#"{"order":1}"#, r#"{"order":1,"amount":null}"#, r#"{"amount":1}"#, "{}", "[]", "1"] {
        assert_eq!(of(absent), Ok(None), "{absent}");
    }
    for twice in [
        r#"{"order":1,"order":1,"amount":1}"#,
        r#"{"order":{"a":1,"a":1},"amount":1}"#,
        r#"{"order":{"a":[{"b":1,"b":2}]}}"#,
        r#"{"amount":1,"amount":2}"#,
    ] {
        assert_eq!(of(twice), refused(KeyError::Repeated), "{twice}");
    }
    let deep = format!(r#"{{"order":{}1{},"amount":1}}"#, "[".repeat(200), "]".repeat(200));
    for invalid in ["", "order=1", r#"{"order":1,"amount":1} x"#, &deep] {
        assert_eq!(of(invalid), Err(ExtractError::NotJson), "{invalid}");
    }
    // Where a value stands counts, not only which values there are.
    let both = r#"{"a":1,"b":1}"#;
    assert_ne!(from_body(&digest(["/a"]), both), from_body(&digest(["/b"]), both));
    assert_ne!(from_body(&digest(["/a", "/b"]), both), from_body(&digest(["/b", "/a"]), both));
}

#[test]
fn the_key_of_a_digest_never_changes() {
    let found = from_body(&digest(["/order_no", "/lines"]), r#"{"order_no":"o-1","lines":[{"sku":1}]}"#);
    assert_eq!(found.unwrap().unwrap().text(), "#bb1136feda531ade9f13e224266d304c69bb63a91bbfb21732462ac59db73323");
}

#[test]
fn two_equal_orders_are_two_by_a_factor_of_the_client() {
    let source = all_of([digest(["/item"]), optional(header("x-factor"))]);
    let body = Some(Bytes::from_static(br#"{"item":1}"#));
    let find = |fields: &[(&'static str, &[u8])]| source.extract(&with(fields), body.as_ref()).unwrap().unwrap();
    let [none, one, two] = [find(&[]), find(&[("x-factor", b"1")]), find(&[("x-factor", b"2")])];
    assert!(none != one && one != two && two != none);
    assert_eq!(find(&[("x-factor", b"\"1\"")]), one);
    assert_eq!(
        none.text(),
        format!("{},~", digest(["/item"]).extract(&with(&[]), body.as_ref()).unwrap().unwrap().text())
    );
}

#[test]
fn an_optional_part_has_a_position_of_its_own() {
    let source = all_of([optional(json("/a")), optional(json("/b"))]);
    let found = |body| from_body(&source, body).unwrap().map(|key| key.text().into_owned());
    assert_eq!(found(r#"{"a":"x","b":"y"}"#).as_deref(), Some("x,y"));
    assert_eq!(found(r#"{"a":"x"}"#).as_deref(), Some("x,~"));
    assert_eq!(found(r#"{"b":"x"}"#).as_deref(), Some("~,x"));
    assert_eq!(found(r#"{"a":"~","b":"x"}"#).as_deref(), Some("%7E,x"));
    assert_eq!(found(r#"{"a":null}"#), None);
    assert_eq!(from_body(&source, r#"{"a":"x","b":""}"#), refused(KeyError::Empty));

    let mandatory = all_of([json("/a"), optional(json("/b"))]);
    assert_eq!(from_body(&mandatory, r#"{"b":"x"}"#), Ok(None));
    assert_eq!(from_body(&mandatory, r#"{"b":""}"#), refused(KeyError::Empty));
}

/// Parts without a bracket met: `a` of the first behind nothing, and of the second before nothing, had one name.
#[test]
fn a_part_of_changing_size_never_runs_into_its_neighbour() {
    let pair = |first: &str, second: &str| all_of([optional(json(first)), optional(json(second))]);
    let source = all_of([optional(pair("/a", "/b")), optional(pair("/c", "/d"))]);
    let found = |body: &str| from_body(&source, body).unwrap().unwrap().text().into_owned();
    assert_eq!(found(r#"{"b":"x"}"#), "(~,x),~");
    assert_eq!(found(r#"{"c":"x"}"#), "~,(x,~)");

    let either = |one: &str, two: [&str; 2]| first_of([json(one), all_of(two.map(json))]);
    let source = all_of([either("/a", ["/b", "/c"]), either("/d", ["/e", "/f"])]);
    let found = |body: &str| from_body(&source, body).unwrap().unwrap().text().into_owned();
    assert_eq!(found(r#"{"a":"x","e":"y","f":"z"}"#), "x,(y,z)");
    assert_eq!(found(r#"{"b":"x","c":"y","d":"z"}"#), "(x,y),z");
    assert_eq!(from_body(&source, r#"{"a":"x"}"#), Ok(None));

    // One whose size is fixed has no bracket, however deep.
    let fixed = all_of([all_of([json("/a"), all_of([json("/b")])]), first_of([json("/c"), json("/d")])]);
    assert_eq!(from_body(&fixed, r#"{"a":"x","b":"y","d":"z"}"#).unwrap().unwrap().text(), "x,y,z");
}

#[test]
fn rules_narrow_any_source_down() {
    let uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    let find = |source: &KeySource, value: &str| {
        source.extract(&with_value(value), Some(&Bytes::from(format!("{{\"id\":\"{value}\"}}"))))
    };
    for source in [
        header("x-key").uuid(),
        json("/id").uuid(),
        first_of([header("x-none"), json("/id")]).uuid(),
        json("/id").length(1..).uuid(),
    ] {
        assert_eq!(find(&source, uuid), key(uuid), "{source:?}");
        assert_eq!(find(&source, &uuid.to_uppercase()), key(&uuid.to_uppercase()), "{source:?}");
        assert_eq!(find(&source, "abc"), Err(Expected::Uuid.into()), "{source:?}");
    }
    let both = all_of([header("x-key"), json("/id"), optional(query("none"))])
        .length(4..=8)
        .chars("a and b", |c| "ab".contains(c));
    assert!(find(&both, "abab").unwrap().is_some());
    assert_eq!(find(&both, "a"), Err(Expected::LengthBetween(4, 8).into()));
    assert_eq!(find(&both, "ababa"), Err(Expected::LengthBetween(4, 8).into()));
    assert_eq!(find(&both, "abc"), Err(Expected::Chars("a and b").into()));
    // What a rule is not about stays: an absent key breaks none.
    assert_eq!(json("/none").uuid().extract(&with(&[]), Some(&Bytes::from_static(b"{}"))), Ok(None));
    let factor = all_of([digest(["/id"]), optional(header("x-key").length(3..))]).chars("letters", char::is_alphabetic);
    assert!(find(&factor, "abc").unwrap().is_some());
    assert_eq!(find(&factor, "ab"), Err(Expected::LengthBetween(3, 255).into()));
    assert_eq!(find(&factor, "ab1"), Err(Expected::Chars("letters").into()));
}

fn with_value(value: &str) -> Parts {
    Request::post("/").header("x-key", value).body(()).unwrap().into_parts().0
}

#[test]
fn quotes_are_asked_of_every_header_of_a_source_and_of_nothing_else() {
    let body = Bytes::from_static(br#"{"id":"abc"}"#);
    for source in [
        header("x-key").quoted(),
        first_of([header("x-key"), json("/id")]).quoted(),
        all_of([optional(header("x-key")), json("/id")]).quoted(),
        all_of([optional(header("x-key")).quoted(), json("/id")]),
        header("x-key").length(3..).quoted(),
    ] {
        let find = |value| source.extract(&with_value(value), Some(&body));
        assert_eq!(find("abc"), refused(KeyError::Unquoted), "{source:?}");
        assert!(find("\"abc\"").unwrap().is_some(), "{source:?}");
        assert_eq!(source.check(), Ok(()));
    }
    let without = first_of([header("x-key"), json("/id")]).quoted();
    assert_eq!(without.extract(&with(&[]), Some(&body)), key("abc"));
}

#[test]
fn what_is_found_is_public_and_refused_as_the_request_would_be() {
    let source = first_of([header("x-key"), form("id")]);
    let find = |value: Option<&str>, body: &'static str| {
        source.find(&value.map_or_else(|| with(&[]), with_value), &Bytes::from_static(body.as_bytes()))
    };
    assert_eq!(find(Some("a"), "id=%").unwrap(), key("a").unwrap());
    assert_eq!(find(None, "id=b").unwrap(), key("b").unwrap());
    assert_eq!(find(None, "").unwrap(), None);
    assert_eq!(find(None, "id=%").unwrap_err().code(), "body-malformed");
    assert_eq!(find(None, "id=").unwrap_err().code(), "key-malformed");
    assert_eq!(header("x y").find(&with(&[]), &Bytes::new()).unwrap(), None);
}

#[test]
fn no_key_is_in_an_answer_or_a_debug_text() {
    let refused = header("x-key").uuid().find(&with_value("secret"), &Bytes::new()).unwrap_err();
    let answer = refused.response();
    assert!(!String::from_utf8_lossy(answer.body()).contains("secret"));
    let shown = format!("{:?}", all_of([header("x-key").quoted().uuid(), path("/{a}"), digest(["/b"])]));
    assert!(shown.contains("header(x-key).quoted() a UUID"), "{shown}");
}

#[expect(clippy::reversed_empty_ranges, reason = "the mistake that is shown")]
#[test]
fn each_mistake_of_a_description_has_an_error_of_its_own() {
    for (source, mistake) in [
        (query(""), LayerError::EmptyName("the name of a query parameter")),
        (form(""), LayerError::EmptyName("the name of a form field")),
        (path("orders/{no}"), LayerError::PathTemplate("orders/{no}".into())),
        (path("/orders/{no"), LayerError::PathTemplate("/orders/{no".into())),
        (path("/orders"), LayerError::NoCapture("/orders".into())),
        (digest([""; 0]), LayerError::NoPointer),
        (digest(["/a", "b"]), LayerError::Pointer("b".into())),
        (json("/id").quoted(), LayerError::QuotedWithoutHeader),
        (header("x y").quoted(), LayerError::HeaderName("x y".into())),
        (header("x y").uuid(), LayerError::HeaderName("x y".into())),
        (header("x").length(65..=64), LayerError::KeyLength),
        (header("x").length(..=300), LayerError::KeyLength),
        (header("x").chars("", |_| true), LayerError::EmptyName("what a key's characters are")),
        (digest(["/a"]).length(1..), LayerError::RuleOnDigest),
        (all_of([optional(digest(["/a"]))]).uuid(), LayerError::RuleOnDigest),
        (optional(header("x")), LayerError::MisplacedOptional),
        (first_of([optional(header("x"))]), LayerError::MisplacedOptional),
        (all_of([optional(optional(header("x")))]), LayerError::MisplacedOptional),
        (all_of([optional(header("x y"))]), LayerError::HeaderName("x y".into())),
        (all_of([]).uuid(), LayerError::NoKeySource),
    ] {
        assert_eq!(source.check(), Err(mistake));
    }
    let all = all_of([
        optional(header("x").quoted().uuid()),
        query("a").length(1..=64),
        path("/{a}/{b}"),
        first_of([form("a").chars("letters", char::is_alphabetic), digest([""])]),
        extension(|verified: &Verified| verified.0),
    ]);
    assert_eq!(all.check(), Ok(()));
}

/// Every kind of source, alone and composed.
fn sources() -> Vec<KeySource> {
    let single = || {
        vec![
            header("x-key"),
            header("x-key").quoted(),
            query("id"),
            form("id"),
            path("/{a}"),
            path("/a/{b}/{c}"),
            json("/id"),
            json("/a/0"),
            digest(["/id"]),
            digest(["/a", ""]),
            extension(|verified: &Verified| verified.0),
            from_fn(|_, body| Key::new(body).map(Some)),
        ]
    };
    let mut all = single();
    all.push(first_of(single()).length(1..=64).chars("letters", char::is_alphabetic));
    all.push(all_of(single().into_iter().map(optional)).length(1..=64).chars("letters", char::is_alphabetic));
    all.push(json("/id").uuid());
    all
}

proptest! {
    #[test]
    fn arbitrary_requests_never_panic(
        target in "/[a-z/{}%0-9?&=+]{0,20}",
        value in prop::collection::vec(prop_oneof![0x20..0x7fu8, 0x80..=0xffu8, Just(b'"')], 0..20),
        body in prop::collection::vec(prop_oneof![prop::sample::select(b"id=&%+{}[]\":,a0".to_vec()), any::<u8>()], 0..40),
    ) {
        let mut request = Request::new(());
        if let Ok(target) = target.parse() {
            *request.uri_mut() = target;
        }
        request.headers_mut().insert("x-key", HeaderValue::from_bytes(&value).unwrap());
        let (parts, ()) = request.into_parts();
        let body = Bytes::from(body);
        for source in sources() {
            let found = source.find(&parts, &body);
            prop_assert!(found.as_ref().is_ok_and(|key| key.as_ref().is_none_or(|key| (1..=255).contains(&key.length())))
                || found.is_err_and(|refused| refused.status() == 400));
        }
    }

    #[test]
    fn requests_with_different_parts_never_have_one_key(a in tuples(), b in tuples()) {
        let source = all_of([
            optional(query("a")),
            optional(all_of([optional(query("b")), optional(query("c"))])),
            first_of([query("d"), all_of([query("e"), optional(query("f"))]), from_fn(|_, _| Key::new("none").map(Some))]),
        ]);
        let find = |tuple: &[Option<String>; 6]| {
            let pairs = "abcdef".chars().zip(tuple).filter_map(|(name, value)| Some((name.to_string(), value.as_ref()?)));
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
            source.find(&Request::post(format!("/?{query}")).body(()).unwrap().into_parts().0, &Bytes::new()).unwrap()
        };
        // What is not read does not count.
        let read = |[a, b, c, d, e, f]: [Option<String>; 6]| match (&d, &e) {
            (Some(_), _) => [a, b, c, d, None, None],
            (None, Some(_)) => [a, b, c, d, e, f],
            (None, None) => [a, b, c, Some("none".to_owned()), None, None],
        };
        prop_assert_eq!(find(&a) == find(&b), read(a) == read(b));
    }
}

/// Values that could be taken for an encoding, or for each other.
fn tuples() -> impl Strategy<Value = [Option<String>; 6]> {
    let value = || prop::option::of("[~#,()%]|%7E|none|x");
    [value(), value(), value(), value(), value(), value()]
}
