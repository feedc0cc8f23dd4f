use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, scope = "{a}-{b}")]
async fn pay(guard: &Guard, id: u32, a: u32, b: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
