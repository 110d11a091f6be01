//! The one error type of siftdb.
//!
//! Every variant says what failed, where (file, offset) and, in its text, what to do about it.
//! A missing key is not an error: reads return `Ok(None)`.
//!
//! `Error` is `Clone` and its `source` is shared, because one failed sync is the answer to every
//! writer of its group and, as the background error, to every later write. `error_text` has
//! the texts.

use siftdb_filter::error::BuildError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can go wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call on a file. A read may be tried again. After a failed
    /// write or sync, writes return [`Error::ReadOnly`] until the database is reopened.
    Io {
        /// The operation in a word: `"open"`, `"read"`, `"write"`, `"sync"`, ….
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// A file holds bytes that siftdb cannot have written there. Nothing was skipped or guessed.
    Corruption {
        /// The path of the damaged file.
        path: PathBuf,
        /// The place in the file, in bytes from its start.
        offset: u64,
        /// What is wrong there, with expected and found values if there are any.
        what: String,
        /// The cheapest way to repair the database.
        remedy: Remedy,
    },
    /// A file that the database needs does not exist.
    Missing {
        /// The path at which the file must be.
        path: PathBuf,
        /// What says that the file must exist.
        what: String,
    },
    /// A checkpoint, restore or import into a new directory was interrupted, so only a part of the
    /// database is there. The database that it was made from is whole.
    Unfinished {
        /// The directory that was to become a database.
        directory: PathBuf,
    },
    /// Bytes in memory changed between two checks without a write, so memory or processor is
    /// faulty. The table that was about to be written was discarded; the files are unchanged.
    MemoryCorruption {
        /// What differs, and in which table.
        what: String,
    },
    /// An option, or a combination of options, cannot work. Nothing was created.
    InvalidOptions {
        /// Which option, the value it had and the values it may have.
        what: String,
    },
    /// An argument of a call is beyond a limit. Nothing was written.
    InvalidArgument {
        /// Which argument, its size and the limit.
        what: String,
    },
    /// An entry of a bulk load does not come after the one before it: its key is smaller, or the
    /// same. Nothing of the load is in the database.
    KeyOrder {
        /// The entry, counted from 1.
        entry: u64,
        /// The key of this entry.
        key: Vec<u8>,
        /// The key of the entry before it.
        previous: Vec<u8>,
    },
    /// The database is open elsewhere: in this process or another.
    Locked {
        /// The path of the lock file.
        path: PathBuf,
        /// What has the database open.
        holder: LockHolder,
    },
    /// `LOCK` was removed or replaced while this handle held it, so another process may have opened
    /// the database too. The handle takes no more writes and removes no file.
    LockLost {
        /// The path of the lock file.
        path: PathBuf,
    },
    /// An earlier write, flush or compaction failed. Reads continue, but the database takes no
    /// writes until it is reopened or, if the cause [is out of space](Error::is_out_of_space),
    /// until `Db::resume`.
    ReadOnly {
        /// The failure that became the background error.
        cause: Arc<Error>,
    },
    /// The logs hold more than a read-only opening or a follower may keep in memory, and neither
    /// may flush them.
    LogsTooLarge {
        /// The directory of the database.
        directory: PathBuf,
        /// Bytes that their entries take in memory: the smallest value of the option that works.
        bytes: u64,
        /// The value of [`Options::read_only_log_bytes_max`].
        ///
        /// [`Options::read_only_log_bytes_max`]: crate::Options::read_only_log_bytes_max
        bytes_max: u64,
    },
    /// The database was opened read-only or is followed, and this call would write.
    OpenedReadOnly,
    /// `close` was called on this database.
    Closed,
    /// There is no keyspace of this name, and this call creates none.
    KeyspaceNotFound {
        /// The name that was asked for.
        name: String,
    },
    /// The keyspace was dropped. Snapshots and iterators from before still read it.
    KeyspaceDropped {
        /// The name that it had, or its number.
        name: String,
    },
    /// A transaction read this key, and another write changed it after the transaction's snapshot.
    /// Nothing of the transaction was written; it may be run again.
    Conflict {
        /// The keyspace of the key.
        keyspace: String,
        /// The key; of a range that was read, one in it that was written or deleted.
        key: Vec<u8>,
    },
    /// The writes and reads of a transaction take more memory than they may. Nothing of it was
    /// written.
    TransactionTooLarge {
        /// The value of [`Options::transaction_bytes_max`](crate::Options::transaction_bytes_max).
        bytes_max: usize,
    },
    /// This process was forked from the one that opened the database, and only that one can use the
    /// handle. Nothing was read or written.
    Forked {
        /// The process that opened the database.
        process: u32,
    },
    /// Changes that were asked for are in no log any more.
    ChangesGone {
        /// The directory of the database.
        directory: PathBuf,
        /// The first sequence that was asked for and is not there.
        from: u64,
        /// The first sequence after it that is there, or that will be.
        first: u64,
    },
    /// A [`CompactionFilter`](crate::CompactionFilter) panicked or gave a value that no entry may
    /// have. The compaction changed nothing.
    CompactionFilter {
        /// The name that the filter gives itself; empty if that panicked too.
        name: String,
        /// The panic, or the size of the value.
        what: String,
    },
    /// New tables would break the order of a level, or their keys do not ascend. A defect of siftdb
    /// causes that, or a table whose keys were changed and whose checksums were made to agree. The
    /// new tables were discarded before the manifest named them: nothing was lost or changed.
    Defect {
        /// Which tables or keys, and where.
        what: String,
    },
    /// The read point of a follower is no longer part of the history of the database: it was
    /// repaired, restored or created again, or its writer lost what was not synced. The read points
    /// that were taken before stay readable.
    HistoryChanged {
        /// The directory of the database.
        directory: PathBuf,
        /// The comparison that failed, with the sequences on both sides.
        what: String,
    },
    /// The writer replaced files faster than a follower could read them. The follower still shows
    /// the read point from before.
    FollowerOvertaken {
        /// The directory of the database.
        directory: PathBuf,
        /// How often the follower started over.
        tries: u32,
    },
    /// A follower holds every table open, and the limit of open files does not allow that. The
    /// follower still shows the read point from before.
    TooFewDescriptors {
        /// The directory of the database.
        directory: PathBuf,
        /// The descriptors that its tables need. Each table that only an older read point has needs
        /// one more.
        needed: usize,
    },
    /// A read with [`ReadOptions::in_memory_only`] needs a block that is not in memory. No file was
    /// read. The key may be there, and so may more entries of a scan.
    ///
    /// [`ReadOptions::in_memory_only`]: crate::ReadOptions::in_memory_only
    WouldRead {
        /// The path of the table with that block.
        path: PathBuf,
    },
    /// A file has a format, version or kind that this siftdb does not know. It was not changed.
    UnsupportedFormat {
        /// The path of the file.
        path: PathBuf,
        /// What was found, and what this siftdb knows.
        what: String,
    },
}

