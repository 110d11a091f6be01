//! Tells files of siftdb from those of LevelDB and RocksDB, before any of them is touched.
//!
//! Both programs use file names that siftdb uses too (`CURRENT`, `LOCK`, `MANIFEST-000002`,
//! `000007.sst`), so names alone never decide what is changed:
//!
//! - [`refuse_foreign`] refuses a directory with a database of theirs. Opening, repairing,
//!   inspecting and removing a database begin with it, and so does a checkpoint into a directory.
//! - [`is_foreign_table`] finds a table of theirs in a directory of ours. It is left where it is.
//! - [`is_ours`] finds a file that siftdb wrote. Only such files are removed with a database.
//!
//! Signs of a foreign database are a file `*.ldb`, `IDENTITY` or `OPTIONS-*`, a `CURRENT` that
//! holds only the name of a manifest, a manifest that does not begin with siftdb's magic number,
//! and a table with the magic number of another program. RocksDB may keep tables alone in a
//! directory (its option `db_paths`). Signs count only if no file has a magic number of siftdb, so
//! a siftdb database with a stray file opens.
//!
//! For a refusal at most [`FILES_READ_MAX`] files of a kind are read, [`MAGIC_BYTES`] at each end.
//! LOCK is never opened: closing it would release a lock that this process holds on it.

use crate::base::error::{Error, Result};
use crate::base::filename::{FileName, parse};
use crate::env::api::{DirectoryEntry, Env, FileKind, if_there};
use std::io::ErrorKind;
use std::path::Path;

/// The first bytes of every magic number of siftdb, and of the line in `CURRENT`.
const OURS: &[u8] = b"siftdb";

/// Bytes of a magic number.
const MAGIC_BYTES: usize = 8;

/// The last eight bytes of a table of another program.
const FOREIGN_TABLE_MAGICS: [u64; 5] = [
    // LevelDB, and RocksDB before its format version 1.
    0xdb47_7524_8b80_fb57,
    // RocksDB: a block-based table, the two kinds of plain tables, a cuckoo table.
    0x88e2_41b7_85f4_cff7,
    0x8242_2296_63bf_9564,
    0x4f34_18eb_7a8f_13b8,
    0x9267_89d0_c5f1_7873,
];

/// The longest `CURRENT` of LevelDB or RocksDB.
const FOREIGN_CURRENT_BYTES_MAX: u64 = 64;

/// How many files are read. Nearly every file of siftdb has its magic number, so reading more of
/// them would not change the answer.
const FILES_READ_MAX: usize = 100;

/// Refuses a directory that holds a LevelDB or RocksDB database. Changes nothing.
///
/// # Errors
/// `UnsupportedFormat` for such a directory; `Io` if it cannot be listed or a file in it cannot be
/// opened.
pub(crate) fn refuse_foreign(env: &dyn Env, directory: &Path) -> Result<()> {
    let current = FileName::Current.path(directory);
    // The usual case, a siftdb database, costs one small read.
    if has_our_magic(env, &current)? {
        return Ok(());
    }
    let entries = if_there(env.list(directory));
    let entries = entries.map_err(|error| Error::io("list", directory, error))?;
    let Some(entries) = entries else { return Ok(()) };
    let Some(sign) = foreign_sign(env, directory, &entries)? else { return Ok(()) };
    if any_file_is_ours(env, directory, &entries)? {
        return Ok(());
    }
    let what = format!("a LevelDB or RocksDB database ({sign}); siftdb does not open or change it");
    Err(Error::UnsupportedFormat { path: directory.to_path_buf(), what })
}

/// True if the file at `path` ends with the magic number of a table of LevelDB or RocksDB.
///
/// # Errors
/// `Io` if it cannot be opened.
pub(crate) fn is_foreign_table(env: &dyn Env, path: &Path) -> Result<bool> {
    let back = ends(env, path, MAGIC_BYTES)?.map(|ends| ends.back);
    let magic = back.and_then(|back| back.try_into().ok()).map(u64::from_le_bytes);
    Ok(magic.is_some_and(|magic| FOREIGN_TABLE_MAGICS.contains(&magic)))
}

/// True if siftdb wrote the file `name`: it has a magic number of siftdb, or a crash cut its first
/// bytes off or left zeros there. False for everything but ordinary files.
///
/// # Errors
/// `Io` if the file cannot be opened or read.
pub(crate) fn is_ours(env: &dyn Env, directory: &Path, name: FileName) -> Result<bool> {
    let path = name.path(directory);
    let found = if_there(env.metadata(&path));
    let found = found.map_err(|error| Error::io("metadata", &path, error))?;
    let Some(found) = found else { return Ok(false) };
    // LOCK has no contents, and must not be opened.
    if found.kind != FileKind::File || name == FileName::Lock || found.bytes == 0 {
        return Ok(found.kind == FileKind::File && found.bytes == 0);
    }
    let Some(Ends { front, back, .. }) = ends(env, &path, MAGIC_BYTES)? else {
        return Err(Error::io("read", &path, ErrorKind::InvalidData.into()));
    };
    Ok(begins_as_ours(&front) || back.starts_with(OURS))
}

