use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &Guard, id: Option<u32>) -> Result<Option<u32>, Refused> {
    Ok(id)
}

fn main() {}
