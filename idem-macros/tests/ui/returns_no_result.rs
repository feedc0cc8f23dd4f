use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
async fn pay(guard: &Guard, id: u32) -> Option<u32> {
    Some(id)
}

fn _used(_: Refused) {}

fn main() {}
