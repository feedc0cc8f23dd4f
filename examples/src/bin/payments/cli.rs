//! The command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use idem_examples::StoreUrl;
use idem_layer::protocol::Policy;

pub(crate) const USAGE: &str = "\
usage: payments [--listen ADDR] [--store URL] [--guarantee at-least-once|at-most-once] [--ledger FILE]
                [--lease DUR] [--retention DUR] [--wait DUR] [--faults]

  --listen ADDR      where to listen, port 0 for a free one         default 127.0.0.1:3000
  --store URL        memory: or redis://HOST:PORT[/DB]              default memory:
  --guarantee NAME   at-least-once or at-most-once                  default at-least-once
  --ledger FILE      append effects to this file                    default: kept in memory
  --lease DUR        how long a claim outlives a dead owner         default 30s
  --retention DUR    how long a completed request is replayed       default 24h
  --wait DUR         how long a repeat waits for the first to end   default: not at all
  --faults           obey the header x-fault
DUR is a number with a unit, such as 500ms, 2s or 24h.";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: String,
    pub(crate) store: StoreUrl,
    pub(crate) guarantee: Guarantee,
    pub(crate) ledger: Option<PathBuf>,
    pub(crate) policy: Policy,
    pub(crate) faults: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    AtLeastOnce,
    AtMostOnce,
}

/// Reads the arguments after the program's name. `None` when they ask for help.
///
/// # Errors
///
/// One sentence that says which argument is wrong and why.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        listen: "127.0.0.1:3000".into(),
        store: StoreUrl::MEMORY,
        guarantee: Guarantee::AtLeastOnce,
        ledger: None,
        policy: Policy::default(),
        faults: false,
    };
    let mut lease = options.policy.lease();
    let mut retention = options.policy.retention();
    let mut wait = None;

    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        let with_value =
            matches!(flag, "--listen" | "--store" | "--guarantee" | "--ledger" | "--lease" | "--retention" | "--wait");
        let value = match inline {
            Some(_) if !with_value => return Err(format!("unknown argument `{argument}`")),
            Some(value) => value,
            None if with_value => arguments.next().ok_or_else(|| format!("{flag} needs a value"))?,
            None => String::new(),
        };
        let wrong = |why: &dyn Display| format!("{flag} `{value}`: {why}");
        match flag {
            "--listen" => options.listen = address(&value).map_err(|why| wrong(&why))?,
            "--store" => options.store = value.parse().map_err(|why| wrong(&why))?,
            "--guarantee" => options.guarantee = guarantee(&value).map_err(|why| wrong(&why))?,
            "--ledger" if value.is_empty() => return Err("--ledger needs the name of a file".into()),
            "--ledger" => options.ledger = Some(value.into()),
            "--lease" => lease = humantime::parse_duration(&value).map_err(|why| wrong(&why))?,
            "--retention" => retention = humantime::parse_duration(&value).map_err(|why| wrong(&why))?,
            "--wait" => wait = Some(humantime::parse_duration(&value).map_err(|why| wrong(&why))?),
            "--faults" => options.faults = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown argument `{argument}`")),
        }
    }
    options.policy = policy(lease, retention, wait)?;
    Ok(Some(options))
}

/// A lease longer than the usual run ceiling raises it: whoever asks for such a lease expects runs that long.
fn policy(lease: Duration, retention: Duration, wait: Option<Duration>) -> Result<Policy, String> {
    let run_ceiling = Policy::default().run_ceiling().max(lease);
    let mut policy = Policy::builder().lease(lease).retention(retention).run_ceiling(run_ceiling);
    if let Some(wait) = wait {
        policy = policy.wait(wait);
    }
    policy.build().map_err(|why| {
        let [lease, retention, wait] = [lease, retention, wait.unwrap_or_default()].map(humantime::format_duration);
        format!("--lease {lease} with --retention {retention} and --wait {wait}: {why}")
    })
}

fn guarantee(name: &str) -> Result<Guarantee, &'static str> {
    match name {
        "at-least-once" => Ok(Guarantee::AtLeastOnce),
        "at-most-once" => Ok(Guarantee::AtMostOnce),
        _ => Err("a guarantee is `at-least-once` or `at-most-once`"),
    }
}

/// `HOST:PORT`; whether the host exists is found out by listening.
fn address(text: &str) -> Result<String, &'static str> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        _ => Err("an address is HOST:PORT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_arguments_the_defaults_hold() {
        let options = parsed("").unwrap().unwrap();
        assert_eq!(options.listen, "127.0.0.1:3000");
        assert_eq!(options.store, StoreUrl::MEMORY);
        assert_eq!(options.guarantee, Guarantee::AtLeastOnce);
        assert_eq!(options.ledger, None);
        assert_eq!(options.policy.lease(), Duration::from_secs(30));
        assert_eq!(options.policy.retention(), Duration::from_secs(24 * 3600));
        assert_eq!(options.policy.wait(), None);
        assert!(!options.faults);
    }

    #[test]
    fn every_flag_is_heard_with_a_space_or_an_equals_sign() {
        let line = "--listen [::1]:0 --store=redis://localhost:6379/2 --guarantee at-most-once --ledger /tmp/l=1.jsonl \
                    --lease=500ms --retention 1h --wait 2s --faults";
        let options = parsed(line).unwrap().unwrap();
        assert_eq!(options.listen, "[::1]:0");
        assert_eq!(options.store.to_string(), "redis://localhost:6379/2");
        assert_eq!(options.guarantee, Guarantee::AtMostOnce);
        assert_eq!(options.ledger, Some("/tmp/l=1.jsonl".into()));
        assert_eq!(options.policy.lease(), Duration::from_millis(500));
        assert_eq!(options.policy.retention(), Duration::from_secs(3600));
        assert_eq!(options.policy.wait(), Some(Duration::from_secs(2)));
        assert!(options.faults);
        assert!(parsed("--help").unwrap().is_none());
    }

    #[test]
    fn a_lease_above_the_usual_run_ceiling_raises_it() {
        let options = parsed("--lease 20m").unwrap().unwrap();
        assert_eq!(options.policy.run_ceiling(), Duration::from_secs(20 * 60));
    }

    #[test]
    fn each_mistake_is_named() {
        for (line, part) in [
            ("--listen 3000", "HOST:PORT"),
            ("--listen", "needs a value"),
            ("--store postgres://x", "`memory:` or `redis://"),
            ("--guarantee exactly-once", "at-most-once"),
            ("--ledger=", "name of a file"),
            ("--lease soon", "--lease `soon`"),
            ("--lease 0s", "--lease 0s"),
            ("--retention 0s", "--retention 0s"),
            ("--wait long", "--wait `long`"),
            ("--wait 0s", "--wait 0s"),
            ("--faults=yes", "unknown argument `--faults=yes`"),
            ("--verbose", "unknown argument `--verbose`"),
            ("serve", "unknown argument `serve`"),
        ] {
            let message = parsed(line).unwrap_err();
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
