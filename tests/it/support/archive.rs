//! Directories as one file each: how `tests/fixtures/` stores databases.
//!
//! ```text
//! archive := file*
//! file    := name, length, stored bytes, as text in one line | stored bytes
//! ```
//!
//! A file has its stored bytes, then zeros up to its length: the end of a preallocated log.

use std::collections::BTreeMap;

/// The files of a directory by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// All files in one.
pub fn pack(files: &Files) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, bytes) in files {
        let stored = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        archive.extend_from_slice(format!("{name} {} {stored}\n", bytes.len()).as_bytes());
        archive.extend_from_slice(&bytes[..stored]);
    }
    archive
}

/// The files of an archive.
pub fn unpack(mut archive: &[u8]) -> Files {
    let mut files = Files::new();
    while let Some(end) = archive.iter().position(|&byte| byte == b'\n') {
        let line = std::str::from_utf8(&archive[..end]).unwrap();
        let [name, length, stored] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not a line of an archive: {line}")
        };
        let [length, stored] = [length, stored].map(|number| number.parse::<usize>().unwrap());
        let (bytes, rest) = archive[end + 1..].split_at(stored);
        let mut bytes = bytes.to_vec();
        bytes.resize(length, 0);
        files.insert(name.into(), bytes);
        archive = rest;
    }
    assert!(archive.is_empty());
    files
}
