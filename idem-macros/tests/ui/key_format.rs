use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = "{}", unscoped)]
async fn positional(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

#[idempotent(guard = guard, operation = "orders.pay", key = "{id.pow(2)}", unscoped)]
async fn called(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

#[idempotent(guard = guard, operation = "orders.pay", key = "{id:width$}", unscoped)]
async fn width(guard: &Guard, id: u32, width: usize) -> Result<u32, Refused> {
    Ok(id)
}

#[idempotent(guard = guard, operation = "orders.pay", key = "{id", unscoped)]
async fn open(guard: &Guard, id: u32) -> Result<u32, Refused> {
    Ok(id)
}

fn main() {}
