use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tokio_test::block_on;

use super::*;
use crate::clock::Moment;
use crate::protocol::{
    Fingerprint, Key, Life, OnLapse, Operation, Origin, Phase, Record, Scope, Snapshot, State, Token,
};

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(100);
const REMEMBER: Duration = Duration::from_secs(10_000);

fn identity(key: impl ToString) -> Identity {
    let key = Key::new(key.to_string()).unwrap();
    Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), key)
}

fn ask() -> Acquire {
    Acquire {
        token: Token::mint(),
        fingerprint: None,
        observed: false,
        on_lapse: OnLapse::RunAgain,
        lease: LEASE,
        retention: RETENTION,
        held_limit: None,
        at_ms: 0,
    }
}

/// A store with a clock that stands still.
struct Fixture {
    clock: Clock,
    store: MemoryStore,
}

impl Fixture {
    fn of_bytes(capacity_bytes: usize) -> Self {
        let clock = Clock::manual();
        Self { store: MemoryStore::builder().capacity_bytes(capacity_bytes).clock(clock.clone()).build(), clock }
    }

    /// Room for so many records without payload.
    fn of_records(records: usize) -> Self {
        Self::of_bytes(records * record_bytes())
    }

    fn try_claim(&self, key: impl ToString) -> Result<Ticket, StoreErrorKind> {
        match block_on(self.store.acquire(&identity(key), &ask())) {
            Ok(Acquired::Claimed(ticket, _)) => Ok(ticket),
            Ok(other) => panic!("not claimed, but {other:?}"),
            Err(error) => Err(error.kind()),
        }
    }

    fn claim(&self, key: impl ToString) -> Ticket {
        self.try_claim(key).unwrap()
    }

    fn settle(&self, ticket: &Ticket, settlement: Settlement) -> Owned {
        let settle = Settle { token: ticket.record.token, settlement, at_ms: 0 };
        block_on(self.store.settle(ticket, &settle)).unwrap()
    }

    fn ask_again(&self, ticket: &Ticket) -> Acquired {
        block_on(self.store.acquire(&ticket.identity, &ask())).unwrap()
    }

    fn audit(&self) {
        self.store.audit();
    }
}

impl MemoryStore {
    fn audit(&self) {
        let bytes: usize = (0..self.0.shards.len()).map(|at| self.0.lock(at).audit()).sum();
        assert_eq!(bytes, self.used_bytes());
        assert!(bytes <= self.capacity_bytes());
    }
}

fn record_bytes() -> usize {
    let store = MemoryStore::new();
    block_on(store.acquire(&identity("k"), &ask())).unwrap();
    store.used_bytes()
}

fn complete(bytes: usize) -> Settlement {
    complete_and_remember(bytes, Duration::ZERO)
}

fn complete_and_remember(bytes: usize, remember: Duration) -> Settlement {
    let completion = Completion::Replayable(Snapshot::from_bytes(vec![7; bytes].into()));
    Settlement::Complete { completion, retention: RETENTION, remember }
}

#[test]
fn a_full_store_refuses_new_claims_and_evicts_nothing() {
    let fixture = Fixture::of_records(3);
    let running = [fixture.claim(1), fixture.claim(2)];
    let done = fixture.claim(3);
    fixture.settle(&done, complete(0));

    for key in 4..20 {
        assert_eq!(fixture.try_claim(key), Err(StoreErrorKind::Full));
    }
    for ticket in &running {
        assert!(matches!(fixture.ask_again(ticket), Acquired::Busy { .. }));
        assert_eq!(fixture.settle(ticket, complete(0)), Owned::Done);
    }
    for ticket in running.iter().chain([&done]) {
        assert!(matches!(fixture.ask_again(ticket), Acquired::Replay { .. }));
    }
    // A key that is known needs no more room, though the store is full.
    let fixture = Fixture::of_records(1);
    let ticket = fixture.claim(1);
    fixture.settle(&ticket, Settlement::Abandon);
    assert_eq!(fixture.claim(1).record.attempt, 2);
    fixture.audit();
}

#[test]
fn a_full_store_makes_room_of_whatever_has_expired_anywhere() {
    let fixture = Fixture::of_records(1);
    let shard = |key: u32| usize::from(identity(key).digest()[0]) % fixture.store.0.shards.len();
    let elsewhere = (1..).find(|key| shard(*key) != shard(0)).unwrap();
    fixture.claim(0);
    fixture.clock.advance(LEASE + RETENTION - Duration::from_millis(1));
    assert_eq!(fixture.try_claim(elsewhere), Err(StoreErrorKind::Full));
    fixture.clock.advance(Duration::from_millis(1));
    fixture.claim(elsewhere);
    assert_eq!(fixture.store.records(), 1);
    fixture.audit();
}

