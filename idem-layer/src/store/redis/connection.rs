use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
};

/// The connection of [`RedisStore::connect`](super::RedisStore::connect): one to a single server, shared by its clones, that
/// is made anew when it is lost and gives up on a server that does not answer within a second.
///
/// It is a `ConnectionManager` that also survives being turned away. A `ConnectionManager` alone would answer every later
/// command with the first such failure (a password that was refused, a server without room for another client).
#[derive(Clone)]
pub struct RedisConnection(Arc<Shared>);

struct Shared {
    client: Client,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Current {
    manager: ConnectionManager,
    /// Counts the managers, so that of many who see one fail only the first replaces it.
    generation: u64,
}

impl RedisConnection {
    pub(super) async fn connect(address: impl IntoConnectionInfo) -> RedisResult<Self> {
        let client = client(address)?;
        let manager = ConnectionManager::new_with_config(client.clone(), config()).await?;
        Ok(Self::new(client, manager))
    }

    pub(super) fn connect_lazy(address: impl IntoConnectionInfo) -> RedisResult<Self> {
        let client = client(address)?;
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config())?;
        Ok(Self::new(client, manager))
    }

    fn new(client: Client, manager: ConnectionManager) -> Self {
        Self(Arc::new(Shared { client, current: Mutex::new(Current { manager, generation: 0 }) }))
    }

    fn current(&self) -> Current {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, generation: u64) {
        let Ok(manager) = ConnectionManager::new_lazy_with_config(self.0.client.clone(), config()) else { return };
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.generation == generation {
            *current = Current { manager, generation: generation + 1 };
        }
    }

    fn checked<T>(&self, generation: u64, reply: RedisResult<T>) -> RedisResult<T> {
        if reply.as_ref().is_err_and(may_stay_broken) {
            self.replace(generation);
        }
        reply
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let Current { mut manager, generation } = self.current();
            let reply = manager.send_packed_command(cmd).await;
            self.checked(generation, reply)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let Current { mut manager, generation } = self.current();
            let reply = manager.send_packed_commands(cmd, offset, count).await;
            self.checked(generation, reply)
        })
    }

    fn get_db(&self) -> i64 {
        self.0.client.get_connection_info().redis_settings().db()
    }
}

impl fmt::Debug for RedisConnection {
    /// Without the address, which can hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection").finish_non_exhaustive()
    }
}

/// How long a connection may take to be made, and a command to be answered. The engine gives up earlier; this is so that
/// nothing hangs where nobody waits.
const LIMIT: Duration = Duration::from_secs(1);

/// A connection on which the server has acknowledged nothing for so long is dead and replaced.
#[cfg(target_os = "linux")]
const DEAD_AFTER: Duration = Duration::from_secs(5);

fn client(address: impl IntoConnectionInfo) -> RedisResult<Client> {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_AFTER);
    Client::open(address.into_connection_info()?.set_tcp_settings(settings))
}

/// No retries: a command that finds no server fails at once, and the next one tries again.
fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT))
        .set_number_of_retries(0)
}

/// Whether a manager may go on giving the same error: after an IO error it connects again by itself, and a server's refusal
/// of one command says nothing about the next. A refusal while the connection is set up looks like a general one.
fn may_stay_broken(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Extension => false,
        ErrorKind::Server(kind) => kind == ServerErrorKind::ResponseError,
        _ => true,
    }
}