/// The cheapest way to repair a database with a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// `Db::rebuild_filters`, or `siftdb filter rebuild`: only the filter of a table is damaged,
    /// every entry is there.
    RebuildFilters,
    /// `Db::repair`, or `siftdb repair`: the file only says where the data is, and a repair finds
    /// that out from the data files.
    Repair,
    /// A copy of the file, which holds data of its own. Without a copy, a repair keeps the entries
    /// that can be read.
    RestoreCopy,
    /// The file belongs to a database of another store (`siftdb import`): that store's own repair,
    /// or an import of what can be read.
    OtherStore,
    /// The file is a single table of another store: a copy of it, or that store's own repair of the
    /// table's database.
    OtherStoreTable,
}

impl Remedy {
    /// The remedy for damage in the file with this name, wherever in the file it is.
    pub(super) fn of_file(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("MANIFEST-") || name == "CURRENT" {
            Remedy::Repair
        } else if name.ends_with(".ldb") || name.ends_with(".log") {
            Remedy::OtherStore
        } else {
            Remedy::RestoreCopy
        }
    }
}

/// What keeps a database from being opened: see [`Error::Locked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockHolder {
    /// A `Db` of this process that is not closed.
    Handle,
    /// An iterator, a snapshot or an unfinished call of a `Db` that this process has closed.
    Reader,
    /// Another process, which has the database open.
    OtherProcess,
}

/// `Result` with siftdb's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call on a file is refused after `Db::close_now`.
#[derive(Debug)]
struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the database is closed")
    }
}

impl std::error::Error for Ended {}

/// The error of a call on a file after `Db::close_now`.
pub(crate) fn ended() -> io::Error {
    io::Error::other(Ended)
}

impl Error {
    /// Why a filter was not built. No `From`: with a second one, the compiler could not infer the
    /// error of a closure that calls siftdb.
    pub(crate) fn of_filter_build(error: BuildError) -> Self {
        match error {
            BuildError::MemoryCorruption { what } => Error::MemoryCorruption { what },
            // Only a policy that the options name can be at fault.
            other => Error::InvalidOptions { what: other.to_string() },
        }
    }

