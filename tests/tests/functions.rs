//! `#[idempotent]` and `Guard::run`: what callers of a guarded function get.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use idem_layer::function::{RefusedKind, Run};
use idem_layer::guard::{Admission, Arrival, Event, EventKind};
use idem_layer::protocol::{Completion, Identity, Key, Operation, Policy, ResponseSnapshot, Scope, Snapshot};
use idem_layer::store::{MemoryStore, RedisStore, SharedStore};
use idem_layer::{Failure, Guard, Refused, idempotent};
use idem_tests::RedisServer;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{Barrier, Notify, Semaphore};
use tokio::task::JoinSet;

fn at_least_once() -> Guard {
    Guard::at_least_once(MemoryStore::new())
}

fn at_most_once() -> Guard {
    Guard::at_most_once(MemoryStore::new())
}

#[derive(Default)]
struct Counter(AtomicU32);

impl Counter {
    /// How often this has been called, this time included.
    fn hit(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn identity(operation: &'static str, key: &str) -> Identity {
    let (operation, key) = (Operation::new(operation).expect("a name"), Key::new(key).expect("a key"));
    Identity::new(operation, None, Scope::unscoped(), key)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Refused>) -> RefusedKind {
    result.expect_err("refused").kind()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    id: u32,
    amount: u64,
}

#[derive(Clone)]
struct Order {
    id: String,
    tenant: Tenant,
    amount: u64,
    tags: HashMap<String, u32>,
}

#[derive(Clone)]
struct Tenant {
    name: String,
}

fn order(id: &str, amount: u64) -> Order {
    Order { id: id.to_owned(), tenant: Tenant { name: "acme".to_owned() }, amount, tags: HashMap::new() }
}

#[derive(Debug, Error, PartialEq, Serialize, Deserialize)]
enum PayError {
    #[error("invalid amount")]
    Invalid,
    #[error("declined: {0}")]
    Declined(String),
    #[error("no answer")]
    Timeout,
    #[error("refused: {0}")]
    Refused(String),
}

impl From<Refused> for PayError {
    fn from(refused: Refused) -> Self {
        Self::Refused(format!("{:?}", refused.kind()))
    }
}

impl PayError {
    fn classify(&self) -> Failure {
        match self {
            Self::Invalid | Self::Refused(_) => Failure::Safe,
            Self::Declined(_) => Failure::Final,
            Self::Timeout => Failure::Unknown,
        }
    }
}

struct Shop {
    guard: Guard,
    runs: Counter,
    reached: Notify,
    go_on: Notify,
}

impl Shop {
    fn new(guard: Guard) -> Self {
        Self { guard, runs: Counter::default(), reached: Notify::new(), go_on: Notify::new() }
    }

    /// Pays.
    #[idempotent(
        guard = self.guard,
        operation = "orders.pay",
        key = "{order.id}",
        scope = order.tenant.name,
        fingerprint(order.amount, order.tags),
    )]
    async fn pay(&self, order: Order) -> Result<Receipt, Refused> {
        let id = self.runs.hit();
        tokio::task::yield_now().await;
        Ok(Receipt { id, amount: order.amount })
    }

    #[idempotent(guard = self.guard, operation = "orders.pay_slowly", key = id, unscoped)]
    async fn pay_slowly(&self, id: &str) -> Result<u32, Refused> {
        let _ = id;
        let run = self.runs.hit();
        self.reached.notify_one();
        self.go_on.notified().await;
        Ok(run)
    }

