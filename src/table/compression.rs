//! How data blocks are compressed: the setting, and both directions of each codec.
//!
//! Snappy is always there. LZ4 (`lz4_flex`) and Zstandard (`zstd`) are features. Their blocks begin
//! with the length of the contents as a varint, as those of RocksDB do. A length is believed only
//! within what the format of the codec allows for so few bytes, and up to the largest block: that
//! is checked before memory is taken.

use crate::base::coding::get_varint;
#[cfg(any(feature = "lz4", feature = "zstd"))]
use crate::base::coding::put_varint;
use crate::table::format::{BLOCK_BYTES_MAX, Codec};
use std::fmt;

/// How data blocks are compressed where that saves at least an eighth.
///
/// `benches/compression.rs` measures sizes and times on files of your own. Default: `Snappy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy: fast, and always there.
    #[default]
    Snappy,
    /// LZ4, another fast one. Needs the feature `lz4`.
    Lz4,
    /// Zstandard with this level, 1 to 22: smaller, and slower to write and to read. For the last
    /// level of a tree, which holds most of the data. Needs the feature `zstd`, which compiles C.
    Zstd(i32),
}

impl Compression {
    #[must_use]
    pub(crate) fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd(_) => Codec::Zstd,
        }
    }
}

/// `none`, `snappy`, `lz4` or `zstd:LEVEL`.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
            other => f.write_str(other.codec().name()),
        }
    }
}

/// Compresses the blocks of one table, in memory that it keeps.
pub(crate) struct Compressor {
    codec: Codec,
    snappy: snap::raw::Encoder,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    compressed: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        // Options with a codec that is not there are refused.
        debug_assert!(compression.codec().is_available());
        Compressor {
            codec: compression.codec(),
            snappy: snap::raw::Encoder::new(),
            #[cfg(feature = "zstd")]
            zstd: match compression {
                // It fails for lack of memory alone.
                Compression::Zstd(level) => zstd::bulk::Compressor::new(level).ok(),
                _ => None,
            },
            compressed: Vec::new(),
        }
    }

    /// The block compressed where that saves at least an eighth, else as it is.
    pub(crate) fn compress<'b>(&'b mut self, contents: &'b [u8]) -> (&'b [u8], Codec) {
        match self.try_compress(contents) {
            Some(bytes) if bytes < contents.len() - contents.len() / 8 => {
                (self.compressed.get(..bytes).unwrap_or_default(), self.codec)
            }
            // A codec refuses only what is larger than 2 GiB.
            _ => (contents, Codec::None),
        }
    }

    /// Compresses into the own memory and returns the length there.
    fn try_compress(&mut self, contents: &[u8]) -> Option<usize> {
        let dst = &mut self.compressed;
        match self.codec {
            Codec::None => None,
            Codec::Snappy => {
                grow(dst, snap::raw::max_compress_len(contents.len()));
                self.snappy.compress(contents, dst).ok()
            }
            #[cfg(feature = "lz4")]
            Codec::Lz4 => {
                let prefix = put_length(dst, contents, lz4_flex::block::get_maximum_output_size)?;
                let bytes =
                    lz4_flex::block::compress_into(contents, dst.get_mut(prefix..)?).ok()?;
                Some(prefix + bytes)
            }
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                let prefix = put_length(dst, contents, zstd::zstd_safe::compress_bound)?;
                let dst = dst.get_mut(prefix..)?;
                Some(prefix + self.zstd.as_mut()?.compress_to_buffer(contents, dst).ok()?)
            }
            #[cfg(not(feature = "lz4"))]
            Codec::Lz4 => None,
            #[cfg(not(feature = "zstd"))]
            Codec::Zstd => None,
        }
    }
}

/// The largest factor by which a block may grow when it is decompressed. In Snappy's format 3 bytes
/// stand for 64, in that of LZ4 a byte for 255. A frame of Zstandard repeats a byte up to 128 KiB
/// long with 4.
fn growth_max(codec: Codec) -> usize {
    match codec {
        Codec::None => 1,
        Codec::Snappy => 24,
        Codec::Lz4 => 255,
        Codec::Zstd => 32 << 10,
    }
}

