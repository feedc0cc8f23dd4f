use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::client::Client;

/// How long anything may take before a test gives up. It decides no outcome: whatever hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service in a process of its own, killed when dropped. What it wrote to stderr is shown when the test fails.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: SocketAddr,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts a program and waits until it says `listening on http://ADDR`.
    ///
    /// # Panics
    ///
    /// When it does not say so.
    pub async fn start(program: impl AsRef<Path>, arguments: &[&str]) -> Self {
        Self::start_with_env(program, arguments, &[]).await
    }

    /// As [`start`](Self::start), with variables in its environment.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with_env(program: impl AsRef<Path>, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(program.as_ref())
            .args(arguments)
            .env_remove("REDIS_URL")
            .env_remove("RUST_LOG")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.as_ref().display()));
        let stderr = collect(child.stderr.take().expect("piped"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.strip_prefix("listening on http://") {
                    return address.parse().ok();
                }
            }
            None
        };
        let Ok(Some(address)) = timeout(PATIENCE, ready).await else {
            let said = String::from_utf8_lossy(&stderr.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
            panic!("{} {arguments:?} is not listening: {said}", program.as_ref().display());
        };
        // Read on, so that it never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address, stderr }
    }

    /// Starts `payments` on a free port; it is built first if it is not there. `arguments` are what else its command line says.
    ///
    /// # Panics
    ///
    /// When it cannot be built or does not start.
    pub async fn payments(arguments: &[&str]) -> Self {
        Self::start(payments_program().await, &[&["--listen", "127.0.0.1:0"], arguments].concat()).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it could not be killed.
    pub async fn kill9(&mut self) {
        self.child.kill().await.expect("the process can be killed");
    }

    /// Asks it to end in good order (SIGTERM).
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Stops its clockwork: connections stay, nothing is answered.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Lets it go on where it was stopped.
    pub fn cont(&self) {
        self.signal("CONT");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait()).await.expect("the process ends").expect("it is a child of this process")
    }

    fn signal(&self, name: &str) {
        signal(self.child.id().expect("the process is running"), name);
    }
}

/// Sends a signal to a child of this process. By way of the shell, whose `kill` needs no package of its own.
pub(crate) fn signal(id: u32, name: &str) {
    let sent = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
    assert!(sent.expect("a shell").success(), "the process takes signals");
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("--- stderr of the service at {}\n{}---", self.address, String::from_utf8_lossy(&stderr));
        }
    }
}

fn collect(mut stderr: ChildStderr) -> Arc<Mutex<Vec<u8>>> {
    let collected = Arc::<Mutex<Vec<u8>>>::default();
    let sink = Arc::clone(&collected);
    tokio::spawn(async move {
        let mut piece = vec![0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut piece).await {
            sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..length]);
        }
    });
    collected
}

/// The program `payments`, in the directory into which this test was built too.
async fn payments_program() -> &'static Path {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    PROGRAM.get_or_init(build_payments).await
}

/// Cargo does nothing when it is built already, and whoever runs these tests alone must not test an old one.
async fn build_payments() -> PathBuf {
    let test = env::current_exe().expect("this test's own path");
    // TARGET/PROFILE/deps/TEST
    let directory = test.parent().and_then(Path::parent).expect("tests are built into a target directory");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "idem-examples", "--bin", "payments", "--profile", profile])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .arg("--target-dir")
        .arg(directory.parent().expect("a target directory"))
        .status()
        .await;
    assert!(built.expect("cargo runs").success(), "payments is built");
    directory.join("payments")
}
