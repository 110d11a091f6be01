//! What commands do to the data.
//!
//! Openraft gives several entries to apply at once, and they become one batch. A command must see
//! what the commands before it in the batch wrote, so changes are collected here first.

use crate::storage::read_text;
use crate::types::{Answer, Command};
use siftdb::{Keyspace, WriteBatch};
use std::collections::BTreeMap;
use std::io;

/// The changes of a batch of commands, not yet written.
#[derive(Debug)]
pub struct Changes<'a> {
    data: &'a Keyspace,
    /// The new value of each key, `None` for "deleted".
    changed: BTreeMap<String, Option<String>>,
}

impl<'a> Changes<'a> {
    /// No changes to `data`.
    #[must_use]
    pub fn new(data: &'a Keyspace) -> Self {
        Changes { data, changed: BTreeMap::new() }
    }

    /// Runs a command after those before it.
    ///
    /// # Errors
    /// The failure of the database.
    pub fn run(&mut self, command: Command) -> io::Result<Answer> {
        match command {
            Command::Put { key, value } => self.changed.insert(key, Some(value)),
            Command::Delete { key } => self.changed.insert(key, None),
            Command::CompareAndSet { key, expected, new } => {
                let found = self.value(&key)?;
                let swapped = found == expected;
                if swapped {
                    self.changed.insert(key, new);
                }
                return Ok(Answer::Compared { swapped, found });
            }
        };
        Ok(Answer::Done)
    }

    fn value(&self, key: &str) -> io::Result<Option<String>> {
        match self.changed.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => read_text(self.data, key),
        }
    }

    /// Adds the changes to a batch.
    pub fn add_to(self, batch: &mut WriteBatch) {
        let mut batch = batch.in_keyspace(self.data);
        for (key, value) in self.changed {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
    }
}
