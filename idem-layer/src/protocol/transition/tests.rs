//! The table, row by row.

use super::*;
use crate::protocol::{Key, Operation, Scope, Snapshot};

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(3600);
const LEFT: Duration = Duration::from_millis(1);

const MINE: Token = Token::from_bytes([1; 16]);
const OTHERS: Token = Token::from_bytes([2; 16]);

fn identity() -> Identity {
    Identity::new(Operation::new("op").unwrap(), None, Scope::unscoped(), Key::new("k").unwrap())
}

fn fingerprint(version: u8, of: u8) -> Fingerprint {
    Fingerprint::from_parts(version, [of; 32])
}

fn outcome() -> Completion {
    Completion::Replayable(Snapshot::from_bytes(Bytes::from_static(b"outcome")))
}

/// Of attempt 1, with the fingerprint of the request that [`ask`] makes.
fn record(token: Token, state: State) -> Record {
    Record {
        identity: *identity().digest(),
        token,
        attempt: 1,
        earlier_unknown: false,
        since_ms: 100,
        retention_ms: RETENTION.as_millis() as u64,
        fingerprint: Some(fingerprint(1, 1)),
        progress: None,
        state,
    }
}

fn in_flight(token: Token, on_lapse: OnLapse) -> Record {
    record(token, State::InFlight { on_lapse })
}

fn completed(token: Token) -> Record {
    record(token, State::Completed { completion: outcome(), remember_ms: 7 })
}

/// What is left of it behind its replay time.
fn gone(token: Token) -> Record {
    let completion = Completion::NotReplayable(NotReplayable::Gone);
    record(token, State::Completed { completion, remember_ms: 7 })
}

fn held(token: Token, held: Held) -> Record {
    record(token, State::Held(held))
}

/// Attempt 3 with progress and an unknown past, freed.
fn freed(token: Token) -> Record {
    Record {
        attempt: 3,
        earlier_unknown: true,
        progress: Some(Bytes::from_static(b"step")),
        ..record(token, State::Freed)
    }
}

fn live(record: Record) -> Option<Seen> {
    Some(Seen { record, phase: Phase::Active { left: LEFT } })
}

fn over(record: Record) -> Option<Seen> {
    Some(Seen::new(record, Phase::Tail))
}

fn ask(on_lapse: OnLapse) -> Acquire {
    Acquire {
        token: MINE,
        fingerprint: Some(fingerprint(1, 1)),
        observed: false,
        on_lapse,
        lease: LEASE,
        retention: RETENTION,
        held_limit: None,
        at_ms: 200,
    }
}

fn asking(acquire: Acquire) -> Command {
    Command::Acquire(acquire)
}

fn renewing(progress: Option<&'static [u8]>) -> Command {
    Command::Renew(Renew { token: MINE, lease: LEASE * 2, progress: progress.map(Bytes::from_static) })
}

fn settling(settlement: Settlement) -> Command {
    Command::Settle(Settle { token: MINE, settlement, at_ms: 200 })
}

fn complete() -> Settlement {
    Settlement::Complete { completion: outcome(), retention: LEASE * 9, remember: LEASE * 5 }
}

fn hold() -> Settlement {
    Settlement::Hold { held: Held::Unknown, limit: None }
}

fn operating(seen: (Tag, Token), force: bool, resolution: Resolution) -> Command {
    Command::Operate(Operate { seen, force, resolution, at_ms: 200 })
}

fn granted(record: Record, origin: Origin) -> Answer {
    Acquired::Claimed(Ticket::new(&identity(), record), origin).into()
}

fn lost(record: Record) -> Answer {
    Owned::Lost(Some(record)).into()
}

fn timed(record: Record, active: Duration, tail: Duration) -> Write {
    Write::Put(record, Life::Timed { active, tail })
}

/// What [`ask`] writes when nothing came before.
fn claimed(on_lapse: OnLapse) -> Record {
    Record { since_ms: 200, ..in_flight(MINE, on_lapse) }
}

