//! RocksDB's file `OPTIONS`: the settings that a database was last opened with, as text.
//!
//! ```text
//! file    := section*
//! section := '[' kind ('"' column family '"')? ']'  (name '=' value)*
//! ```
//!
//! `#` begins a comment. A backslash stands before a character that would have another meaning.

use crate::file;
use siftdb::Result;
use siftdb::env::Env;
use std::collections::BTreeMap;
use std::path::Path;

/// The longest file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// Settings by name.
pub(crate) type Settings = BTreeMap<String, String>;

/// The settings of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionsFile {
    pub database: Settings,
    /// By name of the column family.
    pub families: BTreeMap<String, FamilySettings>,
}

/// The settings of a column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilySettings {
    pub family: Settings,
    /// Those of its tables.
    pub tables: Settings,
}

/// Reads a file of options.
///
/// # Errors
/// `Io`; `Corruption` if it is too long, or no text.
pub(crate) fn read_options(env: &dyn Env, path: &Path) -> Result<OptionsFile> {
    let (file, bytes) = file::open(env, path)?;
    let contents = file::read_whole(&*file, path, bytes, BYTES_MAX)?;
    // Names of column families may have any bytes.
    Ok(parse(&String::from_utf8_lossy(&contents)))
}

fn parse(text: &str) -> OptionsFile {
    let mut options = OptionsFile::default();
    let mut section = "";
    for line in text.lines().map(without_comment) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        if let Some(settings) = options.section(section) {
            settings.insert(name.trim().into(), unescaped(value.trim()));
        }
    }
    options
}

impl OptionsFile {
    /// The settings of a section; `None` if they are not kept.
    fn section(&mut self, section: &str) -> Option<&mut Settings> {
        if section == "DBOptions" {
            return Some(&mut self.database);
        }
        let (kind, name) = section.split_once('"')?;
        let name = unescaped(name.strip_suffix('"')?);
        let family = self.families.entry(name).or_default();
        match kind.trim() {
            "CFOptions" => Some(&mut family.family),
            kind if kind.starts_with("TableOptions/") => Some(&mut family.tables),
            _ => None,
        }
    }
}

/// The line up to a `#` that is not after a backslash.
fn without_comment(line: &str) -> &str {
    let mut is_escaped = false;
    let end = line.char_indices().find(|(_, character)| {
        let begins = *character == '#' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        begins
    });
    line[..end.map_or(line.len(), |(at, _)| at)].trim()
}

fn unescaped(value: &str) -> String {
    let mut characters = value.chars();
    let mut unescaped = String::with_capacity(value.len());
    while let Some(character) = characters.next() {
        unescaped.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(escaped) => escaped,
                None => '\\',
            },
            character => character,
        });
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::env::MemEnv;

    #[test]
    fn long_options_are_refused() {
        let (env, path) = (MemEnv::new(), Path::new("/old/OPTIONS-000007"));
        env.write_file(path, &vec![b'#'; BYTES_MAX as usize]);
        assert_eq!(read_options(&env, path).unwrap(), OptionsFile::default());
        env.write_file(path, &vec![b'#'; BYTES_MAX as usize + 1]);
        let said = read_options(&env, path).unwrap_err().to_string();
        assert!(said.contains("OPTIONS-000007") && said.contains("at most 16777216"), "{said}");
    }

    #[test]
    fn options_are_parsed_by_section() {
        let text = "# a comment\n[Version]\n  rocksdb_version=9.1.0\n\n[DBOptions]\n  \
                    wal_dir=/a\\#b # where\n  x=\n[CFOptions \"a b\"]\n  compression=kZSTD\n\
                    [TableOptions/BlockBasedTable \"a b\"]\n  filter_policy=bloomfilter:10:false\n\
                    not a line\n[Other \"a b\"]\n  compression=none\n";
        let options = parse(text);
        assert_eq!(options.database["wal_dir"], "/a#b");
        assert_eq!(options.database["x"], "");
        let family = &options.families["a b"];
        assert_eq!(family.family["compression"], "kZSTD");
        assert_eq!(family.tables["filter_policy"], "bloomfilter:10:false");
        assert_eq!((options.database.len(), options.families.len()), (2, 1));
    }

    #[test]
    fn values_are_unescaped() {
        assert_eq!(unescaped("a\\:b\\\\c\\n\\r\\"), "a:b\\c\n\r\\");
        assert_eq!(without_comment(" a\\\\#b"), "a\\\\");
    }
}
