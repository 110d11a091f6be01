//! A copy of all keyspaces that is made of the changes of a watch.

use crate::model::{Spaces, live};
use siftdb::{ChangedEntry, Db, Error, Watch};
use std::time::{Duration, UNIX_EPOCH};

pub struct Feed {
    watch: Watch,
    copy: Spaces,
}

impl Feed {
    /// Begins with what is there, and nobody writes.
    pub fn new(db: &Db, model: &Spaces) -> Self {
        Feed { watch: db.watch().expect("a watch"), copy: model.clone() }
    }

    /// Reads all changes, and compares what they come to with the model.
    pub fn check(&mut self, model: &Spaces, now: u64) {
        loop {
            match self.watch.next_timeout(Duration::ZERO) {
                Ok(Some(change)) => {
                    // One that was dropped since has no name.
                    let name = change.keyspace.map_or_else(String::new, |name| name.to_string());
                    self.apply(change.keyspace_number, name, change.entry, model);
                }
                Ok(None) => break,
                Err(Error::ChangesGone { .. }) => self.copy = model.clone(),
                Err(error) => panic!("a watch: {error}"),
            }
        }
        for (number, (name, map)) in model {
            let empty = Default::default();
            let copy = self.copy.get(number).map_or(&empty, |(_, copy)| copy);
            assert!(live(copy, now).eq(live(map, now)), "the changes of {name}");
        }
        let dropped = self.copy.keys().find(|number| !model.contains_key(number));
        assert_eq!(dropped, None, "a dropped keyspace");
    }

    fn apply(&mut self, number: u32, name: String, entry: ChangedEntry, model: &Spaces) {
        let is_in = |key: &Vec<u8>, start: &Vec<u8>, end: &Option<Vec<u8>>| {
            key >= start && end.as_ref().is_none_or(|end| key < end)
        };
        let (_, copy) = self.copy.entry(number).or_insert_with(|| (name, Default::default()));
        match entry {
            ChangedEntry::Put { key, value, expires_at } => {
                let millis = |at: std::time::SystemTime| {
                    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
                };
                copy.insert(key, (value, expires_at.map(millis)));
            }
            ChangedEntry::Delete { key } => drop(copy.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => {
                copy.retain(|key, _| !is_in(key, &start, &end));
            }
            ChangedEntry::Load { start, end } => {
                copy.retain(|key, _| !is_in(key, &start, &end));
                let entries = model.get(&number).into_iter().flat_map(|(_, map)| map);
                let loaded = entries.filter(|(key, _)| is_in(key, &start, &end));
                copy.extend(loaded.map(|(key, stored)| (key.clone(), stored.clone())));
            }
            ChangedEntry::DropKeyspace => drop(self.copy.remove(&number)),
            other => panic!("{other:?}"),
        }
    }
}
