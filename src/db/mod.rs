//! One database, as its user sees it.
//!
//! [`Db`] is a cheap handle: clone it, share it, call it from any thread. Each public method makes
//! one call down into the module named after what it does:
//!
//! | module | what |
//! |---|---|
//! | `handle` | ownership: `Db`, workers, iterators, snapshots; close |
//! | `care` | opening to read only, what recovery left out, checking everything |
//! | `verify` | everything read and held together |
//! | `open`, `recover` | create or open a database; what the logs hold |
//! | `background`, `jobs` | when to flush and compact; the jobs, and removal of files |
//! | `resume` | going on after the disk was full |
//! | `write` | write groups, memtable switch, stalls |
//! | `report`, `explain` | the statistics; one lookup in words |
//! | `filter_report`, `filter_doctor` | the filters of all tables; what may be wrong with them |
//! | `filter_advice` | what a memory budget for filters buys |
//! | `asked_share` | how often a lookup asks each table |
//! | `snapshot`, `scan`, `multi_get`, `read` | the ways to look |
//! | `state` | what all of them share, and the order of its locks |
//! | `background_error` | the failure that every later write answers |
//! | `queue`, `range`, `stats_file` | the write queue; key ranges; counters kept on disk |

#[cfg(test)]
mod tests;
pub mod care;
pub mod handle;
pub mod verify;
pub mod open;
pub mod recover;
pub mod resume;
pub mod background;
pub mod jobs;
pub mod write;
pub mod filter_advice;
pub mod filter_doctor;
pub mod filter_report;
pub mod asked_share;
pub mod report;
pub mod explain;
pub mod snapshot;
pub mod scan;
pub mod multi_get;
pub mod read;
pub mod state;
pub mod background_error;
pub mod queue;
pub mod range;
pub mod stats_file;

pub use explain::{
    Explain, ExplainFilter, ExplainOutcome, ExplainPlace, ExplainStep, ExplainTouched,
    FilterAnswer, FilterSource,
};
pub use filter_advice::{FilterAdvice, LevelAdvice};
pub use filter_doctor::FilterFinding;
pub use filter_report::{FilterDamage, FilterFacts, FilterGroup, FilterReport, WantedFilter};
pub use handle::Db;
pub use range::KeyRange;
pub use scan::Iter;
pub use snapshot::Snapshot;
pub use verify::{VerifyProgress, VerifyReport};
