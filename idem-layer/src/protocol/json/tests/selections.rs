//! Digests of a part of a document.

use super::*;

fn pointers(texts: &[String]) -> Pointers {
    let mut pointers = Pointers::default();
    assert!(texts.iter().all(|text| pointers.add(text)), "{texts:?}");
    pointers
}

fn named(texts: &[&str]) -> Pointers {
    pointers(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

fn without(json: &str, texts: &[&str]) -> Result<[u8; 32], JsonError> {
    digest_without(json.as_bytes(), &named(texts))
}

#[test]
fn what_is_left_of_a_value_is_a_value() {
    for (json, texts, left) in [
        (r#"{"a":1,"b":{"c":2,"d":3}}"#, &["/b/c"][..], r#"{"b":{"d":3},"a":1}"#),
        (r#"{"a":1,"b":{"c":2}}"#, &["/b/c", "/a"], r#"{"b":{}}"#),
        (r#"{"a":1,"b":{"c":2}}"#, &["/b", "/b/c"], r#"{"a":1}"#),
        (r#"[[1,2],{"a":[3,4]}]"#, &["/1/a/0", "/0/1"], r#"[[1],{"a":[4]}]"#),
        // Elements are counted as they are written.
        ("[0,1,2,3,4]", &["/0", "/1", "/3"], "[2,4]"),
        (r#"[{"a":[]},{"a":[]}]"#, &["/0/a"], r#"[{},{"a":[]}]"#),
        (r#"{"0":0,"1":1}"#, &["/1", "/00"], r#"{"0":0}"#),
        // An array and an object whose last member was left out, inside of each other.
        (r#"{"a":[{"x":1,"b":2}],"c":[3]}"#, &["/a/0/b"], r#"{"a":[{"x":1}],"c":[3]}"#),
        (r#"{"a":[1,{"b":2}],"c":3}"#, &["/a/1"], r#"{"a":[1],"c":3}"#),
        (r#"{"a":1}"#, &["/b", "/a/b", "/a/0", "/"], r#"{"a":1}"#),
        ("7", &["/a"], "7"),
    ] {
        assert_eq!(without(json, texts), digest(left), "{json} {texts:?}");
    }
}

#[test]
fn what_is_left_out_must_have_a_value_too() {
    for (json, error) in [
        (r#"{"a":1,"a":2}"#, JsonError::DuplicateName),
        (r#"{"a":1,"b":2,"\u0061":1}"#, JsonError::DuplicateName),
        (r#"{"a":{"x":1,"x":1}}"#, JsonError::DuplicateName),
        (r#"{"a":[{"x":1,"x":1}],"b":1}"#, JsonError::DuplicateName),
        (r#"{"b":1,"b":1,"a":1}"#, JsonError::DuplicateName),
        (r#"{"a":tru}"#, JsonError::Invalid),
        (r#"{"a":1}}"#, JsonError::Invalid),
    ] {
        assert_eq!(without(json, &["/a"]), Err(error), "{json}");
        assert_eq!(digests_at(json.as_bytes(), &named(&["/a"])), Err(error), "{json}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert_eq!(without(&deep, &["/a"]), Err(JsonError::TooDeep));
}

#[test]
fn pointers_are_a_set_in_an_order_of_its_own() {
    let set = named(&["/b", "/a/b", "/a!", "", "/a", "/b", "/a/b"]);
    assert_eq!(set.texts().collect::<Vec<_>>(), ["", "/a", "/a/b", "/a!", "/b"]);
    assert_eq!(set.len(), 5);
    assert!(set.has_whole());
    assert!(!named(&["/", "/a"]).has_whole());
    assert!(!Pointers::default().add("a"));
}

/// The pointer to every value in a tree, the root's apart.
fn places(tree: &Tree, at: &str, all: &mut Vec<String>) {
    let members: Vec<(String, &Tree)> = match tree {
        Tree::Plain(_) | Tree::Number(_) | Tree::String(_) => return,
        Tree::Array(items) => items.iter().enumerate().map(|(i, item)| (i.to_string(), item)).collect(),
        Tree::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
    };
    for (name, value) in members {
        let place = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        places(value, &place, all);
        all.push(place);
    }
}

/// A tree without what stands at these pointers.
fn reduced(tree: &Tree, at: &str, left_out: &[String]) -> Tree {
    let keep = |name: &str, value: &Tree| {
        let place = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        (!left_out.contains(&place)).then(|| reduced(value, &place, left_out))
    };
    match tree {
        Tree::Plain(_) | Tree::Number(_) | Tree::String(_) => tree.clone(),
        Tree::Array(items) => {
            Tree::Array(items.iter().enumerate().filter_map(|(i, item)| keep(&i.to_string(), item)).collect())
        }
        Tree::Object(members) => {
            let kept = members.iter().filter_map(|(name, value)| Some((name.clone(), keep(name, value)?)));
            Tree::Object(kept.collect())
        }
    }
}

/// A tree and some of its places; one that is not there as well.
fn selections() -> impl Strategy<Value = (Tree, Vec<String>)> {
    (trees(), prop::collection::vec(any::<prop::sample::Index>(), 0..4), "(/[ab0-2]{0,2}){1,3}").prop_map(
        |(tree, chosen, other)| {
            let mut all = Vec::new();
            places(&tree, "", &mut all);
            let mut some: Vec<_> = match all.is_empty() {
                true => Vec::new(),
                false => chosen.iter().map(|index| index.get(&all).clone()).collect(),
            };
            some.push(other);
            (tree, some)
        },
    )
}

proptest! {
    #[test]
    fn a_digest_without_places_is_that_of_the_reduced_value(
        (tree, left_out) in selections(), styles in any::<[u64; 3]>(), at in any::<usize>()
    ) {
        let set = pointers(&left_out);
        let of = |tree: &Tree, style| digest_without(spelled(tree, style).as_bytes(), &set).unwrap();
        let left = reduced(&tree, "", &left_out);
        prop_assert_eq!(of(&tree, styles[0]), digest(&spelled(&left, styles[1])).unwrap());
        // Another value differs exactly where what is left of it does.
        let other = changed(&tree, at);
        let differs = reduced(&other, "", &left_out) != left;
        prop_assert_eq!(of(&tree, styles[0]) != of(&other, styles[2]), differs);
    }

    #[test]
    fn digests_at_places_are_those_of_the_texts_that_stand_there(
        (tree, chosen) in selections(), style in any::<u64>()
    ) {
        let json = spelled(&tree, style);
        let set = pointers(&chosen);
        let digests = digests_at(json.as_bytes(), &set).unwrap();
        prop_assert_eq!(digests.len(), set.len());
        for (text, found) in set.texts().zip(digests) {
            let place = Pointer::parse(text).unwrap().locate(json.as_bytes()).unwrap();
            prop_assert_eq!(found, place.map(|place| digest(&json[place]).unwrap()), "{}", text);
        }
    }

    #[test]
    fn selections_of_arbitrary_bytes_never_panic_and_fail_where_the_whole_does(
        json in "[\\[\\]{}\",:01ab]{0,24}", texts in prop::collection::vec("(/[ab0]{0,1}){0,3}", 0..4)
    ) {
        let (set, json) = (pointers(&texts), json.as_bytes());
        let whole = canonical_digest(json);
        prop_assert_eq!(digest_without(json, &set).err(), whole.err());
        prop_assert_eq!(digests_at(json, &set).err(), whole.err());
    }
}
