//! Records in Redis (7.0 or later) or Valkey (7.2 or later), shared by all processes that use one server or cluster.
//!
//! ```no_run
//! # async fn example() -> Result<(), idem_layer::store::StoreError> {
//! use idem_layer::store::RedisStore;
//!
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! # let _ = store; Ok(())
//! # }
//! ```
//!
//! On a connection of your own, such as one to a cluster, and under a prefix of your own:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use idem_layer::store::RedisStore;
//! use redis::cluster::ClusterClient;
//!
//! let cluster = ClusterClient::new(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])?;
//! let store = RedisStore::new(cluster.get_async_connection().await?).with_prefix("shop:idem:")?;
//! # let _ = store; Ok(())
//! # }
//! ```
//!
//! `RedisStore::connect` takes what the `redis` crate takes as an address. `rediss://` (TLS) needs a feature of that crate,
//! without which it is refused as "invalid client config": depend on `redis` yourself, in the same 1.x (as for
//! `RedisStore::new`), with one of its features for TLS, such as `tokio-rustls-comp`, and on rustls with one crypto provider,
//! `ring` or `aws-lc-rs`.
//!
//! # Layout
//!
//! One string per record, under the prefix and the identity's name, `idem:payments.create:POST+/payments:user%3Aalice:k-1`.
//! Its value is the record in its [stored form](crate::protocol::Record), its expiry the time until the record is forgotten.
//! There is nothing else, no index and no counter, but one case in which a record has a second key:
//!
//! Where an identity is remembered behind its retention, the snapshot must not live as long as the record. So it lies apart,
//! under the prefix and, in braces, the record's key, `idem:{idem:payments.create:POST+/payments:user%3Aalice:k-1}:snapshot`.
//! Its value is the token of the claim that it completed (16 bytes) and the snapshot, its expiry the retention. The record
//! holds a single zero byte in its place, and lives for the retention and the time that the identity is remembered. When the
//! retention is over, nothing is left of the response, and less than 200 bytes of the record.
//!
//! The braces put both keys into one slot of a cluster, as no other part of a key has any: every command touches one slot, and
//! one script writes both or neither. An owner who comes too late replaces no response and leaves none behind.
//!
//! A record in flight lives for its lease and, behind that, its retention, which it carries: the lease is over when no more
//! than the retention is left. So all time is the server's, and a lapse is noticed however late the repeat comes. Every
//! write carries its expiry, except that of a held record without a limit, which stays until it is resolved.
//!
//! # Commands
//!
//! What a command of the protocol does is decided by [`transition`](crate::protocol::transition) alone. The server only
//! compares and sets:
//!
//! 1. A claim guesses that nothing is stored: `SET key record NX GET PX …`. It wins, or gets what is stored in the same reply,
//!    which is already the answer for a completed record. Only what depends on the time left (a claim in flight, a replay
//!    that has an end before the record has) takes the second command, which also brings a snapshot that lies apart.
//! 2. An owner guesses that its claim still stands, and everybody else has seen what is stored: one script writes if the
//!    key holds just that (for a takeover: if its lease is still over, too), and else says what it holds and how much time is
//!    left. With that the decision is made again.
//!
//! So a fresh request costs two round trips, a replay one, a repeat that meets the first one running two. Scripts are called
//! by their digest; where the server has forgotten them (it was restarted, a replica took over), the text is sent to the
//! same node. A connection that turns out to be dropped gets the command once more, which is safe: a repeated command finds
//! its own token.
//!
//! # When memory is full
//!
//! Over its `maxmemory` the server refuses new claims ([`StoreErrorKind::Full`](super::StoreErrorKind::Full)). Repeats are
//! still answered, and claims that are open can still be renewed and settled, because these writes need no more room than
//! the claim had: their script is marked `allow-oom`. A snapshot that needs more is not stored; the record is then completed
//! as [`NoRoom`](crate::protocol::NotReplayable::NoRoom).
//!
//! # Running it
//!
//! - `maxmemory-policy noeviction`. A server that evicts forgets what has been done, and it runs again. An owner whose record
//!   was evicted is told so when it settles. Where only a snapshot that lies apart was evicted or deleted, repeats are told
//!   that the outcome is gone, before its time; nothing runs again. `FLUSHALL` and `FLUSHDB` forget everything, remembered
//!   identities too.
//! - Replication is asynchronous: a failover can lose the last claims and completions. Where money moves, let something that
//!   commits with the effect refuse it twice, such as a unique column in the database.
//! - Without an append-only file a restart forgets everything; with `appendfsync everysec` the last second.
//! - The user of the connection needs `SET`, `GET`, `GETRANGE`, `PTTL`, `DEL`, `EVAL` and `EVALSHA`, on the prefix's keys.
//! - Keys show operation, scope and key to whoever may read the server's keys. Values hold the stored responses, as they are.

mod apart;
mod connection;
mod fault;
mod layout;
mod store;

pub use connection::RedisConnection;
pub use layout::RedisPrefixError;
pub use store::RedisStore;
