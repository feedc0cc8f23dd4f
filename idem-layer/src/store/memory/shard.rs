use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::clock::Moment;
use crate::protocol::{Held, Life, Phase, Record, Seen, State};

type Digest = [u8; 32];

/// A part of the records, with the order in which they expire.
#[derive(Default)]
pub(super) struct Shard {
    /// With the standard library's keyed hasher: callers choose keys, so the digest alone would let them choose buckets.
    entries: HashMap<Digest, Entry>,
    /// Exactly one for each entry that expires.
    expiries: BTreeSet<(Moment, Digest)>,
}

struct Entry {
    record: Record,
    times: Option<Times>,
}

/// When the two parts of a record's life end.
#[derive(Clone, Copy)]
struct Times {
    active_until: Moment,
    expires: Moment,
}

impl Shard {
    /// What a record takes besides its payload. Tables grow by doubling, and tree nodes are half empty: all twice.
    const RECORD_BYTES: usize = 2 * (size_of::<(Digest, Entry)>() + size_of::<(Moment, Digest)>());

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What this record takes or will take.
    pub(super) fn bytes_for(record: &Record) -> usize {
        let reason = match &record.state {
            State::Held(Held::Because(why)) => why.len(),
            _ => 0,
        };
        Self::RECORD_BYTES + reason + record.payload_len()
    }

    /// What is taken under this name now, be it expired or not.
    pub(super) fn bytes(&self, digest: &Digest) -> usize {
        self.entries.get(digest).map_or(0, |entry| Self::bytes_for(&entry.record))
    }

    /// The record, unless it has expired. Snapshot and progress are shared, not copied.
    pub(super) fn seen(&self, digest: &Digest, now: Moment) -> Option<Seen> {
        let Entry { record, times } = self.entries.get(digest)?;
        let phase = match times {
            None => Phase::Active { left: Duration::MAX },
            Some(times) if times.expires <= now => return None,
            Some(times) if times.active_until <= now => Phase::Tail,
            Some(times) => Phase::Active { left: times.active_until.since(now) },
        };
        Some(Seen { record: record.clone(), phase })
    }

    pub(super) fn put(&mut self, record: Record, life: Life, now: Moment) {
        let digest = record.identity;
        let times = match life {
            Life::Forever => None,
            Life::Timed { active, tail } => {
                let active_until = now.plus(active);
                Some(Times { active_until, expires: active_until.plus(tail) })
            }
        };
        self.expiries.extend(times.map(|times| (times.expires, digest)));
        let Some(before) = self.entries.insert(digest, Entry { record, times }) else { return };
        let before = before.times.map(|times| times.expires);
        if before != times.map(|times| times.expires) {
            before.map(|expires| self.expiries.remove(&(expires, digest)));
        }
    }

    /// Drops the record; returns what it took.
    pub(super) fn remove(&mut self, digest: &Digest) -> usize {
        let Some(entry) = self.entries.remove(digest) else { return 0 };
        entry.times.map(|times| self.expiries.remove(&(times.expires, *digest)));
        self.shrink();
        Self::bytes_for(&entry.record)
    }

    /// Drops up to `limit` records that have expired, the oldest first; returns what they took.
    pub(super) fn drop_expired(&mut self, now: Moment, limit: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..limit {
            let Some(&(expires, digest)) = self.expiries.first() else { break };
            if expires > now {
                break;
            }
            bytes += self.remove(&digest);
        }
        bytes
    }

    /// Gives the table's memory back after a burst. Each time the table has emptied to an eighth, so that it costs little
    /// per record.
    fn shrink(&mut self) {
        let (length, capacity) = (self.entries.len(), self.entries.capacity());
        if capacity > 256 && length * 8 < capacity {
            self.entries.shrink_to(length * 2);
        }
    }

    /// Panics unless the expiries are exactly those of the entries; returns what these take.
    #[cfg(test)]
    pub(super) fn audit(&self) -> usize {
        let expiring = |(digest, entry): (&Digest, &Entry)| entry.times.map(|times| (times.expires, *digest));
        assert_eq!(self.entries.iter().filter_map(expiring).collect::<BTreeSet<_>>(), self.expiries);
        assert!(self.entries.iter().all(|(digest, entry)| entry.record.identity == *digest));
        self.entries.values().map(|entry| Self::bytes_for(&entry.record)).sum()
    }
}
