//! Reads the sound blocks of a damaged table, and names the others.
//!
//! For repairs only: every other reader stops at the first damage. [`salvage`] needs no footer, no
//! index and no properties. It begins after the header; the prefix of each block has the length and
//! the kind of the block. Zeros up to the end of a page are skipped. After a damaged prefix it
//! searches for the next bytes that are the prefix of a block of this table at exactly that offset.
//! Each byte is read a fixed number of times, whatever the file holds.
//!
//! A data block is sound if its checksum and structure hold, its keys ascend from those of the
//! block before, and its sequences are in the range that the caller expects. So the entries come in
//! order and have the age of their table. The checksum refuses a block of another offset. Filter,
//! index and properties are not salvaged: the repair writes new ones.
//!
//! Range deletes are saved whole or not at all. If they are lost, or may be, the report says so,
//! because deleted entries come back then.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::Direction;
use crate::base::key::{
    KeyspaceId, SEQUENCE_MAX, SequenceNumber, compare_internal, split_internal_key, unpack_trailer,
    user_key,
};
use crate::base::range_deletes::RangeDeletes;
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::env::api::Env;
use crate::env::handle::{FileHandle, FilePool};
use crate::table::block::cursor::for_each_entry;
use crate::table::block::directory::HashedBlock;
use crate::table::file::{TableFile, TableIo};
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BlockHandle, BlockKind, FOOTER_BYTES, Footer, HEADER_BYTES, Header,
    read_prefix,
};
use crate::table::properties::Properties;
use crate::table::scan_ahead::ScanAhead;
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::path::Path;

/// Bytes of one read of a search for the next block.
const SEARCH_BYTES: u64 = 64 << 10;
/// The same where the disk refuses the larger read.
const SECTOR_BYTES: u64 = 4 << 10;

/// The facts that a repair knows of a damaged table besides its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// Its id, by the manifest. If `None`, the header or the footer must have it.
    pub table_id: Option<u64>,
    /// The sequences that its entries may have; a block with another is not sound.
    pub sequences: RangeInclusive<SequenceNumber>,
    /// The sequence of all entries, by the manifest, if the table was ingested.
    pub global_sequence: Option<SequenceNumber>,
    /// How many entries it has, by the manifest. If `None`, sound properties say it. If all entries
    /// are found, damage elsewhere is no loss.
    pub entries: Option<u64>,
    /// How many sequences its range deletes have, known as the number of entries is.
    pub range_deletes: Option<u64>,
}

/// The entries and damage found in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Salvaged {
    pub table_id: u64,
    /// The keyspace that it is of, by its properties or else by its header, if one can be read.
    pub keyspace: Option<KeyspaceId>,
    /// The name of that keyspace, by its properties.
    pub keyspace_name: Option<String>,
    /// Entries that were kept.
    pub entries: u64,
    /// Its range deletes; empty if they cannot be read.
    pub range_deletes: RangeDeletes,
    /// How many it should have, if that is known.
    pub expected_entries: Option<u64>,
    /// Where entries or range deletes were lost, or may have been. Empty if all were kept.
    pub lost: Vec<LostBlock>,
}

/// A part of a table whose entries cannot be read: one data block, or several.
#[derive(Clone, Debug)]
pub(crate) struct LostBlock {
    /// Every key in it is at or above this user key; `None` if no block before it could be read.
    pub from: Option<Vec<u8>>,
    /// Every key in it is at or below this user key; `None` if no block after it could be read.
    pub to: Option<Vec<u8>>,
    pub error: Error,
}

/// Takes an entry: internal key and value.
pub(crate) type Keep<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Passes each entry of each sound data block of the table at `path` to `keep`, in order.
///
/// # Errors
/// `Corruption` if the table's id is not found or not the expected one: then no block of the file
/// can be trusted. `UnsupportedFormat`; `Io` if the file cannot be opened; the errors of `keep`.
pub(crate) fn salvage(
    env: &Arc<dyn Env>,
    path: &Path,
    expected: &Expected,
    keep: Keep<'_>,
) -> Result<Salvaged> {
    let pool = FilePool::new(Arc::clone(env), 1);
    let handle = FileHandle::new(&pool, path.to_path_buf());
    let bytes = handle.len()?;
    let (table_id, keyspace) = find_id(&handle, bytes, expected.table_id)?;
    // As if a footer followed the end of the file, which may have lost its own.
    let with_footer = bytes.saturating_add(FOOTER_BYTES as u64);
    let mut file = TableFile::new(handle, table_id, with_footer, &Cache::new(0, 0.0));
    file.global_sequence = expected.global_sequence;
    let mut rescue = Rescue {
        file,
        scan_ahead: ScanAhead::default(),
        bytes,
        expected: expected.clone(),
        keep,
        last_key: Vec::new(),
        data_ended: false,
        saw_properties: false,
        after_data: None,
        found: Salvaged {
            table_id,
            keyspace,
            expected_entries: expected.entries,
            ..Salvaged::default()
        },
    };
    rescue.run()?;
    Ok(rescue.finish())
}

