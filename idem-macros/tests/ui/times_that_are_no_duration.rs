use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped, retention = 60, lease = "30s")]
async fn pay(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
