use idem_layer::{Guard, Refused, idempotent};

#[derive(Debug)]
enum PayError {
    Declined,
}

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &Guard, id: u32) -> Result<u32, PayError> {
    if id == 0 { Err(PayError::Declined) } else { Ok(id) }
}

fn _used(_: Refused) {}

fn main() {}
