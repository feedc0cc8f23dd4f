use idem_layer::{Guard, Refused, idempotent};

struct Receipt;

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &Guard, id: u32) -> Result<Receipt, Refused> {
    let _ = id;
    Ok(Receipt)
}

fn main() {}
