//! What is read of a table when it is opened: footer, metaindex, properties, range deletes.
//!
//! Each is checked against what was read before it. `reader` puts them together.

use crate::base::error::{Error, Result};
use crate::base::key::SequenceNumber;
use crate::base::range_deletes::RangeDeletes;
use crate::env::handle::FileHandle;
use crate::table::block::cursor::for_each_entry;
use crate::table::features::{check_features, version_of};
use crate::table::file::TableFile;
use crate::table::format::{
    BlockHandle, BlockKind, FOOTER_BYTES, Footer, PROPERTIES_NAME, RANGE_DELETES_NAME,
};
use crate::table::properties::Properties;

/// The footer of a table of this length.
///
/// # Errors
/// `Io`, `Corruption`, `UnsupportedFormat`; the same for all that follow.
pub(super) fn read_footer(handle: &FileHandle, bytes: u64) -> Result<Footer> {
    let path = &handle.path;
    let Some(offset) = bytes.checked_sub(FOOTER_BYTES as u64) else {
        let what = format!("a table of {bytes} bytes, less than its footer");
        return Err(Error::corruption(path, 0, what));
    };
    let mut buffer = [0; FOOTER_BYTES];
    handle.read_exact_at(offset, &mut buffer)?;
    Footer::decode(&buffer, path, offset)
}

/// The names in the metaindex at `handle`, with their blocks.
pub(super) fn read_metaindex(
    file: &TableFile,
    handle: BlockHandle,
) -> Result<Vec<(String, BlockHandle)>> {
    let block = file.read_meta(handle, BlockKind::Metaindex)?;
    let mut entries = Vec::new();
    for_each_entry(&block, |name, value| {
        let name = String::from_utf8_lossy(name).into_owned();
        let Some(target) = BlockHandle::decode(value) else {
            let what = format!("metaindex with a malformed handle of \"{name}\"");
            return Err(file.corruption(handle.offset, what));
        };
        entries.push((name, target));
        Ok(())
    })?;
    Ok(entries)
}

/// The properties, which must be those of a table of this version.
pub(super) fn read_properties(
    file: &TableFile,
    metaindex: &[(String, BlockHandle)],
    version: u32,
) -> Result<Properties> {
    let Some(&(_, handle)) = metaindex.iter().find(|(name, _)| name == PROPERTIES_NAME) else {
        return Err(file.corruption(file.blocks_end(), "a table without properties"));
    };
    let block = file.read_meta(handle, BlockKind::Properties)?;
    check_features(&block, file.path())?;
    let properties =
        Properties::decode(&block).map_err(|what| file.corruption(handle.offset, what))?;
    let expected = version_of(&properties.required_features);
    if version != expected {
        let what = format!("version {version} in the footer, properties of version {expected}");
        return Err(file.corruption(file.blocks_end(), what));
    }
    Ok(properties)
}

/// The range deletes, which must be those that the properties count.
pub(super) fn read_range_deletes(
    file: &TableFile,
    metaindex: &[(String, BlockHandle)],
    properties: &Properties,
) -> Result<Option<RangeDeletes>> {
    let expected = properties.range_deletes;
    let Some(&(_, handle)) = metaindex.iter().find(|(name, _)| name == RANGE_DELETES_NAME) else {
        let what = || format!("a table without its {expected} range deletes");
        return if expected == 0 { Ok(None) } else { Err(file.corruption(0, what())) };
    };
    let deletes = file.read_range_deletes(handle)?;
    let (found, sequences) = (deletes.count(), deletes.sequences());
    if found != expected || found == 0 {
        let what = format!("{found} range deletes, the properties say {expected}");
        return Err(file.corruption(handle.offset, what));
    }
    let recorded = properties.smallest_sequence..=properties.largest_sequence;
    if sequences.is_some_and(|(a, b)| !recorded.contains(&a) || !recorded.contains(&b)) {
        let what = format!("range deletes outside of the table's sequences {recorded:?}");
        return Err(file.corruption(handle.offset, what));
    }
    Ok(Some(deletes))
}

/// The sequence that the manifest gives an ingested table; `given` is what it says. The table's
/// properties get it, too. Without a manifest, the table is read with the sequences that are in it.
pub(super) fn given_sequence(
    file: &TableFile,
    properties: &mut Properties,
    given: Option<Option<SequenceNumber>>,
) -> Result<Option<SequenceNumber>> {
    let what = match (properties.ingested, given) {
        (_, None) | (false, Some(None)) => return Ok(None),
        (true, Some(Some(sequence))) => {
            properties.set_sequence(sequence);
            return Ok(Some(sequence));
        }
        (true, Some(None)) => "an ingested table whose sequence the manifest does not say",
        (false, Some(Some(_))) => "no ingested table, but the manifest gives it a sequence",
    };
    Err(file.corruption(0, what))
}
