//! The codecs besides Snappy: what each library calls a block of at most `length_max` bytes.
//!
//! An error says what is wrong with the block. No more memory is taken than the contents need.
//! Blocks may copy from a dictionary as if it came right before them.

use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress as inflate};
use miniz_oxide::inflate::{DecompressError, TINFLStatus};
use ruzstd::decoding::{Dictionary, FrameDecoder, StreamingDecoder};
use std::fmt::Display;
use std::io::Read;

/// The largest factor by which LZ4 grows: a byte says 255 at most.
const LZ4_FACTOR: usize = 256;

/// The largest factor by which deflate grows: two bits copy 258 bytes at most.
const DEFLATE_FACTOR: usize = 258 * 8 / 2;

/// Deflate copies from at most this many bytes before.
const DEFLATE_WINDOW_BYTES: usize = 32 << 10;

/// The first bytes of a trained dictionary of zstd. Any other dictionary is content only.
const TRAINED: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// The id of a dictionary that is content only. In a frame, 0 names no dictionary.
const NO_ID: u32 = 0;

fn wrong(error: impl Display) -> String {
    format!("a block is not decompressed: {error}")
}

/// A block of LZ4, without a frame.
pub(crate) fn lz4(
    compressed: &[u8],
    length_max: usize,
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    if length_max > (compressed.len() + 1) * LZ4_FACTOR {
        return Err(wrong(format!("{length_max} bytes from {}", compressed.len())));
    }
    let dictionary = dictionary.unwrap_or_default();
    lz4_flex::block::decompress_with_dict(compressed, length_max, dictionary).map_err(wrong)
}

/// A stream of deflate, without the header of zlib.
pub(crate) fn zlib(
    compressed: &[u8],
    length_max: usize,
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    if length_max > compressed.len().saturating_mul(DEFLATE_FACTOR) {
        return Err(wrong(format!("{length_max} bytes from {}", compressed.len())));
    }
    let dictionary = dictionary.unwrap_or_default();
    let reachable = &dictionary[dictionary.len().saturating_sub(DEFLATE_WINDOW_BYTES)..];
    // In a buffer that does not wrap, copies may begin before the position where output starts.
    let (start, flags) = (reachable.len(), TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF);
    let mut buffer = Vec::with_capacity(start + length_max);
    buffer.extend_from_slice(reachable);
    buffer.resize(start + length_max, 0);
    let mut state = Box::<DecompressorOxide>::default();
    let (status, _, length) = inflate(&mut state, compressed, &mut buffer, start, flags);
    if status != TINFLStatus::Done {
        return Err(wrong(DecompressError { status, output: Vec::new() }));
    }
    buffer.truncate(start + length);
    buffer.drain(..start);
    Ok(buffer)
}

/// A frame of zstd.
pub(crate) fn zstd(
    compressed: &[u8],
    length_max: usize,
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let mut decoder = FrameDecoder::new();
    let is_content_only = dictionary.is_some_and(|bytes| !bytes.starts_with(&TRAINED));
    if let Some(bytes) = dictionary {
        let dictionary = match is_content_only {
            true => content_only(bytes),
            false => Dictionary::decode_dict(bytes).map_err(wrong)?,
        };
        decoder.add_dict(dictionary).map_err(wrong)?;
    }
    let mut frame = StreamingDecoder::new_with_decoder(compressed, decoder).map_err(wrong)?;
    if is_content_only {
        // A frame names only dictionaries with an id.
        frame.decoder.force_dict(NO_ID).map_err(wrong)?;
    }
    let mut contents = Vec::new();
    frame.take(length_max as u64 + 1).read_to_end(&mut contents).map_err(wrong)?;
    Ok(contents)
}