struct Row {
    name: &'static str,
    stored: Option<Seen>,
    command: Command,
    answer: Answer,
    write: Write,
}

#[track_caller]
fn check(rows: impl IntoIterator<Item = Row>) {
    for Row { name, stored, command, answer, write } in rows {
        let step = transition(stored.as_ref(), &identity(), &command);
        assert_eq!(step.answer, answer, "{name}: answer");
        assert_eq!(step.write, write, "{name}: write");
    }
}

#[test]
fn acquire_follows_the_table() {
    use OnLapse::{Hold, RunAgain};

    let row = |name, stored, command: Acquire, answer: Answer, write| Row {
        name,
        stored,
        command: asking(command),
        answer,
        write,
    };
    let other_body = || Acquire { fingerprint: Some(fingerprint(1, 9)), ..ask(RunAgain) };
    let other_version = || Acquire { fingerprint: Some(fingerprint(2, 1)), ..ask(RunAgain) };
    let observing = |acquire| Acquire { observed: true, ..acquire };
    let next = |before: Record, unknown| Record {
        attempt: before.attempt + 1,
        earlier_unknown: unknown,
        progress: before.progress,
        ..claimed(RunAgain)
    };
    let lapsed = |record: Record| Record { since_ms: 200, state: State::Held(Held::Lapsed), ..record };
    let held_now: Answer = Acquired::Held { held: Held::Lapsed, since_ms: 200 }.into();
    let busy = |differs| Acquired::Busy { since_ms: 100, left: LEFT, differs }.into();
    let replay = |differs| Acquired::Replay { completion: outcome(), since_ms: 100, differs }.into();
    let half_done = Record { progress: Some(Bytes::from_static(b"step")), ..in_flight(OTHERS, RunAgain) };

    check([
        row(
            "nothing stored",
            None,
            ask(Hold),
            granted(claimed(Hold), Origin::Fresh),
            timed(claimed(Hold), LEASE, RETENTION),
        ),
        row(
            "in flight, my token, live",
            live(in_flight(MINE, Hold)),
            ask(RunAgain),
            granted(in_flight(MINE, Hold), Origin::Repeated),
            Write::Keep,
        ),
        row(
            "in flight, my token, lapsed",
            over(in_flight(MINE, Hold)),
            ask(RunAgain),
            granted(in_flight(MINE, Hold), Origin::Repeated),
            Write::Keep,
        ),
        row(
            "my token comes before the fingerprint",
            live(in_flight(MINE, Hold)),
            other_body(),
            granted(in_flight(MINE, Hold), Origin::Repeated),
            Write::Keep,
        ),
        row(
            "another version",
            live(in_flight(OTHERS, Hold)),
            other_version(),
            Acquired::OtherVersion(1).into(),
            Write::Keep,
        ),
        row(
            "another version, lapsed",
            over(in_flight(OTHERS, RunAgain)),
            other_version(),
            Acquired::OtherVersion(1).into(),
            Write::Keep,
        ),
        row(
            "another version, completed",
            live(completed(OTHERS)),
            other_version(),
            Acquired::OtherVersion(1).into(),
            Write::Keep,
        ),
        row(
            "another version, observed",
            live(completed(OTHERS)),
            observing(other_version()),
            replay(false),
            Write::Keep,
        ),
        row(
            "other body, in flight",
            live(in_flight(OTHERS, RunAgain)),
            other_body(),
            Acquired::Mismatch.into(),
            Write::Keep,
        ),
        row(
            "other body, lapsed",
            over(in_flight(OTHERS, RunAgain)),
            other_body(),
            Acquired::Mismatch.into(),
            Write::Keep,
        ),
        row(
            "other body, lapsed and to be held",
            over(in_flight(OTHERS, Hold)),
            other_body(),
            Acquired::Mismatch.into(),
            Write::Keep,
        ),
        row("other body, completed", live(completed(OTHERS)), other_body(), Acquired::Mismatch.into(), Write::Keep),
        row(
            "other body, completed by my token",
            live(completed(MINE)),
            other_body(),
            Acquired::Mismatch.into(),
            Write::Keep,
        ),
        row("other body, gone", over(completed(OTHERS)), other_body(), Acquired::Mismatch.into(), Write::Keep),
        row(
            "other body, held",
            live(held(OTHERS, Held::Unknown)),
            other_body(),
            Acquired::Mismatch.into(),
            Write::Keep,
        ),
        row("other body, freed half-done", live(freed(OTHERS)), other_body(), Acquired::Mismatch.into(), Write::Keep),
        row(
            "other body, freed",
            live(Record { fingerprint: None, ..freed(OTHERS) }),
            other_body(),
            granted(Record { fingerprint: Some(fingerprint(1, 9)), ..next(freed(OTHERS), true) }, Origin::Freed),
            timed(Record { fingerprint: Some(fingerprint(1, 9)), ..next(freed(OTHERS), true) }, LEASE, RETENTION),
        ),
        row(
            "freed",
            live(freed(OTHERS)),
            ask(RunAgain),
            granted(next(freed(OTHERS), true), Origin::Freed),
            timed(next(freed(OTHERS), true), LEASE, RETENTION),
        ),
        row("in flight, live", live(in_flight(OTHERS, RunAgain)), ask(Hold), busy(false), Write::Keep),
        row(
            "in flight, live, observed",
            live(in_flight(OTHERS, RunAgain)),
            observing(other_body()),
            busy(true),
            Write::Keep,
        ),
        row(
            "lapsed, nobody says hold",
            over(half_done.clone()),
            ask(RunAgain),
            granted(next(half_done.clone(), true), Origin::TakenOver),
            timed(next(half_done, true), LEASE, RETENTION),
        ),
        row(
            "lapsed, the record says hold",
            over(in_flight(OTHERS, Hold)),
            ask(RunAgain),
            held_now.clone(),
            Write::Put(lapsed(in_flight(OTHERS, Hold)), Life::Forever),
        ),
        row(
            "lapsed, the caller says hold",
            over(in_flight(OTHERS, RunAgain)),
            ask(Hold),
            held_now.clone(),
            Write::Put(lapsed(in_flight(OTHERS, RunAgain)), Life::Forever),
        ),
        row(
            "lapsed, held up to a limit",
            over(in_flight(OTHERS, Hold)),
            Acquire { held_limit: Some(LEASE), ..ask(Hold) },
            held_now,
            timed(lapsed(in_flight(OTHERS, Hold)), LEASE, Duration::ZERO),
        ),
        row("completed", live(completed(OTHERS)), ask(Hold), replay(false), Write::Keep),
        row("completed by my token", live(completed(MINE)), ask(RunAgain), replay(false), Write::Keep),
        row("completed, observed", live(completed(OTHERS)), observing(other_body()), replay(true), Write::Keep),
        row(
            "completed, no fingerprint",
            live(completed(OTHERS)),
            Acquire { fingerprint: None, ..ask(Hold) },
            replay(false),
            Write::Keep,
        ),
        row("past its replay time", over(completed(OTHERS)), ask(RunAgain), Acquired::Gone.into(), Write::Keep),
        row(
            "held",
            live(held(OTHERS, Held::because("so"))),
            ask(RunAgain),
            Acquired::Held { held: Held::because("so"), since_ms: 100 }.into(),
            Write::Keep,
        ),
        row(
            "held by my token",
            live(held(MINE, Held::Lapsed)),
            ask(Hold),
            Acquired::Held { held: Held::Lapsed, since_ms: 100 }.into(),
            Write::Keep,
        ),
    ]);
}

