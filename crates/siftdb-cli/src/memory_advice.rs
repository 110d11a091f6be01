//! Advice on memory: what of a database a given amount holds, and what lookups read from the disk
//! then.
//!
//! [`advice`] is a pure function of the tables of one keyspace and of a report on their filters.
//! The memory is the block cache and, with the rest, the system's page cache of the files. Lookups
//! are assumed to ask for all keys equally often; those of real programs have favourites and read
//! less.
//!
//! What stays in a cache that drops what was used longest ago is approximated as by H. Che, Y. Tung
//! and Z. Wang ("Hierarchical Web caching systems", IEEE JSAC 20(7), 2002): every block stays for
//! the same time after a use, namely for as long as fills the cache. While filters and indexes fit
//! into the memory, the pages are right within 15 %; if they do not, lookups read more than these.

use siftdb::{FilterFacts, FilterLayout, FilterReport, TableInfo};

/// A page of a file, which is what the disk reads.
const PAGE_BYTES: f64 = 4096.0;

/// A block begins at a page if the gap before it is at most its bytes divided by this.
const PADDING_PART: f64 = 16.0;

/// What pinned filters and indexes may take of the block cache by default, and of that those
/// indexes that are pinned as a whole.
const PINNED_SHARE: f64 = 0.5;
const WHOLE_INDEX_SHARE: f64 = 0.25;

/// What filters and indexes that come and go may take of the rest.
const PARTITION_SHARE: f64 = 0.75;

/// What an index takes in memory for each data block, besides its entry.
const INDEX_BYTES_PER_BLOCK: f64 = 40.0;

/// What the cache takes for a block besides its bytes.
const CACHED_BLOCK_BYTES: f64 = 250.0;

/// A change is worth a line if it saves this share of the pages.
const WORTH: f64 = 0.05;

/// The parts of a database that lookups use.
const PARTS: [&str; 3] = ["filters", "indexes", "data"];
const FILTERS: usize = 0;
const INDEXES: usize = 1;
const DATA: usize = 2;

/// What of a database some memory holds; from [`advice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryAdvice {
    /// The memory for the block cache and the page cache.
    pub memory_bytes: u64,
    /// The block cache in it.
    pub cache_bytes: u64,
    /// What stays in memory whatever is asked: the top levels of filters and indexes.
    pub top_level_bytes: u64,
    /// Filters, indexes and data.
    pub parts: Vec<MemoryPart>,
    /// What lookups read now. If filters and indexes do not fit into the memory, they read more.
    pub pages: PagesRead,
    /// Settings that would save pages, each by itself; the one that saves most is first.
    pub changes: Vec<MemoryChange>,
}

impl MemoryAdvice {
    /// Whether filters and indexes fit into the memory, so that lookups read little but data.
    pub fn fits(&self) -> bool {
        let all_but_data = self.parts.iter().take(DATA);
        all_but_data.map(|part| part.bytes).sum::<u64>() <= self.memory_bytes
    }
}

/// A part of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryPart {
    /// Its name.
    pub name: &'static str,
    /// Its bytes in the files.
    pub bytes: u64,
    /// The share of its uses by lookups of present keys that find it in memory, 0 to 1.
    pub in_memory: f64,
}

/// Pages of 4 KiB that a lookup reads from the disk, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PagesRead {
    /// Of a key that is not there.
    pub absent: f64,
    /// Of a key that is there.
    pub present: f64,
}

impl PagesRead {
    /// Of two lookups, one of each kind.
    fn sum(self) -> f64 {
        self.absent + self.present
    }
}

/// A setting that saves pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryChange {
    /// The setting, in Rust.
    pub setting: String,
    /// What lookups read then.
    pub pages: PagesRead,
}

