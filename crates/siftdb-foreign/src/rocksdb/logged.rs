//! The entries of RocksDB's logs, sorted in memory, by column family.
//!
//! Logs are replayed as RocksDB does when it opens the database, in the mode that `OPTIONS` names.
//! A transaction that was committed in two phases has its operations in one batch and its commit in
//! another, later one, which may be in another log. Its entries count from the commit on.

use crate::damage::Damage;
use crate::error;
use crate::internal_key::{SEQUENCE_MAX, internal_key};
use crate::key_order::KeyOrder;
use crate::log::{LogReader, Step};
use crate::merged::Logged;
use crate::range_deletes::RangeDelete;
use crate::rocksdb::batch::{Batch, Operation};
use crate::rocksdb::manifest::Manifest;
use crate::store::Store;
use siftdb::Result;
use siftdb::env::Env;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What happens at a bad part of a log: RocksDB's option `wal_recovery_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RecoveryMode {
    /// A log may end within a record. Anything else is an error.
    TolerateCorruptedTailRecords,
    /// Every bad part is an error.
    AbsoluteConsistency,
    /// Nothing after it counts, unless a later log continues with the next sequence number.
    #[default]
    PointInTime,
    /// Bad parts are skipped.
    SkipAnyCorruptedRecords,
}

impl RecoveryMode {
    /// The mode of this name in `OPTIONS`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "kTolerateCorruptedTailRecords" => RecoveryMode::TolerateCorruptedTailRecords,
            "kAbsoluteConsistency" => RecoveryMode::AbsoluteConsistency,
            "kPointInTimeRecovery" => RecoveryMode::PointInTime,
            "kSkipAnyCorruptedRecords" => RecoveryMode::SkipAnyCorruptedRecords,
            _ => return None,
        })
    }
}

/// What the logs have of a column family.
#[derive(Debug, Default)]
pub(crate) struct FamilyLog {
    pub entries: Logged,
    pub range_deletes: Vec<RangeDelete>,
}

/// The contents of logs.
#[derive(Debug, Default)]
pub(crate) struct LogContents {
    /// By number of the column family.
    pub families: BTreeMap<u32, FamilyLog>,
    /// Names of transactions that were prepared, and neither committed nor rolled back.
    pub prepared: Vec<Vec<u8>>,
}

/// Reads logs, the oldest first, by number. `orders` has the order of keys of each column family of
/// the manifest.
///
/// # Errors
/// `Io`; `Corruption` as `mode` says, unless damage is noted; `UnsupportedFormat`.
pub(crate) fn read_logs(
    env: &dyn Env,
    logs: &BTreeMap<u64, PathBuf>,
    manifest: &Manifest,
    orders: &BTreeMap<u32, KeyOrder>,
    mode: RecoveryMode,
    damage: &Damage,
) -> Result<LogContents> {
    let mut replay = Replay {
        manifest,
        orders,
        // Salvage reads on after each bad part.
        mode: if damage.is_noted { RecoveryMode::SkipAnyCorruptedRecords } else { mode },
        damage,
        families: BTreeMap::new(),
        transactions: BTreeMap::new(),
        next_sequence: None,
        stopped_in: None,
        unknown: BTreeMap::new(),
    };
    for (number, path) in logs {
        replay.read(env, *number, path)?;
    }
    for (family, number) in &replay.unknown {
        let what = format!("entries of column family {family}, whose name is lost, are left out");
        if let Some(path) = logs.get(number) {
            damage.note(path, 0, what);
        }
    }
    replay.check_stop(logs)?;
    let mut families = replay.families;
    for (number, family) in &mut families {
        let order = order_of(orders, *number);
        family.entries.sort_by(|(a, _), (b, _)| order.compare_internal(a, b));
    }
    Ok(LogContents { families, prepared: replay.transactions.into_keys().collect() })
}

/// What logs have had so far.
struct Replay<'a> {
    manifest: &'a Manifest,
    orders: &'a BTreeMap<u32, KeyOrder>,
    mode: RecoveryMode,
    damage: &'a Damage,
    families: BTreeMap<u32, FamilyLog>,
    /// The operations of transactions that may be committed later, as their logs have them.
    transactions: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The sequence number after the last entry.
    next_sequence: Option<u64>,
    /// The number of the log in which replay stopped.
    stopped_in: Option<u64>,
    /// Column families that only a lost manifest would name, each with the first log that has it.
    unknown: BTreeMap<u32, u64>,
}