/// True for the first bytes of a file of siftdb, which may be damaged. A crash can cut them off or
/// leave zeros. Four of [`OURS`] are no accident.
fn begins_as_ours(front: &[u8]) -> bool {
    let equal = front.iter().zip(OURS).filter(|(found, ours)| found == ours).count();
    equal >= front.len().min(4) || front.iter().all(|byte| *byte == 0)
}

/// Replaces `error`, which says that the file at `path` is damaged, if the file belongs to a
/// LevelDB or RocksDB database.
#[cfg(feature = "inspect")]
pub(crate) fn foreign_or(env: &dyn Env, path: &Path, error: Error) -> Error {
    let is_strange = error.is_corruption() || matches!(error, Error::InvalidArgument { .. });
    let directory = path.parent().filter(|_| is_strange);
    let refused = directory.map_or(Ok(()), |directory| refuse_foreign(env, directory));
    refused.err().filter(Error::is_corruption).unwrap_or(error)
}

/// The first sign of a foreign database.
fn foreign_sign(
    env: &dyn Env,
    directory: &Path,
    entries: &[DirectoryEntry],
) -> Result<Option<String>> {
    if let Some(contents) = foreign_current(env, &FileName::Current.path(directory))? {
        return Ok(Some(format!("its CURRENT says {contents:?}")));
    }
    let mut tables_read = 0;
    for entry in entries.iter().filter(|entry| entry.kind == FileKind::File) {
        let name = &entry.name;
        let by_name = name == "IDENTITY"
            || name.strip_prefix("OPTIONS-").is_some_and(is_number)
            || name.strip_suffix(".ldb").is_some_and(is_number);
        if by_name {
            return Ok(Some(format!("it has a file {name}")));
        }
        let is_manifest = name.strip_prefix("MANIFEST-").is_some_and(is_number);
        if is_manifest && front_is_foreign(env, &directory.join(name))? {
            return Ok(Some(format!("its {name} is none of siftdb")));
        }
        let is_table = name.strip_suffix(".sst").is_some_and(is_number);
        if is_table && tables_read < FILES_READ_MAX {
            tables_read += 1;
            if is_foreign_table(env, &directory.join(name))? {
                return Ok(Some(format!("it has a table {name} of theirs")));
            }
        }
    }
    Ok(None)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The contents of a CURRENT of the form `MANIFEST-000002`.
fn foreign_current(env: &dyn Env, path: &Path) -> Result<Option<String>> {
    let Some(Ends { bytes, front, .. }) = ends(env, path, FOREIGN_CURRENT_BYTES_MAX as usize)?
    else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&front);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let names_manifest = line.strip_prefix("MANIFEST-").is_some_and(is_number);
    let is_short = bytes <= FOREIGN_CURRENT_BYTES_MAX;
    Ok((is_short && names_manifest).then(|| line.to_string()))
}

/// True for a manifest that another program wrote. One of siftdb may be damaged. A crash can leave
/// a manifest of siftdb with a first sector that is cut off or zeros, so such a file is no sign.
fn front_is_foreign(env: &dyn Env, path: &Path) -> Result<bool> {
    let Some(Ends { bytes, front, .. }) = ends(env, path, MAGIC_BYTES)? else { return Ok(false) };
    // A manifest of another program begins with a checksum.
    Ok(bytes >= MAGIC_BYTES as u64 && !begins_as_ours(&front))
}

