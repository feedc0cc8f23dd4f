use std::fmt;
use std::time::Duration;

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, ErrorKind, IntoConnectionInfo, RedisError, Value};
use bytes::Bytes;

use super::apart;
use super::connection::RedisConnection;
use super::fault::{Cause, Fault, was_not_applied};
use super::layout::{self, Keys, Prefix, READ, RedisPrefixError, Script, WRITE_IF_ROOM, WRITE_IN_ANY_CASE};
use crate::protocol::{
    Acquire, Acquired, Answer, Command, Completion, Identity, Life, NotReplayable, Owned, Phase, Record, Renew, Seen,
    Settle, Settlement, Ticket, Write, transition,
};
use crate::store::{Inspect, Store, StoreError, StoreErrorKind};

/// Keeps records in Redis or Valkey. Cheap to clone; clones share the connection. See the [module docs](super).
#[derive(Clone)]
pub struct RedisStore<C = RedisConnection> {
    connection: C,
    prefix: Prefix,
    /// The connection may send a command again by itself, so that its last error says nothing about what it sent first.
    resends: bool,
}

impl RedisStore {
    /// Connects to one server and makes sure that it is there. From then on the connection is made anew whenever it is lost.
    ///
    /// The address is anything that the `redis` crate takes for one, such as `redis://user:password@host:6379/0` or
    /// `redis+unix:///run/redis.sock`.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsupported`] for an address that cannot be read or a password that is not accepted, else
    /// [`StoreErrorKind::Unavailable`] or [`StoreErrorKind::TimedOut`] when there is no server.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        RedisConnection::connect(address).await.map(Self::connected).map_err(not_connected)
    }

    /// As [`connect`](RedisStore::connect), but the connection is made by the first command: for a service that has to start
    /// while Redis is down, and refuses guarded requests until it is there.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Unsupported`] for an address that cannot be read.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        RedisConnection::connect_lazy(address).map(Self::connected).map_err(not_connected)
    }

    fn connected(connection: RedisConnection) -> Self {
        Self { resends: false, ..Self::new(connection) }
    }
}

impl<C> RedisStore<C> {
    /// A store on a connection of the caller's: a `ConnectionManager` with other settings, a `ClusterConnection`, a
    /// `MultiplexedConnection`. Its clones have to be usable at the same time, and it should give up on a server that does
    /// not answer.
    pub fn new(connection: C) -> Self {
        Self { connection, prefix: Prefix::default(), resends: true }
    }

    /// Puts all keys under this prefix instead of `idem:`. Whoever shares records shares the prefix.
    ///
    /// # Errors
    ///
    /// [`RedisPrefixError`], unless it is empty, or made of `A-Z a-z 0-9 . _ - / :` with a colon at its end.
    pub fn with_prefix(self, prefix: impl AsRef<str>) -> Result<Self, RedisPrefixError> {
        Ok(Self { prefix: Prefix::new(prefix.as_ref())?, ..self })
    }
}

impl<C> fmt::Debug for RedisStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Store for RedisStore<C> {
    async fn acquire(&self, identity: &Identity, acquire: &Acquire) -> Result<Acquired, StoreError> {
        let command = Command::Acquire(acquire.clone());
        Ok(self.run(identity, Guess::nothing(), &command).await?.into_acquired())
    }

    async fn renew(&self, ticket: &Ticket, renew: &Renew) -> Result<Owned, StoreError> {
        let command = Command::Renew(renew.clone());
        Ok(self.run(&ticket.identity, Guess::open(ticket), &command).await?.into_owned())
    }

