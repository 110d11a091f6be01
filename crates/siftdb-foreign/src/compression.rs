//! Decompresses blocks.
//!
//! Snappy and LevelDB's zstd store a block as the codec writes it. RocksDB stores the length of the
//! contents first, as a varint, for all codecs but Snappy. A dictionary is in a block of its own;
//! data blocks copy from it as if it came right before them.

use crate::block_handle::BLOCK_BYTES_MAX;
#[cfg(feature = "codecs")]
use crate::codecs;
#[cfg(feature = "codecs")]
use crate::coding::Decoder;
use crate::store::Store;

/// The largest factor by which a block may grow when it is decompressed. In Snappy's format 3 bytes
/// copy 64 at most, so a sound block grows by less than 22.
const SNAPPY_FACTOR: usize = 24;

/// Why a block is not decompressed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The codec is not read.
    Unsupported(String),
    /// What is wrong with the block.
    Damage(String),
}

/// The contents of a block. `codec` is the number of a codec in tables of `store`. A table may have
/// a `dictionary` for its blocks.
pub(crate) fn decompress(
    store: Store,
    codec: u8,
    stored: Vec<u8>,
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    match codec {
        0 => Ok(stored),
        1 => snappy(&stored).map_err(Failure::Damage),
        codec => other(store, codec, &stored, dictionary),
    }
}

fn snappy(stored: &[u8]) -> Result<Vec<u8>, String> {
    let declared = snap::raw::decompress_len(stored).map_err(|error| error.to_string())?;
    if declared > stored.len().saturating_mul(SNAPPY_FACTOR) || declared as u64 > BLOCK_BYTES_MAX {
        return Err(format!("a block declares {declared} bytes from {}", stored.len()));
    }
    snap::raw::Decoder::new().decompress_vec(stored).map_err(|error| error.to_string())
}

fn unsupported(store: Store, codec: u8, read: &str) -> Failure {
    let name = store.compression_name(codec);
    Failure::Unsupported(format!("compression {name} ({codec}); read are {read}"))
}

#[cfg(not(feature = "codecs"))]
fn other(
    store: Store,
    codec: u8,
    _stored: &[u8],
    _dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let read = "none (0) and Snappy (1), and others with the feature `codecs`";
    Err(unsupported(store, codec, read))
}

#[cfg(feature = "codecs")]
fn other(
    store: Store,
    codec: u8,
    stored: &[u8],
    dictionary: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let decode = match (store, codec) {
        (Store::LevelDb, 2) => {
            return codecs::zstd(stored, BLOCK_BYTES_MAX as usize, None).map_err(Failure::Damage);
        }
        (Store::RocksDb, 2) => codecs::zlib,
        (Store::RocksDb, 4 | 5) => codecs::lz4,
        (Store::RocksDb, 7) => codecs::zstd,
        (Store::LevelDb, _) => {
            return Err(unsupported(store, codec, "none (0), Snappy (1) and zstd (2)"));
        }
        (Store::RocksDb, _) => {
            let read = "none (0), Snappy (1), zlib (2), LZ4 (4 and 5) and zstd (7)";
            return Err(unsupported(store, codec, read));
        }
    };
    let wrong = |what: &str| Failure::Damage(format!("{what} in a compressed block"));
    let mut decoder = Decoder::new(stored);
    let declared = decoder.varint().ok_or_else(|| wrong("no length"))?;
    if declared > BLOCK_BYTES_MAX {
        return Err(Failure::Damage(format!("a block declares {declared} bytes")));
    }
    let compressed = &stored[decoder.position()..];
    let contents = decode(compressed, declared as usize, dictionary).map_err(Failure::Damage)?;
    match contents.len() as u64 == declared {
        true => Ok(contents),
        false => Err(wrong("another length than it says")),
    }
}
