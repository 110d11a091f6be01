//! Compaction: rewrites tables into the next level, or in place.
//!
//! `picker` looks at the sizes and keys of all tables and names the next `task`; it reads no file.
//! `manual` does the same for a request by the user. `run` runs a task and installs its result;
//! `reservation` keeps the tasks that run at the same time apart. `merge` writes the new tables, in
//! the `parts` that threads share, at the `pace` that is set; `output_cuts` says where tables end,
//! and `filter_budget` which filters they get.

pub(crate) mod run;
mod reservation;
pub(crate) mod filter_budget;
mod merge;
mod parts;
mod pace;
mod output_cuts;
pub(crate) mod manual;
pub(crate) mod picker;
pub(crate) mod task;