    #[idempotent(
        guard = &self.guard,
        operation = "orders.try",
        key = id,
        unscoped,
        failure = PayError::classify,
        errors = replay
    )]
    async fn try_pay(&self, id: u64, outcome: fn(u32) -> Result<u32, PayError>) -> Result<u32, PayError> {
        outcome(self.runs.hit())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_calls_run_once() {
    runs_once(at_least_once()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_calls_run_once_over_redis() {
    let server = RedisServer::start();
    runs_once(Guard::at_least_once(RedisStore::connect(server.url()).await.unwrap())).await;
}

async fn runs_once(guard: Guard) {
    let shop = Arc::new(Shop::new(guard));
    let barrier = Arc::new(Barrier::new(20));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (shop, barrier) = (shop.clone(), barrier.clone());
        calls.spawn(async move {
            barrier.wait().await;
            shop.pay(order("o-1", 5)).await
        });
    }
    let mut values = 0;
    for result in calls.join_all().await {
        match result {
            Ok(receipt) => {
                assert_eq!(receipt, Receipt { id: 1, amount: 5 });
                values += 1;
            }
            Err(refused) => {
                assert_eq!(refused.kind(), RefusedKind::InProgress);
                assert_eq!(refused.operation(), "orders.pay");
                assert!(refused.retry_after().is_some());
            }
        }
    }
    assert!(values >= 1);
    assert_eq!(shop.pay(order("o-1", 5)).await.expect("stored").id, 1);
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_calls_that_wait_run_once_and_all_get_the_value() {
    all_get_the_value(at_least_once()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_parallel_calls_that_wait_run_once_and_all_get_the_value_over_redis() {
    let server = RedisServer::start();
    all_get_the_value(Guard::at_most_once(RedisStore::connect(server.url()).await.unwrap())).await;
}

async fn all_get_the_value(guard: Guard) {
    let waiting = Arc::new(Semaphore::new(0));
    let policy = Policy::builder().wait(Duration::from_secs(60)).build().expect("a policy");
    let guard = guard.with_policy(policy).observed_by({
        let waiting = waiting.clone();
        move |event: &Event<'_>| waiting.add_permits(usize::from(event.kind == EventKind::Waiting))
    });
    let shop = Arc::new(Shop::new(guard));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let shop = shop.clone();
        calls.spawn(async move { shop.pay_slowly("o-1").await });
    }
    let _others = waiting.acquire_many(19).await.expect("never closed");
    shop.go_on.notify_one();
    for value in calls.join_all().await {
        assert_eq!(value.expect("the value"), 1);
    }
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test]
async fn two_keys_run_side_by_side() {
    let shop = Shop::new(at_least_once());
    let second = async {
        shop.reached.notified().await;
        assert_eq!(shop.pay(order("o-2", 1)).await.unwrap().id, 2);
        assert_eq!(kind(shop.pay_slowly("o-1").await), RefusedKind::InProgress);
        shop.go_on.notify_one();
    };
    let (first, ()) = tokio::join!(shop.pay_slowly("o-1"), second);
    assert_eq!(first.unwrap(), 1);
}

#[tokio::test]
async fn a_repeat_is_compared_by_its_fingerprint_whatever_the_order_of_its_maps() {
    let shop = Shop::new(at_least_once());
    let tags = |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|i| (format!("tag{i}"), i)).collect();
    let with = |tags, amount| Order { tags, ..order("o-1", amount) };

    assert_eq!(shop.pay(with(tags(&mut (0..50)), 5)).await.unwrap().id, 1);
    assert_eq!(shop.pay(with(tags(&mut (0..50).rev()), 5)).await.unwrap().id, 1);
    assert_eq!(kind(shop.pay(with(tags(&mut (0..51)), 5)).await), RefusedKind::Mismatch);
    assert_eq!(kind(shop.pay(with(tags(&mut (0..50)), 6)).await), RefusedKind::Mismatch);
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test]
async fn another_scope_is_another_call() {
    let shop = Shop::new(at_least_once());
    let other = Order { tenant: Tenant { name: "other".into() }, ..order("o-1", 5) };
    assert_eq!(shop.pay(order("o-1", 5)).await.unwrap().id, 1);
    assert_eq!(shop.pay(other).await.unwrap().id, 2);
}

#[tokio::test]
async fn an_error_that_is_safe_frees_the_key() {
    let shop = Shop::new(at_most_once());
    let outcome = |run| if run == 1 { Err(PayError::Invalid) } else { Ok(run) };
    assert_eq!(shop.try_pay(1, outcome).await, Err(PayError::Invalid));
    assert_eq!(shop.try_pay(1, outcome).await, Ok(2));
    assert_eq!(shop.try_pay(1, outcome).await, Ok(2));
}

#[tokio::test]
async fn an_error_that_leaves_the_outcome_unknown_runs_again_or_is_held_by_the_guarantee() {
    let outcome =
        |run| if run == 1 { Err(PayError::Timeout) } else { Ok(run * 10 + Run::current().unwrap().attempt()) };
    let shop = Shop::new(at_least_once());
    assert_eq!(shop.try_pay(1, outcome).await, Err(PayError::Timeout));
    assert_eq!(shop.try_pay(1, outcome).await, Ok(22));

    let shop = Shop::new(at_most_once());
    assert_eq!(shop.try_pay(1, outcome).await, Err(PayError::Timeout));
    for _ in 0..2 {
        assert_eq!(shop.try_pay(1, outcome).await, Err(PayError::Refused("OutcomeUnknown".into())));
    }
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test]
async fn a_final_error_is_replayed() {
    let shop = Shop::new(at_least_once());
    for _ in 0..3 {
        let outcome = |run| Err(PayError::Declined(format!("run {run}")));
        assert_eq!(shop.try_pay(1, outcome).await, Err(PayError::Declined("run 1".into())));
    }
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test]
async fn a_final_error_that_is_not_replayed_is_never_run_again() {
    #[idempotent(guard = guard, operation = "final", key = "{id}", unscoped, failure = |_| Failure::Final)]
    async fn fails(guard: &Guard, runs: &Counter, id: u32) -> Result<u32, PayError> {
        let _ = id;
        runs.hit();
        Err(PayError::Declined("no".into()))
    }
    let (guard, runs) = (at_least_once(), Counter::default());
    assert_eq!(fails(&guard, &runs, 7).await, Err(PayError::Declined("no".into())));
    assert_eq!(fails(&guard, &runs, 7).await, Err(PayError::Refused("NotReplayable".into())));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn an_unclassified_error_is_unknown() {
    #[idempotent(guard = guard, operation = "unclassified", key = id, unscoped)]
    async fn fails(guard: &Guard, id: u32) -> anyhow::Result<u32> {
        anyhow::ensure!(id > 100, "too small");
        Ok(id)
    }
    let guard = at_most_once();
    assert_eq!(fails(&guard, 7).await.unwrap_err().to_string(), "too small");
    let error = fails(&guard, 7).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Refused>().unwrap().kind(), RefusedKind::OutcomeUnknown);
}

#[tokio::test]
async fn a_refusal_becomes_the_callers_error() {
    #[derive(Debug, Error)]
    enum Failed {
        #[error(transparent)]
        Refused(#[from] Refused),
    }

    #[idempotent(guard = guard, operation = "refusing", key = key, unscoped)]
    async fn refusing(guard: &Guard, key: &str) -> Result<(), Failed> {
        let _ = key;
        unreachable!("an empty key never runs")
    }
    let Failed::Refused(refused) = refusing(&at_least_once(), "").await.unwrap_err();
    assert_eq!(refused.kind(), RefusedKind::InvalidKey);
    assert_eq!(std::error::Error::source(&refused).unwrap().to_string(), "the key is empty");
}

#[tokio::test]
async fn an_empty_part_of_a_key_and_an_empty_scope_are_refused() {
    #[idempotent(guard = guard, operation = "parts", key = "{a}-{b}", scope = "tenant/{scope}")]
    async fn parts(guard: &Guard, a: &str, b: &str, scope: &str) -> Result<String, Refused> {
        Ok(format!("{a}|{b}|{scope}"))
    }
    let guard = at_least_once();
    assert_eq!(kind(parts(&guard, "", "b", "t").await), RefusedKind::InvalidKey);
    assert_eq!(kind(parts(&guard, &"a".repeat(256), "b", "t").await), RefusedKind::InvalidKey);
    assert_eq!(kind(parts(&guard, "a", "b", "").await), RefusedKind::InvalidScope);
    assert_eq!(parts(&guard, "a-b", "c", "t").await.unwrap(), "a-b|c|t");
    assert_eq!(parts(&guard, "a", "b-c", "t").await.unwrap(), "a|b-c|t");

    let scope = Scope::new("tenant/t").unwrap();
    let plain = Identity::new(Operation::new("parts").unwrap(), None, scope, Key::new("a-b-c").unwrap());
    assert!(guard.stored(&plain).await.unwrap().is_some());
}

#[tokio::test]
async fn two_functions_with_equal_arguments_have_records_of_their_own() {
    mod one {
        use super::*;
        #[idempotent(guard = guard, operation = "one.create", key = id, unscoped)]
        pub(super) async fn create(guard: &Guard, id: u32) -> Result<String, Refused> {
            Ok(format!("one {id}"))
        }
    }
    mod two {
        use super::*;
        #[idempotent(guard = guard, operation = "two.create", key = id, unscoped)]
        pub(super) async fn create(guard: &Guard, id: u32) -> Result<String, Refused> {
            Ok(format!("two {id}"))
        }
    }
    let guard = at_least_once();
    assert_eq!(one::create(&guard, 1).await.unwrap(), "one 1");
    assert_eq!(two::create(&guard, 1).await.unwrap(), "two 1");
}

#[tokio::test]
async fn unit_none_zero_and_empty_values_replay() {
    async fn twice<T, F>(call: impl Fn() -> F) -> T
    where
        T: PartialEq + std::fmt::Debug,
        F: Future<Output = Result<T, Refused>>,
    {
        let first = call().await.unwrap();
        assert_eq!(call().await.unwrap(), first);
        first
    }
    macro_rules! replays {
        ($name:literal, $ty:ty, $value:expr) => {{
            #[idempotent(guard = guard, operation = $name, key = 1 + id, unscoped)]
            async fn call(guard: &Guard, runs: &Counter, id: u32) -> Result<$ty, Refused> {
                let _ = id;
                runs.hit();
                Ok($value)
            }
            let (guard, runs) = (at_most_once(), Counter::default());
            assert_eq!(twice(|| call(&guard, &runs, 0)).await, $value);
            assert_eq!(runs.count(), 1);
        }};
    }
    replays!("unit", (), ());
    replays!("none", Option<u32>, None);
    replays!("zero", u32, 0);
    replays!("false", bool, false);
    replays!("text", String, String::new());
    replays!("list", Vec<u32>, Vec::<u32>::new());
}

static RUNS: Counter = Counter(AtomicU32::new(0));
static GUARD: LazyLock<Guard> = LazyLock::new(at_least_once);

/// Every name that the expansion could want for itself.
#[idempotent(guard = GUARD, operation = "hygiene", key = "{key}{guard}", scope = scope, fingerprint(fingerprint, call))]
async fn clashing(
    key: u32,
    guard: &str,
    scope: &str,
    fingerprint: &str,
    result: u32,
    call: u32,
    r#async: u32,
) -> Result<u32, Refused> {
    let identity = key + result;
    RUNS.hit();
    Ok(identity + call + r#async + (guard.len() + scope.len() + fingerprint.len()) as u32)
}

#[tokio::test]
async fn names_of_arguments_never_clash() {
    for _ in 0..2 {
        assert_eq!(clashing(1, "g", "s", "f", 2, 3, 4).await.unwrap(), 13);
    }
    assert_eq!(RUNS.count(), 1);
}

#[tokio::test]
async fn question_mark_and_early_return_leave_the_body_only() {
    #[idempotent(guard = guard, operation = "flow", key = id, unscoped, failure = |_: &anyhow::Error| Failure::Safe)]
    async fn flow(guard: &Guard, id: u32, text: &str) -> anyhow::Result<Box<dyn_text::Text>> {
        if text == "early" {
            return Ok(Box::new(dyn_text::Text("early".to_owned())));
        }
        let number: u32 = text.parse()?;
        Ok(Box::new(dyn_text::Text((number + id).to_string())))
    }
    mod dyn_text {
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        pub(super) struct Text(pub(super) String);
    }
    let guard = at_least_once();
    assert_eq!(flow(&guard, 1, "early").await.unwrap().0, "early");
    assert!(flow(&guard, 2, "x").await.unwrap_err().downcast_ref::<std::num::ParseIntError>().is_some());
    assert_eq!(flow(&guard, 2, "40").await.unwrap().0, "42");
    assert_eq!(flow(&guard, 2, "x").await.unwrap().0, "42");
}

#[tokio::test]
async fn an_expression_may_leave_before_anything_is_claimed() {
    #[derive(Debug, Error)]
    enum Failed {
        #[error("no key")]
        NoKey,
        #[error(transparent)]
        Refused(#[from] Refused),
    }
    #[idempotent(guard = guard, operation = "leaves", key = key.as_deref().ok_or(Failed::NoKey)?, unscoped)]
    async fn leaves(guard: &Guard, key: Option<String>) -> Result<usize, Failed> {
        Ok(key.map_or(0, |key| key.len()))
    }
    let guard = at_least_once();
    assert!(matches!(leaves(&guard, None).await, Err(Failed::NoKey)));
    assert_eq!(leaves(&guard, Some("key".into())).await.unwrap(), 3);
}

#[tokio::test]
async fn keys_are_made_of_text_numbers_and_keys() {
    struct Id(u128);
    impl Display for Id {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:032x}", self.0)
        }
    }
    #[idempotent(guard = guard, operation = "keys", key = key, scope = scope)]
    async fn keyed<K: idem_layer::function::ToKey>(guard: &Guard, key: K, scope: &Scope) -> Result<(), Refused> {
        let _ = (key, scope);
        Ok(())
    }
    let (guard, scope) = (at_least_once(), Scope::unscoped());
    let composed = Key::all_of([Key::new("a").unwrap(), Key::new("b").unwrap()]).unwrap();
    keyed(&guard, "text", &scope).await.unwrap();
    keyed(&guard, String::from("owned"), &scope).await.unwrap();
    keyed(&guard, -7i64, &scope).await.unwrap();
    keyed(&guard, Id(255), &scope).await.unwrap();
    keyed(&guard, &composed, &scope).await.unwrap();
    keyed(&guard, composed.clone(), &scope).await.unwrap();
    for key in ["text", "owned", "-7", "000000000000000000000000000000ff"] {
        assert!(guard.stored(&identity("keys", key)).await.unwrap().is_some(), "{key}");
    }
    let composed = Identity::new(Operation::new("keys").unwrap(), None, scope, composed);
    assert!(guard.stored(&composed).await.unwrap().is_some());
}

#[tokio::test]
async fn generic_functions_lifetimes_and_patterns_work() {
    struct Pair<'a>(&'a str, u32);

    #[idempotent(guard = guard, operation = "generic", key = "{name}/{line:03}", unscoped)]
    #[must_use]
    async fn generic<'a, T, const N: usize>(
        guard: &Guard,
        Pair(name, line): Pair<'a>,
        mut values: Vec<T>,
        _: &'a (),
    ) -> Result<[T; 1], Refused>
    where
        T: Clone + Serialize + for<'de> Deserialize<'de> + 'a,
    {
        values.truncate(N);
        let _ = (name, line);
        Ok([values[0].clone()])
    }
    let guard = at_least_once();
    assert_eq!(generic::<_, 2>(&guard, Pair("a", 7), vec![1, 2, 3], &()).await.unwrap(), [1]);
    assert_eq!(generic::<u32, 1>(&guard, Pair("a", 7), vec![], &()).await.unwrap(), [1]);
    assert!(guard.stored(&identity("generic", "a/007")).await.unwrap().is_some());
}

trait Payments {
    fn pay(&mut self, id: u32) -> impl Future<Output = Result<u32, Refused>> + Send;
    async fn pay_by_value(self, id: u32) -> Result<u32, Refused>;
}

struct Bank {
    guard: Arc<Guard>,
    runs: u32,
}

impl Payments for Bank {
    #[idempotent(guard = self.guard, operation = "bank.pay", key = id, unscoped)]
    async fn pay(&mut self, id: u32) -> Result<u32, Refused> {
        self.runs += 1;
        Ok(id + self.runs)
    }

    #[idempotent(guard = self.guard, operation = "bank.pay", key = "{id}", scope = "by value")]
    async fn pay_by_value(mut self, id: u32) -> Result<u32, Refused> {
        self.runs += id;
        Ok(self.runs)
    }
}

#[tokio::test]
async fn methods_of_traits_and_any_receiver_work() {
    let mut bank = Bank { guard: Arc::new(at_least_once()), runs: 0 };
    assert_eq!(bank.pay(10).await.unwrap(), 11);
    assert_eq!(bank.pay(10).await.unwrap(), 11);
    assert_eq!(bank.runs, 1);
    assert_eq!(bank.pay_by_value(10).await.unwrap(), 11);
}

#[tokio::test]
async fn a_future_that_may_not_leave_its_thread_works() {
    #[idempotent(guard = guard, operation = "local", key = id, unscoped)]
    async fn local(guard: &Guard, runs: &Cell<u32>, id: u32) -> Result<u32, Refused> {
        runs.set(runs.get() + 1);
        tokio::task::yield_now().await;
        Ok(id)
    }
    let (guard, runs) = (at_least_once(), Cell::new(0));
    for _ in 0..2 {
        assert_eq!(local(&guard, &runs, 1).await.unwrap(), 1);
    }
    assert_eq!(runs.get(), 1);
}

#[tokio::test]
async fn a_panic_leaves_the_outcome_unknown() {
    #[idempotent(guard = guard, operation = "panics", key = id, unscoped)]
    async fn panics(guard: &Guard, runs: &Counter, id: u32) -> Result<u32, Refused> {
        let _ = id;
        assert!(runs.hit() > 1, "first run");
        Ok(Run::current().unwrap().attempt())
    }
    async fn panicked(guard: &Guard, runs: &Counter) {
        let call = AssertUnwindSafe(panics(guard, runs, 1));
        let outcome = futures_catch(call).await;
        assert!(outcome.is_none());
        assert!(guard.drain(Duration::from_secs(5)).await.open == 0);
    }
    let (guard, runs) = (at_least_once(), Counter::default());
    panicked(&guard, &runs).await;
    assert_eq!(panics(&guard, &runs, 1).await.unwrap(), 2);

    let (guard, runs) = (at_most_once(), Counter::default());
    panicked(&guard, &runs).await;
    assert_eq!(kind(panics(&guard, &runs, 1).await), RefusedKind::OutcomeUnknown);
    assert_eq!(runs.count(), 1);
}

/// The output, or `None` where a poll panicked; the future is dropped during the unwinding, as an executor does it.
async fn futures_catch<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    std::future::poll_fn(move |cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut polling = future.take().expect("not polled again after a panic");
            let polled = polling.as_mut().poll(cx);
            future = Some(polling);
            polled
        }));
        match polled {
            Ok(polled) => polled.map(Some),
            Err(_) => std::task::Poll::Ready(None),
        }
    })
    .await
}

