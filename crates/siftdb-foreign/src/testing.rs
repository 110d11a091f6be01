//! Integers and byte strings as LevelDB writes them, for tests.

use siftdb::env::{DiskEnv, Env};
use std::path::Path;

/// The contents of a file on disk.
pub(crate) fn file_bytes(path: &Path) -> Vec<u8> {
    let file = DiskEnv::new().open_random(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

/// Appends a number of four bytes.
pub(crate) fn put_u32(dst: &mut Vec<u8>, value: u32) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// Appends a number of eight bytes.
pub(crate) fn put_u64(dst: &mut Vec<u8>, value: u64) {
    dst.extend_from_slice(&value.to_le_bytes());
}

/// Appends a varint.
pub(crate) fn put_varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

/// Appends the length as varint, then the bytes.
pub(crate) fn put_length_prefixed(dst: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(dst, bytes.len() as u64);
    dst.extend_from_slice(bytes);
}
