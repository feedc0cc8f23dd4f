use idem_layer::{Guard, Refused, idempotent};

use std::future::Future;
use std::pin::Pin;

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
fn pay(guard: &Guard, id: u32) -> Pin<Box<dyn Future<Output = Result<u32, Refused>>>> {
    let _ = guard;
    Box::pin(async move { Ok(id) })
}

fn main() {}