#[test]
fn completing_never_fails_for_want_of_room() {
    let fixture = Fixture::of_bytes(2 * record_bytes() + 100);
    let (fits, does_not) = (fixture.claim(1), fixture.claim(2));
    assert_eq!(fixture.settle(&fits, complete(100)), Owned::Done);
    let (too_large, too_late) = (complete(101), complete(1));
    assert_eq!(fixture.settle(&does_not, too_late.clone()), Owned::Done);

    let no_room = Completion::NotReplayable(NotReplayable::NoRoom);
    let told = fixture.ask_again(&does_not);
    assert!(matches!(&told, Acquired::Replay { completion, .. } if *completion == no_room), "{told:?}");
    assert!(matches!(fixture.ask_again(&fits), Acquired::Replay { completion: Completion::Replayable(_), .. }));
    // The same command once more is done, though it asks for more than there is.
    assert_eq!(fixture.settle(&does_not, too_late), Owned::Done);
    assert!(matches!(fixture.settle(&fits, too_large), Owned::Lost(Some(_))));
    fixture.audit();
}

#[test]
fn what_has_expired_makes_room_for_a_snapshot() {
    let fixture = Fixture::of_bytes(2 * record_bytes() + 100);
    let old = fixture.claim(1);
    fixture.settle(&old, complete(100));
    fixture.clock.advance(RETENTION);
    let ticket = fixture.claim(2);
    fixture.settle(&ticket, complete(record_bytes() + 100));
    assert!(matches!(fixture.ask_again(&ticket), Acquired::Replay { completion: Completion::Replayable(_), .. }));
    fixture.audit();
}

#[test]
fn holding_never_fails_for_want_of_room() {
    let fixture = Fixture::of_records(1);
    let ticket = fixture.claim(1);
    let hold = Settlement::Hold { held: Held::because("no reply"), limit: None };
    assert_eq!(fixture.settle(&ticket, hold), Owned::Done);
    assert!(matches!(fixture.ask_again(&ticket), Acquired::Held { held: Held::Unknown, .. }));
    fixture.audit();
}

#[test]
fn progress_that_does_not_fit_is_refused_and_the_claim_stays() {
    let fixture = Fixture::of_bytes(record_bytes() + 4);
    let ticket = fixture.claim(1);
    let renew = |progress: Option<&'static [u8]>| {
        let renew = Renew { token: ticket.record.token, lease: LEASE, progress: progress.map(Bytes::from_static) };
        block_on(fixture.store.renew(&ticket, &renew)).map_err(|error| error.kind())
    };
    assert_eq!(renew(Some(b"1234")), Ok(Owned::Done));
    assert_eq!(renew(Some(b"12345")), Err(StoreErrorKind::Full));
    assert_eq!(renew(None), Ok(Owned::Done));
    let seen = block_on(fixture.store.read(&ticket.identity)).unwrap().unwrap();
    assert_eq!(seen.record.progress.as_deref(), Some(&b"1234"[..]));
    fixture.audit();
}

#[test]
fn a_store_that_fills_up_tells_once_until_it_has_emptied_again() {
    let told = Arc::new(AtomicUsize::new(0));
    let store = MemoryStore::builder().capacity_bytes(10 * record_bytes()).on_pressure({
        let told = Arc::clone(&told);
        move |pressure| {
            assert!(pressure.used_bytes * 10 >= pressure.capacity_bytes * 8);
            told.fetch_add(1, Ordering::SeqCst);
        }
    });
    let fixture = Fixture { store: store.build(), clock: Clock::manual() };
    let told = || told.load(Ordering::SeqCst);

    let mut tickets: Vec<_> = (0..7).map(|key| fixture.claim(key)).collect();
    assert_eq!(told(), 0);
    tickets.push(fixture.claim(7));
    assert_eq!(told(), 1);
    for _ in 0..3 {
        fixture.settle(&tickets.pop().unwrap(), Settlement::Release);
        tickets.push(fixture.claim("again"));
    }
    assert_eq!(told(), 1, "it hovers at the line");
    for _ in 0..2 {
        fixture.settle(&tickets.pop().unwrap(), Settlement::Release);
    }
    fixture.claim("7th");
    fixture.claim("8th");
    assert_eq!(told(), 2);
}

