use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::process::signal;

/// A redis-server of the test's own: on a free port, with its files in a directory of its own, killed when dropped.
///
/// What is asked of the port is asked only once the process that listens there is known to be the one started here.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    port: u16,
    options: Vec<String>,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server that keeps nothing: what it holds is gone when it stops.
    ///
    /// # Panics
    ///
    /// When there is no `redis-server` on the path, or none that starts.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server that keeps its data over a restart, even if it is killed.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_durable() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with further options, as on its command line.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(process) = launch(port, &options, &directory) {
                return Self { process, port, options, directory };
            }
        }
        panic!("no redis-server could be started on any of {ATTEMPTS} ports");
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", address(self.port))
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it: connections break, nothing is saved.
    pub fn stop(&mut self) {
        // It has ended already when this fails, which is just as well.
        let _ = self.process.kill();
        self.process.wait().expect("the server is a child of this process");
    }

    /// Starts it again on the same port, after [`stop`](Self::stop) or without it.
    ///
    /// # Panics
    ///
    /// When somebody else has taken the port meanwhile, or the server does not start.
    pub fn restart(&mut self) {
        self.stop();
        self.process = launch(self.port, &self.options, &self.directory).expect("the server starts on its port again");
    }

    /// Stops its clockwork: connections stay, nothing is answered.
    pub fn pause(&self) {
        signal(self.process.id(), "STOP");
    }

    /// Lets it go on where it was paused.
    pub fn resume(&self) {
        signal(self.process.id(), "CONT");
    }

    /// Lets time pass for all records: every key has so much less left, and those that would have expired are gone.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub async fn advance(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).expect("a test's time");
        let _: () = redis::cmd("EVAL")
            .arg(include_str!("advance.lua"))
            .arg(0)
            .arg(by_ms)
            .query_async(&mut self.raw().await)
            .await
            .expect("the server lets time pass");
    }

    /// A connection to look at and to meddle with what is stored.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub async fn raw(&self) -> MultiplexedConnection {
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let client = redis::Client::open(self.url()).expect("an address");
        client.get_multiplexed_async_connection_with_config(&patient).await.expect("the server answers")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How many ports are tried.
const ATTEMPTS: usize = 20;

/// How long a server that is there may take for anything, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is asked whether it is there yet.
const PAUSE: Duration = Duration::from_millis(5);

/// A port on which nobody listens, below those that the system gives to outgoing connections: a client that tries to reach
/// a server that is down must not meet itself.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16;
    loop {
        let offset = start.wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(address(20_000 + offset)).is_ok() {
            return 20_000 + offset;
        }
    }
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The running server, or `None` if the port turns out to be somebody else's.
fn launch(port: u16, options: &[String], directory: &TempDir) -> Option<Child> {
    let mut process = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
        .arg(directory.path())
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let mine = format!("process_id:{}\r\n", process.id());
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if process.try_wait().expect("the server is a child of this process").is_some() {
            return None;
        }
        match info(port) {
            Ok(info) if info.contains(&mine) && !info.contains("loading:1") => return Some(process),
            Ok(info) if info.contains("process_id:") && !info.contains(&mine) => break,
            _ => thread::sleep(PAUSE),
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

/// What the server on that port says of itself.
fn info(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address(port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"INFO server\r\nINFO persistence\r\nQUIT\r\n")?;
    let mut reply = String::new();
    match stream.read_to_string(&mut reply) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(reply),
        read => read.map(|_| reply),
    }
}
