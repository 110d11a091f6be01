//! `CURRENT`: the file that names the current manifest.
//!
//! It is one line of text: `siftdb 1 MANIFEST-000007 ` and eight hex digits, the masked CRC-32 of
//! the text before them. A rename replaces it, so there is always the old line or the new one.
//!
//! While a copy of a database is written to a new directory, its `CURRENT` is
//! `siftdb 2 UNFINISHED ` and the checksum. The line of the finished copy replaces it. A siftdb
//! that knows only version 1 answers `UnsupportedFormat`.

use crate::base::checksum::masked;
use crate::base::error::{Error, Result};
use crate::base::filename::{self, FileName};
use crate::env::api::{Env, if_there, put_in_place, read_file, write_temporary};
use crate::log::record::format::Undecodable;
use std::path::Path;

const CURRENT_BYTES_MAX: u64 = 256;
const CURRENT_VERSION: &str = "1";

/// The line of a copy that is not finished, before its checksum.
const UNFINISHED: &str = "siftdb 2 UNFINISHED ";

/// What a `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Current {
    /// The manifest of this number is current.
    Manifest(u64),
    /// The directory holds a part of a copy.
    Unfinished,
}

/// The number of the current manifest; `None` if there is no `CURRENT`.
///
/// # Errors
/// `Unfinished`; `Corruption`; `UnsupportedFormat`; `Io`.
pub(crate) fn read_current(env: &dyn Env, directory: &Path) -> Result<Option<u64>> {
    let path = FileName::Current.path(directory);
    let there = if_there(env.metadata(&path));
    if there.map_err(|error| Error::io("metadata", &path, error))?.is_none() {
        return Ok(None);
    }
    let contents = read_file(env, &path, CURRENT_BYTES_MAX)?;
    match decode_current(&contents).map_err(|bad| bad.into_error(&path, 0))? {
        Current::Manifest(number) => Ok(Some(number)),
        Current::Unfinished => Err(Error::Unfinished { directory: directory.to_path_buf() }),
    }
}

/// Marks a directory without `CURRENT` as that of an unfinished copy, by way of the temporary file
/// `temporary_number`. Durable when this returns.
pub(crate) fn mark_unfinished(
    env: &dyn Env,
    directory: &Path,
    temporary_number: u64,
) -> Result<()> {
    let temporary = FileName::Temporary(temporary_number);
    write_temporary(env, directory, temporary, &with_checksum(UNFINISHED))?;
    switch_current(env, directory, temporary_number)
}

/// Makes the manifest `number` current, by way of the temporary file `temporary_number`. The
/// manifest's own name must be durable: `ManifestWriter::create` sees to that.
pub(crate) fn set_current(
    env: &dyn Env,
    directory: &Path,
    number: u64,
    temporary_number: u64,
) -> Result<()> {
    stage_current(env, directory, number, temporary_number)?;
    switch_current(env, directory, temporary_number)
}

/// The first half of [`set_current`]: nothing is current yet.
pub(crate) fn stage_current(
    env: &dyn Env,
    directory: &Path,
    number: u64,
    temporary_number: u64,
) -> Result<()> {
    let temporary = FileName::Temporary(temporary_number);
    write_temporary(env, directory, temporary, &encode_current(number))
}

/// The second half of [`set_current`]. If it fails, either manifest may be current.
pub(crate) fn switch_current(env: &dyn Env, directory: &Path, temporary_number: u64) -> Result<()> {
    put_in_place(env, directory, FileName::Temporary(temporary_number), FileName::Current)
}

fn encode_current(number: u64) -> Vec<u8> {
    with_checksum(&format!("siftdb {CURRENT_VERSION} {} ", FileName::Manifest(number)))
}

fn with_checksum(front: &str) -> Vec<u8> {
    let sum = masked(front.as_bytes());
    format!("{front}{sum:08x}\n").into_bytes()
}

/// What the contents of a `CURRENT` say.
pub(crate) fn decode_current(contents: &[u8]) -> std::result::Result<Current, Undecodable> {
    let damaged = |what: &str| Undecodable::Damaged(what.into());
    if contents == with_checksum(UNFINISHED) {
        return Ok(Current::Unfinished);
    }
    let text = std::str::from_utf8(contents).map_err(|_| damaged("CURRENT is not text"))?;
    let fields = text.split([' ', '\n']).collect::<Vec<_>>();
    let ["siftdb", version, name, sum, ""] = fields[..] else {
        return Err(damaged("CURRENT is not of the form `siftdb 1 MANIFEST-000001 checksum`"));
    };
    let front = format!("siftdb {version} {name} ");
    if format!("{:08x}", masked(front.as_bytes())) != sum {
        return Err(damaged("CURRENT fails its checksum"));
    }
    if version != CURRENT_VERSION {
        return Err(Undecodable::Unknown(format!("CURRENT of version {version:?}")));
    }
    match filename::parse(name) {
        Some(FileName::Manifest(number)) if encode_current(number) == contents => {
            Ok(Current::Manifest(number))
        }
        _ => Err(damaged("CURRENT does not name a manifest")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;

    const NUMBER: u64 = 7;

    #[test]
    fn every_change_of_current_is_refused() {
        let good = encode_current(NUMBER);
        assert_eq!(String::from_utf8_lossy(&good), "siftdb 1 MANIFEST-000007 0a163b71\n");
        assert_eq!(decode_current(&good), Ok(Current::Manifest(NUMBER)));
        let unfinished = with_checksum(UNFINISHED);
        assert_eq!(String::from_utf8_lossy(&unfinished), "siftdb 2 UNFINISHED 352b7988\n");
        assert_eq!(decode_current(&unfinished), Ok(Current::Unfinished));
        for line in [&good, &unfinished] {
            for cut in 0..line.len() {
                assert!(decode_current(&line[..cut]).is_err(), "cut at {cut}");
            }
            for at in 0..line.len() {
                for bit in 0..8 {
                    let mut flipped = line.clone();
                    flipped[at] ^= 1 << bit;
                    assert!(decode_current(&flipped).is_err(), "byte {at}, bit {bit}");
                }
            }
        }
        assert!(decode_current(&[&good[..], b"\n"].concat()).is_err());
        assert!(decode_current(&[0; 16]).is_err());
        let newer = "siftdb 2 MANIFEST-000007 ";
        let newer = format!("{newer}{:08x}\n", masked(newer.as_bytes()));
        assert!(matches!(decode_current(newer.as_bytes()), Err(Undecodable::Unknown(_))));
        // 0.1.0 splits the line of an unfinished copy like this one, and answers the same.
        let fields = std::str::from_utf8(&unfinished).unwrap().split([' ', '\n']);
        assert_eq!(fields.clone().count(), newer.split([' ', '\n']).count());
        assert_eq!(fields.take(2).collect::<Vec<_>>(), ["siftdb", "2"]);
        let env = MemEnv::with_log();
        env.write_file(Path::new("/CURRENT"), &[b' '; 1000]);
        assert!(read_current(&env, Path::new("/")).unwrap_err().is_corruption());
    }
}
