//! The texts of errors: what happened, and what to do about it.

use crate::base::error::{Error, LockHolder, Remedy};
use std::fmt;

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Remedy::RebuildFilters => {
                "only the table's filter is damaged: rebuild the filters (`siftdb filter rebuild`)"
            }
            Remedy::Repair => "repair the database (`siftdb repair`)",
            Remedy::OtherStore => {
                "repair it with the store that wrote it, or import what can be read (`--salvage`)"
            }
            Remedy::OtherStoreTable => {
                "restore the table from a copy, or let its store repair the database it belongs to"
            }
            Remedy::RestoreCopy => {
                "restore the file from a copy, or keep what can be read with `siftdb repair`"
            }
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl LockHolder {
    fn text(self) -> &'static str {
        match self {
            LockHolder::Handle => "this process has the database open through another handle",
            LockHolder::Reader => {
                "this process closed the database, but an iterator, snapshot or call still reads it"
            }
            LockHolder::OtherProcess => "another process has the database open",
        }
    }
}

impl Error {
    /// What happened, for the report of the repair that the advice would name.
    pub(crate) fn without_advice(&self) -> String {
        struct What<'a>(&'a Error);
        impl fmt::Display for What<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write_what(f)
            }
        }
        What(self).to_string()
    }

    /// What to do about the error; `None` if its text says everything.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Error::Corruption { remedy, .. } => remedy.text(),
            Error::Missing { path, .. } => Remedy::of_file(path).text(),
            Error::Unfinished { .. } => "run that again, or remove the directory",
            Error::MemoryCorruption { .. } => {
                "nothing was written and the files are intact; test the memory of this machine, \
                 then reopen the database"
            }
            Error::KeyOrder { .. } => {
                "load each key once, in the order of their bytes, or use `ingest_unsorted`"
            }
            Error::Locked { .. } => "close the database or drop the reader first",
            Error::LockLost { .. } => {
                "close the database wherever it is open, leave `LOCK` alone, then reopen it"
            }
            Error::ReadOnly { cause } if cause.is_out_of_space() => {
                "free some space, then call `Db::resume` or reopen the database"
            }
            Error::ReadOnly { .. } => "remove the cause and reopen the database",
            Error::LogsTooLarge { .. } => {
                "raise `read_only_log_bytes_max` to that, or open the database once with `open`, \
                 which writes the logs into tables"
            }
            Error::OpenedReadOnly => "open the database with `open` to write",
            Error::Closed => "open the database again",
            Error::KeyspaceNotFound { .. } => {
                "`Db::keyspaces` lists the names; a writable database creates it"
            }
            Error::KeyspaceDropped { .. } => "create it again, or take a new handle",
            Error::Conflict { .. } => "run the transaction again, as `Db::transact` does",
            Error::TransactionTooLarge { .. } => {
                "write it in several transactions, or raise `transaction_bytes_max`"
            }
            Error::Forked { .. } => "open a database after `fork`, in the process that uses it",
            Error::ChangesGone { .. } => {
                "read the database again and follow from there; `keep_log_bytes` keeps more logs"
            }
            Error::CompactionFilter { .. } => {
                "correct the filter, then reopen the database with it"
            }
            Error::Defect { .. } => {
                "run `siftdb verify`, and report it if that finds nothing; the database can be \
                 used as before"
            }
            Error::HistoryChanged { .. } => "open the follower again",
            Error::FollowerOvertaken { .. } => "refresh it again",
            Error::TooFewDescriptors { .. } => {
                "raise the limit of open files (`ulimit -n`), or drop older read points"
            }
            Error::WouldRead { .. } => "read again without `in_memory_only`",
            // Only its text knows whether another siftdb would read the file.
            Error::UnsupportedFormat { .. }
            | Error::Io { .. }
            | Error::InvalidOptions { .. }
            | Error::InvalidArgument { .. } => return None,
        })
    }

    /// What happened, without the advice.
    fn write_what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { op, path, source } => write!(f, "cannot {op} {}: {source}", path.display()),
            Error::Corruption { path, offset, what, .. } => {
                write!(f, "{} is damaged at byte {offset}: {what}", path.display())
            }
            Error::Missing { path, what } => write!(f, "{} is missing: {what}", path.display()),
            Error::Unfinished { directory } => write!(
                f,
                "{} holds only a part of a database: a checkpoint, restore or import into it was \
                 interrupted",
                directory.display()
            ),
            Error::MemoryCorruption { what } => write!(f, "memory is damaged: {what}"),
            Error::InvalidOptions { what } => write!(f, "invalid options: {what}"),
            Error::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Error::KeyOrder { entry, key, previous } => write_order(f, *entry, key, previous),
            Error::Locked { path, holder } => {
                write!(f, "{} is locked: {}", path.display(), holder.text())
            }
            Error::LockLost { path } => write!(
                f,
                "{} was removed or replaced while the database was open, so another process may \
                 have opened it too",
                path.display()
            ),
            Error::ReadOnly { cause } => {
                write!(f, "the database is read-only since an earlier failure ({cause})")
            }
            Error::LogsTooLarge { directory, bytes, bytes_max } => write!(
                f,
                "the logs of {} take {bytes} bytes in memory, and only {bytes_max} are allowed",
                directory.display()
            ),
            Error::OpenedReadOnly => f.write_str("the database was opened read-only"),
            Error::Closed => f.write_str("the database is closed"),
            Error::KeyspaceNotFound { name } => write!(f, "there is no keyspace {name:?}"),
            Error::KeyspaceDropped { name } => write!(f, "the keyspace {name:?} was dropped"),
            Error::Conflict { keyspace, key } => write!(
                f,
                "\"{}\" in the keyspace {keyspace:?} was written after the transaction read it",
                key.escape_ascii()
            ),
            Error::TransactionTooLarge { bytes_max } => {
                write!(f, "a transaction takes more than {bytes_max} bytes of memory")
            }
            Error::Forked { process } => write!(
                f,
                "the database was opened by process {process}, and this process was forked from it"
            ),
            Error::ChangesGone { directory, from, first } => write!(
                f,
                "the logs of {} have no change {from}; the next one is {first}",
                directory.display()
            ),
            Error::CompactionFilter { name, what } => {
                write!(f, "the compaction filter {name:?} failed: {what}")
            }
            Error::Defect { what } => write!(f, "{what}; this is a defect of siftdb"),
            Error::HistoryChanged { .. }
            | Error::FollowerOvertaken { .. }
            | Error::TooFewDescriptors { .. } => self.write_what_of_follower(f),
            Error::WouldRead { path } => {
                write!(f, "a block of {} that the read needs is not in memory", path.display())
            }
            Error::UnsupportedFormat { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }

    /// What happened to a follower.
    fn write_what_of_follower(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::HistoryChanged { directory, what } => {
                write!(f, "the history of {} has changed: {what}", directory.display())
            }
            Error::FollowerOvertaken { directory, tries } => write!(
                f,
                "the writer of {} replaced files {tries} times while they were read",
                directory.display()
            ),
            Error::TooFewDescriptors { directory, needed } => write!(
                f,
                "the tables of {} need {needed} open files, more than this process may have",
                directory.display()
            ),
            _ => Ok(()),
        }
    }
}

fn write_order(f: &mut fmt::Formatter<'_>, entry: u64, key: &[u8], last: &[u8]) -> fmt::Result {
    let [key, last] = [key, last].map(<[u8]>::escape_ascii);
    write!(f, "entry {entry} of the load has the key \"{key}\" after \"{last}\"")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_what(f)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}
