use super::*;
use crate::protocol::Target;

/// Operation, target, scope and key all belong to the name: a difference in one of them is another record.
pub async fn identities_that_differ_in_one_part_never_meet(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let nonce = Token::mint();
    let identity = |operation: &'static str, target: Option<&str>, scope: Option<&str>, key: &str| {
        let key = Key::all_of([Key::new(nonce.as_bytes()), Key::new(key)].map(|part| part.expect("a key")));
        Identity::new(
            Operation::new(operation).expect("a name"),
            target.map(|path| Target::new("POST", path)),
            scope.map_or(Scope::unscoped(), |scope| Scope::new(scope).expect("a scope")),
            key.expect("a key"),
        )
    };
    let identities = [
        identity("pay", Some("/a"), Some("alice"), "k"),
        identity("refund", Some("/a"), Some("alice"), "k"),
        identity("pay", Some("/a/"), Some("alice"), "k"),
        identity("pay", Some("/A"), Some("alice"), "k"),
        identity("pay", None, Some("alice"), "k"),
        identity("pay", Some("/a"), Some("bob"), "k"),
        identity("pay", Some("/a"), None, "k"),
        identity("pay", Some("/a"), Some("alice:k"), "k"),
        identity("pay", Some("/a"), Some("alice"), "k:k"),
        identity("pay", Some("/a"), Some("alice"), "l"),
    ];
    assert_apart(&subject, &identities).await;
}

/// No byte of a key is folded, trimmed, cut off, or taken for something of the store's own.
pub async fn keys_are_compared_byte_for_byte(harness: impl StoreHarness) {
    let subject = Subject::new(harness);
    let nonce = Token::mint();
    let with = |rest: &[u8]| named(Key::new([nonce.as_bytes(), rest].concat()).expect("a key"));
    let long = |last: u8| with(&[&[0xfe; 230][..], &[last]].concat());
    assert!(long(0).name().len() <= Identity::MAX_NAME_BYTES, "the name of a key that is too long is its digest");
    let identities = [
        with(b""),
        with(b"k"),
        with(b"K"),
        with(b"k "),
        with(b" k"),
        with(b"k\0"),
        with(b"k\0\0"),
        with(b"k\n"),
        with(b"{k}"),
        with(b"{k"),
        with(b"k*"),
        with(b"k?"),
        with(b"k%00"),
        with(b"caf\xe9"),
        with("caf\u{e9}".as_bytes()),
        with("cafe\u{301}".as_bytes()),
        long(0),
        long(1),
    ];
    assert_apart(&subject, &identities).await;
}

/// Each is claimed by its own token, completed with its own outcome, and replays that.
async fn assert_apart<H: StoreHarness>(subject: &Subject<H>, identities: &[Identity]) {
    let of = |identity: &Identity| subject.of(identity.clone());
    let outcome = |at: usize| Completion::Replayable(Snapshot::from_bytes(vec![at as u8].into()));

    let mut tickets = Vec::new();
    for identity in identities {
        tickets.push(of(identity).claim().await);
    }
    for (at, ticket) in tickets.iter().enumerate() {
        let completion = outcome(at);
        let settlement = Settlement::Complete { completion, retention: RETENTION, remember: Duration::ZERO };
        of(&ticket.identity).settled(ticket, settlement).await;
    }
    for (at, identity) in identities.iter().enumerate() {
        let answer = of(identity).acquire(&ask()).await;
        assert_eq!(
            answer,
            Acquired::Replay { completion: outcome(at), since_ms: 2, differs: false },
            "{}",
            identity.name()
        );
    }
}