/// A dictionary of zstd without entropy tables. Its offsets are those of a frame without one.
fn content_only(bytes: &[u8]) -> Dictionary {
    Dictionary {
        id: NO_ID,
        fse: Default::default(),
        huf: Default::default(),
        dict_content: bytes.to_vec(),
        offset_hist: [1, 4, 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of deflate with the fixed codes: a copy of 3 bytes from the farthest distance.
    fn farthest_copy() -> Vec<u8> {
        // The last block, fixed codes; 3 bytes; 24,577 and more; 8,191 more; the end.
        let bits = ["1", "10", "0000001", "11101", "1111111111111", "0000000"].concat();
        let byte = |chunk: &[u8]| {
            chunk.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit == b'1'))
        };
        bits.as_bytes().chunks(8).map(byte).collect()
    }

    #[test]
    fn deflate_reaches_32_kib_into_a_dictionary() {
        let dictionary: Vec<u8> = (0..40_000_u32).map(|i| ((i * 31) >> 5) as u8).collect();
        let farthest = dictionary.len() - DEFLATE_WINDOW_BYTES;
        let read = zlib(&farthest_copy(), 3, Some(&dictionary));
        assert_eq!(read.unwrap(), dictionary[farthest..farthest + 3]);
        let exact = &dictionary[farthest..];
        assert_eq!(zlib(&farthest_copy(), 3, Some(exact)).unwrap(), exact[..3]);
        for short in [Some(&exact[1..]), Some(&[][..]), None] {
            assert!(zlib(&farthest_copy(), 3, short).is_err());
        }
        assert!(zlib(&farthest_copy(), 2, Some(exact)).is_err());
        assert_eq!(zlib(&farthest_copy(), 9, Some(exact)).unwrap().len(), 3);
    }

    #[test]
    fn deflate_takes_no_memory_for_impossible_lengths() {
        let error = zlib(&[3, 0], usize::MAX >> 1, None).unwrap_err();
        assert!(error.contains("bytes from 2"), "{error}");
    }

    /// A frame of 4 bytes: a copy without literals. `bits` has a 1 above those of the offset.
    fn copy_of_four(modes: u8, offset_code: u8, bits: u8) -> Vec<u8> {
        let block = [0, 1, modes, 0, offset_code, 1, bits];
        let header = [1 | 2 << 1 | (block.len() as u8) << 3, 0, 0];
        [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, 4][..], &header, &block].concat()
    }

    /// Each code is stored once, without a table.
    const ALL_CODES_ONCE: u8 = 0b01_01_01_00;
    /// The tables are those of the block before, or of the dictionary.
    const TABLES_OF_BEFORE: u8 = 0b11_11_11_00;

    #[test]
    fn zstd_copies_from_an_untrained_dictionary() {
        let dictionary = Some(&b"abcdefgh"[..]);
        // The offset 8 - 3.
        let far = copy_of_four(ALL_CODES_ONCE, 3, 0b1000);
        assert_eq!(zstd(&far, 4, dictionary).unwrap(), b"defg");
        // The offsets that a frame begins with are 1, 4 and 8. Values 1, 2 and 3 of a copy without
        // literals are the second, the third, and the first minus one.
        let second = copy_of_four(ALL_CODES_ONCE, 0, 0b1);
        assert_eq!(zstd(&second, 4, dictionary).unwrap(), b"efgh");
        let third = copy_of_four(ALL_CODES_ONCE, 1, 0b10);
        assert_eq!(zstd(&third, 4, dictionary).unwrap(), b"abcd");
        let zero = copy_of_four(ALL_CODES_ONCE, 1, 0b11);
        assert!(zstd(&zero, 4, dictionary).is_err());
        for short in [Some(&b"efgh"[..]), Some(&[][..]), None] {
            assert!(zstd(&far, 4, short).is_err());
        }
    }

    #[test]
    fn zstd_takes_no_tables_from_an_untrained_dictionary() {
        let dictionary = Some(&b"abcdefgh"[..]);
        let block = copy_of_four(TABLES_OF_BEFORE, 0, 0b1);
        assert!(zstd(&block, 4, dictionary).is_err());
        let mut names_one = copy_of_four(ALL_CODES_ONCE, 3, 0b1000);
        names_one[4] |= 1;
        names_one.insert(5, 7);
        assert!(zstd(&names_one, 4, dictionary).is_err());
    }
}
