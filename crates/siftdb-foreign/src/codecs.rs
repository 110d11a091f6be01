//! The codecs besides Snappy: what each library calls a block of at most `length_max` bytes.
//!
//! An error says what is wrong with the block. No more memory is taken than the contents need.

use ruzstd::decoding::{Dictionary, FrameDecoder, StreamingDecoder};
use std::fmt::Display;
use std::io::Read;

/// The largest factor by which LZ4 grows: a byte says 255 at most.
const LZ4_FACTOR: usize = 256;

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
    _dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    miniz_oxide::inflate::decompress_to_vec_with_limit(compressed, length_max).map_err(wrong)
}

/// A frame of zstd.
pub(crate) fn zstd(
    compressed: &[u8],
    length_max: usize,
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let mut decoder = FrameDecoder::new();
    if let Some(dictionary) = dictionary {
        let dictionary = Dictionary::decode_dict(dictionary).map_err(wrong)?;
        decoder.add_dict(dictionary).map_err(wrong)?;
    }
    let frame = StreamingDecoder::new_with_decoder(compressed, decoder).map_err(wrong)?;
    let mut contents = Vec::new();
    frame.take(length_max as u64 + 1).read_to_end(&mut contents).map_err(wrong)?;
    Ok(contents)
}
