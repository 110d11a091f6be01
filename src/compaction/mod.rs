//! Jobs that rewrite the tree: memtables into level 0, levels into the level below.
//!
//! [`picker`] looks at the shape of the tree and names the next [`task`]; it reads no file.
//! [`range`] does the same for a compaction that a user asked for. [`merge`] runs a task,
//! [`flush`] writes memtables out. Both go through [`rewrite`], which asks [`retention`] which
//! entries stay and hands those to [`output`]: the new tables and their names are durable when a
//! job returns, and gone when it fails.
//!
//! A job changes nothing but its own new files. Its caller logs the edit, and only then is the
//! tree another one. At most one flush and one compaction run at a time.

pub mod merge;
pub mod flush;
pub mod rewrite;
pub mod output;
pub mod retention;
pub mod filter_rebuild;
pub mod range;
pub mod picker;
pub mod runs;
pub mod task;
