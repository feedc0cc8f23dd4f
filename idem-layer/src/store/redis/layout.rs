use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use thiserror::Error;

use crate::protocol::{Identity, Life, Phase, Record, State};

/// Why text cannot be the prefix of a store's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisPrefixError {
    /// Longer than 64 bytes.
    #[error("a prefix is at most 64 bytes long")]
    TooLong,
    /// A character that is not allowed. Braces would put every record of the store into one slot of a cluster.
    #[error("a prefix is made of the characters A-Z a-z 0-9 . _ - / :")]
    Character,
    /// Without a colon at its end the keys of two prefixes could be the same.
    #[error("a prefix ends with a colon")]
    NoColon,
}

/// What every key of a store begins with.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Prefix(Box<str>);

impl Prefix {
    pub(super) fn new(prefix: &str) -> Result<Self, RedisPrefixError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/:".contains(&b);
        if prefix.len() > 64 {
            return Err(RedisPrefixError::TooLong);
        }
        if !prefix.bytes().all(allowed) {
            return Err(RedisPrefixError::Character);
        }
        if !prefix.is_empty() && !prefix.ends_with(':') {
            return Err(RedisPrefixError::NoColon);
        }
        Ok(Self(prefix.into()))
    }

    /// The keys of a record. Each command names both, so they have to be in one slot.
    pub(super) fn keys(&self, identity: &Identity) -> Keys {
        let record = [&*self.0, identity.name()].concat();
        // Of a key with braces only what is between them decides about its slot: here all of the record's key, which itself
        // has none. That tells the two kinds apart, too.
        let snapshot = format!("{}{{{record}}}:snapshot", self.0);
        Keys { record, snapshot }
    }
}

/// Where a record lies, and its snapshot where that is kept apart.
pub(super) struct Keys {
    pub(super) record: String,
    pub(super) snapshot: String,
}

impl Default for Prefix {
    fn default() -> Self {
        Self("idem:".into())
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A script, and the digest by which a server that has it knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) digest: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, digest: ::redis::Script::new(text).get_hash().to_owned() }
    }
}

/// Writes even where the server is over its `maxmemory`: for records that need no more room than their claim had.
pub(super) static WRITE_IN_ANY_CASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("#!lua flags=allow-oom\n", include_str!("write.lua"))));

/// The same script, which the server refuses where it is over its `maxmemory`.
pub(super) static WRITE_IF_ROOM: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("#!lua\n", include_str!("write.lua"))));

/// Reads record, time left and snapshot.
pub(super) static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!("#!lua flags=no-writes\n", include_str!("read.lua"))));

/// The milliseconds that a key lives: the active part of its record's life and the tail behind it. `None` is for ever.
///
/// The tail is the number that the record carries, to the millisecond, because that is what the time left is compared with.
pub(super) fn lives_ms(record: &Record, life: Life) -> Option<u64> {
    match life {
        Life::Forever => None,
        Life::Timed { active, .. } => Some((millis(active).saturating_add(tail_ms(record))).clamp(1, LONGEST_MS)),
    }
}

/// The milliseconds that a snapshot lives which is kept apart: as long as it replays.
pub(super) fn replays_ms(life: Life) -> Option<u64> {
    match life {
        Life::Forever => None,
        Life::Timed { active, .. } => Some(millis(active).clamp(1, LONGEST_MS)),
    }
}

/// Which part of its life a record is in when its key has so many milliseconds left (negative: no expiry).
pub(super) fn phase(record: &Record, left_ms: i64) -> Phase {
    let Ok(left_ms) = u64::try_from(left_ms) else { return Phase::Active { left: Duration::MAX } };
    // A record without a tail is gone when its active part is over: as long as it is there, it is active.
    match left_ms.checked_sub(tail_ms(record)) {
        Some(0) | None if !ends_with_its_key(record) => Phase::Tail,
        active_ms => Phase::Active { left: Duration::from_millis(active_ms.unwrap_or(0)) },
    }
}

/// Whether the record's active part lasts as long as its key does.
pub(super) fn ends_with_its_key(record: &Record) -> bool {
    !matches!(record.state, State::InFlight { .. }) && tail_ms(record) == 0
}

/// [`Record::tail`] in the unit of the key's expiry.
pub(super) fn tail_ms(record: &Record) -> u64 {
    millis(record.tail())
}

