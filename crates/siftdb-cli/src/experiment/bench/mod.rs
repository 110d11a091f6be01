//! The benchmark: workloads by the field's names, over any store, measured so that two runs can be
//! compared. `siftdb bench` and `benches/peers` use it.
//!
//! A [`Workload`] says which operations are made, [`Data`] has their keys and values, [`Settings`]
//! say how many threads make them and for how long. [`run()`] makes them in a [`Store`] and answers
//! a [`Measured`].
//!
//! How it measures:
//! - An operation is one call. Its key and value are made before its clock starts.
//! - The run is cut into short turns. With filters on and off, the turns alternate over one and the
//!   same database, so that both meet the same machine. The answer is the ratio of neighbouring
//!   turns, with an interval that assumes no distribution: [`median_interval`].
//! - With a rate, operations have times at which they should start, and latency counts from there.
//!   A stall then shows in all operations that should have started during it, as users would see
//!   it. Without that correction ("coordinated omission") a stall is one slow operation.
//! - The store's counters are read between turns, when no operation is under way. So they are
//!   exact.

mod figures;
mod text;
mod record;
mod compare;
mod run;
mod worker;
mod result;
mod load;
mod siftdb;
mod workload;
mod draw;
mod data;
mod store;
mod machine;
mod matrix;
mod interval;

pub use self::siftdb::{SiftdbStore, sampled};
pub use compare::{COMPARED, Comparison, Difference, Sample, compare, samples};
pub use data::{Data, KeyShape};
pub use draw::{Distribution, Sampler};
pub use figures::figures;
pub use interval::{Interval, median, median_interval, values_needed};
pub use load::{Tree, load};
pub use machine::{CoresUsed, Machine, resident_bytes, warning_of_others};
pub use matrix::{Cell, cell_text, cells};
pub use record::{QUANTILES, Run, csv};
pub use result::{ByKind, Kind, Latencies, Measured, Variant};
pub use run::{Progress, Settings, Watch, run};
pub use store::{Counts, Direction, Footprint, Reader, Result, Store};
pub use workload::{Action, Start, WORKLOADS, Workload, workload};
