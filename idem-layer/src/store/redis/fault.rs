use ::redis::{ErrorKind, RedisError, ServerErrorKind};
use thiserror::Error;

use crate::store::{StoreError, StoreErrorKind};

/// A command that got no good reply.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: RedisError,
    /// The command may have been applied all the same.
    pub(super) outcome_unknown: bool,
}

impl Fault {
    pub(super) fn kind(&self) -> StoreErrorKind {
        kind(&self.error)
    }

    /// The server has not (or no longer) loaded the script that it was asked to run.
    pub(super) fn is_no_script(&self) -> bool {
        self.error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
    }

    /// The server does not know a command in this form, which an older one would not.
    pub(super) fn is_syntax(&self) -> bool {
        is_general(&self.error, "syntax error")
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let error = Self::new(fault.kind()).because(Cause::from(&fault.error));
        if fault.outcome_unknown { error.with_unknown_outcome() } else { error }
    }
}

/// What people are told about a failure.
///
/// Not the server's own text: it can quote the arguments of the command, which are the keys and bodies of users.
#[derive(Debug, Error)]
pub(super) enum Cause {
    #[error("{0}")]
    Io(String),
    #[error("Redis answered {0}")]
    Answered(String),
    #[error("talking to Redis failed: {0}")]
    Other(String),
    #[error("SET with NX and GET needs Redis 7.0 or Valkey 7.2; the server is {0}")]
    TooOld(String),
    #[error("Redis answered with a value of an unexpected type")]
    UnexpectedReply,
    #[error("the record changed each time before it could be written")]
    Contended,
}

impl From<&RedisError> for Cause {
    fn from(error: &RedisError) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::Io, _) => Self::Io(error.to_string()),
            (_, Some(code)) => Self::Answered(code.to_owned()),
            _ => Self::Other(error.category().to_owned()),
        }
    }
}

/// Whether a command that was sent at most once has not been applied: the server refused it, or there was nobody to send it
/// to.
pub(super) fn was_not_applied(error: &RedisError) -> bool {
    error.code().is_some() || error.is_connection_refusal() || error.kind() == ErrorKind::AuthenticationFailed
}

fn kind(error: &RedisError) -> StoreErrorKind {
    if let Some(code) = error.code() {
        return match code {
            "OOM" => StoreErrorKind::Full,
            "WRONGTYPE" => StoreErrorKind::Unreadable,
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "NOPROTO" => StoreErrorKind::Unsupported,
            "ERR" if is_general(error, "max number of clients") => StoreErrorKind::Unavailable,
            "ERR" if NOT_SUPPORTED.iter().any(|text| is_general(error, text)) => StoreErrorKind::Unsupported,
            "ERR" | "NOSCRIPT" | "CROSSSLOT" | "EXECABORT" => StoreErrorKind::Broken,
            // READONLY, LOADING, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, MOVED, MISCONF, NOREPLICAS, BUSY and what servers yet
            // to come will say in a state of theirs that passes.
            _ => StoreErrorKind::Unavailable,
        };
    }
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreErrorKind::TimedOut,
        ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported => StoreErrorKind::Unsupported,
        // Of a connection that is made anew: a password is being changed, or the server has no room for another client, which
        // looks the same.
        ErrorKind::AuthenticationFailed => StoreErrorKind::Unavailable,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType | ErrorKind::Client => StoreErrorKind::Broken,
        _ => StoreErrorKind::Unavailable,
    }
}

const NOT_SUPPORTED: [&str; 3] = ["syntax error", "unknown command", "DB index is out of range"];

/// An error of the code that stands for no kind in particular, told apart by its text.
fn is_general(error: &RedisError, text: &str) -> bool {
    error.code() == Some("ERR") && error.detail().is_some_and(|detail| detail.contains(text))
}

#[cfg(test)]
mod tests {
    use ::redis::parse_redis_value;

    use super::*;

    fn answered(line: &str) -> RedisError {
        parse_redis_value(format!("-{line}\r\n").as_bytes()).and_then(::redis::Value::extract_error).unwrap_err()
    }

    #[test]
    fn each_refusal_has_its_kind() {
        use StoreErrorKind::{Broken, Full, Unavailable, Unreadable, Unsupported};
        for (line, expected) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", Full),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Unreadable),
            ("NOAUTH Authentication required.", Unsupported),
            ("WRONGPASS invalid username-password pair", Unsupported),
            ("NOPERM No permissions to access a key", Unsupported),
            ("ERR syntax error", Unsupported),
            ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", Unsupported),
            ("ERR max number of clients reached", Unavailable),
            ("ERR invalid expire time in 'set' command", Broken),
            ("READONLY You can't write against a read only replica.", Unavailable),
            ("LOADING Redis is loading the dataset in memory", Unavailable),
            ("MASTERDOWN Link with MASTER is down", Unavailable),
            ("CLUSTERDOWN The cluster is down", Unavailable),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots", Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
        ] {
            assert_eq!(kind(&answered(line)), expected, "{line}");
        }
    }

    #[test]
    fn what_the_server_quotes_is_not_passed_on() {
        let error = answered("ERR unknown command 'SET', with args beginning with: 'idem:pay::alice:secret' 'body'");
        assert_eq!(Cause::from(&error).to_string(), "Redis answered ERR");
    }
}