/// What lookups read with `memory_bytes` of memory, of which `cache_bytes` are the block cache, and
/// what would change that. `tables` are those of the keyspace of `report`.
pub fn advice(
    tables: &[TableInfo],
    report: &FilterReport,
    memory_bytes: u64,
    cache_bytes: u64,
) -> MemoryAdvice {
    let levels: Vec<Level> = (0..report.wanted.len())
        .map(|level| Level::of(level, tables, report))
        .filter(|level| level.tables > 0.0)
        .collect();
    let memory = Memory { all: memory_bytes as f64, cache: cache_bytes.min(memory_bytes) as f64 };
    let (pages, in_memory) = memory.lookups(&levels);
    let part_bytes = levels.iter().fold([0.0; 3], |sum, level| {
        [sum[0] + level.filter_bytes, sum[1] + level.index_bytes, sum[2] + level.data_bytes]
    });
    let parts = (0..PARTS.len()).map(|part| MemoryPart {
        name: PARTS[part],
        bytes: part_bytes[part] as u64,
        in_memory: in_memory[part],
    });
    let top_levels = levels.iter().map(|level| level.filter_top_bytes + level.index_top_bytes);
    let mut changes = changes(&levels, memory);
    changes.retain(|change| change.pages.sum() < (1.0 - WORTH) * pages.sum());
    changes.sort_by(|one, other| one.pages.sum().total_cmp(&other.pages.sum()));
    MemoryAdvice {
        memory_bytes,
        cache_bytes,
        top_level_bytes: top_levels.sum::<f64>() as u64,
        parts: parts.collect(),
        pages,
        changes,
    }
}

/// What could be set, each with what lookups read then.
fn changes(levels: &[Level], memory: Memory) -> Vec<MemoryChange> {
    let change = |setting: String, levels: &[Level], memory: Memory| MemoryChange {
        setting,
        pages: memory.lookups(levels).0,
    };
    let each = |alter: fn(&mut Level)| {
        let mut levels = levels.to_vec();
        levels.iter_mut().for_each(alter);
        levels
    };
    // The best of a few: the curve is flat between them.
    let caches = [1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 3.0 / 4.0].map(|share| share * memory.all);
    let caches = caches.map(|cache| {
        let setting = format!("Options::block_cache_bytes({})", cache as u64);
        change(setting, levels, Memory { cache, ..memory })
    });
    let cache = caches.into_iter().min_by(|a, b| a.pages.sum().total_cmp(&b.pages.sum()));
    let partitioned = FilterLayout::Partitioned { block_bytes: FilterLayout::BLOCK_BYTES_DEFAULT };
    let others = [
        change(
            format!("Filter::layout(FilterLayout::{partitioned:?}), and Db::rebuild_filters"),
            &each(Level::partition_filters),
            memory,
        ),
        change(
            "Options::index_partition_bytes(4096), and Db::compact_range".into(),
            &each(Level::partition_indexes),
            memory,
        ),
    ];
    cache.into_iter().chain(others).collect()
}

/// What a level has, and how lookups use it.
#[derive(Clone, Debug, Default)]
struct Level {
    tables: f64,
    /// Tables that a lookup searches if nothing above has its key.
    searched: f64,
    /// False positives among absent keys in one of these; 1 without filters.
    fpr: f64,
    entries: f64,
    filter_bytes: f64,
    filter_top_bytes: f64,
    /// Blocks that lookups read of filters: whole ones, or partitions.
    filter_blocks: f64,
    /// Of the filters, what is read whole.
    whole_filter_bytes: f64,
    index_bytes: f64,
    index_top_bytes: f64,
    data_bytes: f64,
    data_blocks: f64,
    /// Bytes of the data blocks when they are decompressed.
    raw_bytes: f64,
}

