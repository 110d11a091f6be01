//! The contents of files of all formats: keyspaces and entries.
//!
//! A [`Reader`] turns lines into [`Record`]s. A [`Writer`] is the way back.

use crate::exchange::input::Input;
use crate::failure::Outcome;
use crate::settings::Setting;
use siftdb::KeyspaceOptions;
use std::io::Write;
use std::time::SystemTime;

/// The next item of a file.
#[derive(Debug)]
pub enum Record {
    /// The entries that follow are of this keyspace.
    Keyspace {
        name: String,
        settings: Box<KeyspaceOptions>,
        /// Settings that only a program can name.
        left_out: Vec<Setting>,
    },
    /// An entry.
    Entry { key: Vec<u8>, value: Vec<u8>, expiry: Expiry },
}

/// When an entry expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// As its keyspace says: the format says nothing.
    OfKeyspace,
    Never,
    At(SystemTime),
}

/// Reads one format.
pub trait Reader {
    /// The next record; `None` at the end. The caller adds file and line to a failure.
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>>;
}

/// Writes one format.
pub trait Writer {
    /// Begins a keyspace; `bytes` is what its keys and values take.
    fn keyspace(&mut self, out: &mut dyn Write, begins: &KeyspaceBegin<'_>) -> Outcome;

    /// Writes an entry.
    fn entry(&mut self, out: &mut dyn Write, entry: &Entry<'_>) -> Outcome;

    /// Ends the keyspace.
    fn end(&mut self, _out: &mut dyn Write) -> Outcome {
        Ok(())
    }

    /// Ends the file, which has `entries` entries.
    fn finish(&mut self, _out: &mut dyn Write, _entries: u64) -> Outcome {
        Ok(())
    }
}

/// A keyspace that is about to be written.
pub struct KeyspaceBegin<'a> {
    pub name: &'a str,
    pub settings: &'a KeyspaceOptions,
    /// Entries of the whole database, and their bytes.
    pub entries: u64,
    pub bytes: u64,
    /// It is the only one of the file.
    pub alone: bool,
}

/// An entry to be written.
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub expires_at: Option<SystemTime>,
}