impl Replay<'_> {
    fn read(&mut self, env: &dyn Env, number: u64, path: &Path) -> Result<()> {
        let mut reader = LogReader::open(env, path, Store::RocksDb, number)?;
        loop {
            let (offset, what, is_cut) = match reader.step()? {
                Step::End => return Ok(()),
                Step::Compressed => return Err(error::unsupported(path, "a compressed log")),
                Step::Record { offset, bytes } => {
                    if self.stopped_in.is_some() && !self.continues(&bytes) {
                        self.damage.note(path, offset, "a log after a bad one: not replayed");
                        return Ok(());
                    }
                    match self.replay(&bytes, number) {
                        Ok(()) => continue,
                        Err(Refusal::Malformed(what)) => (offset, what, false),
                        Err(Refusal::Unsupported(what)) => {
                            return Err(error::unsupported(path, what));
                        }
                    }
                }
                Step::Bad { offset, what, is_cut } => (offset, what, is_cut),
            };
            match self.mode {
                RecoveryMode::SkipAnyCorruptedRecords => self.damage.note(path, offset, what),
                RecoveryMode::PointInTime => {
                    self.damage.note(path, offset, what);
                    self.stopped_in = Some(number);
                    return Ok(());
                }
                // What is left of the log that was written over looks like damage.
                RecoveryMode::TolerateCorruptedTailRecords if is_cut || reader.is_recycled => {
                    self.damage.note(path, offset, what);
                    return Ok(());
                }
                _ => return Err(error::corruption(path, offset, what)),
            }
        }
    }

    /// Whether a record of a later log begins where replay stopped, so that nothing is missing.
    fn continues(&mut self, record: &[u8]) -> bool {
        let continues =
            Batch::new(record).is_some_and(|batch| Some(batch.sequence) == self.next_sequence);
        if continues {
            self.stopped_in = None;
        }
        continues
    }

    /// Replays a batch of the log `number`. After an error nothing of it counts.
    fn replay(&mut self, record: &[u8], number: u64) -> std::result::Result<(), Refusal> {
        let mut batch = Batch::new(record).ok_or(Refusal::Malformed("a malformed batch"))?;
        let first = batch.sequence;
        if self.next_sequence.is_some_and(|next| first < next) {
            return Err(Refusal::Malformed(
                "a batch whose sequence does not follow the one before",
            ));
        }
        // All is read before anything counts.
        let (mut operations, mut count) = (Vec::new(), 0);
        let mut start = batch.decoder.position();
        while let Some(operation) = batch.next().map_err(Refusal::Malformed)? {
            if let Operation::Unsupported(what) = operation {
                return Err(Refusal::Unsupported(what));
            }
            let is_write =
                matches!(operation, Operation::Entry { .. } | Operation::RangeDelete { .. });
            count += u32::from(is_write);
            operations.push((operation, &record[start..batch.decoder.position()]));
            start = batch.decoder.position();
        }
        if count != batch.count {
            return Err(Refusal::Malformed("a batch with another number of entries than it says"));
        }
        let mut sequence = first;
        let mut preparing: Option<Vec<u8>> = None;
        for (operation, bytes) in operations {
            match (operation, &mut preparing) {
                (Operation::BeginPrepare, _) => preparing = Some(Vec::new()),
                (Operation::EndPrepare(name), _) => {
                    let transaction = preparing.take().unwrap_or_default();
                    self.transactions.insert(name.to_vec(), transaction);
                }
                (Operation::Commit(name), _) => {
                    let transaction = self.transactions.remove(name).unwrap_or_default();
                    let mut committed = Batch::of_operations(&transaction);
                    while let Some(operation) = committed.next().map_err(Refusal::Malformed)? {
                        self.put(operation, &mut sequence, number);
                    }
                }
                (Operation::Rollback(name), _) => _ = self.transactions.remove(name),
                (_, Some(transaction)) => transaction.extend_from_slice(bytes),
                (operation, None) => self.put(operation, &mut sequence, number),
            }
        }
        self.next_sequence = Some(sequence);
        Ok(())
    }

    /// Adds an entry or a range delete, with the next sequence number. One of a column family that
    /// was dropped, or that has it in a table, takes its number only. A range delete of no keys
    /// takes none, although its batch counts it.
    fn put(&mut self, operation: Operation<'_>, sequence: &mut u64, number: u64) {
        let (Operation::Entry { family, .. } | Operation::RangeDelete { family, .. }) = operation
        else {
            return;
        };
        let facts = self.manifest.families.get(&family);
        if facts.is_none() && self.manifest.is_made_up {
            self.unknown.entry(family).or_insert(number);
        }
        let is_needed = facts.is_some_and(|facts| number >= facts.log_number);
        let order = order_of(self.orders, family);
        if let Operation::RangeDelete { start, end, .. } = operation
            && is_needed
            && order.compare(start, end).is_ge()
        {
            return;
        }
        let own = *sequence;
        *sequence += 1;
        if !is_needed || own > SEQUENCE_MAX {
            return;
        }
        let log = self.families.entry(family).or_default();
        match operation {
            Operation::Entry { kind, key, value, .. } => {
                log.entries.push((internal_key(key, own << 8 | kind as u64), value.to_vec()));
            }
            Operation::RangeDelete { start, end, .. } => {
                log.range_deletes.extend(RangeDelete::of_keys(start, end, own, order));
            }
            _ => {}
        }
    }

    /// Where replay stopped for good, all tables must be older: else column families would be of
    /// different times.
    fn check_stop(&self, logs: &BTreeMap<u64, PathBuf>) -> Result<()> {
        let Some(stopped) = self.stopped_in else { return Ok(()) };
        let is_newer = self
            .manifest
            .families
            .values()
            .any(|family| family.log_number > stopped && !family.tables.is_empty());
        match logs.get(&stopped) {
            Some(path) if is_newer => {
                let what = "the log is bad, and a column family has tables that are newer";
                Err(error::corruption(path, 0, what))
            }
            _ => Ok(()),
        }
    }
}

/// The order of keys of a column family. One that was dropped has none, and its entries are passed.
fn order_of(orders: &BTreeMap<u32, KeyOrder>, family: u32) -> KeyOrder {
    orders.get(&family).copied().unwrap_or_default()
}

/// Why a batch is not replayed.
enum Refusal {
    Malformed(&'static str),
    Unsupported(&'static str),
}
