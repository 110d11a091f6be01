//! What a table may need of its reader, by name.
//!
//! A table that needs nothing of the kind has version 1 and can be read by every siftdb. Any other
//! has version 2 and a property `required_features`: names with commas between them. A reader
//! refuses a table with a name that it does not know or was built without. It refuses before it
//! reads anything else of the properties, so a later version may change what those mean.

use crate::base::error::{Error, Result};
use crate::table::block::block::Block;
use crate::table::block::cursor::for_each_entry;
use crate::table::format::{Codec, TABLE_VERSION, TABLE_VERSION_WITH_FEATURES};
use std::path::Path;

/// The feature of a data index in partitions. Every build has it.
pub(crate) const PARTITIONED_INDEX: &str = "partitioned_index";

/// The feature of zeros between blocks, before one that begins at a page. Every build has it.
pub(crate) const PADDED_BLOCKS: &str = "padded_blocks";

/// The name of the property.
pub(crate) const REQUIRED_FEATURES: &str = "required_features";

impl Codec {
    /// The feature of siftdb without which it is not read or written; its name in tables, too.
    #[must_use]
    pub(crate) fn feature(self) -> Option<&'static str> {
        match self {
            Codec::None | Codec::Snappy => None,
            Codec::Lz4 | Codec::Zstd => Some(self.name()),
        }
    }

    /// True if this build reads and writes it.
    #[must_use]
    pub(crate) fn is_available(self) -> bool {
        match self {
            Codec::None | Codec::Snappy => true,
            Codec::Lz4 => cfg!(feature = "lz4"),
            Codec::Zstd => cfg!(feature = "zstd"),
        }
    }
}

/// The version of a table with this property.
pub(crate) fn version_of(required_features: &str) -> u32 {
    if required_features.is_empty() { TABLE_VERSION } else { TABLE_VERSION_WITH_FEATURES }
}

/// Refuses the table at `path` if its block of properties names a feature that is not there.
///
/// # Errors
/// `UnsupportedFormat`, with the name.
pub(crate) fn check_features(properties: &Block, path: &Path) -> Result<()> {
    for_each_entry(properties, |name, value| {
        let names = if name == REQUIRED_FEATURES.as_bytes() { value } else { &[] };
        names.split(|byte| *byte == b',').filter(|name| !name.is_empty()).try_for_each(|name| {
            match is_available(name) {
                Some(true) => Ok(()),
                is_known => Err(lacking(&String::from_utf8_lossy(name), is_known.is_some(), path)),
            }
        })
    })
}

/// Whether this build has a feature; `None` if it does not know the name.
fn is_available(name: &[u8]) -> Option<bool> {
    if [PARTITIONED_INDEX, PADDED_BLOCKS].iter().any(|known| name == known.as_bytes()) {
        return Some(true);
    }
    Codec::from_name(name).map(Codec::is_available)
}

/// The error for a block that this build cannot decompress.
#[cold]
pub(crate) fn lacking_codec(codec: Codec, path: &Path) -> Error {
    lacking(codec.name(), true, path)
}

fn lacking(feature: &str, is_known: bool, path: &Path) -> Error {
    let what = format!("it needs the feature \"{feature}\" of siftdb");
    match is_known {
        true => {
            let what = format!("{what}, which this program was built without");
            Error::UnsupportedFormat { path: path.to_path_buf(), what }
        }
        false => Error::of_newer_format(path, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::block::block::BlockKeys;
    use crate::table::block::builder::BlockBuilder;

    fn checked(features: &str) -> Result<()> {
        let mut builder = BlockBuilder::new(1);
        builder.add(b"entries", b"3");
        builder.add(REQUIRED_FEATURES.as_bytes(), features.as_bytes());
        builder.add(b"smallest_key", b"lz9");
        let block = Block::new(builder.finish(), BlockKeys::Bytes).unwrap();
        check_features(&block, Path::new("/7.sst"))
    }

    #[test]
    fn unknown_features_are_refused_by_name() {
        checked("").unwrap();
        for features in ["lz9", ",lz9", "snappy,lz9"] {
            let error = checked(features).unwrap_err();
            assert!(matches!(error, Error::UnsupportedFormat { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("/7.sst") && text.contains("\"lz9\""), "{text}");
        }
    }

    #[test]
    fn features_are_those_of_the_build() {
        for codec in [Codec::Lz4, Codec::Zstd] {
            let checked = checked(codec.feature().unwrap());
            assert_eq!(checked.is_ok(), codec.is_available());
            if let Err(error) = checked {
                assert!(error.to_string().contains("built without"), "{error}");
            }
        }
    }
}
