//! Compaction: rewrites tables into the next level, or in place.
//!
//! [`picker`] looks at the shape of the tree and names the next [`task`]; it reads no file.
//! [`range`] and [`filter_rebuild`] do the same for a request by the user. [`run`] runs a task
//! through [`rewrite`], which asks [`stripes`] which entries stay and hands those to [`output`].
//! The new tables and their names are durable when a job returns, and gone when it fails.

pub mod run;
pub mod rewrite;
pub mod output;
pub mod stripes;
pub mod filter_rebuild;
pub mod range;
pub mod picker;
pub mod task;