impl Level {
    fn of(level: usize, tables: &[TableInfo], report: &FilterReport) -> Self {
        let mut sum = Level::default();
        let mut weighted_fpr = 0.0;
        for table in tables.iter().filter(|table| table.level == level) {
            let facts = report.level(level).find(|facts| facts.table == table.number);
            let asked = facts.filter(|facts| facts.is_asked);
            let lookup_share = facts.map_or(1.0, |facts| facts.lookup_share);
            let blocks = asked.map_or(0, |facts| facts.keys.div_ceil(facts.keys_per_filter.max(1)));
            let is_whole = |facts: &&FilterFacts| !facts.layout.starts_with("partitioned");
            sum.tables += 1.0;
            sum.searched += lookup_share;
            weighted_fpr +=
                lookup_share * asked.and_then(|facts| facts.expected_fpr).unwrap_or(1.0);
            sum.entries += table.entries as f64;
            sum.filter_bytes += asked.map_or(0, |facts| facts.bytes) as f64;
            sum.filter_top_bytes += table.filter_top_level_bytes as f64;
            sum.filter_blocks += blocks as f64;
            sum.whole_filter_bytes += asked.filter(is_whole).map_or(0, |facts| facts.bytes) as f64;
            sum.index_bytes += table.index_bytes as f64;
            sum.index_top_bytes += table.index_top_level_bytes as f64;
            sum.data_bytes += table.data_bytes as f64;
            sum.data_blocks += table.data_blocks as f64;
            sum.raw_bytes += (table.raw_bytes.max(table.data_bytes)) as f64;
        }
        sum.fpr = weighted_fpr / sum.searched.max(f64::MIN_POSITIVE);
        sum
    }

    /// With filters in partitions.
    fn partition_filters(&mut self) {
        self.filter_blocks = self.filter_blocks.max((self.filter_bytes / PAGE_BYTES).ceil());
        self.whole_filter_bytes = 0.0;
        self.filter_top_bytes = self.filter_top_bytes.max(self.filter_bytes / 100.0);
    }

    /// With indexes in partitions.
    fn partition_indexes(&mut self) {
        self.index_top_bytes = self.index_top_bytes.max(self.index_bytes / 100.0);
    }

    /// What its index takes in memory.
    fn index_memory_bytes(&self) -> f64 {
        self.index_bytes + INDEX_BYTES_PER_BLOCK * self.data_blocks
    }

    /// Blocks of its indexes: whole ones, or partitions.
    fn index_blocks(&self) -> f64 {
        match self.index_top_bytes > 0.0 {
            true => (self.index_bytes / PAGE_BYTES).ceil().max(1.0),
            false => self.tables,
        }
    }
}

/// Blocks of one part and level, all used equally often.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    part: usize,
    count: f64,
    /// Bytes of each, in memory and in its file.
    memory_bytes: f64,
    file_bytes: f64,
    /// How often a lookup uses one of them.
    uses: f64,
    /// If these are pages: how many of them a block touches.
    pages_touched: f64,
}

impl Blocks {
    /// Those that a cache with this share of them leaves to the next one.
    fn without(self, share: f64) -> Self {
        Blocks { count: self.count * (1.0 - share), uses: self.uses * (1.0 - share), ..self }
    }

    /// What the page cache has of them: blocks that nearly fill their pages, which begin where a
    /// page does, or pages that they share.
    fn as_pages(self) -> Self {
        let pages = self.file_bytes / PAGE_BYTES;
        let whole = pages.ceil() * PAGE_BYTES;
        if whole - self.file_bytes <= self.file_bytes / PADDING_PART {
            return Blocks { memory_bytes: whole, ..self };
        }
        let (count, touched) = (self.count * pages, 1.0 + pages);
        let uses = self.uses * touched;
        Blocks { count, uses, memory_bytes: PAGE_BYTES, pages_touched: touched, ..self }
    }
}

/// What is pinned in a block cache.
struct Pinned {
    /// The share of the filters that are read whole, and of the indexes.
    filters: f64,
    indexes: f64,
    bytes: f64,
}

/// The memory for the two caches.
#[derive(Clone, Copy, Debug)]
struct Memory {
    all: f64,
    cache: f64,
}

