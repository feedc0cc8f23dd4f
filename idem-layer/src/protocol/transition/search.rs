//! Every world that two owners and an operator can get into, and what must hold in each.
//!
//! An owner sends commands; each that was ever sent may arrive at any later time, any number of times, in any order, and
//! its answer may get lost. Owners crash, leases lapse, records expire. The search follows all of that, breadth first, from
//! the empty store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use super::*;
use crate::protocol::{Key, Operation, Scope, Snapshot};

const MOMENT: Duration = Duration::from_secs(1);

fn token(owner: usize) -> Token {
    Token::from_bytes([owner as u8 + 1; 16])
}

fn identity() -> &'static Identity {
    static IDENTITY: LazyLock<Identity> =
        LazyLock::new(|| Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap()));
    &IDENTITY
}

fn outcome(of: usize) -> Completion {
    Completion::Replayable(Snapshot::from_bytes(vec![of as u8].into()))
}

const OPERATOR: usize = 7;

/// What an owner can send, all with the token of its one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Message {
    Acquire,
    Renew,
    Complete,
    Release,
    Abandon,
    Hold,
}

impl Message {
    const ALL: [Self; 6] = [Self::Acquire, Self::Renew, Self::Complete, Self::Release, Self::Abandon, Self::Hold];

    fn command(self, owner: usize, guarantees: [OnLapse; 2]) -> Command {
        let settlement = match self {
            Self::Acquire => return asks(owner, guarantees[owner]),
            Self::Renew => {
                // The first owner works in steps, the second does not.
                let progress = (owner == 0).then(|| Bytes::from_static(b"step"));
                return Command::Renew(Renew { token: token(owner), lease: MOMENT, progress });
            }
            // The second owner's identity is remembered behind its replay.
            Self::Complete => {
                Settlement::Complete { completion: outcome(owner), retention: MOMENT, remember: MOMENT * owner as u32 }
            }
            Self::Release => Settlement::Release,
            Self::Abandon => Settlement::Abandon,
            Self::Hold => Settlement::Hold { held: Held::Unknown, limit: None },
        };
        Command::Settle(Settle { token: token(owner), settlement, at_ms: 0 })
    }
}