#[test]
fn renew_follows_the_table() {
    let row = |name, stored, command, answer: Answer, write| Row { name, stored, command, answer, write };
    let mine = in_flight(MINE, OnLapse::Hold);
    let stepped = |step| Record { progress: Some(Bytes::from_static(step)), ..in_flight(MINE, OnLapse::Hold) };

    check([
        row("live", live(mine.clone()), renewing(None), Owned::Done.into(), timed(mine.clone(), LEASE * 2, RETENTION)),
        row("lapsed", over(mine.clone()), renewing(None), Owned::Done.into(), timed(mine, LEASE * 2, RETENTION)),
        row(
            "progress replaces",
            live(stepped(b"1")),
            renewing(Some(b"")),
            Owned::Done.into(),
            timed(stepped(b""), LEASE * 2, RETENTION),
        ),
        row(
            "no progress keeps",
            live(stepped(b"1")),
            renewing(None),
            Owned::Done.into(),
            timed(stepped(b"1"), LEASE * 2, RETENTION),
        ),
        row("nothing stored", None, renewing(None), Owned::Lost(None).into(), Write::Keep),
        row(
            "another's",
            over(in_flight(OTHERS, OnLapse::Hold)),
            renewing(None),
            lost(in_flight(OTHERS, OnLapse::Hold)),
            Write::Keep,
        ),
        row("completed by my token", live(completed(MINE)), renewing(Some(b"")), lost(completed(MINE)), Write::Keep),
        row("freed by my token", live(freed(MINE)), renewing(None), lost(freed(MINE)), Write::Keep),
        row(
            "held by a lapse",
            live(held(MINE, Held::Lapsed)),
            renewing(None),
            lost(held(MINE, Held::Lapsed)),
            Write::Keep,
        ),
    ]);
}

