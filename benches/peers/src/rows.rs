//! Every row of the report: its name, its layout, its title and its unit.

use crate::engine::Layout;
use crate::engine::Layout::{BlockBased, NoFilter, Own, Partitioned};

/// Nanoseconds of processor time for each operation.
const CPU: &str = "ns cpu";

/// Nanoseconds of wall time for each operation.
const WALL: &str = "ns wall";

/// Milliseconds of wall time.
const MS: &str = "ms";

/// Operations in a second.
const RATE: &str = "1/s";

/// Millions of bytes in a second.
const SPEED: &str = "MB/s";

/// Millions of bytes.
const MB: &str = "MB";

/// Bytes for each operation.
const BYTES: &str = "B";

/// Reads for each operation.
const READS: &str = "reads";

/// A number of puts.
const PUTS: &str = "puts";

/// A factor.
const TIMES: &str = "times";

/// A row of the report.
pub struct Row {
    /// The name that samples give.
    pub id: &'static str,
    /// The layout that it is measured in.
    pub layout: Layout,
    /// What the report calls it.
    pub title: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
}

impl Row {
    /// Whether more of its unit is better, as of nothing but rates.
    pub fn more_is_better(&self) -> bool {
        matches!(self.unit, RATE | SPEED)
    }
}

const fn row(id: &'static str, layout: Layout, title: &'static str, unit: &'static str) -> Row {
    Row { id, layout, title, unit }
}

