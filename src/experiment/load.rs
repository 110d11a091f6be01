//! The same tree for every layout: half of the keys at level 2, 29 % at level 1, the rest in three
//! overlapping tables at level 0.
//!
//! Background compaction decides by bytes, filters included, and by timing, so it would give each
//! layout another tree. Here each step has one outcome:
//!
//! 1. A single large entry goes down to level 2 by itself, since levels are set to hold less. It
//!    is there only to make level 2 the deepest level, and is deleted with the first keys.
//! 2. Half of the keys are flushed; `compact_range` takes them, the whole of it at once, down to
//!    level 2.
//! 3. 29 % are flushed while a single table at level 0 is one too many, and level 1 never is full.
//! 4. The rest stays where three flushes put it, compaction off.

use crate::base::error::{Error, Result};
use crate::base::write_batch::WriteBatch;
use crate::db::handle::Db;
use crate::experiment::keys::{KeySet, splitmix64};
use crate::options::database::Options;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fewer keys than this make no tree worth probing.
pub const KEYS_MIN: usize = 100;

/// More keys than this are not numbered here.
pub const KEYS_MAX: usize = u32::MAX as usize;

/// Keys in one batch.
const BATCH_KEYS: usize = 500;

/// What a memtable is charged for an entry besides key and value (an upper bound is enough: it
/// only decides when to flush).
const ENTRY_BYTES: usize = 128;

/// Memory of a memtable, flushed by hand well before it would be switched.
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// Longer than any settling of a few tables takes.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// What is loaded, the same for every layout.
#[derive(Debug)]
pub struct Load<'a> {
    /// The keys.
    pub keys: &'a KeySet,
    /// The order in which they are written.
    pub order: &'a [u32],
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Decides the values.
    pub seed: u64,
}

impl Load<'_> {
    /// Creates the database `directory` and fills it. `options` name filter and Env; `written` is
    /// told how many keys were written since it was told last.
    ///
    /// # Errors
    /// Any failure of the database.
    pub fn run(
        &self,
        options: &Options,
        directory: &Path,
        written: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let half = self.order.len() / 2;
        let upper = half + self.order.len() * 29 / 100;
        let table_bytes = self.table_bytes();
        let options = options.clone().write_buffer_bytes(WRITE_BUFFER_BYTES);

        let anchor = self.anchor_key();
        let sinking = options.clone().error_if_exists(true).level0_compaction_trigger(1);
        let db = sinking.table_bytes(16 << 10).level_base_bytes(16 << 10).open(directory)?;
        db.put(&anchor, self.value(u64::MAX, 24 << 10))?;
        db.flush()?;
        settle(&db, directory, |tables| tables == [0, 0, 1])?;
        db.close()?;

        let options = options.create_if_missing(false).table_bytes(table_bytes);
        let options = options.level_base_bytes(1 << 50);
        let db = options.clone().auto_compaction(false).open(directory)?;
        db.delete(&anchor)?;
        self.write(&db, 0..half, written)?;
        db.compact_range(..)?;
        db.close()?;

        let db = options.clone().level0_compaction_trigger(1).open(directory)?;
        self.write(&db, half..upper, written)?;
        settle(&db, directory, |tables| tables[0] == 0 && tables[1] > 0)?;
        db.close()?;

        let db = options.auto_compaction(false).open(directory)?;
        let rest = self.order.len() - upper;
        for third in 0..3 {
            let part = upper + rest * third / 3..upper + rest * (third + 1) / 3;
            self.write(&db, part, written)?;
        }
        db.close()
    }

    /// Writes a part of the order and flushes it: as one table, if it is not very large.
    fn write(&self, db: &Db, part: Range<usize>, written: &mut dyn FnMut(u64)) -> Result<()> {
        let mut batch = WriteBatch::new();
        let mut buffered = 0;
        let places = self.order.get(part).unwrap_or_default();
        for chunk in places.chunks(BATCH_KEYS) {
            for &place in chunk {
                let key = self.keys.key(place as usize);
                batch.put(key, self.value(u64::from(place), self.value_bytes));
                buffered += key.len() + self.value_bytes + ENTRY_BYTES;
            }
            db.write(std::mem::take(&mut batch))?;
            written(chunk.len() as u64);
            if buffered > WRITE_BUFFER_BYTES / 2 {
                db.flush()?;
                buffered = 0;
            }
        }
        db.flush()
    }

    /// About seven tables at level 2. `compact_range` moves ten tables' bytes at once, so that all
    /// of them go down in one step, cut in the same places whatever the filters take.
    fn table_bytes(&self) -> u64 {
        let entries = self.keys.len() as u64;
        let total = self.keys.bytes() + entries * (self.value_bytes as u64 + 16);
        (total / 14).clamp(64 << 10, 1 << 30)
    }

    fn anchor_key(&self) -> Vec<u8> {
        let mut key = b"anchor".to_vec();
        while self.keys.contains(&key) {
            key.push(b'.');
        }
        key
    }

    /// Bytes that no compression shrinks.
    fn value(&self, place: u64, bytes: usize) -> Vec<u8> {
        let mut state = self.seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let words = std::iter::repeat_with(|| splitmix64(&mut state).to_le_bytes());
        let mut value: Vec<u8> = words.take(bytes.div_ceil(8)).flatten().collect();
        value.truncate(bytes);
        value
    }
}

/// Waits until background compaction has given the first three levels these numbers of tables.
fn settle(db: &Db, directory: &Path, settled: impl Fn([u64; 3]) -> bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let stats = db.stats();
        let tables = |level: usize| stats.levels.get(level).map_or(0, |level| level.tables);
        let now = [tables(0), tables(1), tables(2)];
        if settled(now) {
            return Ok(());
        }
        if started.elapsed() > SETTLE_LIMIT {
            let what = format!("the tree does not settle: tables at levels 0 to 2 are {now:?}");
            return Err(Error::io("settle", directory, io::Error::other(what)));
        }
        // Answers at once, and says so if background work has failed.
        db.flush()?;
        std::thread::sleep(Duration::from_millis(1));
    }
}
