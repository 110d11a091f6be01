//! Reads what is sound of a damaged table, block by block, and names what is not.
//!
//! For repairs only: every other reader stops at the first damage. [`salvage`] needs no footer, no
//! index and no properties: it begins behind the header, and the prefix of each block says how
//! long the block is and what it is. Behind a damaged prefix it searches for the next bytes that
//! are the prefix of a block of this table at just that place. Each byte is read a fixed number of
//! times, whatever the file holds.
//!
//! A data block counts as sound if its checksum and structure hold, its keys ascend from those of
//! the block before, and its sequences are those that the caller expects; so what comes out is in
//! order and of its table's age. A block of another place is refused by its checksum. Filter, index
//! and properties are not needed: whoever writes the entries anew makes others.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::Direction;
use crate::base::key::{
    SequenceNumber, compare_internal, split_internal_key, unpack_trailer, user_key,
};
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::env::api::Env;
use crate::env::handle::{FileHandle, FilePool};
use crate::table::block::block::Block;
use crate::table::block::block::BlockKeys;
use crate::table::block::cursor::BlockCursor;
use crate::table::fetch::{TableFile, TableIo};
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BlockHandle, BlockKind, FOOTER_BYTES, Footer, FrameError, HEADER_BYTES,
    Header, read_prefix,
};
use crate::table::properties::Properties;
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::path::Path;

/// Bytes of one read of a search for the next block.
const SEARCH_BYTES: u64 = 64 << 10;
/// The same where the disk refuses to read so many.
const SECTOR_BYTES: u64 = 4 << 10;

/// What is known of a damaged table beside its own bytes.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Its id, by the manifest. Without it the header has to say it, or the footer.
    pub table_id: Option<u64>,
    /// The sequences that its entries may have; a block with another is not sound.
    pub sequences: RangeInclusive<SequenceNumber>,
    /// How many entries it has, by the manifest. Without it the properties say it, if they are
    /// sound. Where all of them are found, damage elsewhere is no loss.
    pub entries: Option<u64>,
}

/// What was found in a damaged table.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// Entries that were kept.
    pub entries: u64,
    /// How many it should have had, as far as anything says.
    pub expected_entries: Option<u64>,
    /// Where entries were lost, or may have been. Empty if every entry was kept.
    pub lost: Vec<LostBlock>,
}

/// A place of a table whose entries cannot be read: a data block, or several.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Every key in it is at or above this user key; `None` if nothing before it could be read.
    pub from: Option<Vec<u8>>,
    /// Every key in it is at or below this user key; `None` if nothing behind it could be read.
    pub to: Option<Vec<u8>>,
    /// What is wrong.
    pub error: Error,
}

/// Takes an entry: its internal key and its value.
pub type Keep<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Gives each entry of each sound data block of the table at `path` to `keep`, in order.
///
/// # Errors
/// `Corruption` if the table's id is not to be found, or is not the expected one: then nothing of
/// the file can be believed. `UnsupportedFormat`; `Io` if the file cannot be opened; what `keep`
/// answers.
pub fn salvage(
    env: &Arc<dyn Env>,
    path: &Path,
    expected: &Expected,
    keep: Keep<'_>,
) -> Result<Salvaged> {
    let pool = FilePool::new(Arc::clone(env), 1);
    let handle = FileHandle::new(&pool, path.to_path_buf());
    let bytes = handle.len()?;
    let table_id = find_id(&handle, bytes, expected.table_id)?;
    // As if a footer stood behind the file's end: there may be none in it.
    let with_footer = bytes.saturating_add(FOOTER_BYTES as u64);
    let file = TableFile::new(handle, table_id, with_footer, &Cache::new(0, 0.0));
    let mut rescue = Rescue {
        file,
        bytes,
        expected: expected.clone(),
        keep,
        last_key: Vec::new(),
        entries: 0,
        data_ended: false,
        losses: Vec::new(),
    };
    rescue.run()?;
    Ok(rescue.finish())
}

