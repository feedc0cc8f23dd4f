//! For tests: of stores, and of what is built on them.
//!
//! # Is it a store?
//!
//! [`store_tests!`](crate::store_tests) holds a store to [`protocol::transition`](crate::protocol::transition): one test
//! for each promise, the same for every store. It needs a [`StoreHarness`], and `tokio` with the features `macros` and
//! `rt-multi-thread` among the dev-dependencies of the crate that calls it.
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use idem_layer::clock::Clock;
//! use idem_layer::protocol::Identity;
//! use idem_layer::store::{MemoryStore, SharedStore};
//! use idem_layer::testing::StoreHarness;
//!
//! struct MyHarness {
//!     clock: Clock,
//!     store: MemoryStore,
//! }
//!
//! impl MyHarness {
//!     async fn start() -> Self {
//!         let clock = Clock::manual();
//!         Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
//!     }
//! }
//!
//! impl StoreHarness for MyHarness {
//!     fn store(&self) -> SharedStore {
//!         SharedStore::new(self.store.clone())
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.clock.advance(by);
//!     }
//!
//!     async fn plant(&self, _: &Identity, _: Bytes) -> bool {
//!         false // It keeps no bytes.
//!     }
//!
//!     fn drift(&self) -> Duration {
//!         Duration::ZERO
//!     }
//! }
//!
//! idem_layer::store_tests!(MyHarness::start().await);
//! # fn main() {}
//! ```
//!
//! # What if the store fails?
//!
//! [`FaultyStore`] fails, loses replies, dawdles and hangs by script:
//!
//! ```
//! use idem_layer::protocol::{Identity, Key, Operation, Scope};
//! use idem_layer::store::{Inspect, MemoryStore, StoreErrorKind};
//! use idem_layer::testing::{Fault, FaultyStore, Verb};
//!
//! # tokio_test::block_on(async {
//! let store = FaultyStore::new(MemoryStore::new());
//! store.next(Verb::Read, Fault::FailBefore);
//!
//! let identity = Identity::new(Operation::new("order.create")?, None, Scope::unscoped(), Key::new("1")?);
//! let error = store.read(&identity).await.unwrap_err();
//! assert_eq!(error.kind(), StoreErrorKind::Unavailable);
//! assert_eq!(store.read(&identity).await?, None);
//! assert_eq!(store.calls(Verb::Read), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

pub mod conformance;
mod faulty;
mod harness;
#[cfg(test)]
mod tests;

pub use self::faulty::{Fault, FaultyStore, Verb};
#[cfg(feature = "memory")]
pub use self::harness::MemoryHarness;
pub use self::harness::StoreHarness;

/// Writes one test for each promise of a store. Takes an expression that makes a [`StoreHarness`]; it may `.await`, and is
/// evaluated afresh in each test. See the [module docs](self).
///
/// The tests are functions at the place of the call: give each harness a module of its own.
#[macro_export]
macro_rules! store_tests {
    ($harness:expr $(,)?) => {
        $crate::__store_tests! { $harness;
            a_fresh_key_is_claimed_at_attempt_one
            a_repeated_acquire_is_granted_again
            a_repeated_acquire_prolongs_nothing
            a_live_claim_keeps_others_out
            a_refused_repeat_changes_nothing
            another_fingerprint_is_a_mismatch_in_every_state
            no_fingerprint_compares_equal
            an_observed_difference_is_reported_and_refuses_nothing
            a_fingerprint_of_another_version_is_named

            a_lease_ends_on_time_whoever_asks
            a_lapsed_claim_is_taken_over_as_the_next_attempt
            an_abandoned_claim_is_taken_over_at_once
            a_lapse_is_held_if_the_record_or_the_caller_says_so
            an_abandoned_claim_is_held_if_the_record_or_the_caller_says_so
            an_attempt_never_falls

            a_completed_outcome_replays_byte_for_byte
            presence_decides_never_the_value
            a_completion_without_snapshot_is_told_from_a_replay
            a_first_attempt_released_leaves_nothing
            a_later_attempt_released_is_remembered
            a_freed_key_may_change_its_request_unless_half_done
            a_held_key_keeps_everybody_out
            a_repeated_settle_is_done_and_changes_nothing
            a_second_decision_is_lost
            releasing_nothing_is_done

            a_lapsed_claim_can_be_settled_by_its_owner
            a_claim_held_by_a_lapse_can_be_settled_by_its_owner
            an_abandoning_owner_lifts_no_hold
            a_stale_owner_changes_nothing_of_a_running_successor
            a_stale_owner_changes_nothing_of_a_settled_successor
            a_forgotten_owner_is_told_that_nothing_is_stored

            a_renewal_prolongs
            a_lapsed_claim_that_nobody_took_can_be_renewed
            progress_survives_takeover_and_release
            a_renewal_without_progress_keeps_what_is_recorded
            a_late_renewal_leaves_retention_alone

            retention_counts_from_completion
            a_claim_is_remembered_for_its_retention_behind_its_lease
            a_renewed_claim_is_remembered_from_its_last_renewal
            an_expired_key_starts_afresh
            a_freed_key_is_remembered_from_its_release
            a_replay_that_is_over_is_gone_and_then_forgotten
            an_identity_outlives_its_outcome
            a_completion_without_snapshot_is_remembered_too
            a_late_owner_of_a_gone_outcome_changes_nothing
            a_repeated_complete_puts_off_no_end
            a_stale_owner_neither_replaces_nor_prolongs_an_outcome
            a_held_key_stays_for_ever
            a_held_key_with_a_limit_is_let_go

            of_fifty_concurrent_asks_one_is_claimed
            of_fifty_concurrent_takeovers_one_is_claimed
            copies_of_one_command_are_one_claim
            a_settle_races_a_takeover_and_one_of_them_wins

            identities_that_differ_in_one_part_never_meet
            keys_are_compared_byte_for_byte

            garbage_is_unreadable_and_never_a_miss
            a_newer_record_is_unreadable_and_never_a_miss
            a_record_of_another_identity_is_unreadable_and_never_a_miss
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ($harness:expr; $($promise:ident)+) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                $crate::testing::conformance::$promise($harness).await;
            }
        )+
    };
}