#[tokio::test]
async fn a_future_dropped_before_the_body_returned_leaves_the_outcome_unknown() {
    async fn dropped(shop: &Shop) {
        tokio::select! {
            biased;
            _ = shop.pay_slowly("o-1") => unreachable!("nobody lets it go on"),
            () = shop.reached.notified() => {}
        }
        assert!(shop.guard.drain(Duration::from_secs(5)).await.open == 0);
    }
    let shop = Shop::new(at_least_once());
    dropped(&shop).await;
    shop.go_on.notify_one();
    assert_eq!(shop.pay_slowly("o-1").await.unwrap(), 2);

    let shop = Shop::new(at_most_once());
    dropped(&shop).await;
    assert_eq!(kind(shop.pay_slowly("o-1").await), RefusedKind::OutcomeUnknown);
    assert_eq!(shop.runs.count(), 1);
}

#[tokio::test]
async fn a_stored_value_that_does_not_fit_is_refused_and_never_run_again() {
    mod before {
        use super::*;
        #[idempotent(guard = guard, operation = "changed", key = id, unscoped)]
        pub(super) async fn call(guard: &Guard, id: u32) -> Result<String, Refused> {
            Ok(format!("secret {id}"))
        }
    }
    mod after {
        use super::*;
        #[idempotent(guard = guard, operation = "changed", key = id, unscoped)]
        pub(super) async fn call(guard: &Guard, id: u32) -> Result<Receipt, Refused> {
            unreachable!("{id} has been done")
        }
    }
    let guard = at_least_once();
    before::call(&guard, 1).await.unwrap();
    for _ in 0..2 {
        let refused = after::call(&guard, 1).await.unwrap_err();
        assert_eq!(refused.kind(), RefusedKind::Undecodable);
        let shown = format!("{refused} {refused:?} {}", std::error::Error::source(&refused).unwrap());
        assert!(shown.contains("Receipt") && !shown.contains("secret"), "{shown}");
    }
    assert_eq!(before::call(&guard, 1).await.unwrap(), "secret 1");
}