/// A thousand times longer than any policy allows, and far from where the server's arithmetic ends.
const LONGEST_MS: u64 = 100_000 * 366 * 24 * 60 * 60 * 1000;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Completion, Held, Key, NotReplayable, OnLapse, Operation, Scope, Target, Token};

    fn record(state: State, retention_ms: u64) -> Record {
        Record {
            identity: [0; 32],
            token: Token::from_bytes([0; 16]),
            attempt: 1,
            earlier_unknown: false,
            since_ms: 0,
            retention_ms,
            fingerprint: None,
            progress: None,
            state,
        }
    }

    fn in_flight(retention_ms: u64) -> Record {
        record(State::InFlight { on_lapse: OnLapse::RunAgain }, retention_ms)
    }

    fn completed(remember_ms: u64) -> Record {
        record(State::Completed { completion: Completion::NotReplayable(NotReplayable::Stream), remember_ms }, 1000)
    }

    fn active(left_ms: u64) -> Phase {
        Phase::Active { left: Duration::from_millis(left_ms) }
    }

    #[test]
    fn a_lease_is_over_when_only_the_retention_is_left() {
        assert_eq!(phase(&in_flight(1000), 1001), active(1));
        assert_eq!(phase(&in_flight(1000), 1000), Phase::Tail);
        assert_eq!(phase(&in_flight(1000), 0), Phase::Tail);
    }

    #[test]
    fn a_record_without_a_tail_is_active_as_long_as_it_is_there() {
        assert_eq!(phase(&completed(0), 1), active(1));
        assert_eq!(phase(&completed(0), 0), active(0));
        assert_eq!(phase(&completed(5), 5), Phase::Tail);
        assert_eq!(phase(&record(State::Freed, 1000), 7), active(7));
        let held = record(State::Held(Held::Lapsed), 1000);
        assert_eq!(phase(&held, -1), Phase::Active { left: Duration::MAX });
    }

    #[test]
    fn a_key_lives_for_the_active_part_and_the_tail() {
        let timed = |record: &Record, active| lives_ms(record, Life::Timed { active, tail: record.tail() });
        assert_eq!(timed(&in_flight(1000), Duration::from_millis(30)), Some(1030));
        assert_eq!(timed(&in_flight(1000), Duration::ZERO), Some(1000));
        assert_eq!(timed(&in_flight(0), Duration::ZERO), Some(1), "the server takes no expiry of zero");
        assert_eq!(timed(&in_flight(u64::MAX), Duration::MAX), Some(LONGEST_MS));
        assert_eq!(lives_ms(&in_flight(1000), Life::Forever), None);
    }

    #[test]
    fn keys_never_change() {
        let identity = |operation: &'static str, key: &[u8]| {
            Identity::new(
                Operation::new(operation).unwrap(),
                Some(Target::new("POST", "/payments")),
                Scope::new("user:alice").unwrap(),
                Key::new(key).unwrap(),
            )
        };
        let keys = Prefix::default().keys(&identity("payments.create", b"k-1"));
        assert_eq!(keys.record, "idem:payments.create:POST+/payments:user%3Aalice:k-1");
        assert_eq!(keys.snapshot, "idem:{idem:payments.create:POST+/payments:user%3Aalice:k-1}:snapshot");
        let keys = Prefix::new("shop:eu:").unwrap().keys(&identity("payments.create", b"{slot}"));
        assert_eq!(keys.record, "shop:eu:payments.create:POST+/payments:user%3Aalice:%7Bslot%7D");
        let keys = Prefix::new("").unwrap().keys(&identity("pay", b"k"));
        assert_eq!(keys.snapshot, "{pay:POST+/payments:user%3Aalice:k}:snapshot");
    }

    #[test]
    fn both_keys_of_a_record_are_in_one_slot_and_nobody_chooses_which() {
        for key in [&b"k"[..], b"{slot}", b"}{", b"{}", &[0xfe; 250]] {
            let scope = Scope::new("{tenant}").unwrap();
            let identity = Identity::new(Operation::new("op").unwrap(), None, scope, Key::new(key).unwrap());
            for prefix in ["", "idem:", "shop:eu:"] {
                let Keys { record, snapshot } = Prefix::new(prefix).unwrap().keys(&identity);
                assert!(!record.contains(['{', '}']), "all of {record} decides");
                // Redis Cluster specification: the first opening brace, and the first closing one behind it.
                let tag = snapshot.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
                assert_eq!(tag, Some(&*record));
                assert!(snapshot.starts_with(prefix));
            }
        }
    }

    #[test]
    fn a_snapshot_lives_as_long_as_it_replays() {
        let timed = |active| replays_ms(Life::Timed { active, tail: Duration::from_millis(9) });
        assert_eq!(timed(Duration::from_millis(30)), Some(30));
        assert_eq!(timed(Duration::ZERO), Some(1), "the server takes no expiry of zero");
        assert_eq!(timed(Duration::MAX), Some(LONGEST_MS));
    }

    #[test]
    fn a_prefix_is_checked() {
        assert!(Prefix::new("").is_ok());
        assert_eq!(Prefix::new("idem"), Err(RedisPrefixError::NoColon));
        for bad in ["{idem}:", "a b:", "ä:", "*:"] {
            assert_eq!(Prefix::new(bad), Err(RedisPrefixError::Character));
        }
        assert_eq!(Prefix::new(&"x".repeat(65)), Err(RedisPrefixError::TooLong));
    }
}
