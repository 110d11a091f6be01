//! Every row of the report, and what siftdb has to reach in it.
//!
//! The targets are figures measured before on one machine, with a million hex keys and values of
//! 100 bytes: only their ratios mean anything elsewhere. A row's wanted ratio is siftdb's target
//! over the best figure of the rivals that a run has.

use crate::engine::Layout;
use crate::engine::Layout::{BlockBased, NoFilter, Own, Partitioned};

/// What a figure is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of processor time for each operation.
    CpuNanoseconds,
    /// Nanoseconds of wall time for each operation.
    WallNanoseconds,
    /// Milliseconds of wall time.
    Milliseconds,
    /// Operations in a second: more is better.
    PerSecond,
    /// Millions of bytes.
    Megabytes,
    /// So many times something.
    Times,
}

impl Unit {
    /// The unit in words.
    pub fn name(self) -> &'static str {
        match self {
            Unit::CpuNanoseconds => "ns cpu",
            Unit::WallNanoseconds => "ns wall",
            Unit::Milliseconds => "ms",
            Unit::PerSecond => "1/s",
            Unit::Megabytes => "MB",
            Unit::Times => "times",
        }
    }
}

/// A row of the report.
pub struct Row {
    /// The name that samples give.
    pub id: &'static str,
    /// The layout that it is measured in.
    pub layout: Layout,
    /// What the report calls it.
    pub title: &'static str,
    /// What its figures are in.
    pub unit: Unit,
    /// What siftdb has to reach, if that was said.
    pub target: Option<Target>,
}

/// What siftdb has to reach, where the rivals reached what stands beside it.
pub struct Target {
    /// siftdb's budget.
    pub siftdb: f64,
    /// The figures of [`RIVALS`]; 0 where there is none.
    pub rivals: [f64; 5],
}

/// The rivals in the order of [`Target::rivals`].
pub const RIVALS: [&str; 5] = ["rocksdb", "leveldb", "fjall", "redb", "lmdb"];

const CPU: Unit = Unit::CpuNanoseconds;
const WALL: Unit = Unit::WallNanoseconds;
const MS: Unit = Unit::Milliseconds;
const MB: Unit = Unit::Megabytes;
const RATE: Unit = Unit::PerSecond;
const TIMES: Unit = Unit::Times;

const fn row(id: &'static str, layout: Layout, title: &'static str, unit: Unit) -> Row {
    Row { id, layout, title, unit, target: None }
}

const fn goal(row: Row, siftdb: f64, rivals: [f64; 5]) -> Row {
    Row { target: Some(Target { siftdb, rivals }), ..row }
}