/// D13: keys that are used once and never touched again.
#[test]
fn memory_follows_the_load_without_a_sweep() {
    const KEYS: usize = 4_000;
    let fixture = Fixture::of_bytes(MemoryStore::DEFAULT_CAPACITY_BYTES);
    let short = Acquire { lease: Duration::from_millis(5), retention: Duration::from_millis(5), ..ask() };
    for key in 0..KEYS {
        block_on(fixture.store.acquire(&identity(key), &Acquire { token: Token::mint(), ..short.clone() })).unwrap();
    }
    assert_eq!(fixture.store.records(), KEYS);
    fixture.clock.advance(Duration::from_millis(10));

    // No command does more than its share, and together they are faster than the load that they are.
    let mut before = fixture.store.records();
    for key in KEYS..2 * KEYS {
        fixture.claim(key);
        let now = fixture.store.records();
        assert!(before + 1 - now <= Inner::DROPPED_PER_COMMAND, "{} dropped by one command", before + 1 - now);
        before = now;
    }
    assert_eq!(fixture.store.records(), KEYS, "nothing is left of what has expired");
    fixture.audit();
}

#[test]
fn an_identity_outlives_its_snapshot_and_takes_no_more_than_a_claim() {
    let fixture = Fixture::of_bytes(1 << 20);
    let ticket = fixture.claim(1);
    fixture.settle(&ticket, complete_and_remember(100_000, REMEMBER));
    fixture.clock.advance(RETENTION - Duration::from_millis(1));
    assert!(matches!(fixture.ask_again(&ticket), Acquired::Replay { completion: Completion::Replayable(_), .. }));
    assert_eq!(fixture.store.used_bytes(), record_bytes() + 100_000);

    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.ask_again(&ticket), Acquired::Gone);
    assert_eq!((fixture.store.used_bytes(), fixture.store.records()), (record_bytes(), 1));
    fixture.audit();

    fixture.clock.advance(REMEMBER - Duration::from_millis(1));
    assert_eq!(fixture.ask_again(&ticket), Acquired::Gone);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.claim(1).record.attempt, 1);
    assert_eq!((fixture.store.used_bytes(), fixture.store.records()), (record_bytes(), 1));
    fixture.audit();
}

#[test]
fn snapshots_that_are_gone_are_dropped_by_whatever_comes_next_and_never_shown() {
    let fixture = Fixture::of_bytes(MemoryStore::DEFAULT_CAPACITY_BYTES);
    let shard = |key: &u32| usize::from(identity(key).digest()[0]) % fixture.store.0.shards.len();
    let mut neighbours = (0u32..).filter(|key| shard(key) == shard(&0));
    let tickets: Vec<_> = neighbours.by_ref().take(10).map(|key| fixture.claim(key)).collect();
    for ticket in &tickets {
        fixture.settle(ticket, complete_and_remember(1000, REMEMBER));
    }
    fixture.clock.advance(RETENTION);
    for ticket in &tickets {
        let seen = block_on(fixture.store.read(&ticket.identity)).unwrap().unwrap();
        assert_eq!((seen.record.payload_len(), seen.phase), (0, Phase::Tail), "it is not dropped yet, and not shown");
    }
    let payload = || fixture.store.used_bytes() - fixture.store.records() * record_bytes();
    for left in [6, 2, 0, 0] {
        fixture.claim(neighbours.next().unwrap());
        assert_eq!(payload(), left * 1000, "no command does more than its share");
        fixture.audit();
    }
}

#[test]
fn a_full_store_makes_room_of_snapshots_that_are_gone_anywhere() {
    let fixture = Fixture::of_bytes(3 * record_bytes());
    let shard = |key: u32| usize::from(identity(key).digest()[0]) % fixture.store.0.shards.len();
    let elsewhere = (1..).find(|key| shard(*key) != shard(0)).unwrap();
    let ticket = fixture.claim(0);
    fixture.settle(&ticket, complete_and_remember(2 * record_bytes(), REMEMBER));
    fixture.clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(fixture.try_claim(elsewhere), Err(StoreErrorKind::Full));
    fixture.clock.advance(Duration::from_millis(1));
    fixture.claim(elsewhere);
    assert_eq!(fixture.ask_again(&ticket), Acquired::Gone);
    fixture.audit();
}

