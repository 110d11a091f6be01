//! The internal key of LevelDB and RocksDB: the user key, and a trailer of eight bytes with the
//! sequence number (upper 56 bits) and the kind of the entry.

/// The largest sequence number.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 56) - 1;

/// The internal key of `user_key` with this trailer.
pub(crate) fn internal_key(user_key: &[u8], trailer: u64) -> Vec<u8> {
    [user_key, &trailer.to_le_bytes()].concat()
}

/// User key and trailer; `None` if the key is shorter than a trailer.
pub(crate) fn split(internal_key: &[u8]) -> Option<(&[u8], u64)> {
    let (user_key, trailer) = internal_key.split_last_chunk()?;
    Some((user_key, u64::from_le_bytes(*trailer)))
}

/// The user key. A key that is shorter than a trailer is returned whole.
pub(crate) fn user_key(internal_key: &[u8]) -> &[u8] {
    split(internal_key).map_or(internal_key, |(key, _)| key)
}