#[test]
fn settle_follows_the_table() {
    let row = |name, stored, settlement, answer: Answer, write| Row {
        name,
        stored,
        command: settling(settlement),
        answer,
        write,
    };
    let done = || Answer::from(Owned::Done);
    let mine = || in_flight(MINE, OnLapse::RunAgain);
    let late = || held(MINE, Held::Lapsed);
    let second = || Record { attempt: 2, earlier_unknown: true, ..mine() };
    let half_done = || Record { progress: Some(Bytes::from_static(b"step")), ..mine() };
    let other_outcome = Settlement::Complete {
        completion: Completion::NotReplayable(NotReplayable::Stream),
        retention: LEASE,
        remember: Duration::ZERO,
    };
    let no_room = || {
        let completion = Completion::NotReplayable(NotReplayable::NoRoom);
        record(MINE, State::Completed { completion, remember_ms: 7 })
    };

    let to_completed = |before: Record| {
        let state = State::Completed { completion: outcome(), remember_ms: (LEASE * 5).as_millis() as u64 };
        let retention_ms = (LEASE * 9).as_millis() as u64;
        timed(Record { since_ms: 200, retention_ms, progress: None, state, ..before }, LEASE * 9, LEASE * 5)
    };
    let to_held = |before: Record| {
        Write::Put(Record { since_ms: 200, state: State::Held(Held::Unknown), ..before }, Life::Forever)
    };
    let to_freed = |before: Record| {
        let fingerprint = before.fingerprint.filter(|_| before.progress.is_some());
        timed(Record { since_ms: 200, fingerprint, state: State::Freed, ..before }, RETENTION, Duration::ZERO)
    };

    check([
        row("complete, live", live(half_done()), complete(), done(), to_completed(half_done())),
        row("complete, lapsed", over(second()), complete(), done(), to_completed(second())),
        row("complete, held by a lapse", live(late()), complete(), done(), to_completed(late())),
        row("release, attempt 1", live(mine()), Settlement::Release, done(), Write::Delete),
        row("release, attempt 1, lapsed", over(mine()), Settlement::Release, done(), Write::Delete),
        row("release, attempt 1, held by a lapse", live(late()), Settlement::Release, done(), Write::Delete),
        row("release, attempt 2", live(second()), Settlement::Release, done(), to_freed(second())),
        row("release, half-done", live(half_done()), Settlement::Release, done(), to_freed(half_done())),
        row("abandon, live", live(mine()), Settlement::Abandon, done(), timed(mine(), Duration::ZERO, RETENTION)),
        row("abandon, lapsed", over(mine()), Settlement::Abandon, done(), timed(mine(), Duration::ZERO, RETENTION)),
        // The held record lives for ever, a lapsed one for its retention: to go back would let the key run again one day.
        row("abandon, held by a lapse", live(late()), Settlement::Abandon, done(), Write::Keep),
        row("hold, live", live(second()), hold(), done(), to_held(second())),
        row("hold, held by a lapse", live(late()), hold(), done(), to_held(late())),
        row(
            "hold up to a limit",
            live(mine()),
            Settlement::Hold { held: Held::Unknown, limit: Some(LEASE) },
            done(),
            timed(Record { since_ms: 200, state: State::Held(Held::Unknown), ..mine() }, LEASE, Duration::ZERO),
        ),
        row("repeated complete", live(completed(MINE)), complete(), done(), Write::Keep),
        row("repeated complete, past its replay time", over(completed(MINE)), complete(), done(), Write::Keep),
        row(
            "complete otherwise, past its replay time",
            over(completed(MINE)),
            other_outcome.clone(),
            done(),
            Write::Keep,
        ),
        row("complete, gone by another", over(completed(OTHERS)), complete(), lost(gone(OTHERS)), Write::Keep),
        row("release, gone", over(completed(MINE)), Settlement::Release, lost(gone(MINE)), Write::Keep),
        row("repeated complete that found no room", live(no_room()), complete(), done(), Write::Keep),
        row("repeated hold", live(held(MINE, Held::because("so"))), hold(), done(), Write::Keep),
        row("repeated release, attempt 1", None, Settlement::Release, done(), Write::Keep),
        row("repeated release", live(freed(MINE)), Settlement::Release, done(), Write::Keep),
        // Wrong order: A runs, an operator completes A's claim by force, A completes with an outcome of its own. What is
        // stored is the operator's: to tell A that its own is stored would give one key two answers.
        row("complete, completed otherwise", live(completed(MINE)), other_outcome, lost(completed(MINE)), Write::Keep),
        row("complete, nothing stored", None, complete(), Owned::Lost(None).into(), Write::Keep),
        row(
            "complete, another's",
            over(in_flight(OTHERS, OnLapse::RunAgain)),
            complete(),
            lost(in_flight(OTHERS, OnLapse::RunAgain)),
            Write::Keep,
        ),
        row(
            "complete, completed by another",
            live(completed(OTHERS)),
            complete(),
            lost(completed(OTHERS)),
            Write::Keep,
        ),
        row(
            "complete, held by decision",
            live(held(MINE, Held::Unknown)),
            complete(),
            lost(held(MINE, Held::Unknown)),
            Write::Keep,
        ),
        row("complete, freed", live(freed(MINE)), complete(), lost(freed(MINE)), Write::Keep),
        row("release, completed", live(completed(MINE)), Settlement::Release, lost(completed(MINE)), Write::Keep),
        row(
            "release, another's",
            live(in_flight(OTHERS, OnLapse::Hold)),
            Settlement::Release,
            lost(in_flight(OTHERS, OnLapse::Hold)),
            Write::Keep,
        ),
        row(
            "release, held by decision",
            live(held(MINE, Held::Unknown)),
            Settlement::Release,
            lost(held(MINE, Held::Unknown)),
            Write::Keep,
        ),
        row("abandon, nothing stored", None, Settlement::Abandon, Owned::Lost(None).into(), Write::Keep),
        row("abandon, freed", live(freed(MINE)), Settlement::Abandon, lost(freed(MINE)), Write::Keep),
        row(
            "abandon, another's lapse",
            live(held(OTHERS, Held::Lapsed)),
            Settlement::Abandon,
            lost(held(OTHERS, Held::Lapsed)),
            Write::Keep,
        ),
        row("hold, completed", live(completed(MINE)), hold(), lost(completed(MINE)), Write::Keep),
        row(
            "hold, held by another",
            live(held(OTHERS, Held::Unknown)),
            hold(),
            lost(held(OTHERS, Held::Unknown)),
            Write::Keep,
        ),
    ]);
}