#[test]
fn clones_share_their_records() {
    let fixture = Fixture::of_records(9);
    let clone = fixture.store.clone();
    let ticket = fixture.claim(1);
    assert!(matches!(block_on(clone.acquire(&ticket.identity, &ask())), Ok(Acquired::Busy { .. })));
    fixture.settle(&ticket, Settlement::Release);
    assert_eq!(block_on(clone.read(&ticket.identity)).unwrap(), None);
}

#[test]
fn a_replay_shares_its_bytes_with_the_store() {
    let fixture = Fixture::of_bytes(1 << 20);
    let ticket = fixture.claim(1);
    let bytes = Bytes::from(vec![7; 1000]);
    let completion = Completion::Replayable(Snapshot::from_bytes(bytes.clone()));
    fixture.settle(&ticket, Settlement::Complete { completion, retention: RETENTION, remember: Duration::ZERO });
    let Acquired::Replay { completion: Completion::Replayable(snapshot), .. } = fixture.ask_again(&ticket) else {
        panic!("no replay")
    };
    assert_eq!(snapshot.as_bytes().as_ptr(), bytes.as_ptr());
}

#[derive(Clone, Debug)]
enum Action {
    Acquire { fingerprint: Option<u8>, observed: bool, hold: bool, lease_ms: u64, held_limit_ms: Option<u64> },
    Renew { lease_ms: u64, progress: Option<u8> },
    Settle(Settlement),
    Advance { ms: u64 },
}

/// Three keys, three tokens for each, and times that often meet.
fn actions() -> impl Strategy<Value = Vec<(u8, u8, Action)>> {
    let ms = || prop_oneof![Just(1u64), Just(5), Just(10)];
    let time = move || ms().prop_map(Duration::from_millis);
    let acquire = (
        prop::option::weighted(0.8, prop_oneof![4 => Just(1u8), 1 => Just(2)]),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
        ms(),
        prop::option::of(ms()),
    )
        .prop_map(|(fingerprint, observed, hold, lease_ms, held_limit_ms)| Action::Acquire {
            fingerprint,
            observed,
            hold,
            lease_ms,
            held_limit_ms,
        });
    let completion = prop_oneof![
        (0usize..2000).prop_map(|n| Completion::Replayable(Snapshot::from_bytes(vec![n as u8; n].into()))),
        Just(Completion::NotReplayable(NotReplayable::Stream)),
    ];
    let settlement = prop_oneof![
        (completion, time(), prop_oneof![Just(Duration::ZERO), time()])
            .prop_map(|(completion, retention, remember)| Settlement::Complete { completion, retention, remember }),
        Just(Settlement::Release),
        Just(Settlement::Abandon),
        ("[a-z]{0,300}", prop::option::of(time()))
            .prop_map(|(why, limit)| Settlement::Hold { held: Held::because(why), limit }),
    ];
    let action = prop_oneof![
        4 => acquire,
        2 => (ms(), prop::option::of(any::<u8>())).prop_map(|(lease_ms, progress)| Action::Renew { lease_ms, progress }),
        3 => settlement.prop_map(Action::Settle),
        3 => prop_oneof![Just(1u64), Just(4), Just(5), Just(20)].prop_map(|ms| Action::Advance { ms }),
    ];
    prop::collection::vec((0u8..3, 0u8..3, action), 1..80)
}

fn command(token: Token, action: Action) -> Option<Command> {
    let ms = Duration::from_millis;
    Some(match action {
        Action::Acquire { fingerprint, observed, hold, lease_ms, held_limit_ms } => Command::Acquire(Acquire {
            token,
            fingerprint: fingerprint.map(|of| Fingerprint::from_parts(1, [of; 32])),
            observed,
            on_lapse: if hold { OnLapse::Hold } else { OnLapse::RunAgain },
            lease: ms(lease_ms),
            retention: ms(10),
            held_limit: held_limit_ms.map(ms),
            at_ms: 0,
        }),
        Action::Renew { lease_ms, progress } => {
            Command::Renew(Renew { token, lease: ms(lease_ms), progress: progress.map(|of| vec![of; 9].into()) })
        }
        Action::Settle(settlement) => Command::Settle(Settle { token, settlement, at_ms: 0 }),
        Action::Advance { .. } => return None,
    })
}

