//! `#[idempotent]` on a business function: a payroll job that may be started twice.
//!
//! ```text
//! cargo run -p idem-examples --bin business_fn -- alice 2026-03                                   (records in this process)
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p idem-examples --bin business_fn -- alice 2026-03  (and again: nothing runs)
//! ```
//!
//! The key is what is paid for, the employee and the month, never the time at which the job happens to run:
//!
//! ```text
//! $ business_fn alice 2026-03
//! store memory:
//! first call         payout_7d0c3e8f5a9b4c1d2e6f8a90, 325000 cents
//! second call        payout_7d0c3e8f5a9b4c1d2e6f8a90, 325000 cents
//! another amount     refused: payroll.pay was not run: the key was used for a different call
//! ten for bob        1 paid, 9 refused
//! payouts by this process: 2
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::task::JoinSet;

use idem_examples::{StoreUrl, log_to_stderr, new_id};
use idem_layer::{Failure, Guard, Refused, idempotent};

/// The service: what runs once is a method of it.
struct Payroll {
    guard: Guard,
    company: String,
    payouts: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Payout {
    id: String,
    cents: u64,
}

#[derive(Debug, Error)]
enum PayError {
    #[error("there is nothing to pay")]
    Nothing,
    #[error("the bank did not say whether it has paid")]
    BankSilent,
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Payroll {
    /// Pays a month's salary.
    #[idempotent(
        guard = self.guard,
        operation = "payroll.pay",
        key = "{employee}:{month}",
        scope = self.company,
        fingerprint(cents),
        failure = what_it_means,
        retention = Duration::from_secs(90 * 24 * 60 * 60),
    )]
    async fn pay(&self, employee: &str, month: &str, cents: u64) -> Result<Payout, PayError> {
        if cents == 0 {
            return Err(PayError::Nothing);
        }
        let paid = tokio::time::timeout(Duration::from_secs(5), self.transfer(employee, month, cents));
        paid.await.map_err(|_| PayError::BankSilent)
    }

    /// Stands for the call to the bank.
    async fn transfer(&self, _employee: &str, _month: &str, cents: u64) -> Payout {
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.payouts.fetch_add(1, Ordering::SeqCst);
        Payout { id: new_id("payout"), cents }
    }
}

/// Whether a repeat may run after this error.
fn what_it_means(error: &PayError) -> Failure {
    match error {
        PayError::Nothing | PayError::Refused(_) => Failure::Safe,
        PayError::BankSilent => Failure::Unknown,
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log_to_stderr("warn");
    let mut arguments = std::env::args().skip(1);
    let employee = arguments.next().unwrap_or_else(|| "alice".into());
    let month = arguments.next().unwrap_or_else(|| "2026-03".into());

    let store = StoreUrl::from_env()?;
    println!("store {store}");
    // A salary must not be paid twice, whatever happens: what is unknown waits for a person.
    let guard = Guard::at_most_once(store.open()?);
    let payroll = Arc::new(Payroll { guard, company: "acme".into(), payouts: AtomicUsize::new(0) });

    show("first call", payroll.pay(&employee, &month, 325_000).await);
    show("second call", payroll.pay(&employee, &month, 325_000).await);
    show("another amount", payroll.pay(&employee, &month, 999_999).await);

    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let (payroll, month) = (Arc::clone(&payroll), month.clone());
        calls.spawn(async move { payroll.pay("bob", &month, 280_000).await.is_ok() });
    }
    let answers = calls.join_all().await;
    let paid = answers.iter().filter(|&&paid| paid).count();
    println!("{:<19}{paid} paid, {} refused", "ten for bob", answers.len() - paid);

    println!("payouts by this process: {}", payroll.payouts.load(Ordering::SeqCst));
    Ok(())
}

fn show(call: &str, answer: Result<Payout, PayError>) {
    match answer {
        Ok(payout) => println!("{call:<19}{}, {} cents", payout.id, payout.cents),
        Err(error) => println!("{call:<19}refused: {error}"),
    }
}