    async fn settle(&self, ticket: &Ticket, settle: &Settle) -> Result<Owned, StoreError> {
        let command = Command::Settle(settle.clone());
        let answer = match self.run(&ticket.identity, Guess::open(ticket), &command).await {
            Err(error) if error.kind() == StoreErrorKind::Full => {
                let Some(smaller) = without_snapshot(settle) else { return Err(error) };
                // It may be a repeated command whose first copy has stored everything, before the server was full.
                let found = self.look(&ticket.identity).await?;
                match found.decides(&ticket.identity, &command) {
                    Some(answer) => answer,
                    None => self.run(&ticket.identity, found, &Command::Settle(smaller)).await?,
                }
            }
            answer => answer?,
        };
        Ok(answer.into_owned())
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Inspect for RedisStore<C> {
    async fn read(&self, identity: &Identity) -> Result<Option<Seen>, StoreError> {
        Ok(self.look(identity).await?.stored.map(|stored| stored.seen))
    }
}

/// What the key is taken to hold while a command is decided.
struct Guess {
    stored: Option<Stored>,
    /// It is what the server said, and nothing about it that the answer depends on was made up.
    certain: bool,
}

struct Stored {
    seen: Seen,
    /// The value as it is stored, which another release may encode differently.
    bytes: Bytes,
}

impl Guess {
    fn nothing() -> Self {
        Self { stored: None, certain: false }
    }

    /// The ticket's claim stands as it was granted.
    fn open(ticket: &Ticket) -> Self {
        let seen = Seen::new(ticket.record.clone(), Phase::Active { left: Duration::MAX });
        Self { stored: Some(Stored { seen, bytes: ticket.record.encode() }), certain: false }
    }

    /// The server said what is stored and how much time is left, or that nothing is stored.
    fn read(found: Option<Found>, identity: &Identity) -> Result<Self, StoreError> {
        let Some(Found { bytes, left_ms, snapshot }) = found else { return Ok(Self { stored: None, certain: true }) };
        let record = apart::join(&bytes, snapshot.as_ref(), identity)?;
        let phase = if apart::is_gone(&record) { Phase::Tail } else { layout::phase(&record, left_ms) };
        let seen = Seen::new(record, phase);
        Ok(Self { stored: Some(Stored { seen, bytes }), certain: true })
    }

    /// The server said what is stored, but not how much time is left, nor what is kept apart. If `command` depends on that, the
    /// guess is that there is none: this is what the next write or read will find out.
    fn read_without_time(bytes: Bytes, identity: &Identity, command: &Command) -> Result<Self, StoreError> {
        let record = apart::join(&bytes, None, identity)?;
        let mut seen = Seen { record, phase: Phase::Active { left: Duration::MAX } };
        let certain = layout::ends_with_its_key(&seen.record) || {
            let while_active = transition(Some(&seen), identity, command);
            seen.phase = Phase::Tail;
            while_active == transition(Some(&seen), identity, command)
        };
        Ok(Self { stored: Some(Stored { seen, bytes }), certain })
    }

    fn seen(&self) -> Option<&Seen> {
        self.stored.as_ref().map(|stored| &stored.seen)
    }

    /// The answer to `command`, if this is all that it takes.
    fn decides(&self, identity: &Identity, command: &Command) -> Option<Answer> {
        let step = transition(self.seen(), identity, command);
        (self.certain && step.write == Write::Keep).then_some(step.answer)
    }
}

/// More than any order of events needs: each further round means that somebody else has written in between.
const ROUNDS: usize = 8;

/// A record may grow by so many bytes of payload where the server is over its `maxmemory`: the mark that stands for a
/// snapshot, the reason why a record is held, an answer of a few words.
const SMALL: usize = 512;

impl<C: ConnectionLike + Clone + Send + Sync + 'static> RedisStore<C> {
    /// Decides by what is taken to be stored, and writes on the condition that it is; where it is not, by what is.
    async fn run(&self, identity: &Identity, mut guess: Guess, command: &Command) -> Result<Answer, StoreError> {
        for _ in 0..ROUNDS {
            let step = transition(guess.seen(), identity, command);
            let otherwise = match (step.write, &guess.stored) {
                (Write::Keep, _) if guess.certain => return Ok(step.answer),
                (Write::Keep, _) => Some(self.look(identity).await?),
                (Write::Delete, None) => return Ok(step.answer),
                (Write::Put(record, life), None) => self.create(identity, &record, life, command).await?,
                (Write::Put(record, life), Some(stored)) => {
                    self.replace(identity, stored, Some((&record, life)), command).await?
                }
                (Write::Delete, Some(stored)) => self.replace(identity, stored, None, command).await?,
            };
            match otherwise {
                Some(found) => guess = found,
                None => return Ok(step.answer),
            }
        }
        Err(StoreError::new(StoreErrorKind::Unavailable).because(Cause::Contended))
    }

    /// Writes where nothing is stored. What is stored instead, if anything.
    async fn create(
        &self,
        identity: &Identity,
        record: &Record,
        life: Life,
        command: &Command,
    ) -> Result<Option<Guess>, StoreError> {
        let mut set = ::redis::cmd("SET");
        set.arg(self.prefix.keys(identity).record).arg(&record.encode()[..]).arg("NX").arg("GET");
        if let Some(lives_ms) = layout::lives_ms(record, life) {
            set.arg("PX").arg(lives_ms);
        }
        match self.send(&set).await {
            Ok(Value::Nil) => Ok(None),
            Ok(Value::BulkString(bytes)) => Guess::read_without_time(bytes.into(), identity, command).map(Some),
            Ok(_) => Err(unexpected_reply()),
            Err(fault) if fault.is_syntax() => Err(self.too_old().await),
            Err(fault) if fault.kind() == StoreErrorKind::Full => {
                // There is no room for another record, but the one that is there can still answer.
                let found = self.look(identity).await?;
                if found.stored.is_some() { Ok(Some(found)) } else { Err(fault.into()) }
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Writes over what is stored, or deletes it, if it is as it was seen. What is stored instead, if it is not.
    async fn replace(
        &self,
        identity: &Identity,
        stored: &Stored,
        write: Option<(&Record, Life)>,
        command: &Command,
    ) -> Result<Option<Guess>, StoreError> {
        let Seen { record: before, phase } = &stored.seen;
        // All that a claim changes in its record while it is in flight is the progress. A write that replaces it needs to
        // know no more than whose claim it is; one that carries it over must have seen the last of it.
        let (first, last, expected) = if replaces_progress(command) {
            let Some(owner) = stored.bytes.get(Record::OWNER) else { return Err(unexpected_reply()) };
            (Record::OWNER.start.to_string(), (Record::OWNER.end - 1).to_string(), owner)
        } else {
            ("0".to_owned(), "-1".to_owned(), &stored.bytes[..])
        };
        let most_left = match phase {
            Phase::Tail => layout::tail_ms(before).to_string(),
            Phase::Active { .. } => String::new(),
        };
        let lives = write.and_then(|(record, life)| layout::lives_ms(record, life)).map(|ms| ms.to_string());
        let replays = write.and_then(|(_, life)| layout::replays_ms(life)).map(|ms| ms.to_string());
        let (value, snapshot) = write.map(|(record, _)| apart::split(record)).unwrap_or_default();
        let growth = write.map_or(0, |(record, _)| record.payload_len().saturating_sub(before.payload_len()));
        let script = if growth > SMALL { &*WRITE_IF_ROOM } else { &*WRITE_IN_ANY_CASE };

        let (lives, replays) = (lives.unwrap_or_default(), replays.unwrap_or_default());
        let snapshot = snapshot.unwrap_or_default();
        let condition = [first.as_bytes(), last.as_bytes(), expected, most_left.as_bytes()];
        let values = [&value[..], lives.as_bytes(), &snapshot, replays.as_bytes()];
        match self.invoke(script, &self.prefix.keys(identity), &[condition, values].concat()).await? {
            Value::Int(1) => Ok(None),
            reply => Guess::read(found(reply)?, identity).map(Some),
        }
    }

    async fn look(&self, identity: &Identity) -> Result<Guess, StoreError> {
        let reply = self.invoke(&READ, &self.prefix.keys(identity), &[]).await?;
        Guess::read(found(reply)?, identity)
    }

    /// Runs a script by its digest; where the server does not have it, by its text, which is a command to the same node and
    /// leaves it there.
    async fn invoke(&self, script: &Script, keys: &Keys, arguments: &[&[u8]]) -> Result<Value, Fault> {
        let command = |name: &str, script: &str| {
            let mut command = ::redis::cmd(name);
            command.arg(script).arg(2).arg(&keys.record).arg(&keys.snapshot).arg(arguments);
            command
        };
        match self.send(&command("EVALSHA", &script.digest)).await {
            Err(fault) if fault.is_no_script() => self.send(&command("EVAL", script.text)).await,
            reply => reply,
        }
    }

    /// Sends a command, once more if the connection turns out to be dropped: that is noticed only by using it, and the
    /// second time there is another.
    async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let error = match command.query_async::<Value>(&mut connection).await {
            Err(error) if error.is_connection_dropped() => error,
            reply => return reply.map_err(|error| self.fault(error)),
        };
        let first = self.fault(error);
        command.query_async::<Value>(&mut connection).await.map_err(|error| {
            let second = self.fault(error);
            Fault { outcome_unknown: first.outcome_unknown || second.outcome_unknown, ..second }
        })
    }

    fn fault(&self, error: RedisError) -> Fault {
        Fault { outcome_unknown: self.resends || !was_not_applied(&error), error }
    }

    /// Names the server whose version does not know what is needed. The one place where it is asked for that.
    async fn too_old(&self) -> StoreError {
        let mut info = ::redis::cmd("INFO");
        info.arg("server");
        let server = self.send(&info).await.ok().and_then(|reply| server(&reply));
        let cause = Cause::TooOld(server.unwrap_or_else(|| "of an unknown version".to_owned()));
        StoreError::new(StoreErrorKind::Unsupported).because(cause)
    }
}

fn not_connected(error: RedisError) -> StoreError {
    // Later on this is a state that may pass; at the start it is taken for a wrong password.
    if error.kind() == ErrorKind::AuthenticationFailed {
        return StoreError::new(StoreErrorKind::Unsupported).because(Cause::from(&error));
    }
    Fault { error, outcome_unknown: false }.into()
}

fn unexpected_reply() -> StoreError {
    StoreError::new(StoreErrorKind::Broken).because(Cause::UnexpectedReply)
}

fn replaces_progress(command: &Command) -> bool {
    match command {
        Command::Renew(renew) => renew.progress.is_some(),
        Command::Settle(settle) => matches!(settle.settlement, Settlement::Complete { .. }),
        Command::Acquire(_) | Command::Operate(_) => false,
    }
}

/// The same settlement without what needs room; `None` if it needs none.
fn without_snapshot(settle: &Settle) -> Option<Settle> {
    match settle.settlement {
        Settlement::Complete { completion: Completion::Replayable(_), retention, remember } => {
            let completion = Completion::NotReplayable(NotReplayable::NoRoom);
            Some(Settle { settlement: Settlement::Complete { completion, retention, remember }, ..settle.clone() })
        }
        _ => None,
    }
}

/// What a record's keys hold.
struct Found {
    bytes: Bytes,
    left_ms: i64,
    /// What is kept apart.
    snapshot: Option<Bytes>,
}

/// Record, milliseconds left, and snapshot, as both scripts give them.
fn found(reply: Value) -> Result<Option<Found>, StoreError> {
    let items = match reply {
        Value::Nil => return Ok(None),
        Value::Array(items) => <[Value; 3]>::try_from(items).map_err(|_| unexpected_reply())?,
        _ => return Err(unexpected_reply()),
    };
    let (bytes, left_ms, snapshot) = match items {
        [Value::BulkString(bytes), Value::Int(left_ms), Value::Nil] => (bytes, left_ms, None),
        [Value::BulkString(bytes), Value::Int(left_ms), Value::BulkString(snapshot)] => {
            (bytes, left_ms, Some(snapshot))
        }
        _ => return Err(unexpected_reply()),
    };
    Ok(Some(Found { bytes: bytes.into(), left_ms, snapshot: snapshot.map(Bytes::from) }))
}

/// Name and version of a server, out of its `INFO server`. A cluster connection answers for several nodes: one will do.
fn server(info: &Value) -> Option<String> {
    let text = match info {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        Value::Map(nodes) => return nodes.iter().find_map(|(_, info)| server(info)),
        _ => return None,
    };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => Some(format!("Valkey {version}")),
        (None, version) => version.map(|version| format!("Redis {version}")),
    }
}