fn ask_store(store: &MemoryStore, identity: &Identity, command: &Command) -> Result<Answer, StoreErrorKind> {
    let record = Record {
        identity: *identity.digest(),
        token: Token::from_bytes([0; 16]),
        attempt: 1,
        earlier_unknown: false,
        since_ms: 0,
        retention_ms: 0,
        fingerprint: None,
        progress: None,
        state: State::Freed,
    };
    let ticket = Ticket { identity: identity.clone(), record };
    let answer = match command {
        Command::Acquire(acquire) => block_on(store.acquire(identity, acquire)).map(Answer::from),
        Command::Renew(renew) => block_on(store.renew(&ticket, renew)).map(Answer::from),
        Command::Settle(settle) => block_on(store.settle(&ticket, settle)).map(Answer::from),
        Command::Operate(_) => unreachable!("not a verb of the store"),
    };
    answer.map_err(|error| error.kind())
}

/// The table, a map and a clock: nothing is shared, expired by halves, or accounted for.
#[derive(Default)]
struct Model {
    records: HashMap<[u8; 32], (Record, Option<ModelTimes>)>,
}

/// Until when the record is active, and when it expires.
type ModelTimes = (Moment, Moment);

impl Model {
    fn seen(&self, identity: &Identity, now: Moment) -> Option<Seen> {
        let (record, times) = self.records.get(identity.digest())?.clone();
        let phase = match times {
            None => Phase::Active { left: Duration::MAX },
            Some((_, expires)) if now >= expires => return None,
            Some((active_until, _)) if now >= active_until => Phase::Tail,
            Some((active_until, _)) => Phase::Active { left: active_until.since(now) },
        };
        Some(Seen::new(record, phase))
    }

    fn step(&mut self, identity: &Identity, now: Moment, command: &Command) -> Answer {
        let Step { answer, write } = transition(self.seen(identity, now).as_ref(), identity, command);
        match write {
            Write::Keep => {}
            Write::Delete => drop(self.records.remove(identity.digest())),
            Write::Put(record, life) => {
                let times = match life {
                    Life::Timed { active, tail } => Some((now.plus(active), now.plus(active + tail))),
                    Life::Forever => None,
                };
                self.records.insert(*identity.digest(), (record, times));
            }
        }
        answer
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_sequence_of_commands_is_answered_as_the_table_says(actions in actions()) {
        let clock = Clock::manual();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let mut model = Model::default();
        for (key, token, action) in actions {
            if let Action::Advance { ms } = action {
                clock.advance(Duration::from_millis(ms));
                continue;
            }
            let identity = identity(key);
            let command = command(Token::from_bytes([token; 16]), action).expect("a command");
            let expected = model.step(&identity, clock.now(), &command);
            prop_assert_eq!(ask_store(&store, &identity, &command), Ok(expected));
            prop_assert_eq!(block_on(store.read(&identity)).unwrap(), model.seen(&identity, clock.now()));
            store.audit();
        }
    }

    /// Short of room, everything that ends a claim still does, and nothing that was stored is lost.
    #[test]
    fn a_store_short_of_room_keeps_its_bound_and_its_promises(actions in actions(), records in 1usize..4, more in 0usize..3000) {
        let clock = Clock::manual();
        let store = MemoryStore::builder().clock(clock.clone()).capacity_bytes(records * record_bytes() + more).build();
        for (key, token, action) in actions {
            if let Action::Advance { ms } = action {
                clock.advance(Duration::from_millis(ms));
                continue;
            }
            let identity = identity(key);
            let command = command(Token::from_bytes([token; 16]), action).expect("a command");
            let before = block_on(store.read(&identity)).unwrap();
            let expected = transition(before.as_ref(), &identity, &command);
            let answer = ask_store(&store, &identity, &command);
            let after = block_on(store.read(&identity)).unwrap();
            store.audit();
            if answer == Err(StoreErrorKind::Full) {
                let is_fresh = matches!(expected.answer, Answer::Acquired(Acquired::Claimed(_, Origin::Fresh)));
                let has_progress = matches!(&command, Command::Renew(renew) if renew.progress.is_some());
                prop_assert!(is_fresh || has_progress);
                prop_assert_eq!(after, before);
                continue;
            }
            prop_assert_eq!(answer, Ok(expected.answer));
            let Write::Put(written, _) = expected.write else { continue };
            let Some(stored) = after.map(|seen| seen.record) else { continue };
            let reduced = match &stored.state {
                State::Completed { completion: Completion::NotReplayable(NotReplayable::NoRoom), remember_ms } => {
                    let State::Completed { completion, .. } = &written.state else { panic!("{written:?}") };
                    State::Completed { completion: completion.clone(), remember_ms: *remember_ms }
                }
                State::Held(Held::Unknown) => written.state.clone(),
                state => state.clone(),
            };
            prop_assert_eq!(Record { state: reduced, ..stored }, written);
        }
    }
}