/// All rows, in order.
pub const ROWS: &[Row] = &[
    // siftdb's target, then RocksDB, LevelDB, fjall, redb, LMDB.
    goal(row("miss", Own, "miss, settled", CPU), 60.0, [244.0, 439.0, 128.0, 1012.0, 926.0]),
    row("miss", NoFilter, "miss, filter off", CPU),
    goal(
        row("threads-miss", Own, "miss, 2 threads", WALL),
        35.0,
        [120.0, 302.0, 122.0, 418.0, 430.0],
    ),
    goal(
        row("miss", Partitioned, "miss, partitioned filter in the cache", CPU),
        150.0,
        [669.0, 0.0, 416.0, 0.0, 0.0],
    ),
    row("miss", BlockBased, "miss, block-based filter", CPU),
    goal(
        row("level0", Own, "miss through level-0 files", CPU),
        150.0,
        [922.0, 472.0, 698.0, 0.0, 0.0],
    ),
    row("level0", NoFilter, "miss through level-0 files, filter off", CPU),
    goal(
        row("memtable-miss", Own, "miss, 100k entries in the memtable", CPU),
        120.0,
        [996.0, 1654.0, 934.0, 851.0, 884.0],
    ),
    goal(
        row("memtable-hit", Own, "hit, 100k entries in the memtable", CPU),
        700.0,
        [3010.0, 3097.0, 2897.0, 1045.0, 847.0],
    ),
    goal(row("hit", Own, "hit, cached", CPU), 650.0, [2220.0, 1559.0, 2036.0, 1238.0, 900.0]),
    row("hit", NoFilter, "hit, filter off", CPU),
    row("hit", Partitioned, "hit, partitioned filter in the cache", CPU),
    row("hit", BlockBased, "hit, block-based filter", CPU),
    row("threads-hit", Own, "hit, 2 threads", WALL),
    goal(
        row("zipfian", Own, "hit, zipfian 0.99", CPU),
        400.0,
        [1648.0, 1191.0, 1542.0, 811.0, 573.0],
    ),
    goal(
        row("mixed", Own, "mixed, half absent", CPU),
        400.0,
        [1273.0, 1169.0, 1083.0, 1076.0, 849.0],
    ),
    goal(
        row("starved", Own, "hit, 8 MiB cache", CPU),
        1150.0,
        [3669.0, 1758.0, 3174.0, 1561.0, 979.0],
    ),
    row("starved-mapped", Own, "hit, 8 MiB cache, files mapped", CPU),
    goal(
        row("starved-compressed", Own, "hit, 8 MiB cache, compressed", CPU),
        1900.0,
        [4685.0, 3207.0, 3265.0, 0.0, 0.0],
    ),
    goal(
        row("put", Own, "put, WAL on, no sync", WALL),
        2200.0,
        [3704.0, 3141.0, 3015.0, 11613.0, 5397.0],
    ),
    goal(
        row("overwrite", Own, "put, batches of 100, overwriting", WALL),
        1400.0,
        [2024.0, 2139.0, 2624.0, 5586.0, 6739.0],
    ),
    goal(
        row("sorted", Own, "sorted load, batches of 1000, flushed", WALL),
        500.0,
        [747.0, 607.0, 851.0, 916.0, 336.0],
    ),
    goal(
        row("durable", Own, "durable puts", RATE),
        9500.0,
        [7569.0, 7967.0, 7639.0, 5363.0, 3206.0],
    ),
    goal(row("scan", Own, "scan of 100", CPU), 5500.0, [13972.0, 8177.0, 23682.0, 8350.0, 6271.0]),
    goal(
        row("full-scan", Own, "full scan, per entry", CPU),
        45.0,
        [100.0, 50.0, 208.0, 69.0, 50.0],
    ),
    // Where a range was measured, its lower end.
    goal(row("reopen", Own, "reopen, settled", MS), 2.0, [5.0, 2.3, 290.0, 0.6, 0.2]),
    row("settle", Own, "settle", MS),
    goal(row("disk", Own, "disk", MB), 126.0, [126.0, 126.0, 165.0, 180.0, 201.0]),
    row("memory-loading", Own, "memory while loading", MB),
    row("memory-reading", Own, "memory while reading", MB),
    row("sustained-load", Own, "sustained: put", WALL),
    row("sustained-overwrite", Own, "sustained: put, overwriting", WALL),
    row("sustained-slowest", Own, "sustained: slowest slice over the median slice", TIMES),
    row("sustained-p999", Own, "sustained: put, 99.9th percentile", WALL),
    row("sustained-longest", Own, "sustained: longest put", MS),
    row("sustained-stalled", Own, "sustained: waiting in all, by its statistics", MS),
    row("sustained-unexplained", Own, "sustained: longest put, less such waiting", MS),
    row("sustained-settle", Own, "sustained: settle", MS),
    row("sustained-written", Own, "sustained: write amplification", TIMES),
    row("sustained-space-most", Own, "sustained: space amplification, at most", TIMES),
    row("sustained-space", Own, "sustained: space amplification, settled", TIMES),
    row("writers-1", Own, "puts, 1 thread", RATE),
    row("writers-2", Own, "puts, 2 threads", RATE),
    row("writers-4", Own, "puts, 4 threads", RATE),
    row("writers-8", Own, "puts, 8 threads", RATE),
    row("writers-durable-1", Own, "durable puts, 1 thread", RATE),
    row("writers-durable-2", Own, "durable puts, 2 threads", RATE),
    row("writers-durable-4", Own, "durable puts, 4 threads", RATE),
    row("writers-durable-8", Own, "durable puts, 8 threads", RATE),
];