/// Decompresses a block to the beginning of `dst`, which grows, and returns the length there. The
/// codec must be available.
///
/// # Errors
/// What is wrong with the block.
pub(crate) fn decompress(
    codec: Codec,
    stored: &[u8],
    dst: &mut Vec<u8>,
) -> std::result::Result<usize, String> {
    let (declared, compressed) = match codec {
        Codec::None => (stored.len(), stored),
        Codec::Snappy => {
            let declared = snap::raw::decompress_len(stored).map_err(|error| error.to_string())?;
            (declared, stored)
        }
        Codec::Lz4 | Codec::Zstd => declared_length(stored).ok_or("no length at its beginning")?,
    };
    let limit = stored.len().saturating_mul(growth_max(codec)).min(BLOCK_BYTES_MAX);
    if declared > limit {
        return Err(format!("declares {declared} bytes from {}", stored.len()));
    }
    grow(dst, declared);
    let contents = dst.get_mut(..declared).unwrap_or_default();
    let written = decompress_into(codec, compressed, contents)?;
    match written == declared {
        true => Ok(written),
        false => Err(format!("declares {declared} bytes and has {written}")),
    }
}

fn decompress_into(
    codec: Codec,
    compressed: &[u8],
    contents: &mut [u8],
) -> std::result::Result<usize, String> {
    match codec {
        Codec::None => {
            contents.copy_from_slice(compressed);
            Ok(compressed.len())
        }
        Codec::Snappy => {
            let written = snap::raw::Decoder::new().decompress(compressed, contents);
            written.map_err(|error| error.to_string())
        }
        #[cfg(feature = "lz4")]
        Codec::Lz4 => {
            let written = lz4_flex::block::decompress_into(compressed, contents);
            written.map_err(|error| error.to_string())
        }
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd_context::decompress(compressed, contents),
        #[cfg(not(feature = "lz4"))]
        Codec::Lz4 => Err("this program was built without lz4".into()),
        #[cfg(not(feature = "zstd"))]
        Codec::Zstd => Err("this program was built without zstd".into()),
    }
}

/// Makes room for a length and a block of at most `bound` of it, puts the length there, and returns
/// where the block begins.
#[cfg(any(feature = "lz4", feature = "zstd"))]
fn put_length(dst: &mut Vec<u8>, contents: &[u8], bound: fn(usize) -> usize) -> Option<usize> {
    let mut length = Vec::with_capacity(10);
    put_varint(&mut length, contents.len() as u64);
    grow(dst, length.len() + bound(contents.len()));
    dst.get_mut(..length.len())?.copy_from_slice(&length);
    Some(length.len())
}

fn declared_length(stored: &[u8]) -> Option<(usize, &[u8])> {
    let (length, bytes) = get_varint(stored)?;
    Some((usize::try_from(length).ok()?, stored.get(bytes..)?))
}

/// Makes `buffer` at least this long. What it holds then is overwritten.
fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

#[cfg(feature = "zstd")]
mod zstd_context {
    use crate::base::sync::thread_local;
    use std::cell::Cell;
    use zstd::bulk::Decompressor;

    thread_local! {
        /// What a thread decompresses with: making it takes longer than a block.
        static DECOMPRESSOR: Cell<Option<Decompressor<'static>>> = const { Cell::new(None) };
    }

