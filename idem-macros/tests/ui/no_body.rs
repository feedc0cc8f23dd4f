use idem_layer::{Guard, Refused, idempotent};

trait Pay {
    #[idempotent(guard = self.guard(), operation = "orders.pay", key = id, unscoped)]
    async fn pay(&self, id: u32) -> Result<u32, Refused>;
    fn guard(&self) -> &Guard;
}

fn main() {}
