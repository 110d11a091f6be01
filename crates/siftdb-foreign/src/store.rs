//! LevelDB or RocksDB: what numbers in a table mean, which depends on the store that wrote it.

/// The program that wrote a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    LevelDb,
    RocksDb,
}

impl Store {
    /// The name of a compression by its number.
    pub(crate) fn compression_name(self, number: u8) -> &'static str {
        match (self, number) {
            (_, 0) => "none",
            (_, 1) => "Snappy",
            (Store::LevelDb, 2) => "zstd",
            (Store::LevelDb, _) => "unknown",
            (Store::RocksDb, 2) => "zlib",
            (Store::RocksDb, 3) => "bzip2",
            (Store::RocksDb, 4) => "LZ4",
            (Store::RocksDb, 5) => "LZ4HC",
            (Store::RocksDb, 6) => "XPRESS",
            (Store::RocksDb, 7) => "zstd",
            // RocksDB wrote this number while its format of zstd was not final.
            (Store::RocksDb, 0x40) => "ZSTDNotFinal",
            (Store::RocksDb, _) => "unknown",
        }
    }
}

/// The kind of an entry. Its number is the last byte of the internal key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum EntryKind {
    /// A deletion of all older versions of the key.
    Deletion = 0,
    /// A value.
    Value = 1,
    /// RocksDB: an operand of a merge.
    Merge = 2,
    /// RocksDB: a deletion of the one older version of the key.
    SingleDeletion = 7,
    /// RocksDB: the place of a value in a blob file.
    BlobIndex = 0x11,
    /// RocksDB: a value with named columns.
    WideColumns = 0x16,
    /// RocksDB: a value with the time of its write.
    ValueWithTime = 0x18,
}

impl EntryKind {
    const ALL: [EntryKind; 7] = [
        EntryKind::Deletion,
        EntryKind::Value,
        EntryKind::Merge,
        EntryKind::SingleDeletion,
        EntryKind::BlobIndex,
        EntryKind::WideColumns,
        EntryKind::ValueWithTime,
    ];

    /// The kind with this number; `None` if `store` writes none into tables.
    pub(crate) fn of_number(store: Store, number: u8) -> Option<Self> {
        let kind = Self::ALL.into_iter().find(|kind| *kind as u8 == number)?;
        let in_leveldb = matches!(kind, EntryKind::Deletion | EntryKind::Value);
        (store == Store::RocksDb || in_leveldb).then_some(kind)
    }

    /// Its name: `value`, `deletion`, and in RocksDB `merge`, `single_deletion`, `blob_index`,
    /// `wide_columns` or `value_with_time`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Deletion => "deletion",
            EntryKind::Value => "value",
            EntryKind::Merge => "merge",
            EntryKind::SingleDeletion => "single_deletion",
            EntryKind::BlobIndex => "blob_index",
            EntryKind::WideColumns => "wide_columns",
            EntryKind::ValueWithTime => "value_with_time",
        }
    }

    /// True if the entry deletes its key, so it has no value.
    #[must_use]
    pub fn is_deletion(self) -> bool {
        matches!(self, EntryKind::Deletion | EntryKind::SingleDeletion)
    }
}
