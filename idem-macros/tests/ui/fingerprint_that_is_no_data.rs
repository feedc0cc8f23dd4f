use idem_layer::{Guard, Refused, idempotent};

struct Order;

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped, fingerprint(order))]
async fn pay(guard: &Guard, id: u32, order: Order) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