fn any_file_is_ours(env: &dyn Env, directory: &Path, entries: &[DirectoryEntry]) -> Result<bool> {
    let files = entries.iter().filter(|entry| entry.kind == FileKind::File);
    let mut names: Vec<FileName> = files
        .filter_map(|entry| parse(&entry.name))
        .filter(|name| name.number().is_some())
        .collect();
    // Manifests first, then logs: the order of `FileName`.
    names.sort_unstable();
    for name in names.iter().take(FILES_READ_MAX) {
        if has_our_magic(env, &name.path(directory))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if the file begins or ends with a magic number of siftdb.
fn has_our_magic(env: &dyn Env, path: &Path) -> Result<bool> {
    let found = ends(env, path, MAGIC_BYTES)?;
    Ok(found.is_some_and(|ends| ends.front.starts_with(OURS) || ends.back.starts_with(OURS)))
}

/// The first and the last bytes of a file.
struct Ends {
    /// The length of the file.
    bytes: u64,
    front: Vec<u8>,
    back: Vec<u8>,
}

/// The first and last `limit` bytes of a file, or fewer if it is shorter. `None` if the file is
/// missing, is no ordinary file, or cannot be read.
fn ends(env: &dyn Env, path: &Path, limit: usize) -> Result<Option<Ends>> {
    let file = match env.open_random(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
            return Ok(None);
        }
        // The path leads through a file instead of a directory.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        opened => opened.map_err(|error| Error::io("open", path, error))?,
    };
    let bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
    let mut front = vec![0; limit.min(usize::try_from(bytes).unwrap_or(limit))];
    let mut back = front.clone();
    let behind = bytes.saturating_sub(back.len() as u64);
    let read = file.read_exact_at(0, &mut front).and(file.read_exact_at(behind, &mut back));
    // A bad sector is damage, but other files may decide. The engine reports it when it reads the
    // file.
    Ok(read.is_ok().then_some(Ends { bytes, front, back }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;

    fn judged(files: &[(&str, &[u8])]) -> bool {
        let env = MemEnv::new();
        let home = Path::new("/db");
        env.create_dir(home).unwrap();
        for (name, bytes) in files {
            env.write_file(&home.join(name), bytes);
        }
        match refuse_foreign(&env, home) {
            Ok(()) => false,
            Err(Error::UnsupportedFormat { path, what }) => {
                assert!(path == home && what.contains("a LevelDB or RocksDB database"), "{what}");
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_sign_of_another_program_counts() {
        let signs: [(&str, &[u8]); 9] = [
            ("CURRENT", b"MANIFEST-000002\n"),
            ("CURRENT", b"MANIFEST-2"),
            ("000005.ldb", b""),
            ("IDENTITY", b"5a1f"),
            ("OPTIONS-000007", b"[Version]"),
            ("MANIFEST-000002", b"V\xf9\xb8\xf8\x1c\0\x01\x01\x1aleveldb"),
            ("MANIFEST-2", b"V\xf9\xb8\xf8\x1c\0\x01\x01\x1aleveldb"),
            ("000005.sst", b"data and footer \x57\xfb\x80\x8b\x24\x75\x47\xdb"),
            ("000005.sst", b"data and footer \xf7\xcf\xf4\x85\xb7\x41\xe2\x88"),
        ];
        for sign in signs {
            assert!(judged(&[sign]), "{sign:?}");
            assert!(judged(&[("LOCK", b""), ("000004.log", b""), sign]), "{sign:?}");
            // Any file of siftdb outweighs the sign.
            for ours in [
                ("CURRENT", &b"siftdb 1 MANIFEST-000007 0a163b71\n"[..]),
                ("MANIFEST-000009", b"siftdbMF\x01\0\0\0"),
                ("000009.wal", b"siftdbWL\x01\0\0\0"),
                ("000009.sst", b"data and footer siftdbST"),
            ] {
                assert!(!judged(&[sign, ours]), "{sign:?} {ours:?}");
            }
        }
    }

    #[test]
    fn content_says_which_files_are_ours() {
        let env = MemEnv::new();
        let home = Path::new("/");
        let ours = |name: FileName, bytes: &[u8]| {
            env.write_file(&name.path(home), bytes);
            is_ours(&env, home, name).unwrap()
        };
        let table = FileName::Table(7);
        for torn in [&b""[..], b"s", b"siftdb", b"siftdbST", &[0; 3], &[0; 600], b"sifTdbWL"] {
            assert!(ours(table, torn), "{torn:?}");
        }
        assert!(ours(table, b"a damaged header and siftdbST"));
        assert!(ours(FileName::Current, b"siftdb 1 MANIFEST-000007 0a163b71\n"));
        assert!(ours(FileName::Stats, b"siftstat"));
        assert!(ours(FileName::Lock, b""));
        for other in [&b"x"[..], b"six", b"text of a user", b"\0\x01\x02\x03"] {
            assert!(!ours(table, other), "{other:?}");
        }
        assert!(!ours(FileName::Current, b"MANIFEST-000002\n"));
        assert!(!ours(FileName::Lock, b"siftdb"));
        assert!(!is_ours(&env, home, FileName::Table(8)).unwrap());
    }

    #[test]
    fn our_own_files_are_not_foreign() {
        let harmless: [(&str, &[u8]); 10] = [
            ("CURRENT", b""),
            ("CURRENT", b"no line of siftdb"),
            ("CURRENT", b"MANIFEST-"),
            ("CURRENT", b"MANIFEST-000002 and more"),
            // An interrupted creation.
            ("MANIFEST-000001", b""),
            ("MANIFEST-000001", b"siftd"),
            ("MANIFEST-000001", &[0; 600]),
            ("name.ldb", b"a file of someone else"),
            ("OPTIONS-old", b""),
            ("000005.sst", b"no table"),
        ];
        for file in harmless {
            assert!(!judged(&[file]), "{file:?}");
        }
        assert!(!judged(&[]));
        let env = MemEnv::new();
        refuse_foreign(&env, Path::new("/missing")).unwrap();
    }
}
