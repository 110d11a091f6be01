//! One database, as its user sees it: [`Db`] and [`Snapshot`].
//!
//! Each public method of a handle is one call down into the room that does the work: `read`,
//! `write`, `jobs` or `admin`. What stays here is the life of a database: `open` and `recover`
//! build its shared state from the files, `handle` ends a session, `resume` goes on after a full
//! disk.

#[cfg(test)]
mod tests;
pub mod handle;
pub mod snapshot;
pub mod resume;
pub mod open;
pub mod recover;

pub use handle::Db;
pub use snapshot::Snapshot;
