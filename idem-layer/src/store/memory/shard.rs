use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::clock::Moment;
use crate::protocol::{Completion, Held, Life, Phase, Record, Seen, State};

type Digest = [u8; 32];

/// A part of the records, with the order in which they expire.
#[derive(Default)]
pub(super) struct Shard {
    /// With the standard library's keyed hasher: callers choose keys, so the digest alone would let them choose buckets.
    entries: HashMap<Digest, Entry>,
    /// When something of an entry is to be dropped next. Exactly one for each entry that expires.
    ends: BTreeSet<(Moment, Digest)>,
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

impl Entry {
    /// When something of it ends: its snapshot, where the identity is remembered for longer, or all of it.
    fn ends(&self) -> Option<Moment> {
        self.times.map(|times| if self.has_snapshot() { times.active_until } else { times.expires })
    }

    fn has_snapshot(&self) -> bool {
        matches!(self.record.state, State::Completed { completion: Completion::Replayable(_), .. })
    }
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
        Some(Seen::new(record.clone(), phase))
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
        self.insert(digest, Entry { record, times });
    }

    fn insert(&mut self, digest: Digest, entry: Entry) {
        let ends = entry.ends();
        self.ends.extend(ends.map(|ends| (ends, digest)));
        let Some(before) = self.entries.insert(digest, entry) else { return };
        if before.ends() != ends {
            before.ends().map(|ends| self.ends.remove(&(ends, digest)));
        }
    }

    /// Drops the record; returns what it took.
    pub(super) fn remove(&mut self, digest: &Digest) -> usize {
        let Some(entry) = self.entries.remove(digest) else { return 0 };
        entry.ends().map(|ends| self.ends.remove(&(ends, *digest)));
        self.shrink();
        Self::bytes_for(&entry.record)
    }

    /// Drops up to `limit` records that have expired, and snapshots whose replay time is over, the oldest first; returns what
    /// they took.
    pub(super) fn drop_expired(&mut self, now: Moment, limit: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..limit {
            let Some(&(ends, digest)) = self.ends.first() else { break };
            if ends > now {
                break;
            }
            bytes += match self.entries.get(&digest) {
                Some(Entry { record, times: Some(times) }) if times.expires > now => {
                    let (record, times) = (record.clone(), *times);
                    self.drop_snapshot(digest, record, times)
                }
                _ => self.remove(&digest),
            };
        }
        bytes
    }

    /// Keeps of the record what outlives its replay time; returns what the rest took.
    fn drop_snapshot(&mut self, digest: Digest, record: Record, times: Times) -> usize {
        let before = Self::bytes_for(&record);
        let record = record.without_snapshot();
        let bytes = before - Self::bytes_for(&record);
        self.insert(digest, Entry { record, times: Some(times) });
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

    /// Panics unless the ends are exactly those of the entries; returns what these take.
    #[cfg(test)]
    pub(super) fn audit(&self) -> usize {
        let ending = |(digest, entry): (&Digest, &Entry)| entry.ends().map(|ends| (ends, *digest));
        assert_eq!(self.entries.iter().filter_map(ending).collect::<BTreeSet<_>>(), self.ends);
        assert!(self.entries.iter().all(|(digest, entry)| entry.record.identity == *digest));
        self.entries.values().map(|entry| Self::bytes_for(&entry.record)).sum()
    }
}