fn asks(owner: usize, on_lapse: OnLapse) -> Command {
    Command::Acquire(Acquire {
        token: token(owner),
        fingerprint: Some(Fingerprint::from_parts(1, [1; 32])),
        observed: false,
        on_lapse,
        lease: MOMENT,
        retention: MOMENT,
        held_limit: None,
        at_ms: 0,
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Owner {
    /// One bit for each of [`Message::ALL`].
    sent: u8,
    mind: Mind,
    /// It has begun to run, and has not said that nothing took effect.
    begun: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Mind {
    #[default]
    Idle,
    Asking,
    Running,
    /// It has settled, given up, or crashed: it sends nothing new.
    Ended,
}

impl Owner {
    fn send(&mut self, message: Message) {
        self.sent |= 1 << message as u8;
    }

    fn has_sent(self, message: Message) -> bool {
        self.sent & (1 << message as u8) != 0
    }
}

/// Small, so that there can be many: what is stored is a number of [`Search::records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    stored: usize,
    owners: [Owner; 2],
    /// What was stored when the operator read it and decided, if he has.
    operator: Option<usize>,
}

impl World {
    const EMPTY: usize = 0;

    /// Nothing is promised beyond what is remembered.
    fn forgotten(mut self) -> Self {
        self.stored = Self::EMPTY;
        self.without_beginnings()
    }

    fn without_beginnings(mut self) -> Self {
        self.owners.iter_mut().for_each(|owner| owner.begun = false);
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    record: Record,
    phase: Phase,
    for_ever: bool,
}

/// What of an answer makes a difference to who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Granted(Origin),
    Done,
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sent {
    Owner(usize, Message),
    /// Upon what he read.
    Operator(usize),
}

struct Search {
    guarantees: [OnLapse; 2],
    /// What the operator decides, if there is one. By force, always: a lease may as well have lapsed.
    decision: Option<Resolution>,
    /// Worlds beyond this attempt are not followed: late copies of acquire and release could raise it for ever.
    most_attempts: u32,
    /// Everything that was ever stored.
    records: Vec<Option<Stored>>,
    /// For each of them the first that has the same state and token, which is what an operator decides upon.
    alike: Vec<usize>,
    /// What becomes of them in time.
    later: HashMap<usize, usize, Mixing>,
    /// Steps that were taken before: what is told and stored depends on nothing but what was stored and is sent.
    steps: HashMap<(usize, Sent), (Told, usize), Mixing>,
    worlds: HashSet<World, Mixing>,
    queue: VecDeque<World>,
}

impl Search {
    fn run(guarantees: [OnLapse; 2], decision: Option<Resolution>, most_attempts: u32) -> Self {
        let mut search = Self {
            guarantees,
            decision,
            most_attempts,
            records: vec![None],
            alike: vec![World::EMPTY],
            later: HashMap::default(),
            steps: HashMap::default(),
            worlds: HashSet::default(),
            queue: VecDeque::new(),
        };
        search.reach(World { stored: World::EMPTY, owners: [Owner::default(); 2], operator: None });
        while let Some(world) = search.queue.pop_front() {
            search.let_owners_act(world);
            search.deliver(world);
            search.let_time_pass(world);
            search.let_operator_act(world);
        }
        search
    }

    fn reach(&mut self, world: World) {
        let attempt = self.records[world.stored].as_ref().map_or(0, |stored| stored.record.attempt);
        if attempt <= self.most_attempts && self.worlds.insert(world) {
            self.queue.push_back(world);
        }
    }

    fn let_owners_act(&mut self, world: World) {
        for at in 0..2 {
            let unknown = match self.guarantees[at] {
                OnLapse::RunAgain => Message::Abandon,
                OnLapse::Hold => Message::Hold,
            };
            let mut act = |mind: Mind, message: Option<Message>| {
                let mut world = world;
                let owner = &mut world.owners[at];
                owner.mind = mind;
                if let Some(message) = message {
                    owner.send(message);
                }
                owner.begun &= message != Some(Message::Release);
                self.reach(world);
            };
            match world.owners[at].mind {
                Mind::Idle => act(Mind::Asking, Some(Message::Acquire)),
                Mind::Asking => {
                    // Nobody waits for the answer any more: a claim that was won all the same is given back. Or a crash.
                    act(Mind::Ended, Some(Message::Release));
                    act(Mind::Ended, None);
                }
                Mind::Running => {
                    act(Mind::Running, Some(Message::Renew));
                    for message in [Message::Complete, Message::Release, unknown] {
                        act(Mind::Ended, Some(message));
                    }
                    act(Mind::Ended, None);
                }
                Mind::Ended => {}
            }
        }
    }

    fn deliver(&mut self, world: World) {
        for at in 0..2 {
            for message in Message::ALL.into_iter().filter(|message| world.owners[at].has_sent(*message)) {
                let (told, stored) = self.step(world.stored, Sent::Owner(at, message));
                let next = World { stored, ..world };
                // The answer got lost.
                self.reach(next);
                let Told::Granted(origin) = told else { continue };
                if origin != Origin::Repeated {
                    self.check_at_most_once(world, at);
                }
                // The answer arrives where it is waited for.
                if world.owners[at].mind == Mind::Asking {
                    let mut told = next;
                    told.owners[at].mind = Mind::Running;
                    told.owners[at].begun = true;
                    self.reach(told);
                }
            }
        }
    }

    /// Where one of two says at most once, neither begins after the other has, unless that took no effect.
    fn check_at_most_once(&self, world: World, granted: usize) {
        let strict = self.guarantees.contains(&OnLapse::Hold);
        let begun = world.owners[1 - granted].begun;
        assert!(!(strict && begun), "a second run: {world:?} {:?}", self.records[world.stored]);
    }

    fn let_time_pass(&mut self, world: World) {
        let stored = match self.later.get(&world.stored) {
            Some(later) => *later,
            None => self.age(world.stored),
        };
        self.reach(if stored == World::EMPTY { world.forgotten() } else { World { stored, ..world } });
    }

    fn age(&mut self, stored: usize) -> usize {
        let later = match &self.records[stored] {
            Some(record) if record.for_ever => stored,
            Some(record) if record.phase != Phase::Tail && record.record.tail() > Duration::ZERO => {
                let Seen { record, phase } = Seen::new(record.record.clone(), Phase::Tail);
                self.number(Some(Stored { record, phase, for_ever: false }))
            }
            Some(_) | None => World::EMPTY,
        };
        self.later.insert(stored, later);
        later
    }

    /// Reads once, and sends what it decided at any later time.
    fn let_operator_act(&mut self, world: World) {
        let Some(decision) = &self.decision else { return };
        let vouches = matches!(decision, Resolution::Release | Resolution::Forget);
        let Some(read) = world.operator else {
            if world.stored != World::EMPTY {
                let read = self.alike[world.stored];
                self.reach(World { operator: Some(read), ..world });
            }
            return;
        };
        let (told, stored) = self.step(world.stored, Sent::Operator(read));
        let next = World { stored, ..world };
        self.reach(if vouches && told == Told::Done { next.without_beginnings() } else { next });
    }

    fn step(&mut self, stored: usize, sent: Sent) -> (Told, usize) {
        if let Some(known) = self.steps.get(&(stored, sent)) {
            return *known;
        }
        let command = match sent {
            Sent::Owner(at, message) => message.command(at, self.guarantees),
            Sent::Operator(read) => {
                let seen = self.records[read].as_ref().map(owner).expect("something was read");
                let resolution = self.decision.clone().expect("an operator decides");
                Command::Operate(Operate { seen, force: true, resolution, at_ms: 0 })
            }
        };
        let (answer, next) = apply(self.records[stored].as_ref(), &command);
        let told = match answer {
            Answer::Acquired(Acquired::Claimed(_, origin)) => Told::Granted(origin),
            Answer::Owned(Owned::Done) => Told::Done,
            Answer::Acquired(_) | Answer::Owned(Owned::Lost(_)) => Told::Refused,
        };
        let next = self.number(next);
        self.steps.insert((stored, sent), (told, next));
        (told, next)
    }

    fn number(&mut self, stored: Option<Stored>) -> usize {
        if let Some(known) = self.records.iter().position(|known| *known == stored) {
            return known;
        }
        let owner = |stored: &Option<Stored>| stored.as_ref().map(owner);
        let number = self.records.len();
        self.alike.push(self.records.iter().position(|known| owner(known) == owner(&stored)).unwrap_or(number));
        self.records.push(stored);
        number
    }
}

type Mixing = BuildHasherDefault<Mix>;

/// Good enough to spread small numbers, and fast where nothing is optimised.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(7) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn owner(stored: &Stored) -> (Tag, Token) {
    (stored.record.tag(), stored.record.token)
}

/// One step, checked; what is stored after it.
fn apply(stored: Option<&Stored>, command: &Command) -> (Answer, Option<Stored>) {
    let seen = stored.map(|stored| Seen { record: stored.record.clone(), phase: stored.phase });
    let step = transition(seen.as_ref(), identity(), command);
    check_step(stored, command, &step);
    let after = match step.write {
        Write::Keep => stored.cloned(),
        Write::Delete => None,
        Write::Put(record, Life::Forever) => {
            Some(Stored { record, phase: Phase::Active { left: MOMENT }, for_ever: true })
        }
        Write::Put(record, Life::Timed { active, .. }) => {
            let phase = if active > Duration::ZERO { Phase::Active { left: MOMENT } } else { Phase::Tail };
            Some(Stored { record, phase, for_ever: false })
        }
    };
    (step.answer, after)
}

/// What must hold of every single step.
fn check_step(before: Option<&Stored>, command: &Command, step: &Step) {
    let context = || format!("{before:?}\n{command:?}\n{step:?}");
    let stored = before.map(|stored| &stored.record);
    let written = match &step.write {
        Write::Put(record, life) => Some((record, life)),
        Write::Keep | Write::Delete => None,
    };
    let operates = matches!(command, Command::Operate(_));
    let keeps = step.write == Write::Keep;

    if let Some((record, life)) = written {
        assert_eq!(Record::decode(&record.encode(), identity()).as_ref(), Ok(record), "{}", context());
        // A store that keeps one expiry finds the end of the active part by the record's own tail.
        if let Life::Timed { tail, .. } = life {
            assert_eq!(*tail, record.tail(), "{}", context());
        }
        if let Some(stored) = stored {
            assert!(record.attempt >= stored.attempt, "the attempt falls: {}", context());
        }
    }
    if stored.is_some_and(|stored| matches!(stored.state, State::Completed { .. })) && !operates {
        assert!(keeps, "an outcome is replaced: {}", context());
    }
    if before.is_some_and(|stored| stored.for_ever) && !operates && !keeps {
        let Command::Settle(settle) = command else { panic!("held, and touched: {}", context()) };
        assert_ne!(settle.settlement, Settlement::Abandon, "held, and let go: {}", context());
    }

    let token = match command {
        Command::Acquire(acquire) => return check_acquire(before, acquire, step, written.map(|(record, _)| record)),
        Command::Renew(renew) => renew.token,
        Command::Settle(settle) => settle.token,
        Command::Operate(operate) => operate.seen.1,
    };
    let Answer::Owned(answer) = &step.answer else { panic!("answers another command: {}", context()) };
    match answer {
        Owned::Lost(told) => {
            assert_eq!(told.as_ref(), stored, "{}", context());
            assert!(keeps, "lost, and written: {}", context());
        }
        Owned::Done => {
            if let Some(stored) = stored {
                assert_eq!(stored.token, token, "a stale command lands: {}", context());
            }
            let after = match &step.write {
                Write::Keep => stored,
                Write::Put(record, _) => Some(record),
                Write::Delete => None,
            };
            check_done(command, after, context);
        }
    }
}

fn check_acquire(before: Option<&Stored>, acquire: &Acquire, step: &Step, written: Option<&Record>) {
    let context = || format!("{before:?}\n{acquire:?}\n{step:?}");
    let Answer::Acquired(answer) = &step.answer else { panic!("answers another command: {}", context()) };
    let stored = before.map(|stored| &stored.record);
    let same_request = stored.is_none_or(|s| compare(s.fingerprint, acquire.fingerprint) == Comparison::Equal);
    match answer {
        Acquired::Claimed(ticket, Origin::Repeated) => {
            assert_eq!(Some(&ticket.record), stored, "{}", context());
            assert_eq!((ticket.record.token, &step.write), (acquire.token, &Write::Keep), "{}", context());
        }
        Acquired::Claimed(ticket, origin) => {
            assert_eq!(Some(&ticket.record), written, "{}", context());
            assert_eq!(ticket.record.token, acquire.token, "{}", context());
            assert_eq!(ticket.record.attempt, stored.map_or(1, |stored| stored.attempt + 1), "{}", context());
            assert!(same_request || acquire.observed, "another request goes on with it: {}", context());
            let expected = match before {
                None => Origin::Fresh,
                Some(Stored { record: Record { state: State::Freed, .. }, .. }) => Origin::Freed,
                Some(Stored { record, phase: Phase::Tail, .. })
                    if record.state == State::InFlight { on_lapse: OnLapse::RunAgain }
                        && acquire.on_lapse == OnLapse::RunAgain =>
                {
                    Origin::TakenOver
                }
                Some(_) => panic!("two owners at a time: {}", context()),
            };
            assert_eq!(*origin, expected, "{}", context());
        }
        Acquired::Held { held: Held::Lapsed, .. } if written.is_some() => {
            let lapsed = before.is_some_and(|stored| stored.phase == Phase::Tail);
            assert!(lapsed && written.map(|w| w.token) == stored.map(|s| s.token), "{}", context());
        }
        _ => assert_eq!(step.write, Write::Keep, "refused, and written: {}", context()),
    }
    if matches!(answer, Acquired::Replay { .. } | Acquired::Gone) {
        assert!(same_request || acquire.observed, "another request's outcome: {}", context());
    }
}

/// Done means: it is stored so.
fn check_done(command: &Command, after: Option<&Record>, context: impl Fn() -> String) {
    let state = after.map(|record| &record.state);
    let is_so = match command {
        Command::Acquire(_) | Command::Operate(_) => true,
        Command::Renew(_) => matches!(state, Some(State::InFlight { .. })),
        Command::Settle(settle) => match &settle.settlement {
            Settlement::Complete { completion: told, .. } => {
                let gone = Completion::NotReplayable(NotReplayable::Gone);
                matches!(state, Some(State::Completed { completion, .. }) if [told, &gone].contains(&completion))
            }
            Settlement::Release => matches!(state, None | Some(State::Freed)),
            Settlement::Abandon => matches!(state, Some(State::InFlight { .. } | State::Held(Held::Lapsed))),
            Settlement::Hold { .. } => matches!(state, Some(State::Held(_))),
        },
    };
    assert!(is_so, "done, but not so: {}", context());
}

/// Whatever is stored, every command has an answer, and the answer keeps the rules.
fn check_totality(stored: Option<&Stored>) {
    let both = [OnLapse::RunAgain, OnLapse::Hold];
    for owner in 0..3 {
        for on_lapse in both {
            let Command::Acquire(acquire) = asks(owner, on_lapse) else { unreachable!() };
            for fingerprint in [(1, 1), (1, 2), (2, 1)].map(|(version, of)| Fingerprint::from_parts(version, [of; 32]))
            {
                for (fingerprint, observed) in [(Some(fingerprint), false), (Some(fingerprint), true), (None, false)] {
                    apply(stored, &Command::Acquire(Acquire { fingerprint, observed, ..acquire.clone() }));
                }
            }
        }
        for message in Message::ALL.into_iter().filter(|message| owner < 2 && *message != Message::Acquire) {
            apply(stored, &message.command(owner, both));
        }
        for tag in [Tag::InFlight, Tag::Freed, Tag::Completed, Tag::Held] {
            for (resolution, force) in
                decisions().into_iter().flat_map(|decision| [(decision.clone(), false), (decision, true)])
            {
                let seen = (tag, token(owner));
                apply(stored, &Command::Operate(Operate { seen, force, resolution, at_ms: 0 }));
            }
        }
    }
}

/// Somebody who comes later and waits long enough runs it or gets its outcome; only where one of the two says hold may he
/// learn that it is held.
fn check_liveness(stored: Option<&Stored>) {
    const LATER: usize = 2;

    for on_lapse in [OnLapse::RunAgain, OnLapse::Hold] {
        let mut stored = stored.cloned();
        for waits in 0.. {
            assert!(waits < 3, "no way out: {stored:?}");
            match apply(stored.as_ref(), &asks(LATER, on_lapse)).0.into_acquired() {
                Acquired::Claimed(..) | Acquired::Replay { .. } => break,
                Acquired::Held { .. } => {
                    let lenient = State::InFlight { on_lapse: OnLapse::RunAgain };
                    let unwanted = on_lapse == OnLapse::RunAgain && stored.as_ref().unwrap().record.state == lenient;
                    assert!(!unwanted, "held by nobody's wish: {stored:?}");
                    break;
                }
                Acquired::Busy { .. } => stored.as_mut().unwrap().phase = Phase::Tail,
                Acquired::Gone => stored = None,
                refused => panic!("{refused:?}, for good: {stored:?}"),
            }
        }
    }
}

fn decisions() -> [Resolution; 4] {
    let complete = Resolution::Complete { completion: outcome(OPERATOR), retention: MOMENT };
    let hold = Resolution::Hold { held: Held::because("checking"), limit: None };
    [complete, Resolution::Release, hold, Resolution::Forget]
}

const MIXTURES: [[OnLapse; 2]; 4] = [
    [OnLapse::RunAgain, OnLapse::RunAgain],
    [OnLapse::RunAgain, OnLapse::Hold],
    [OnLapse::Hold, OnLapse::RunAgain],
    [OnLapse::Hold, OnLapse::Hold],
];

/// Follows everything, for each mixture of guarantees; then asks of each record that turned up whether it has a way out.
fn search(decisions: &[Option<Resolution>], most_attempts: u32, at_least: usize) {
    let mut records = Vec::new();
    for (guarantees, decision) in MIXTURES.into_iter().flat_map(|mixture| decisions.iter().map(move |d| (mixture, d))) {
        let search = Search::run(guarantees, decision.clone(), most_attempts);
        let worlds = search.worlds.len();
        assert!(worlds > at_least, "next to nothing was seen: {worlds} worlds of {guarantees:?}, {decision:?}");
        for stored in search.records {
            if !records.contains(&stored) {
                records.push(stored);
            }
        }
    }
    for stored in &records {
        check_totality(stored.as_ref());
        check_liveness(stored.as_ref());
    }
}

#[test]
fn two_owners_never_break_the_rules_whatever_gets_lost_repeated_or_late() {
    search(&[None], 6, 2_000);
}

#[test]
fn an_operator_who_decides_on_what_he_read_breaks_no_rules_either() {
    search(&decisions().map(Some), 3, 10_000);
}
