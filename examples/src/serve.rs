use std::future::IntoFuture;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use idem_layer::guard::Guard;

/// How long open connections, and then the guard's open claims, may take to finish after a signal.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// Serves until SIGTERM or SIGINT, then stops accepting, lets connections finish, and waits for what the guard still has
/// to settle: work whose client has left, and outcomes that the store did not take yet.
///
/// Prints `listening on http://ADDR` when it is ready, with the real port.
///
/// # Errors
///
/// When the listener or the signal handlers fail.
pub async fn serve(listener: TcpListener, app: Router, guard: &Guard) -> anyhow::Result<()> {
    // Before the line that says ready: a signal sent upon it must not find the default action in place.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "listening on http://{address}")?;
    io::stdout().flush()?;

    let (stopping, stop_seen) = oneshot::channel::<()>();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        drop(stopping);
    };
    let limit = async {
        let _ = stop_seen.await;
        tokio::time::sleep(SHUTDOWN_LIMIT).await;
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(stop).into_future() => served?,
        () = limit => eprintln!("connections are still open after {SHUTDOWN_LIMIT:?}: leaving them"),
    }
    let drained = guard.drain(SHUTDOWN_LIMIT).await;
    if drained.open > 0 {
        eprintln!("{} claims are still open after {SHUTDOWN_LIMIT:?}: leaving them to their leases", drained.open);
    }
    Ok(())
}