    /// Wraps an error of the system. The name of the call becomes a word for users. [`ended`] is
    /// `Closed`.
    pub(crate) fn io(op: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        if source.get_ref().is_some_and(|cause| cause.is::<Ended>()) {
            return Error::Closed;
        }
        let path = path.as_ref().to_path_buf();
        Error::Io { op: operation(op), path, source: Arc::new(source) }
    }

    /// The error for damage at `offset` of `path`.
    pub(crate) fn corruption(path: impl AsRef<Path>, offset: u64, what: impl Into<String>) -> Self {
        let path = path.as_ref().to_path_buf();
        let remedy = Remedy::of_file(&path);
        Error::Corruption { path, offset, what: what.into(), remedy }
    }

    /// Notes that the damage concerns only a filter; leaves other errors as they are.
    pub(crate) fn of_filter(mut self) -> Self {
        if let Error::Corruption { remedy, .. } = &mut self {
            *remedy = Remedy::RebuildFilters;
        }
        self
    }

    /// The error for a missing file; `what` says why it must exist.
    pub(crate) fn missing(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Error::Missing { path: path.as_ref().to_path_buf(), what: what.into() }
    }

    /// The error for a version or kind in a file of siftdb that only a newer release can have
    /// written.
    pub(crate) fn of_newer_format(path: &Path, what: impl fmt::Display) -> Self {
        let what = format!("{what}; a newer siftdb may have written it");
        Error::UnsupportedFormat { path: path.to_path_buf(), what }
    }

    /// True for [`Error::Corruption`], [`Error::Missing`] and [`Error::UnsupportedFormat`]: the
    /// files are at fault.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        self.damage().is_some() || matches!(self, Error::UnsupportedFormat { .. })
    }

    /// File, offset and reason of [`Error::Corruption`] and [`Error::Missing`]; the offset of a
    /// missing file is 0.
    pub(crate) fn damage(&self) -> Option<(&Path, u64, &str)> {
        match self {
            Error::Corruption { path, offset, what, .. } => Some((path, *offset, what)),
            Error::Missing { path, what } => Some((path, 0, what)),
            _ => None,
        }
    }

    /// True if a write failed for lack of space or quota: `Db::resume` continues once there is
    /// room. False for a failed sync, whatever reason the system gave, because bytes that it should
    /// have made durable may be lost.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Error::Io { op, source, .. } => {
                *op != "sync" && matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            Error::ReadOnly { cause } => cause.is_out_of_space(),
            _ => false,
        }
    }

    /// The error for a write to keyspace number `id`, whose name is not known any more.
    pub(crate) fn keyspace_dropped(id: u32) -> Self {
        Error::KeyspaceDropped { name: format!("number {id}") }
    }

    /// A word for the variant, for programs that read errors as data: `io`, `corruption`,
    /// `missing_file`, `unfinished`, `memory_corruption`, `invalid_options`, `invalid_argument`,
    /// `key_order`, `locked`, `lock_lost`, `read_only`, `logs_too_large`, `opened_read_only`,
    /// `closed`, `keyspace_not_found`, `keyspace_dropped`, `conflict`, `transaction_too_large`,
    /// `forked`, `compaction_filter`, `defect`, `changes_gone`, `history_changed`,
    /// `follower_overtaken`, `too_few_descriptors`, `would_read` or `unsupported_format`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::Corruption { .. } => "corruption",
            Error::Missing { .. } => "missing_file",
            Error::Unfinished { .. } => "unfinished",
            Error::MemoryCorruption { .. } => "memory_corruption",
            Error::InvalidOptions { .. } => "invalid_options",
            Error::InvalidArgument { .. } => "invalid_argument",
            Error::KeyOrder { .. } => "key_order",
            Error::Locked { .. } => "locked",
            Error::LockLost { .. } => "lock_lost",
            Error::ReadOnly { .. } => "read_only",
            Error::LogsTooLarge { .. } => "logs_too_large",
            Error::OpenedReadOnly => "opened_read_only",
            Error::Closed => "closed",
            Error::KeyspaceNotFound { .. } => "keyspace_not_found",
            Error::KeyspaceDropped { .. } => "keyspace_dropped",
            Error::Conflict { .. } => "conflict",
            Error::TransactionTooLarge { .. } => "transaction_too_large",
            Error::Forked { .. } => "forked",
            Error::ChangesGone { .. } => "changes_gone",
            Error::CompactionFilter { .. } => "compaction_filter",
            Error::Defect { .. } => "defect",
            Error::HistoryChanged { .. } => "history_changed",
            Error::FollowerOvertaken { .. } => "follower_overtaken",
            Error::TooFewDescriptors { .. } => "too_few_descriptors",
            Error::WouldRead { .. } => "would_read",
            Error::UnsupportedFormat { .. } => "unsupported_format",
        }
    }
}