#[tokio::test]
async fn a_stored_outcome_of_another_kind_is_refused() {
    async fn completed(guard: &Guard, key: &str, snapshot: Snapshot) {
        let Ok(Admission::Claimed(claim)) = guard.claim(identity("kinds", key)).await else { panic!("it is free") };
        let _ = claim.complete_with(Completion::Replayable(snapshot)).await;
    }
    #[idempotent(guard = guard, operation = "kinds", key = key, unscoped)]
    async fn call(guard: &Guard, key: &str) -> Result<u32, Refused> {
        unreachable!("{key} has been done")
    }
    let guard = at_least_once();
    completed(&guard, "response", Snapshot::response(&ResponseSnapshot::default())).await;
    completed(&guard, "error", Snapshot::error(b"3")).await;
    completed(&guard, "newer", Snapshot::from_bytes(Bytes::from_static(b"\x09V1"))).await;
    completed(&guard, "json", Snapshot::value(b"{")).await;
    assert_eq!(kind(call(&guard, "response").await), RefusedKind::Undecodable);
    assert_eq!(kind(call(&guard, "error").await), RefusedKind::NotReplayable);
    assert_eq!(kind(call(&guard, "newer").await), RefusedKind::RecordUnreadable);
    assert_eq!(kind(call(&guard, "json").await), RefusedKind::Undecodable);
}

