//! The fields of a manifest's edit: tags and bytes of a given length.
//!
//! ```text
//! field := tag: u8  length: varint  bytes
//! ```
//!
//! Tags with the bit 0x80 may be skipped by a reader that does not know them; any other unknown
//! tag is `UnsupportedFormat`. `edit` and `file_meta` know the tags.

use crate::base::coding::{Decoder, put_length_prefixed, put_varint};
use crate::base::key::KeyspaceId;
use crate::base::levels::LEVELS;
use crate::log::record::format::Undecodable;

/// A reader skips an unknown tag that has this bit.
pub(crate) const IGNORABLE: u8 = 0x80;

/// A keyspace's number; `None` is damage.
pub(crate) fn keyspace_id(number: Option<u64>) -> Result<KeyspaceId, Undecodable> {
    let id = number.and_then(|number| KeyspaceId::try_from(number).ok());
    id.ok_or_else(|| damaged("a malformed keyspace number"))
}

/// Bytes that siftdb does not write.
pub(crate) fn damaged(what: &str) -> Undecodable {
    Undecodable::Damaged(what.into())
}

/// Appends a field.
pub(crate) fn put_field(dst: &mut Vec<u8>, tag: u8, value: &[u8]) {
    dst.push(tag);
    put_length_prefixed(dst, value);
}

/// Appends a field of varints. `scratch` is overwritten.
pub(crate) fn put_varint_field(dst: &mut Vec<u8>, tag: u8, values: &[u64], scratch: &mut Vec<u8>) {
    scratch.clear();
    for &value in values {
        put_varint(scratch, value);
    }
    put_field(dst, tag, scratch);
}

/// The next tag with its bytes, `None` at the end. `of` names the whole in the error.
pub(crate) fn next_field<'a>(
    fields: &mut Decoder<'a>,
    of: &str,
) -> Result<Option<(u8, &'a [u8])>, Undecodable> {
    let Some(tag) = fields.u8() else {
        return Ok(None);
    };
    match fields.length_prefixed() {
        Some(value) => Ok(Some((tag, value))),
        None => Err(damaged(&format!("field {tag} of {of} is cut off"))),
    }
}

/// Sets a field that may be there once.
pub(crate) fn set<T>(field: &mut Option<T>, value: T, name: &str) -> Result<(), Undecodable> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(damaged(&format!("the {name} is given twice"))),
    }
}

/// Sets a field of one varint that may be there once.
pub(crate) fn set_number(
    field: &mut Option<u64>,
    value: &[u8],
    name: &str,
) -> Result<(), Undecodable> {
    let [number] = varints(value, name)?;
    set(field, number, name)
}

/// Exactly `N` varints.
pub(crate) fn varints<const N: usize>(bytes: &[u8], name: &str) -> Result<[u64; N], Undecodable> {
    let mut decoder = Decoder::new(bytes);
    let mut values = [0; N];
    for value in &mut values {
        *value = decoder.varint().ok_or_else(|| damaged(&format!("a malformed {name}")))?;
    }
    if decoder.is_empty() { Ok(values) } else { Err(damaged(&format!("a malformed {name}"))) }
}

/// A level that a tree has.
pub(crate) fn check_level(level: u64) -> Result<usize, Undecodable> {
    let known = usize::try_from(level).ok().filter(|&level| level < LEVELS);
    known.ok_or_else(|| damaged(&format!("level {level}; there are {LEVELS}")))
}
