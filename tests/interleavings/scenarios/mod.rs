//! The engine's own code under many schedules: a scheduler decides at every lock, every atomic and
//! every swapped pointer which thread runs next (see `sync` and `scheduled`).
//!
//! Only the package `tests/interleavings/` compiles this; CONTRIBUTING.md has the commands. A check
//! runs a scenario of a few threads under thousands of schedules. Half of them are drawn evenly;
//! the others have few thread switches, at the worst places (PCT). A failure prints the schedule
//! that caused it. A thread that is never woken is found as a deadlock. Each check also says how
//! many different outcomes it must see, so that no check passes vacuously.
//!
//! | module | what it checks |
//! |---|---|
//! | `queue` | one leader at a time, every request answered once, nobody left waiting |
//! | `reads` | view, sequence, memtable filter; batches; snapshots during jobs; loads; removed files |
//! | `transactions` | no lost update, no write skew; with batches, jobs, a close |
//! | `blocks` | one load for many, slots and the cache, use and eviction |
//! | `files` | the pool of open files: nothing is closed while it is read, and no more stay open |
//! | `tickets` | no ticket resolves before its sync, and each does; a close beside them |
//! | `watches` | no watch misses a write, its keyspace's drop or the end, wherever it begins |
//! | `whole` | an open database with its workers: stalls, flushes, loads, closing, drops |
//! | `run` | schedulers, seeds, settings |

pub mod queue;
pub mod reads;
pub mod transactions;
pub mod blocks;
pub mod files;
pub mod tickets;
pub mod watches;
pub mod whole;
pub mod run;
