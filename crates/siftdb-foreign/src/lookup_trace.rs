//! What lookups used of the tables of a database: [`LookupTrace`].

/// Lookups of keys, and what each of them used.
#[derive(Clone, Debug, Default)]
pub struct LookupTrace {
    pub(crate) tables: Vec<LookupCounts>,
    pub(crate) blocks: Vec<TracedBlock>,
    /// Of each different key, in their order.
    pub(crate) visits: Vec<Vec<TableVisit>>,
    /// Of each lookup the number of its key.
    pub(crate) lookups: Vec<u32>,
    pub(crate) in_logs: u64,
}

/// What lookups did in one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupCounts {
    /// Lookups that asked the table.
    pub lookups: u64,
    /// Lookups that found something in it, a deletion included. A lookup that finds an
    /// operand of a merge continues in older tables.
    pub found: u64,
    /// Its filter said "no".
    pub negatives: u64,
    /// Its filter said "maybe", and the table has the key.
    pub true_positives: u64,
    /// Its filter said "maybe", and the table does not have the key.
    pub false_positives: u64,
    /// Data blocks that lookups read.
    pub blocks_read: u64,
}

/// A block that lookups use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedBlock {
    /// The number of its table, in the order of the lookups.
    pub table: u32,
    /// Its first byte in the file.
    pub offset: u64,
    /// What is read of the file, with compression and checksum.
    pub file_bytes: u32,
    /// Its bytes in memory; `None` for a data block that no lookup read.
    pub memory_bytes: Option<u32>,
}

/// What a lookup used of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableVisit {
    /// The number of the table, in the order of the lookups.
    pub table: u32,
    /// The block of its filter, as a number in [`LookupTrace::blocks`]; `None` if none is asked.
    pub filter: Option<u32>,
    /// What the filter said.
    pub may_contain: Option<bool>,
    /// The block of its index that names the data block.
    pub index: u32,
    /// The data block that may have the key; `None` if the index already says no.
    pub data: Option<u32>,
    /// The data block after it, which is read as well: the key is above the last one of its block.
    pub next_data: Option<u32>,
    /// Whether the table has the key, deletions included.
    pub has_key: bool,
}

impl LookupTrace {
    /// What the lookups did in each table, in the order in which tables are asked.
    #[must_use]
    pub fn tables(&self) -> &[LookupCounts] {
        &self.tables
    }

    /// The blocks that lookups use, also those that a filter saved them from reading.
    #[must_use]
    pub fn blocks(&self) -> &[TracedBlock] {
        &self.blocks
    }

    /// The lookups in the order of their keys: the number of the different key, counted in
    /// ascending order, and the tables that it asks.
    pub fn lookups(&self) -> impl ExactSizeIterator<Item = (u32, &[TableVisit])> {
        self.lookups
            .iter()
            .map(|&key| (key, self.visits.get(key as usize).map_or(&[][..], Vec::as_slice)))
    }

    /// Lookups that found something, a deletion included.
    #[must_use]
    pub fn found(&self) -> u64 {
        let has_key = |visits: &[TableVisit]| visits.iter().any(|visit| visit.has_key);
        self.in_logs + self.lookups().filter(|(_, visits)| has_key(visits)).count() as u64
    }

    /// Lookups that found something in the logs, so they asked no table.
    #[must_use]
    pub fn found_in_logs(&self) -> u64 {
        self.in_logs
    }
}

impl LookupCounts {
    /// Adds what lookups did in another table.
    pub fn add(&mut self, other: &LookupCounts) {
        self.lookups += other.lookups;
        self.found += other.found;
        self.negatives += other.negatives;
        self.true_positives += other.true_positives;
        self.false_positives += other.false_positives;
        self.blocks_read += other.blocks_read;
    }

    /// The observed false-positive rate; `None` if no filter was asked for an absent key.
    #[must_use]
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.negatives + self.false_positives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    /// Adds this many lookups of a key.
    pub(crate) fn add_visit(&mut self, visit: &TableVisit, lookups: u64) {
        self.lookups += lookups;
        self.found += if visit.has_key { lookups } else { 0 };
        match (visit.may_contain, visit.has_key) {
            (Some(false), _) => self.negatives += lookups,
            (Some(true), true) => self.true_positives += lookups,
            (Some(true), false) => self.false_positives += lookups,
            (None, _) => {}
        }
        if visit.may_contain != Some(false) && visit.data.is_some() {
            self.blocks_read += lookups;
        }
    }
}