    pub(super) fn decompress(compressed: &[u8], contents: &mut [u8]) -> Result<usize, String> {
        // The thread-local is gone while the thread ends.
        let kept = DECOMPRESSOR.try_with(Cell::take).ok().flatten();
        let new = || Decompressor::new().map_err(|error| error.to_string());
        let mut decompressor = kept.map_or_else(new, Ok)?;
        let written = decompressor.decompress_to_buffer(compressed, contents);
        let _ = DECOMPRESSOR.try_with(|kept| kept.set(Some(decompressor)));
        written.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::coding::put_varint;
    use proptest::prelude::*;

    /// A compression of each codec that this build has.
    pub(crate) fn available() -> Vec<Compression> {
        let mut all = vec![Compression::None, Compression::Snappy, Compression::Lz4];
        all.extend([1, 3].map(Compression::Zstd));
        all.retain(|compression| compression.codec().is_available());
        all
    }

    fn decompressed(codec: Codec, stored: &[u8]) -> Result<Vec<u8>, String> {
        let mut dst = vec![7; 3];
        let bytes = decompress(codec, stored, &mut dst)?;
        dst.truncate(bytes);
        Ok(dst)
    }

    proptest! {
        #[test]
        fn blocks_round_trip(
            words in prop::collection::vec(prop::sample::select(vec![
                &b"a"[..], b"user/", b"\0\0\0\0", b"0123456789abcdef",
            ]), 0..2_000),
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let contents = [words.concat(), noise].concat();
            for compression in available() {
                let mut compressor = Compressor::new(compression);
                for contents in [&contents[..], &contents[..contents.len() / 2]] {
                    let (stored, codec) = compressor.compress(contents);
                    prop_assert!(codec == Codec::None || codec == compression.codec());
                    prop_assert_eq!(codec == Codec::None, stored == contents);
                    prop_assert_eq!(decompressed(codec, stored), Ok(contents.to_vec()));
                }
            }
        }

        #[test]
        fn damaged_blocks_fail_or_have_the_declared_length(
            at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>(),
        ) {
            let contents = b"a block of words, and words in a block, again and again, ".repeat(20);
            for compression in available() {
                let (stored, codec) = (stored_by(compression, &contents), compression.codec());
                let mut damaged = stored.clone();
                match cut {
                    true => damaged.truncate(at.index(stored.len())),
                    false => damaged[at.index(stored.len())] ^= flip,
                }
                if let Ok(found) = decompressed(codec, &damaged) {
                    prop_assert!(found.len() <= damaged.len() * growth_max(codec));
                }
            }
        }
    }

    fn stored_by(compression: Compression, contents: &[u8]) -> Vec<u8> {
        Compressor::new(compression).compress(contents).0.to_vec()
    }

    /// Blocks put together by hand from the formats: LZ4's, and Zstandard's (RFC 8878).
    #[test]
    fn blocks_of_the_formats_are_read() {
        // 20 bytes: 3 literals, 12 bytes from 3 back, 5 literals.
        let lz4 = b"\x14\x38abc\x03\x00\x50xyzzy";
        // 20 bytes: one segment of 20, and one last block that repeats a byte.
        let zstd = b"\x14\x28\xb5\x2f\xfd\x20\x14\xa3\x00\x00z";
        let golden = [
            (Codec::Snappy, &b"\x0f\x08abc\x2e\x03\x00"[..], &b"abcabcabcabcabc"[..]),
            (Codec::Lz4, lz4, b"abcabcabcabcabcxyzzy"),
            (Codec::Zstd, zstd, b"zzzzzzzzzzzzzzzzzzzz"),
        ];
        for (codec, stored, contents) in golden {
            if codec.is_available() {
                assert_eq!(decompressed(codec, stored), Ok(contents.to_vec()), "{codec:?}");
                let mut more = stored.to_vec();
                more[0] += 1;
                let error = decompressed(codec, &more);
                assert!(error.is_err(), "{codec:?}: {error:?}");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_format_are_refused_before_memory_is_taken() {
        for codec in [Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for declared in [8 * growth_max(codec) + 1, BLOCK_BYTES_MAX + 1, u32::MAX as usize] {
                let mut stored = Vec::new();
                put_varint(&mut stored, declared as u64);
                stored.resize(8, 0);
                let mut dst = Vec::new();
                let refused = decompress(codec, &stored, &mut dst).unwrap_err();
                assert!(refused.contains("declares"), "{codec:?}: {refused}");
                assert!(dst.capacity() == 0);
            }
            assert!(decompressed(codec, &[]).is_err() && decompressed(codec, &[0x80]).is_err());
        }
    }

    #[test]
    fn blocks_that_do_not_shrink_by_an_eighth_stay_as_they_are() {
        let noise: Vec<u8> = (0..800u64).map(|i| ((i * i * 0x9e37_79b9) >> 13) as u8).collect();
        for compression in available() {
            let mut compressor = Compressor::new(compression);
            assert_eq!(compressor.compress(&noise), (&noise[..], Codec::None), "{compression}");
        }
    }
}