#[test]
fn operate_follows_the_table() {
    let row = |name, stored, command, answer: Answer, write| Row { name, stored, command, answer, write };
    let done = || Answer::from(Owned::Done);
    let running = || Record { earlier_unknown: true, ..in_flight(OTHERS, OnLapse::Hold) };
    let stuck = || Record { earlier_unknown: true, ..held(OTHERS, Held::Lapsed) };
    let seen = (Tag::InFlight, OTHERS);
    let to_complete = || Resolution::Complete { completion: outcome(), retention: LEASE };
    let to_hold = || Resolution::Hold { held: Held::because("checking"), limit: None };
    let completed_so = |before: Record| {
        let state = State::Completed { completion: outcome(), remember_ms: 0 };
        let retention_ms = LEASE.as_millis() as u64;
        timed(Record { since_ms: 200, retention_ms, state, ..before }, LEASE, Duration::ZERO)
    };
    let freed_so = |before: Record| {
        let (fingerprint, earlier_unknown) = (None, false);
        timed(
            Record { since_ms: 200, fingerprint, earlier_unknown, state: State::Freed, ..before },
            RETENTION,
            Duration::ZERO,
        )
    };
    let held_so = |before: Record| {
        Write::Put(Record { since_ms: 200, state: State::Held(Held::because("checking")), ..before }, Life::Forever)
    };

    check([
        row(
            "held: complete",
            live(stuck()),
            operating((Tag::Held, OTHERS), false, to_complete()),
            done(),
            completed_so(stuck()),
        ),
        row(
            "held: release",
            live(stuck()),
            operating((Tag::Held, OTHERS), false, Resolution::Release),
            done(),
            freed_so(stuck()),
        ),
        row("held: hold", live(stuck()), operating((Tag::Held, OTHERS), false, to_hold()), done(), held_so(stuck())),
        row(
            "held: forget",
            live(stuck()),
            operating((Tag::Held, OTHERS), false, Resolution::Forget),
            done(),
            Write::Delete,
        ),
        row(
            "completed: forget",
            over(completed(OTHERS)),
            operating((Tag::Completed, OTHERS), false, Resolution::Forget),
            done(),
            Write::Delete,
        ),
        row("lapsed", over(running()), operating(seen, false, Resolution::Release), done(), freed_so(running())),
        row("live", live(running()), operating(seen, false, Resolution::Release), lost(running()), Write::Keep),
        row("live, forced", live(running()), operating(seen, true, to_hold()), done(), held_so(running())),
        row(
            "another state by now",
            live(completed(OTHERS)),
            operating(seen, true, Resolution::Forget),
            lost(completed(OTHERS)),
            Write::Keep,
        ),
        row(
            "another claim by now",
            over(running()),
            operating((Tag::InFlight, MINE), true, Resolution::Forget),
            lost(running()),
            Write::Keep,
        ),
        row("nothing by now", None, operating(seen, true, to_complete()), Owned::Lost(None).into(), Write::Keep),
    ]);
}

#[test]
fn an_attempt_does_not_overflow() {
    let last = Record { attempt: u32::MAX, ..record(OTHERS, State::Freed) };
    let step = transition(live(last).as_ref(), &identity(), &asking(ask(OnLapse::Hold)));
    let Acquired::Claimed(ticket, Origin::Freed) = step.answer.into_acquired() else { panic!("not claimed") };
    assert_eq!(ticket.record.attempt, u32::MAX);
}

/// A caller without a fingerprint went on with half-done work; the next, with another request, continued it.
#[test]
fn half_done_work_keeps_its_fingerprint_whoever_goes_on_with_it() {
    let half_done = Record { progress: Some(Bytes::from_static(b"step")), ..in_flight(OTHERS, OnLapse::RunAgain) };
    let without = Acquire { fingerprint: None, ..ask(OnLapse::RunAgain) };
    for seen in [over(half_done), live(freed(OTHERS))] {
        let step = transition(seen.as_ref(), &identity(), &Command::Acquire(without.clone()));
        let Write::Put(record, _) = step.write else { panic!("claimed") };
        assert_eq!(record.fingerprint, Some(fingerprint(1, 1)));
    }
}
