//! Fills a store before a workload that reads it, in the same way for every store.

use crate::experiment::bench::data::Data;
use crate::experiment::bench::store::{Result, Store};

/// Entries of one batch.
const BATCH_ENTRIES: usize = 500;

/// The shape of the loaded tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Everything is compacted to one level: a lookup finds one table.
    Settled,
    /// Four fifths are compacted to one level, and the rest lies above them in three parts that
    /// were flushed and not compacted: a lookup meets up to four tables. This is a tree between two
    /// compactions, and the same in every run.
    Levels,
}

/// Writes all entries of `data` into an empty store. `written` gets the number of entries since its
/// last call.
///
/// # Errors
/// Those of the store.
pub fn load(
    store: &dyn Store,
    data: &Data,
    tree: Tree,
    seed: u64,
    written: &mut dyn FnMut(u64),
) -> Result<()> {
    let order = data.shuffled(seed);
    let upper = match tree {
        Tree::Settled => 0,
        Tree::Levels => order.len() / 5,
    };
    let (lower, upper) = order.split_at(order.len() - upper);
    write(store, data, lower, written)?;
    store.settle()?;
    for part in upper.chunks(upper.len().div_ceil(3).max(1)) {
        write(store, data, part, written)?;
        store.flush()?;
    }
    store.sync()
}

fn write(
    store: &dyn Store,
    data: &Data,
    numbers: &[u32],
    written: &mut dyn FnMut(u64),
) -> Result<()> {
    for numbers in numbers.chunks(BATCH_ENTRIES) {
        let numbers = || numbers.iter().map(|n| u64::from(*n));
        let keys: Vec<Vec<u8>> = numbers()
            .map(|n| {
                let mut key = Vec::new();
                data.present(n, &mut key);
                key
            })
            .collect();
        let values = numbers().map(|n| data.value(n, 0));
        let entries: Vec<(&[u8], &[u8])> = keys.iter().map(Vec::as_slice).zip(values).collect();
        store.write(&entries, false)?;
        written(entries.len() as u64);
    }
    Ok(())
}
