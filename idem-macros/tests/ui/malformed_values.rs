use idem_layer::{Guard, Refused, idempotent};

#[idempotent(
    guard,
    operation = name,
    key = ,
    scope = "",
    unscoped = true,
    fingerprint = id,
    retention(5),
    failure = 5,
    errors = keep,
    7,
)]
async fn pay(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