/// The id of the table at `path` by its header, else by its footer; `None` if neither says it.
///
/// # Errors
/// `UnsupportedFormat`; `Io` if the file cannot be opened.
pub fn table_id_of(env: &Arc<dyn Env>, path: &Path) -> Result<Option<u64>> {
    let pool = FilePool::new(Arc::clone(env), 1);
    let handle = FileHandle::new(&pool, path.to_path_buf());
    match find_id(&handle, handle.len()?, None) {
        Ok(table_id) => Ok(Some(table_id)),
        Err(Error::Corruption { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The id that the table's blocks are tied to.
fn find_id(handle: &FileHandle, bytes: u64, expected: Option<u64>) -> Result<u64> {
    let path = handle.path();
    let mut header = [0; HEADER_BYTES];
    let header = match handle.read_exact_at(0, &mut header) {
        Ok(()) => Header::decode(&header),
        Err(error) => Err(FrameError::Damaged(unreadable(error)?.to_string())),
    };
    match (header, expected) {
        (Err(error @ FrameError::Unsupported(_)), _) => Err(error.into_error(path, 0)),
        (Ok(Header { table_id }), Some(expected)) if table_id != expected => {
            let what = format!("table id {table_id:016x}, the manifest says {expected:016x}");
            Err(Error::corruption(path, 0, what))
        }
        (_, Some(expected)) => Ok(expected),
        (Ok(Header { table_id }), None) => Ok(table_id),
        (Err(error), None) => id_in_footer(handle, bytes)?.ok_or_else(|| {
            let (FrameError::Damaged(what) | FrameError::Unsupported(what)) = error;
            let what = format!("{what}, and no footer says which table this is");
            Error::corruption(path, 0, what)
        }),
    }
}

fn id_in_footer(handle: &FileHandle, bytes: u64) -> Result<Option<u64>> {
    let Some(offset) = bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut footer = [0; FOOTER_BYTES];
    if let Err(error) = handle.read_exact_at(offset, &mut footer) {
        return unreadable(error).map(|_| None);
    }
    match Footer::decode(&footer) {
        Ok(footer) => Ok(Some(footer.table_id)),
        Err(FrameError::Damaged(_)) => Ok(None),
        Err(error) => Err(error.into_error(handle.path(), offset)),
    }
}

/// Passes on what is no damage. A read that the disk refuses is: the place is gone.
fn unreadable(error: Error) -> Result<Error> {
    match error {
        Error::Corruption { .. } | Error::Io { op: "read", .. } => Ok(error),
        other => Err(other),
    }
}

/// A loss; whether there were entries is certain if a data block stood there.
struct Loss {
    block: LostBlock,
    is_certain: bool,
}

struct Rescue<'a> {
    file: TableFile,
    /// Of the file as it is.
    bytes: u64,
    expected: Expected,
    keep: Keep<'a>,
    /// Of what was kept.
    last_key: Vec<u8>,
    entries: u64,
    /// A block that stands behind all data blocks was met.
    data_ended: bool,
    losses: Vec<Loss>,
}

impl Rescue<'_> {
    fn run(&mut self) -> Result<()> {
        let mut position = HEADER_BYTES as u64;
        loop {
            let Some((handle, kind)) = self.block_at(position)? else {
                let next = self.search(position.saturating_add(1))?;
                let end = next.unwrap_or(self.bytes);
                let what = format!("no block can be told in the bytes up to {end}");
                self.lose(self.file.corruption(position, what), false);
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
                // The last block: what stands behind it is footer, or nobody's.
                BlockKind::Index => return Ok(()),
                BlockKind::Filter | BlockKind::FilterIndex | BlockKind::Metaindex => {}
            }
            match handle.end().filter(|end| *end <= self.bytes) {
                Some(end) => position = end,
                None => return Ok(()),
            }
        }
    }

    /// The block whose prefix stands at `position`, if one does. It may reach beyond the file.
    fn block_at(&self, position: u64) -> Result<Option<(BlockHandle, BlockKind)>> {
        let mut prefix = [0; BLOCK_PREFIX_BYTES];
        let offset = position.saturating_add(BLOCK_PREFIX_BYTES as u64);
        if offset > self.bytes {
            return Ok(None);
        }
        if let Err(error) = self.file.read_bytes(position, &mut prefix) {
            return unreadable(error).map(|_| None);
        }
        let read = read_prefix(prefix, self.file.table_id(), offset);
        Ok(read.map(|(kind, size)| (BlockHandle { offset, size: size.into() }, kind)))
    }

    /// Where the next prefix stands, from `position` on. It takes a few instructions a byte, since
    /// hardly any eight bytes have a kind where a prefix has it and a size that fits the file.
    fn search(&self, mut position: u64) -> Result<Option<u64>> {
        let mut window = Vec::new();
        let mut step = SEARCH_BYTES;
        while position.saturating_add(BLOCK_PREFIX_BYTES as u64) <= self.bytes {
            window.resize(step.min(self.bytes - position) as usize, 0);
            if let Err(error) = self.file.read_bytes(position, &mut window) {
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
                if let Some((_, size)) = read_prefix(prefix, self.file.table_id(), offset)
                    && offset.saturating_add(size.into()) <= self.bytes
                {
                    return Ok(Some(at));
                }
            }
            // The last bytes may be the front of a prefix.
            position += (window.len() - (BLOCK_PREFIX_BYTES - 1)) as u64;
            step = SEARCH_BYTES;
        }
        Ok(None)
    }

    /// Keeps the entries of the block, if all of it is sound.
    fn data_block(&mut self, handle: BlockHandle) -> Result<()> {
        let block = match self.sound_block(handle) {
            Ok(block) => block,
            Err(error) => {
                self.lose(unreadable(error)?, true);
                return Ok(());
            }
        };
        let mut cursor = BlockCursor::new(Direction::Forward);
        cursor.seek(&block, None);
        self.close_losses(user_key(cursor.key()));
        while cursor.valid() {
            (self.keep)(cursor.key(), cursor.value(&block))?;
            self.entries += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(cursor.key());
            cursor.next(&block);
        }
        Ok(())
    }

    fn sound_block(&self, handle: BlockHandle) -> Result<Block> {
        let io = &mut TableIo::default();
        let contents = self.file.read_raw(handle, BlockKind::Data, io)?;
        let wrong = |what: &str| self.file.corruption(handle.offset, what);
        let block = Block::new(&contents, BlockKeys::Internal).map_err(|what| wrong(&what))?;
        let mut cursor = BlockCursor::new(Direction::Forward);
        cursor.seek(&block, None);
        if !cursor.valid() {
            return Err(wrong("a data block without entries"));
        }
        let mut before = self.last_key.clone();
        while cursor.valid() {
            let key = cursor.key();
            if !before.is_empty() && compare_internal(&before, key) != Ordering::Less {
                return Err(wrong("keys out of order"));
            }
            match split_internal_key(key).and_then(|(_, trailer)| unpack_trailer(trailer)) {
                None => return Err(wrong("an entry of an unknown kind")),
                Some((sequence, _)) if !self.expected.sequences.contains(&sequence) => {
                    return Err(wrong("an entry older or newer than its table"));
                }
                Some(_) => {}
            }
            before.clear();
            before.extend_from_slice(key);
            cursor.next(&block);
        }
        Ok(block)
    }

    /// Learns from sound properties how many entries there should be.
    fn properties(&mut self, handle: BlockHandle) -> Result<()> {
        let read = self.file.read_meta(handle, BlockKind::Properties);
        let properties = match read {
            Ok(block) => Properties::decode(&block).ok(),
            Err(error) => unreadable(error).map(|_| None)?,
        };
        let entries = properties.map(|properties| properties.entries);
        self.expected.entries = self.expected.entries.or(entries);
        Ok(())
    }

    fn lose(&mut self, error: Error, is_certain: bool) {
        // Behind the data there are no entries to lose.
        if self.data_ended {
            return;
        }
        let from = (self.entries > 0).then(|| user_key(&self.last_key).to_vec());
        let block = LostBlock { from, to: None, error };
        self.losses.push(Loss { block, is_certain });
    }

    /// What was lost so far stood before this key.
    fn close_losses(&mut self, key: &[u8]) {
        for loss in self.losses.iter_mut().rev().take_while(|loss| loss.block.to.is_none()) {
            loss.block.to = Some(key.to_vec());
            // Data blocks stand in one run, so there was one between two of them.
            loss.is_certain = true;
        }
    }

    fn finish(mut self) -> Salvaged {
        if !self.data_ended {
            let what = "the table ends here, without anything behind its data";
            let is_told = self.losses.last().is_some_and(|loss| loss.block.to.is_none());
            if !is_told {
                self.lose(self.file.corruption(self.bytes, what), false);
            }
        }
        let expected_entries = self.expected.entries;
        let nothing_is_missing = expected_entries == Some(self.entries);
        self.losses.retain(|loss| loss.is_certain || !nothing_is_missing);
        if self.losses.is_empty()
            && let Some(expected) = expected_entries.filter(|expected| *expected > self.entries)
        {
            let what = format!("{} of {expected} entries were found", self.entries);
            self.data_ended = false;
            self.lose(self.file.corruption(self.bytes, what), true);
        }
        let lost = self.losses.into_iter().map(|loss| loss.block).collect();
        Salvaged { entries: self.entries, expected_entries, lost }
    }
}