/// The word for a call on files. Users see only these words.
fn operation(call: &'static str) -> &'static str {
    match call {
        "append" | "write_at" | "allocate_zeroed" => "write",
        "open_random" => "open",
        "len" | "metadata" | "read_exact_at" => "read",
        "create_new" | "create_dir" => "create",
        "sync_all" | "sync_data" | "sync_dir" => "sync",
        "hard_link" => "link",
        "print" => "print to",
        "spawn" => "start a thread for",
        "join" => "stop a thread of",
        "background job" => "work in the background on",
        word => word,
    }
}

/// The text of an error includes the text of the error that it wraps. So `source` skips the wrapped
/// error, and a program that prints the whole chain prints nothing twice.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => std::error::Error::source(&**source),
            Error::ReadOnly { cause } => std::error::Error::source(&**cause),
            _ => None,
        }
    }
}

/// For code whose errors are those of input and output, such as a trait of another library. The
/// error stays inside: [`io::Error::get_ref`] has it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Corruption { .. } | Error::MemoryCorruption { .. } => io::ErrorKind::InvalidData,
            Error::Missing { .. } => io::ErrorKind::NotFound,
            Error::InvalidArgument { .. } | Error::InvalidOptions { .. } => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    fn full() -> Error {
        Error::io("write_at", "/db/000003.wal", io::ErrorKind::StorageFull.into())
    }

    /// What a program prints that walks down the chain of sources.
    fn chain(error: &Error) -> Vec<String> {
        let mut texts = vec![error.to_string()];
        let mut next = error.source();
        while let Some(source) = next {
            texts.push(source.to_string());
            next = source.source();
        }
        texts
    }

    #[test]
    fn error_chains_print_each_part_once() {
        let system = io::Error::from(io::ErrorKind::StorageFull).to_string();
        for error in [full(), Error::ReadOnly { cause: Arc::new(full()) }] {
            let texts = chain(&error);
            assert_eq!(texts.join("\n").matches(&system).count(), 1, "{texts:?}");
        }
        #[derive(Debug)]
        struct Outer(io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("outer")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let inner = Outer(io::Error::other("inner"));
        let wrapped = Error::io("read", "file", io::Error::other(inner));
        assert_eq!(chain(&wrapped), ["cannot read file: outer", "inner"]);
    }

    #[test]
    fn io_errors_keep_text_kind_and_cause() {
        let error = io::Error::from(full());
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), full().to_string());
        let inside = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        assert!(inside.is_some_and(Error::is_out_of_space));
        let damage = Error::corruption("/db/000007.sst", 7, "a wrong byte");
        assert_eq!(io::Error::from(damage).kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn operations_print_as_words() {
        assert!(full().to_string().starts_with("cannot write /db/000003.wal: "), "{}", full());
        for call in ["open_random", "read_exact_at", "create_new", "sync_data", "hard_link"] {
            let error = Error::io(call, "file", io::ErrorKind::NotFound.into());
            assert!(!error.to_string().contains(['_']), "{error}");
        }
    }

    #[test]
    fn missing_files_have_no_offset() {
        let error = Error::missing("/db/CURRENT", "000004.sst is there");
        let text = error.to_string();
        assert!(text.starts_with("/db/CURRENT is missing: 000004.sst is there; "), "{text}");
        assert!(error.is_corruption() && !text.contains("byte"), "{text}");
    }

    #[test]
    fn damage_names_its_cheapest_remedy() {
        for (file, remedy) in [
            ("000007.sst", "restore the file from a copy"),
            ("000007.wal", "restore the file from a copy"),
            ("CURRENT", "; repair the database"),
            ("MANIFEST-000003", "; repair the database"),
        ] {
            let error = Error::corruption(Path::new("/db").join(file), 7, "a wrong byte");
            let text = error.to_string();
            assert!(text.contains(remedy) && text.contains("siftdb repair"), "{text}");
            let text = error.of_filter().to_string();
            assert!(text.ends_with("rebuild the filters (`siftdb filter rebuild`)"), "{text}");
        }
    }
}
