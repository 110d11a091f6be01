//! A block as it was read: the stored bytes and what they decompress to, in buffers of the thread.
//!
//! `file` reads into a [`BlockBuffer`], checks it and decompresses it. A block to be cached is
//! copied out, so only the cached block is allocated; an uncached block is searched in the buffer.
//! Legal order: `new`, `stored_mut` to read into; once the checksum holds, `decompress` if the
//! block is compressed; then the contents, by dereferencing. A thread has one pair of buffers,
//! which the next block takes over when this one is dropped. A thread that holds two blocks
//! allocates for the second.

use crate::base::sync::thread_local;
use crate::table::format::{BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES};
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

/// A block in the buffers that it was read to: one pointer, so that moving it is cheap.
#[derive(Debug)]
pub(crate) struct BlockBuffer {
    /// `None` only while it is dropped.
    buffers: Option<Box<Buffers>>,
}

impl BlockBuffer {
    /// Room for a block of `stored_len` bytes, trailer included. Its contents are unspecified.
    pub(crate) fn new(stored_len: usize) -> Self {
        // The thread-local is gone while the thread ends.
        let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
        grow(&mut buffers.stored, stored_len);
        buffers.stored_len = stored_len;
        buffers.decompressed_len = None;
        BlockBuffer { buffers: Some(buffers) }
    }

    /// The block as stored, with its trailer.
    pub(crate) fn stored(&self) -> &[u8] {
        let stored = self.buffers.as_ref().and_then(|b| b.stored.get(..b.stored_len));
        stored.unwrap_or_default()
    }

    /// The same, to read into.
    pub(crate) fn stored_mut(&mut self) -> &mut [u8] {
        let stored = self.buffers.as_mut().and_then(|b| b.stored.get_mut(..b.stored_len));
        stored.unwrap_or_default()
    }

    /// The checksum in its trailer. Two reads of one block of one table that have the same
    /// checksum, which holds, have the same bytes.
    pub(crate) fn checksum(&self) -> u32 {
        self.stored().last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
    }

    /// Decompresses a block that Snappy compressed. The error says what is wrong.
    pub(crate) fn decompress(&mut self) -> Result<(), String> {
        let Some(buffers) = self.buffers.as_mut() else { return Ok(()) };
        let compressed = without_trailer(&buffers.stored, buffers.stored_len);
        let declared = snap::raw::decompress_len(compressed).map_err(|error| error.to_string())?;
        if declared > BLOCK_BYTES_MAX || declared > compressed.len().saturating_mul(24) {
            return Err(format!("declares {declared} bytes from {}", compressed.len()));
        }
        grow(&mut buffers.decompressed, declared);
        let contents = buffers.decompressed.get_mut(..declared).unwrap_or_default();
        let written = snap::raw::Decoder::new()
            .decompress(compressed, contents)
            .map_err(|error| error.to_string())?;
        buffers.decompressed_len = Some(written);
        Ok(())
    }
}

/// The block without its trailer, decompressed.
impl Deref for BlockBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let Some(buffers) = self.buffers.as_ref() else { return &[] };
        match buffers.decompressed_len {
            Some(len) => buffers.decompressed.get(..len).unwrap_or_default(),
            None => without_trailer(&buffers.stored, buffers.stored_len),
        }
    }
}

impl Drop for BlockBuffer {
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

fn without_trailer(stored: &[u8], len: usize) -> &[u8] {
    stored.get(..len.saturating_sub(BLOCK_TRAILER_BYTES)).unwrap_or_default()
}
