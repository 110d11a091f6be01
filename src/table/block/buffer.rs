//! A block as it was read: the stored bytes and what they decompress to, in buffers of the thread.
//!
//! `fetch` reads into a [`BlockBuffer`], checks it and decompresses it. A block to be cached is
//! copied out, so only the cached block is allocated; an uncached block is searched in the buffer.
//! Where the file is in memory anyway, the stored bytes stay there, and the buffer names them.
//! Legal order: `new`; `lend`, or `stored_mut` to read into; once the checksum holds, `decompress`
//! if the block is compressed; then the contents, by dereferencing. A thread has one pair of
//! buffers, which the next block takes over when this one is dropped. A thread that holds two
//! blocks allocates for the second.

use crate::base::sync::{Arc, thread_local};
use crate::env::api::RandomFile;
use crate::table::format::{BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, Compression};
use std::cell::Cell;
use std::ops::Deref;

/// The buffers of one thread.
#[derive(Debug, Default)]
struct Buffers {
    /// The file in memory that has the stored bytes, and where they begin. Then `stored` is not
    /// used.
    lent: Option<(Arc<dyn RandomFile>, usize)>,
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
    /// A block of `stored_len` bytes, trailer included, without its contents.
    pub(crate) fn new(stored_len: usize) -> Self {
        // The thread-local is gone while the thread ends.
        let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
        buffers.stored_len = stored_len;
        buffers.decompressed_len = None;
        BlockBuffer { buffers: Some(buffers) }
    }

    /// Takes the stored bytes at `offset` of a file that is in memory. False if it is not, or ends
    /// before.
    pub(crate) fn lend(&mut self, file: &Arc<dyn RandomFile>, offset: u64) -> bool {
        let (Some(buffers), Some(bytes)) = (self.buffers.as_mut(), file.as_bytes()) else {
            return false;
        };
        let start = usize::try_from(offset).ok().filter(|start| {
            let end = start.checked_add(buffers.stored_len);
            end.is_some_and(|end| end <= bytes.len())
        });
        buffers.lent = start.map(|start| (Arc::clone(file), start));
        buffers.lent.is_some()
    }

    /// True if the stored bytes are those of a file in memory.
    pub(crate) fn is_lent(&self) -> bool {
        self.buffers.as_ref().is_some_and(|buffers| buffers.lent.is_some())
    }

    /// The block as stored, with its trailer.
    pub(crate) fn stored(&self) -> &[u8] {
        self.buffers.as_ref().map_or(&[], |buffers| buffers.stored())
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
        let Some(buffers) = self.buffers.as_mut() else { return Ok(()) };
        let Buffers { lent, stored, decompressed, stored_len, .. } = &mut **buffers;
        let compressed = without_trailer(stored_bytes(lent, stored, *stored_len));
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
impl Deref for BlockBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let Some(buffers) = self.buffers.as_ref() else { return &[] };
        match buffers.decompressed_len {
            Some(len) => buffers.decompressed.get(..len).unwrap_or_default(),
            None => without_trailer(buffers.stored()),
        }
    }
}

impl Buffers {
    fn stored(&self) -> &[u8] {
        stored_bytes(&self.lent, &self.stored, self.stored_len)
    }
}

impl Drop for BlockBuffer {
    fn drop(&mut self) {
        let Some(mut buffers) = self.buffers.take() else { return };
        // The file may be closed then, and the next block may be of another one.
        buffers.lent = None;
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

/// The stored block: `len` bytes of a file in memory or of `stored`; nothing where they are not.
fn stored_bytes<'b>(
    lent: &'b Option<(Arc<dyn RandomFile>, usize)>,
    stored: &'b [u8],
    len: usize,
) -> &'b [u8] {
    let bytes = match lent {
        None => stored.get(..len),
        // `lend` found them in it, and every call returns the same bytes.
        Some((file, start)) => file.as_bytes().and_then(|bytes| bytes.get(*start..start + len)),
    };
    bytes.unwrap_or_default()
}

fn without_trailer(stored: &[u8]) -> &[u8] {
    stored.get(..stored.len().saturating_sub(BLOCK_TRAILER_BYTES)).unwrap_or_default()
}
