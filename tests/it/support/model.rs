//! The model that siftdb is compared with: a `BTreeMap`, and the order of its writes.

use siftdb::WriteBatch;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// The expected keys and values.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an entry of a batch does.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange((Bound<Vec<u8>>, Bound<Vec<u8>>)),
}

impl From<(Vec<u8>, Option<Vec<u8>>)> for Change {
    fn from((key, value): (Vec<u8>, Option<Vec<u8>>)) -> Self {
        match value {
            Some(value) => Change::Put(key, value),
            None => Change::Delete(key),
        }
    }
}

/// The changes of one batch.
pub type Changes = Vec<Change>;

/// The expected contents, and every state that a power cut may leave.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The expected contents now.
    pub map: Map,
    /// The least that survives a power cut.
    durable: Map,
    /// The later batches, in order.
    unsynced: Vec<Changes>,
}

impl Model {
    pub fn new() -> Self {
        Model::default()
    }

    /// Notes an acknowledged batch.
    pub fn write(&mut self, entries: Changes) {
        apply(&mut self.map, &entries);
        self.unsynced.push(entries);
    }

    /// Notes that everything so far survives a power cut.
    pub fn synced(&mut self) {
        self.durable.clone_from(&self.map);
        self.unsynced.clear();
    }

    /// Continues from the contents that a power cut left, or says why they are no prefix of the
    /// writes.
    pub fn recover(&mut self, found: &Map) -> Result<(), String> {
        let mut state = self.durable.clone();
        let mut prefix = 0;
        // Takes the longest prefix that fits, because a write that changes nothing fits several.
        let mut fits = (state == *found).then_some(prefix);
        for entries in &self.unsynced {
            apply(&mut state, entries);
            prefix += 1;
            if state == *found {
                fits = Some(prefix);
            }
        }
        if fits.is_none() {
            return Err(format!(
                "{} entries found are no prefix of the writes: {} durable, then {} batches; \
                 first difference to the durable state: {:?}, to the last: {:?}",
                found.len(),
                self.durable.len(),
                self.unsynced.len(),
                first_difference(found, &self.durable),
                first_difference(found, &self.map)
            ));
        }
        self.map.clone_from(found);
        self.synced();
        Ok(())
    }
}

/// Puts the entries of a batch into a map.
pub fn apply(map: &mut Map, entries: &Changes) {
    for entry in entries {
        match entry {
            Change::Put(key, value) => drop(map.insert(key.clone(), value.clone())),
            Change::Delete(key) => drop(map.remove(key)),
            Change::DeleteRange(range) => map.retain(|key, _| !range.contains(key)),
        }
    }
}

/// The batch with these entries.
pub fn batch_of<C: Clone + Into<Change>>(entries: &[C]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for entry in entries {
        match entry.clone().into() {
            Change::Put(key, value) => batch.put(key, value),
            Change::Delete(key) => batch.delete(key),
            Change::DeleteRange(range) => batch.delete_range(range),
        };
    }
    batch
}

/// The first key in which two maps differ, with the lengths of both values.
pub fn first_difference(found: &Map, expected: &Map) -> Option<String> {
    let keys = found.keys().chain(expected.keys());
    let key = keys.filter(|key| found.get(*key) != expected.get(*key)).min()?;
    let length = |map: &Map| map.get(key).map(Vec::len);
    let (found, expected) = (length(found), length(expected));
    Some(format!("\"{}\": {found:?} bytes, not {expected:?}", key.escape_ascii()))
}
