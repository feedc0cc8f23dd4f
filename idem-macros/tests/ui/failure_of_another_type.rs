use idem_layer::{Guard, Refused, idempotent};

fn classify(_: &u32) -> idem_layer::Failure {
    idem_layer::Failure::Safe
}

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped, failure = classify)]
async fn pay(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
