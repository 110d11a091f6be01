//! A block as it was read: the stored bytes and what they decompress to, in buffers of the thread.
//!
//! `fetch` reads into a [`BlockBuffer`], checks it and decompresses it. A block to be cached is
//! copied out, so only the cached block is allocated; an uncached block is searched in the buffer.
//! Where the file is in memory anyway, the stored bytes stay there, and no buffer is needed for
//! them. Legal order: `in_file`, or `new` and `stored_mut` to read into; once the checksum holds,
//! `decompress` if the block is compressed; then the contents, by dereferencing. A thread has one
//! pair of buffers, which the next block takes over when this one is dropped. A thread that holds
//! two blocks allocates for the second.

use crate::base::sync::thread_local;
use crate::table::format::{BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, Compression};
use std::cell::Cell;
use std::ops::Deref;

/// The buffers of one thread.
#[derive(Debug, Default)]
struct Buffers {
    stored: Vec<u8>,
    decompressed: Vec<u8>,
    /// Bytes as stored, trailer included.
    stored_len: usize,
    /// Bytes decompressed; `None` for a raw block.
    decompressed_len: Option<usize>,
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// A larger buffer is freed, so that one large block does not cost a thread its size for good.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// A block in the file in memory that has it, or in the buffers that it was read to.
#[derive(Debug)]
pub(crate) struct BlockBuffer<'f> {
    /// The stored bytes, trailer included, in a file in memory.
    in_file: Option<&'f [u8]>,
    /// What was read or decompressed.
    buffers: Option<Box<Buffers>>,
}

impl<'f> BlockBuffer<'f> {
    /// A block of `stored_len` bytes, trailer included, without its contents.
    pub(crate) fn new(stored_len: usize) -> Self {
        BlockBuffer { in_file: None, buffers: Some(Buffers::of_thread(stored_len)) }
    }

    /// The block with these stored bytes, trailer included, of a file in memory.
    #[inline]
    pub(crate) fn in_file(stored: &'f [u8]) -> Self {
        BlockBuffer { in_file: Some(stored), buffers: None }
    }

    /// True if the stored bytes are those of a file in memory.
    #[inline]
    pub(crate) fn is_in_file(&self) -> bool {
        self.in_file.is_some()
    }

    /// The block as stored, with its trailer.
    #[inline]
    pub(crate) fn stored(&self) -> &[u8] {
        match (self.in_file, &self.buffers) {
            (Some(stored), _) => stored,
            (None, Some(buffers)) => buffers.stored.get(..buffers.stored_len).unwrap_or_default(),
            (None, None) => &[],
        }
    }

    /// Room for the same, to read into. Its contents are unspecified.
    pub(crate) fn stored_mut(&mut self) -> &mut [u8] {
        let Some(buffers) = self.buffers.as_mut() else { return &mut [] };
        grow(&mut buffers.stored, buffers.stored_len);
        buffers.stored.get_mut(..buffers.stored_len).unwrap_or_default()
    }

    /// The checksum in its trailer. Two reads of one block of one table that have the same
    /// checksum, which holds, have the same bytes.
    pub(crate) fn checksum(&self) -> u32 {
        self.stored().last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
    }

    /// How it is stored, by its trailer; `None` if that names no way.
    pub(crate) fn compression(&self) -> Option<Compression> {
        let at = self.stored().len().checked_sub(BLOCK_TRAILER_BYTES)?;
        Compression::from_byte(*self.stored().get(at)?)
    }

    /// Decompresses a block that Snappy compressed. The error says what is wrong.
    pub(crate) fn decompress(&mut self) -> Result<(), String> {
        let buffers = self.buffers.get_or_insert_with(|| Buffers::of_thread(0));
        let Buffers { stored, decompressed, stored_len, .. } = &mut **buffers;
        let read = stored.get(..*stored_len).unwrap_or_default();
        let compressed = without_trailer(self.in_file.unwrap_or(read));
        let declared = snap::raw::decompress_len(compressed).map_err(|error| error.to_string())?;
        if declared > BLOCK_BYTES_MAX || declared > compressed.len().saturating_mul(24) {
            return Err(format!("declares {declared} bytes from {}", compressed.len()));
        }
        grow(decompressed, declared);
        let contents = decompressed.get_mut(..declared).unwrap_or_default();
        let written = snap::raw::Decoder::new()
            .decompress(compressed, contents)
            .map_err(|error| error.to_string())?;
        buffers.decompressed_len = Some(written);
        Ok(())
    }
}

/// The block without its trailer, decompressed.
impl Deref for BlockBuffer<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let decompressed = self.buffers.as_ref().and_then(|buffers| {
            buffers.decompressed_len.map(|len| buffers.decompressed.get(..len).unwrap_or_default())
        });
        decompressed.unwrap_or_else(|| without_trailer(self.stored()))
    }
}

impl Buffers {
    /// Takes the thread's buffers, to read a block of `stored_len` bytes.
    fn of_thread(stored_len: usize) -> Box<Self> {
        // The thread-local is gone while the thread ends.
        let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
        buffers.stored_len = stored_len;
        buffers.decompressed_len = None;
        buffers
    }
}

impl Drop for BlockBuffer<'_> {
    fn drop(&mut self) {
        let Some(mut buffers) = self.buffers.take() else { return };
        let Buffers { stored, decompressed, .. } = &mut *buffers;
        for buffer in [stored, decompressed] {
            if buffer.capacity() > BUFFER_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        // They are freed if the thread ends.
        let _ = BUFFERS.try_with(|kept| kept.set(Some(buffers)));
    }
}

fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

#[inline]
fn without_trailer(stored: &[u8]) -> &[u8] {
    stored.get(..stored.len().saturating_sub(BLOCK_TRAILER_BYTES)).unwrap_or_default()
}
