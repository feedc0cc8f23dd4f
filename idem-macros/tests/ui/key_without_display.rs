use idem_layer::{Guard, Refused, idempotent};

struct Order {
    id: Vec<u8>,
}

#[idempotent(guard = guard, operation = "orders.pay", key = "{order.id}", unscoped)]
async fn pay(guard: &Guard, order: Order) -> Result<u32, Refused> {
    Ok(order.id.len() as u32)
}

fn main() {}
