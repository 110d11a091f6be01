//! One database, as its user sees it: [`Db`] and [`Snapshot`].
//!
//! Each public method of [`Db`] is one call into the room that does the work: `read`, `write`,
//! `jobs` or `admin`. This room has the life of a database: `open` and `recover` build its state
//! from the files, `handle` ends a session, and `resume` continues after a full disk.

#[cfg(test)]
mod tests;
pub(crate) mod handle;
pub(crate) mod snapshot;
pub(crate) mod resume;
pub(crate) mod open;
pub(crate) mod recover;

pub use handle::Db;
pub use snapshot::Snapshot;
