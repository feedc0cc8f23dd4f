use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &Guard, id: u32) -> Result<impl ToString, Refused> {
    Ok(id)
}

fn main() {}
