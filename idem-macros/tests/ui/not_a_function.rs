use idem_layer::{Guard, Refused, idempotent};

#[idempotent(guard = guard, operation = "orders.pay", key = id, unscoped)]
struct Pay(Guard, Refused);

fn main() {}