impl Memory {
    /// What lookups read, and for those of present keys the share of the uses of each part that
    /// memory answers.
    fn lookups(self, levels: &[Level]) -> (PagesRead, [f64; 3]) {
        let entries: f64 = levels.iter().map(|level| level.entries).sum();
        // Of filters, then of indexes and data.
        let absent = levels.iter().map(|level| (level.searched, level.searched * level.fpr));
        let mut above = 0.0;
        let present = levels.iter().map(|level| {
            let (here, reached) = (level.entries / entries.max(1.0), 1.0 - above);
            above += here;
            let in_vain = (reached - here).max(0.0) * level.searched * level.fpr;
            (reached * level.searched, here + in_vain)
        });
        let (absent, _) = self.lookup(levels, &absent.collect::<Vec<_>>());
        let (present, in_memory) = self.lookup(levels, &present.collect::<Vec<_>>());
        (PagesRead { absent, present }, in_memory)
    }

    /// What tables pin in the block cache: top levels, whole filters, indexes, in this order and as
    /// far as the cache grants it.
    fn pinned(self, levels: &[Level]) -> Pinned {
        let sum = |of: fn(&Level) -> f64| levels.iter().map(of).sum::<f64>();
        let pinnable = PINNED_SHARE * self.cache;
        let top_levels =
            sum(|level| 2.0 * level.filter_top_bytes + 3.0 * level.index_top_bytes).min(pinnable);
        let (all_filters, all_indexes) =
            (sum(|level| level.whole_filter_bytes), sum(Level::index_memory_bytes));
        let filters = share(pinnable - top_levels, all_filters);
        let left = pinnable - top_levels - filters * all_filters;
        let indexes = share(left.min(WHOLE_INDEX_SHARE * pinnable), all_indexes);
        Pinned {
            filters,
            indexes,
            bytes: top_levels + filters * all_filters + indexes * all_indexes,
        }
    }

    /// Pages that one kind of lookup reads, which so often uses a filter of each level, and its
    /// index with a data block.
    fn lookup(self, levels: &[Level], uses: &[(f64, f64)]) -> (f64, [f64; 3]) {
        let pinned = self.pinned(levels);
        let (mut partitions, mut data) = (Vec::new(), Vec::new());
        for (level, &(filter_uses, data_uses)) in levels.iter().zip(uses) {
            let blocks = |part, count: f64, memory_bytes: f64, file_bytes: f64, uses| Blocks {
                part,
                count,
                memory_bytes: memory_bytes / count.max(1.0) + CACHED_BLOCK_BYTES,
                file_bytes: file_bytes / count.max(1.0),
                uses,
                pages_touched: 1.0,
            };
            let of_whole = level.whole_filter_bytes / level.filter_bytes.max(1.0);
            let bytes = level.filter_bytes;
            let filter = blocks(FILTERS, level.filter_blocks, bytes, bytes, filter_uses);
            let (bytes, memory) = (level.index_bytes, level.index_memory_bytes());
            let index = blocks(INDEXES, level.index_blocks(), memory, bytes, data_uses);
            partitions.push(filter.without(pinned.filters * of_whole));
            partitions.push(index.without(pinned.indexes));
            let (bytes, raw) = (level.data_bytes, level.raw_bytes);
            data.push(blocks(DATA, level.data_blocks, raw, bytes, data_uses));
        }
        // The block cache keeps partitions before data.
        let budget = (self.cache - pinned.bytes).max(0.0);
        let (partition_shares, held) = stay(&partitions, PARTITION_SHARE * budget);
        let (data_shares, _) = stay(&data, budget - held);
        let cached =
            partitions.iter().chain(&data).zip(partition_shares.iter().chain(&data_shares));
        // What it does not have is asked of the page cache.
        let asked = cached.map(|(blocks, share)| blocks.without(*share).as_pages());
        let asked: Vec<Blocks> = asked.collect();
        let (shares, _) = stay(&asked, self.all - self.cache);
        let (mut read, mut missed) = (0.0, [0.0; 3]);
        for (blocks, share) in asked.iter().zip(shares) {
            let uses = blocks.uses * (1.0 - share);
            missed[blocks.part] += uses / blocks.pages_touched;
            read += uses * blocks.memory_bytes / PAGE_BYTES;
        }
        let mut used = [0.0; 3];
        for (level, (filter_uses, data_uses)) in levels.iter().zip(uses) {
            used[FILTERS] += if level.filter_blocks > 0.0 { *filter_uses } else { 0.0 };
            used[INDEXES] += data_uses;
            used[DATA] += data_uses;
        }
        let in_memory = |part: usize| match used[part] > 0.0 {
            true => 1.0 - missed[part] / used[part],
            false => 1.0,
        };
        (read, [FILTERS, INDEXES, DATA].map(in_memory))
    }
}

