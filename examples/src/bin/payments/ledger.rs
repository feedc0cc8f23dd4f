//! What has taken effect: the one thing that must not happen twice.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Map, Value};

/// One effect, a JSON object in one line of the ledger.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Effect {
    pub(crate) kind: &'static str,
    /// As in the response.
    pub(crate) id: String,
    /// The client's key as plain text, if the request had one.
    pub(crate) key: Option<String>,
    pub(crate) order_no: Option<Value>,
    /// Which run of the key this is, from 1.
    pub(crate) attempt: u32,
    /// What else is worth knowing, by kind.
    #[serde(flatten)]
    pub(crate) details: Map<String, Value>,
}

/// Appends effects and reads them back. Cheap to clone; several processes may share one file.
#[derive(Clone, Debug)]
pub(crate) enum Ledger {
    Memory(Arc<Mutex<Vec<Value>>>),
    File(PathBuf),
}

impl Ledger {
    /// The ledger in this file, created if it is not there, or one in memory.
    ///
    /// # Errors
    ///
    /// When the file cannot be appended to.
    pub(crate) fn open(file: Option<PathBuf>) -> io::Result<Self> {
        let Some(path) = file else { return Ok(Self::Memory(Arc::default())) };
        append_only(&path)?;
        Ok(Self::File(path))
    }

    /// Appends one effect. When this returns, it is on the disk.
    ///
    /// # Errors
    ///
    /// Whatever the file system says. Whether the line is there is then unknown.
    ///
    /// # Cancel safety
    ///
    /// An append that has begun is finished, whether or not anybody waits for it.
    pub(crate) async fn append(&self, effect: &Effect) -> io::Result<()> {
        match self {
            Self::Memory(effects) => {
                let effect = serde_json::to_value(effect)?;
                effects.lock().unwrap_or_else(PoisonError::into_inner).push(effect);
                Ok(())
            }
            Self::File(path) => {
                let path = path.clone();
                let mut line = serde_json::to_vec(effect)?;
                line.push(b'\n');
                blocking(move || append_line(&path, &line)).await
            }
        }
    }

    /// All effects in order, whichever process wrote them.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) async fn effects(&self) -> io::Result<Vec<Value>> {
        match self {
            Self::Memory(effects) => Ok(effects.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Self::File(path) => {
                let path = path.clone();
                let bytes = blocking(move || std::fs::read(path)).await;
                match bytes {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                    bytes => Ok(complete_lines(&bytes?)),
                }
            }
        }
    }
}

/// A whole line in one `write` on a file opened with O_APPEND: lines of several processes do not mix.
fn append_line(path: &PathBuf, line: &[u8]) -> io::Result<()> {
    let mut file = append_only(path)?;
    let written = file.write(line)?;
    if written < line.len() {
        return Err(io::Error::new(ErrorKind::WriteZero, "the line was cut short"));
    }
    file.sync_data()
}

fn append_only(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// A line that is not JSON was cut short by a crash or a full disk: its effect was never confirmed.
fn complete_lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|&b| b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(id: &str) -> Effect {
        Effect {
            kind: "payment",
            id: id.into(),
            key: None,
            order_no: Some("A-1".into()),
            attempt: 1,
            details: Map::from_iter([("amount".to_owned(), 5.into())]),
        }
    }

    #[tokio::test]
    async fn an_effect_reads_back_as_one_flat_object() {
        let directory = tempfile::tempdir().unwrap();
        for ledger in [Ledger::open(None).unwrap(), Ledger::open(Some(directory.path().join("ledger.jsonl"))).unwrap()]
        {
            assert_eq!(ledger.effects().await.unwrap(), [] as [Value; 0]);
            ledger.append(&effect("a")).await.unwrap();
            ledger.append(&effect("b")).await.unwrap();
            let effects = ledger.effects().await.unwrap();
            let a = json!({"kind": "payment", "id": "a", "key": null, "order_no": "A-1", "attempt": 1, "amount": 5});
            assert_eq!(effects[0], a);
            assert_eq!(effects[1]["id"], "b");
        }
    }

    #[tokio::test]
    async fn a_line_that_was_cut_short_is_not_an_effect_and_hides_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.jsonl");
        let ledger = Ledger::open(Some(path.clone())).unwrap();
        ledger.append(&effect("a")).await.unwrap();
        let mut whole = std::fs::read(&path).unwrap();
        whole.extend_from_slice(b"{\"kind\":\"pay");
        std::fs::write(&path, whole).unwrap();
        assert_eq!(ledger.effects().await.unwrap().len(), 1);
    }

    #[test]
    fn a_ledger_that_cannot_be_written_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Ledger::open(Some(directory.path().join("no-such-directory/ledger.jsonl"))).is_err());
    }
}