/// All rows, in order.
pub const ROWS: &[Row] = &[
    row("miss", Own, "miss, settled", CPU),
    row("miss", NoFilter, "miss, filter off", CPU),
    row("threads-miss", Own, "miss, 2 threads", WALL),
    row("miss", Partitioned, "miss, partitioned filter in the cache", CPU),
    row("miss", BlockBased, "miss, block-based filter", CPU),
    row("level0", Own, "miss through level-0 files", CPU),
    row("level0", NoFilter, "miss through level-0 files, filter off", CPU),
    row("memtable-miss", Own, "miss, 100k entries in the memtable", CPU),
    row("memtable-hit", Own, "hit, 100k entries in the memtable", CPU),
    row("hit", Own, "hit, cached", CPU),
    row("hit", NoFilter, "hit, filter off", CPU),
    row("hit", Partitioned, "hit, partitioned filter in the cache", CPU),
    row("hit", BlockBased, "hit, block-based filter", CPU),
    row("threads-hit", Own, "hit, 2 threads", WALL),
    row("zipfian", Own, "hit, zipfian 0.99", CPU),
    row("mixed", Own, "mixed, half absent", CPU),
    row("starved", Own, "hit, 8 MiB cache", CPU),
    row("starved-mapped", Own, "hit, 8 MiB cache, files mapped", CPU),
    row("starved-compressed", Own, "hit, 8 MiB cache, compressed", CPU),
    row("cold-open", Own, "open and first lookup, cold", MS),
    row("cold-hit-p50", Own, "hit, cold: half within", WALL),
    row("cold-hit-p99", Own, "hit, cold: 99 % within", WALL),
    row("cold-hit-bytes", Own, "hit, cold: bytes read from the disk", BYTES),
    row("cold-miss-mean", Own, "miss, cold: mean", WALL),
    row("cold-miss-bytes", Own, "miss, cold: bytes read from the disk", BYTES),
    row("big-open", Own, "big: open and first lookup", MS),
    row("big-open-memory", Own, "big: memory by then", MB),
    row("big-absent-p50", Own, "big: miss: half within", WALL),
    row("big-absent-p99", Own, "big: miss: 99 % within", WALL),
    row("big-absent-p999", Own, "big: miss: 99.9 % within", WALL),
    row("big-absent-bytes", Own, "big: miss: bytes read from the disk", BYTES),
    row("big-absent-reads", Own, "big: miss: reads of the disk", READS),
    row("big-present-p50", Own, "big: hit: half within", WALL),
    row("big-present-p99", Own, "big: hit: 99 % within", WALL),
    row("big-present-p999", Own, "big: hit: 99.9 % within", WALL),
    row("big-present-bytes", Own, "big: hit: bytes read from the disk", BYTES),
    row("big-present-reads", Own, "big: hit: reads of the disk", READS),
    row("big-zipfian-p50", Own, "big: hit, zipfian 0.99: half within", WALL),
    row("big-zipfian-p99", Own, "big: hit, zipfian 0.99: 99 % within", WALL),
    row("big-zipfian-p999", Own, "big: hit, zipfian 0.99: 99.9 % within", WALL),
    row("big-zipfian-bytes", Own, "big: hit, zipfian 0.99: bytes read from the disk", BYTES),
    row("big-zipfian-reads", Own, "big: hit, zipfian 0.99: reads of the disk", READS),
    row("big-mixed-p50", Own, "big: mixed, half absent: half within", WALL),
    row("big-mixed-p99", Own, "big: mixed, half absent: 99 % within", WALL),
    row("big-mixed-p999", Own, "big: mixed, half absent: 99.9 % within", WALL),
    row("big-mixed-bytes", Own, "big: mixed, half absent: bytes read from the disk", BYTES),
    row("big-mixed-reads", Own, "big: mixed, half absent: reads of the disk", READS),
    row("big-scan-p50", Own, "big: scan of 100: half within", WALL),
    row("big-scan-p99", Own, "big: scan of 100: 99 % within", WALL),
    row("big-scan-p999", Own, "big: scan of 100: 99.9 % within", WALL),
    row("big-scan-bytes", Own, "big: scan of 100: bytes read from the disk", BYTES),
    row("big-scan-reads", Own, "big: scan of 100: reads of the disk", READS),
    row("big-absent-p50-writer", Own, "big, next to a writer: miss: half within", WALL),
    row("big-absent-p999-writer", Own, "big, next to a writer: miss: 99.9 % within", WALL),
    row("big-present-p50-writer", Own, "big, next to a writer: hit: half within", WALL),
    row("big-present-p999-writer", Own, "big, next to a writer: hit: 99.9 % within", WALL),
    row(
        "big-zipfian-p50-writer",
        Own,
        "big, next to a writer: hit, zipfian 0.99: half within",
        WALL,
    ),
    row(
        "big-zipfian-p999-writer",
        Own,
        "big, next to a writer: hit, zipfian 0.99: 99.9 % within",
        WALL,
    ),
    row(
        "big-mixed-p50-writer",
        Own,
        "big, next to a writer: mixed, half absent: half within",
        WALL,
    ),
    row(
        "big-mixed-p999-writer",
        Own,
        "big, next to a writer: mixed, half absent: 99.9 % within",
        WALL,
    ),
    row("big-scan-p50-writer", Own, "big, next to a writer: scan of 100: half within", WALL),
    row("big-scan-p999-writer", Own, "big, next to a writer: scan of 100: 99.9 % within", WALL),
    row("big-memory", Own, "big: memory, at most", MB),
    row("put", Own, "put, WAL on, no sync", WALL),
    row("overwrite", Own, "put, batches of 100, overwriting", WALL),
    row("sorted", Own, "sorted load, batches of 1000, flushed", WALL),
    row("durable", Own, "durable puts", RATE),
    row("scan-10", Own, "scan of 10", CPU),
    row("scan", Own, "scan of 100", CPU),
    row("full-scan", Own, "full scan, per entry", CPU),
    row("reopen", Own, "reopen, settled", MS),
    row("settle", Own, "settle", MS),
    row("disk", Own, "disk", MB),
    row("memory-loading", Own, "memory while loading", MB),
    row("memory-reading", Own, "memory while reading", MB),
    row("sustained-load", Own, "sustained: put", WALL),
    row("sustained-overwrite", Own, "sustained: put, overwriting", WALL),
    row("sustained-slowest", Own, "sustained: slowest slice over the median slice", TIMES),
    row("sustained-p999", Own, "sustained: put, 99.9th percentile", WALL),
    row("sustained-long", Own, "sustained: puts over 10 ms", PUTS),
    row("sustained-longest", Own, "sustained: longest put", MS),
    row("sustained-stalled", Own, "sustained: waiting in all, by its statistics", MS),
    row("sustained-unexplained", Own, "sustained: longest put, less such waiting", MS),
    row("sustained-settle", Own, "sustained: settle", MS),
    row("sustained-written", Own, "sustained: write amplification", TIMES),
    row("sustained-space-most", Own, "sustained: space amplification, at most", TIMES),
    row("sustained-space", Own, "sustained: space amplification, settled", TIMES),
    row("large-put", Own, "large values: put", WALL),
    row("large-settle", Own, "large values: settle", MS),
    row("large-written-puts", Own, "large values: write amplification, by the last put", TIMES),
    row("large-written", Own, "large values: write amplification, settled", TIMES),
    row("large-space-most", Own, "large values: space amplification, at most", TIMES),
    row("large-space", Own, "large values: space amplification, settled", TIMES),
    row("large-hit", Own, "large values: hits", RATE),
    row("large-full-scan", Own, "large values: full scan", SPEED),
    row("writers-1", Own, "puts, 1 thread", RATE),
    row("writers-2", Own, "puts, 2 threads", RATE),
    row("writers-4", Own, "puts, 4 threads", RATE),
    row("writers-8", Own, "puts, 8 threads", RATE),
    row("writers-durable-1", Own, "durable puts, 1 thread", RATE),
    row("writers-durable-2", Own, "durable puts, 2 threads", RATE),
    row("writers-durable-4", Own, "durable puts, 4 threads", RATE),
    row("writers-durable-8", Own, "durable puts, 8 threads", RATE),
    row("transactions-plain-1", Own, "get, then put, 1 thread", RATE),
    row("transactions-1", Own, "transactions of both, 1 thread", RATE),
    row("transactions-cost-1", Own, "transaction over get, then put, 1 thread", TIMES),
    row("transactions-plain-4", Own, "get, then put, 4 threads", RATE),
    row("transactions-4", Own, "transactions of both, 4 threads, own keys", RATE),
    row("transactions-cost-4", Own, "transaction over get, then put, 4 threads", TIMES),
    row("transactions-durable-4", Own, "durable transactions, 4 threads, own keys", RATE),
    row("transactions-counter", Own, "one counter, 4 threads", RATE),
    row("transactions-bank", Own, "transfers, 4 threads, 1,000 accounts", RATE),
    row("transactions-bank-durable", Own, "durable transfers, the same", RATE),
    row("transactions-p99-alone", Own, "put, 99th percentile", WALL),
    row("transactions-p99", Own, "put, 99th percentile, next to a transaction", WALL),
    row("transactions-p99-times", Own, "the second over the first", TIMES),
    row("transactions-scans", Own, "transactions that scan everything at the same time", RATE),
];
