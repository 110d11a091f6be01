//! The files of a directory as one byte string.
//!
//! ```text
//! bundle := file*
//! file   := name length: u8 | name | length: u32 | contents
//! ```
//!
//! Any bytes are a bundle: reading stops where they end or make no sense.

use std::collections::BTreeMap;

/// Names and contents.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The bundle of these files. Zeros at the end of a log, which is allocated ahead, are left out.
pub fn pack(files: &Files) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, contents) in files {
        let used = match name.ends_with(".wal") {
            true => contents.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
            false => contents.len(),
        };
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(used as u32).to_le_bytes());
        bytes.extend_from_slice(&contents[..used]);
    }
    bytes
}

/// The files of a bundle. A length beyond the end means "all that is left".
pub fn unpack(bytes: &[u8]) -> Files {
    let mut files = Files::new();
    let mut rest = bytes;
    while let Some((&len, behind)) = rest.split_first() {
        let Some((name, behind)) = behind.split_at_checked(len.into()) else { break };
        let Some((len, behind)) = behind.split_first_chunk::<4>() else { break };
        let len = (u32::from_le_bytes(*len) as usize).min(behind.len());
        let name = String::from_utf8_lossy(name).into_owned();
        let is_name = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0']);
        if is_name {
            files.insert(name, behind[..len].to_vec());
        }
        rest = &behind[len..];
    }
    files
}
