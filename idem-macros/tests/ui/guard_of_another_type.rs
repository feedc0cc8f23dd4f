use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &str, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn _used(_: Guard) {}

fn main() {}