/// The readable part of the table at `path`; `None` if neither header nor footer says which table
/// it is.
///
/// # Errors
/// `UnsupportedFormat`; `Io` if the file cannot be opened.
pub(crate) fn remains_of(env: &Arc<dyn Env>, path: &Path) -> Result<Option<Salvaged>> {
    let any = Expected {
        table_id: None,
        sequences: 0..=SEQUENCE_MAX,
        global_sequence: None,
        entries: None,
        range_deletes: None,
    };
    match salvage(env, path, &any, &mut |_, _| Ok(())) {
        Ok(found) => Ok(Some(found)),
        Err(Error::Corruption { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The id that the table's blocks are tied to, and the keyspace if the header is sound.
fn find_id(
    handle: &FileHandle,
    bytes: u64,
    expected: Option<u64>,
) -> Result<(u64, Option<KeyspaceId>)> {
    let path = &handle.path;
    let mut header = [0; HEADER_BYTES];
    let read = handle.read_exact_at(0, &mut header);
    let damage = match (read.and_then(|()| Header::decode(&header, path)), expected) {
        (Ok(Header { table_id, .. }), Some(expected)) if table_id != expected => {
            let what = format!("table id {table_id:016x}, the manifest says {expected:016x}");
            return Err(Error::corruption(path, 0, what));
        }
        (Ok(Header { table_id, keyspace, .. }), _) => return Ok((table_id, Some(keyspace))),
        (Err(error), _) => unreadable(error)?,
    };
    let table_id = expected.map_or_else(|| id_in_footer(handle, bytes), |id| Ok(Some(id)))?;
    table_id.map(|table_id| (table_id, None)).ok_or_else(|| {
        let damage = match damage {
            Error::Corruption { what, .. } => what,
            other => other.to_string(),
        };
        let what = format!("{damage}, and no footer says which table this is");
        Error::corruption(path, 0, what)
    })
}

fn id_in_footer(handle: &FileHandle, bytes: u64) -> Result<Option<u64>> {
    let Some(offset) = bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut footer = [0; FOOTER_BYTES];
    let read = handle.read_exact_at(offset, &mut footer);
    match read.and_then(|()| Footer::decode(&footer, &handle.path, offset)) {
        Ok(footer) => Ok(Some(footer.table_id)),
        Err(error) => unreadable(error).map(|_| None),
    }
}

/// Sorts errors: returns damage, which includes a read that the disk refuses, and fails with
/// others.
fn unreadable(error: Error) -> Result<Error> {
    match error {
        Error::Corruption { .. } | Error::Io { op: "read", .. } => Ok(error),
        other => Err(other),
    }
}

struct Rescue<'a> {
    file: TableFile,
    scan_ahead: ScanAhead,
    /// Length of the file.
    bytes: u64,
    expected: Expected,
    keep: Keep<'a>,
    /// The last key that was kept.
    last_key: Vec<u8>,
    /// True after the first block that is no data block: all data blocks come before.
    data_ended: bool,
    /// True after the block of properties: that of range deletes comes before.
    saw_properties: bool,
    /// The first damage between the data and the properties, where range deletes may have been.
    after_data: Option<Error>,
    found: Salvaged,
}

impl Rescue<'_> {
    fn run(&mut self) -> Result<()> {
        let mut position = HEADER_BYTES as u64;
        loop {
            let Some((handle, kind)) = self.block_at(position)? else {
                if let Some(end) = self.padding_end(position)? {
                    position = end;
                    continue;
                }
                let next = self.search(position.saturating_add(1))?;
                let end = next.unwrap_or(self.bytes);
                let what = format!("no block can be told in the bytes up to {end}");
                self.lose(self.file.corruption(position, what));
                match next {
                    Some(next) => position = next,
                    None => return Ok(()),
                }
                continue;
            };
            self.data_ended |= kind != BlockKind::Data;
            match kind {
                BlockKind::Data => self.data_block(handle)?,
                BlockKind::Properties => self.properties(handle)?,
                // The last block of a table; the footer follows.
                BlockKind::Index => return Ok(()),
                BlockKind::RangeDeletes => self.range_deletes(handle)?,
                BlockKind::Filter
                | BlockKind::FilterIndex
                | BlockKind::IndexPartition
                | BlockKind::Metaindex => {}
            }
            match handle.end().filter(|end| *end <= self.bytes) {
                Some(end) => position = end,
                None => return Ok(()),
            }
        }
    }

    /// The block whose prefix is at `position`, if one is. It may reach beyond the file.
    fn block_at(&self, position: u64) -> Result<Option<(BlockHandle, BlockKind)>> {
        let mut prefix = [0; BLOCK_PREFIX_BYTES];
        let offset = position.saturating_add(BLOCK_PREFIX_BYTES as u64);
        if offset > self.bytes {
            return Ok(None);
        }
        if let Err(error) = self.file.handle.read_exact_at(position, &mut prefix) {
            return unreadable(error).map(|_| None);
        }
        let read = read_prefix(prefix, self.file.table_id, offset);
        Ok(read.map(|(kind, size)| (BlockHandle { offset, size: size.into() }, kind)))
    }

    /// The end of the padding at `position`, if there is any. A disk that refuses to read it says
    /// nothing about the blocks around.
    fn padding_end(&self, position: u64) -> Result<Option<u64>> {
        self.file.padding_end(position).or_else(|error| unreadable(error).map(|_| None))
    }

    /// The offset of the next prefix, from `position` on. This takes a few instructions per byte,
    /// since few bytes look like a kind and a size that fits the file.
    fn search(&self, mut position: u64) -> Result<Option<u64>> {
        let mut window = Vec::new();
        let mut step = SEARCH_BYTES;
        while position.saturating_add(BLOCK_PREFIX_BYTES as u64) <= self.bytes {
            window.resize(step.min(self.bytes - position) as usize, 0);
            if let Err(error) = self.file.handle.read_exact_at(position, &mut window) {
                unreadable(error)?;
                if step == SECTOR_BYTES {
                    position += SECTOR_BYTES;
                }
                step = SECTOR_BYTES;
                continue;
            }
            for (at, prefix) in (position..).zip(window.windows(BLOCK_PREFIX_BYTES)) {
                let Ok(prefix) = prefix.try_into() else { continue };
                let offset = at + BLOCK_PREFIX_BYTES as u64;
                if let Some((_, size)) = read_prefix(prefix, self.file.table_id, offset)
                    && offset.saturating_add(size.into()) <= self.bytes
                {
                    return Ok(Some(at));
                }
            }
            // A prefix may begin in the last bytes.
            position += (window.len() - (BLOCK_PREFIX_BYTES - 1)) as u64;
            step = SEARCH_BYTES;
        }
        Ok(None)
    }

    /// Keeps the entries of the block, if all of it is sound.
    fn data_block(&mut self, handle: BlockHandle) -> Result<()> {
        let ahead = self.scan_ahead.block_is_next(handle, Direction::Forward);
        ahead.into_iter().for_each(|bytes| self.file.read_ahead(bytes));
        let block = match self.sound_block(handle) {
            Ok(block) => block,
            Err(error) => {
                self.lose(unreadable(error)?);
                return Ok(());
            }
        };
        for_each_entry(&block, |key, value| {
            self.close_losses(user_key(key));
            (self.keep)(key, value)?;
            self.found.entries += 1;
            key.clone_into(&mut self.last_key);
            Ok(())
        })
    }

    fn sound_block(&self, handle: BlockHandle) -> Result<HashedBlock> {
        let wrong = |what: &str| self.file.corruption(handle.offset, what);
        let block = self.file.read_data(handle, &mut TableIo::default())?;
        let mut before = self.last_key.clone();
        for_each_entry(&block, |key, _| {
            if !before.is_empty() && compare_internal(&before, key) != Ordering::Less {
                return Err(wrong("keys out of order"));
            }
            key.clone_into(&mut before);
            match split_internal_key(key).and_then(|(_, trailer)| unpack_trailer(trailer)) {
                None => Err(wrong("an entry of an unknown kind")),
                Some((0, _)) if *self.expected.sequences.start() > 0 => {
                    Err(wrong("an entry without a sequence, as in an ingested table"))
                }
                Some((sequence, _)) if !self.expected.sequences.contains(&sequence) => {
                    Err(wrong("an entry older or newer than its table"))
                }
                Some(_) => Ok(()),
            }
        })?;
        Ok(block)
    }

    /// Keeps the range deletes, if all of them are sound.
    fn range_deletes(&mut self, handle: BlockHandle) -> Result<()> {
        let is_expected = |sequence| self.expected.sequences.contains(&sequence);
        match self.file.read_range_deletes(handle) {
            Ok(deletes)
                if deletes.sequences().is_some_and(|(a, b)| is_expected(a) && is_expected(b)) =>
            {
                self.found.range_deletes = deletes;
            }
            Ok(_) => {
                let what = "a range delete older or newer than its table";
                self.lose_deletes(self.file.corruption(handle.offset, what));
            }
            Err(error) => self.lose_deletes(unreadable(error)?),
        }
        Ok(())
    }

    fn lose_deletes(&mut self, error: Error) {
        self.after_data.get_or_insert(error);
    }

    /// Takes the expected counts and the keyspace from sound properties.
    fn properties(&mut self, handle: BlockHandle) -> Result<()> {
        self.saw_properties = true;
        let read = self.file.read_meta(handle, BlockKind::Properties);
        let properties = match read {
            Ok(block) => Properties::decode(&block).ok(),
            Err(error) => unreadable(error).map(|_| None)?,
        };
        if let Some(properties) = properties {
            self.found.expected_entries.get_or_insert(properties.entries);
            self.expected.range_deletes.get_or_insert(properties.range_deletes);
            self.found.keyspace = Some(properties.keyspace.id);
            self.found.keyspace_name = Some(properties.keyspace.name);
        }
        Ok(())
    }

    fn lose(&mut self, error: Error) {
        // After the data blocks there are no entries to lose.
        if self.data_ended {
            if !self.saw_properties {
                self.lose_deletes(error);
            }
            return;
        }
        let from = (self.found.entries > 0).then(|| user_key(&self.last_key).to_vec());
        self.found.lost.push(LostBlock { from, to: None, error });
    }

    /// Bounds the losses so far: their keys are below this one.
    fn close_losses(&mut self, key: &[u8]) {
        for loss in self.found.lost.iter_mut().rev().take_while(|loss| loss.to.is_none()) {
            loss.to = Some(key.to_vec());
        }
    }

    /// The loss of range deletes, if they are missing or may be.
    fn lost_deletes(&self) -> Option<LostBlock> {
        let found = self.found.range_deletes.count();
        let are_missing = match self.expected.range_deletes {
            Some(expected) => found < expected,
            // Without damage before the properties, every block before them was seen.
            None => found == 0 && (self.after_data.is_some() || !self.saw_properties),
        };
        let why = match &self.after_data {
            Some(Error::Corruption { offset, what, .. }) => format!("{what} at byte {offset}"),
            Some(error) => error.to_string(),
            None => "their block is missing".into(),
        };
        let what = format!("range deletes are lost, so deleted entries may come back: {why}");
        let error = self.file.corruption(self.bytes, what);
        are_missing.then_some(LostBlock { from: None, to: None, error })
    }

    fn finish(mut self) -> Salvaged {
        if !self.data_ended {
            let what = "the table ends here, without any block after its data";
            let is_told = self.found.lost.last().is_some_and(|loss| loss.to.is_none());
            if !is_told {
                self.lose(self.file.corruption(self.bytes, what));
            }
        }
        let (entries, expected_entries) = (self.found.entries, self.found.expected_entries);
        if expected_entries == Some(entries) {
            // The damage is in padding, or between the last data block and the properties.
            self.found.lost.clear();
        }
        if self.found.lost.is_empty()
            && let Some(expected) = expected_entries.filter(|expected| *expected > entries)
        {
            let what = format!("{entries} of {expected} entries were found");
            self.data_ended = false;
            self.lose(self.file.corruption(self.bytes, what));
        }
        let lost_deletes = self.lost_deletes();
        self.found.lost.extend(lost_deletes);
        self.found
    }
}