/// The share of `whole` that `room` holds.
fn share(room: f64, whole: f64) -> f64 {
    if whole > 0.0 { (room / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// Of each kind of blocks, the share that stays in a cache of these bytes, and the bytes of all
/// that stay.
fn stay(blocks: &[Blocks], capacity: f64) -> (Vec<f64>, f64) {
    let bytes = |one: &Blocks| one.count * one.memory_bytes;
    let all: f64 = blocks.iter().map(bytes).sum();
    if all <= capacity {
        return (vec![1.0; blocks.len()], all);
    }
    // For how many lookups a block stays after a use.
    let shares = |lookups: f64| -> Vec<f64> {
        let share = |one: &Blocks| match one.memory_bytes <= capacity {
            true => 1.0 - (-lookups * one.uses / one.count.max(1.0)).exp(),
            // It never fits.
            false => 0.0,
        };
        blocks.iter().map(share).collect()
    };
    let held = |shares: &[f64]| blocks.iter().zip(shares).map(|(b, s)| bytes(b) * s).sum::<f64>();
    // Two to a power between these; their middle replaces one of them until they are equal.
    let (mut low, mut high) = (-32.0_f64, 64.0_f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if held(&shares(middle.exp2())) > capacity { high = middle } else { low = middle }
    }
    let shares = shares(low.exp2());
    let held = held(&shares);
    (shares, held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(count: f64, memory_bytes: f64, uses: f64) -> Blocks {
        let (file_bytes, pages_touched) = (memory_bytes, 1.0);
        Blocks { part: DATA, count, memory_bytes, file_bytes, uses, pages_touched }
    }

    #[test]
    fn a_cache_holds_what_is_used_most() {
        let (hot, cold) = (blocks(100.0, 10.0, 1.0), blocks(1e6, 10.0, 1.0));
        let (shares, held) = stay(&[hot, cold], 11_000.0);
        assert!(shares[0] > 0.999 && shares[1] < 0.0011, "{shares:?}");
        assert!((held - 11_000.0).abs() < 1.0, "{held}");
        assert_eq!(stay(&[hot, cold], 1e9), (vec![1.0, 1.0], 10_001_000.0));
        let (shares, held) = stay(&[blocks(1.0, 100.0, 1.0), cold], 50.0);
        assert_eq!(shares[0], 0.0, "a block that never fits");
        assert!(held < 51.0);
        assert_eq!(stay(&[], 0.0), (vec![], 0.0));
    }

    #[test]
    fn blocks_share_pages_unless_they_fill_them() {
        let whole = blocks(10.0, 4_000.0, 1.0).as_pages();
        assert_eq!((whole.count, whole.memory_bytes, whole.uses), (10.0, PAGE_BYTES, 1.0));
        let halves = blocks(10.0, 2_048.0, 1.0).as_pages();
        assert_eq!((halves.count, halves.memory_bytes, halves.uses), (5.0, PAGE_BYTES, 1.5));
    }

    #[test]
    fn an_empty_database_reads_nothing() {
        let report = FilterReport::default();
        let advised = advice(&[], &report, 1 << 20, 0);
        assert_eq!((advised.pages, advised.changes.len()), (PagesRead::default(), 0));
        assert!(advised.fits() && advice(&[], &report, 0, 1).fits());
    }
}
