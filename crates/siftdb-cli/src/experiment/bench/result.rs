//! The measurements of one run of a workload.

use crate::experiment::bench::interval::Interval;
use crate::experiment::bench::store::Counts;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// A kind of operation, by which latencies are kept apart, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A lookup of one key.
    Get,
    /// A lookup of several keys at once.
    MultiGet,
    /// A write of one entry.
    Put,
    /// A write of several entries as one step.
    Write,
    /// A deletion.
    Delete,
    /// A lookup and a write of the same entry.
    ReadModifyWrite,
    /// A seek that reads one entry.
    Seek,
    /// A scan of several entries.
    Scan,
}

impl Kind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::MultiGet => "multi_get",
            Kind::Put => "put",
            Kind::Write => "write",
            Kind::Delete => "delete",
            Kind::ReadModifyWrite => "read_modify_write",
            Kind::Seek => "seek",
            Kind::Scan => "scan",
        }
    }
}

/// The latencies of one kind of operation, in nanoseconds, with three digits.
pub type Latencies = Histogram<u64>;

/// No latencies yet.
fn no_latencies() -> Latencies {
    // An hour with three digits fits into fixed memory, so recording never allocates.
    const LONGEST: u64 = Duration::from_secs(3600).as_nanos() as u64;
    Histogram::new_with_bounds(1, LONGEST, 3).expect("three digits and these bounds are valid")
}

/// The latencies of each kind of operation that was made.
pub type ByKind = BTreeMap<Kind, Latencies>;

/// Adds an operation of a kind.
pub(crate) fn record(latencies: &mut ByKind, kind: Kind, nanos: u64) {
    latencies.entry(kind).or_insert_with(no_latencies).saturating_record(nanos);
}

/// Adds the latencies of other operations.
pub(crate) fn add(latencies: &mut ByKind, other: &ByKind) {
    for (kind, more) in other {
        *latencies.entry(*kind).or_insert_with(no_latencies) += more;
    }
}

/// The measurements of a workload with filters asked, or without.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Whether lookups might ask filters. After many hits in a row they do not.
    pub filters: bool,
    /// Operations: calls, each of which was timed.
    pub operations: u64,
    /// Entries that these operations read, wrote or looked up in vain.
    pub entries: u64,
    /// How long it took, without the time between turns.
    pub seconds: f64,
    /// The time of an operation in a typical turn: the median over all turns of their mean. A few
    /// disturbed turns do not change it, so it serves to compare runs.
    pub typical_nanos: f64,
    /// The latencies by kind of operation.
    pub kinds: ByKind,
    /// The counts of the store; `None` if it does not count.
    pub counts: Option<Counts>,
}

impl Variant {
    /// `count` for each operation.
    pub fn per_operation(&self, count: u64) -> f64 {
        count as f64 / self.operations.max(1) as f64
    }

    /// Operations a second of all threads together.
    pub fn operations_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }

    /// Entries a second of all threads together.
    pub fn entries_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.entries as f64 / self.seconds } else { 0.0 }
    }
}

/// The measurements of one run of a workload.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The name of the workload.
    pub workload: &'static str,
    /// With and without filters, as far as both were run; filters on is first.
    pub variants: Vec<Variant>,
    /// The time of an operation without filters as a multiple of the time with filters, over
    /// neighbouring turns, with its 95 % interval. `None` if the run was too short or not of both.
    pub ratio: Option<Interval>,
    /// Lookups that found an absent key or did not find a present one, in a workload that changes
    /// nothing. A sound run has none.
    pub wrong_answers: u64,
}