#[tokio::test]
async fn a_value_that_cannot_be_encoded_is_returned_and_not_run_again() {
    #[idempotent(guard = guard, operation = "unencodable", key = id, unscoped)]
    async fn call(guard: &Guard, runs: &Counter, id: u32) -> Result<HashMap<(u32, u32), u32>, Refused> {
        runs.hit();
        Ok(HashMap::from([((id, id), id)]))
    }
    let (guard, runs) = (at_least_once(), Counter::default());
    assert_eq!(call(&guard, &runs, 1).await.unwrap().len(), 1);
    assert_eq!(kind(call(&guard, &runs, 1).await), RefusedKind::NotReplayable);
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_fingerprint_that_cannot_be_made_and_times_that_do_not_fit_are_refused() {
    #[idempotent(guard = guard, operation = "bad", key = id, unscoped, fingerprint(map))]
    async fn unserialisable(guard: &Guard, id: u32, map: HashMap<(u32, u32), u32>) -> Result<(), Refused> {
        unreachable!("{id} {map:?}")
    }
    #[idempotent(guard = guard, operation = "bad", key = id, unscoped, retention = retention, lease = Duration::from_secs(9))]
    async fn timed(guard: &Guard, id: u32, retention: Duration) -> Result<u32, Refused> {
        Ok(id)
    }
    let guard = at_least_once();
    assert_eq!(kind(unserialisable(&guard, 1, HashMap::from([((1, 1), 1)])).await), RefusedKind::InvalidFingerprint);
    assert_eq!(kind(timed(&guard, 1, Duration::ZERO).await), RefusedKind::InvalidPolicy);
    assert_eq!(timed(&guard, 1, Duration::from_secs(10)).await.unwrap(), 1);
    let seen = guard.stored(&identity("bad", "1")).await.unwrap().unwrap();
    assert_eq!(seen.record.retention_ms, 10_000);
}

#[tokio::test]
async fn a_lost_claim_returns_what_the_key_holds() {
    let store = SharedStore::new(MemoryStore::new());
    let policy =
        Policy::builder().lease(Duration::from_millis(1)).run_ceiling(Duration::from_millis(1)).build().unwrap();
    let (slow, quick) = (Guard::at_least_once(store.clone()).with_policy(policy), Guard::at_least_once(store));

    let key = || identity("lost", "k");
    let shadow = || identity("lost", "of a shadow");
    for (arrival, identity, expected) in
        [(Arrival::new(key()), key(), "second"), (Arrival::new(shadow()).shadow(), shadow(), "first")]
    {
        let slow_result = slow
            .run(arrival, |_: &Refused| Failure::Unknown, async {
                // The lease lapses at the first chance and is not renewed beyond the ceiling; then another owner takes over.
                let second = loop {
                    let second = async { Ok("second".to_owned()) };
                    match quick.run(identity.clone(), |_: &Refused| Failure::Unknown, second).await {
                        Err(refused) if refused.kind() == RefusedKind::InProgress => tokio::task::yield_now().await,
                        second => break second,
                    }
                };
                assert_eq!(second.unwrap(), "second");
                Ok("first".to_owned())
            })
            .await;
        assert_eq!(slow_result.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_shadow_runs_whatever_the_key_holds_and_gets_its_own_value() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let guard = at_least_once().observed_by({
        let events = events.clone();
        move |event: &Event<'_>| events.lock().unwrap().push((event.kind.name(), event.shadow))
    });
    let shadow = || Arrival::new(identity("shadow", "k")).shadow();
    let unknown = |_: &Refused| Failure::Unknown;
    let nested = guard.run(shadow(), unknown, async { Ok(2) });
    let first = guard.run(shadow(), unknown, async { nested.await.map(|inner: u32| inner * 10) }).await;
    assert_eq!(first.unwrap(), 20, "both ran, one while the other did");
    let later = guard.run(shadow(), unknown, async { Ok(Run::current().is_none()) }).await;
    assert!(later.unwrap(), "and unguarded");
    let told = events.lock().unwrap().clone();
    assert_eq!(told, ["claimed", "in_progress", "completed", "replayed"].map(|name| (name, true)));
}

#[tokio::test]
async fn the_run_is_known_to_its_body_alone() {
    #[idempotent(guard = guard, operation = "outer", key = "{id}", unscoped)]
    async fn outer(guard: &Guard, id: u32) -> Result<Vec<String>, Refused> {
        let key = || Run::current().unwrap().key().text().into_owned();
        let before = key();
        let inside = inner(guard, id + 1).await?;
        let spawned = tokio::spawn(async { Run::current().is_none() }).await.unwrap();
        assert!(spawned && !Run::current().unwrap().earlier_unknown());
        Ok(vec![before, inside, key()])
    }
    #[idempotent(guard = guard, operation = "inner", key = id, unscoped)]
    async fn inner(guard: &Guard, id: u32) -> Result<String, Refused> {
        let _ = id;
        Ok(Run::current().unwrap().key().text().into_owned())
    }
    let guard = at_least_once();
    assert_eq!(outer(&guard, 1).await.unwrap(), ["1", "2", "1"]);
    assert!(Run::current().is_none());
}

/// A guarded future can be spawned.
#[tokio::test]
async fn a_guarded_future_is_send() {
    let shop = Arc::new(Shop::new(at_least_once()));
    assert_eq!(tokio::spawn(async move { shop.pay(order("o-1", 1)).await }).await.unwrap().unwrap().id, 1);
}

#[tokio::test]
async fn the_library_may_have_another_path() {
    mod facade {
        pub(super) use idem_layer as idempotency;
    }
    #[idempotent(crate = facade::idempotency, guard = guard, operation = "facade", key = "{id}", scope = id, fingerprint(id))]
    async fn call(guard: &Guard, id: u32) -> Result<u32, Refused> {
        Ok(id)
    }
    assert_eq!(call(&at_least_once(), 1).await.unwrap(), 1);
}
