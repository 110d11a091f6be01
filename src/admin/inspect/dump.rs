//! [`dump()`] and [`dump_records`]: print any file of a database.
//!
//! A file whose name siftdb writes is read as the kind that the name says, so that a damaged header
//! is reported. Any other file is recognized by its contents: tables by the magic number at their
//! end; logs, manifests and CURRENT by their first bytes.
//!
//! Invariants: no contents cause a panic; everything before the first damage is printed. LOCK is
//! empty, so it is the one file that is not printed.

use crate::admin::inspect::records::{dump_manifest, dump_wal};
use crate::admin::inspect::tables::{dump_table, end_words};
use crate::admin::inspect::text::{DumpOptions, DumpValue, Output, Printer, RecordSink};
use crate::base::error::{Error, Result};
use crate::base::filename::{FileName, parse};
use crate::env::api::{Env, read_file};
use crate::env::foreign::foreign_or;
use crate::log::record::format::RecordFile;
use crate::state::stats_file;
use crate::table::format::TABLE_MAGIC;
use crate::tree::current::{Current, decode_current};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// `CURRENT` is one short line.
const CURRENT_BYTES_MAX: u64 = 256;

/// Prints the file at `path`: a table with layout and entries, a write-ahead log with its batches,
/// a manifest with its edits, `CURRENT`, or `STATS`.
///
/// # Errors
/// `Io`; `Corruption` and `UnsupportedFormat`, after what could be printed; `InvalidArgument` for
/// a file that is none of these.
pub fn dump(
    env: &Arc<dyn Env>,
    path: &Path,
    options: &DumpOptions,
    out: &mut dyn Write,
) -> Result<()> {
    dump_to(env, path, &mut Printer::new(Output::Text(out), options))
}

/// As [`dump()`], but calls `sink` with each record as data: blocks and entries of a table, batches
/// and entries of a log, edits of a manifest, the line of `CURRENT`, counters of `STATS`. Values
/// are not cut.
///
/// # Errors
/// As for [`dump()`].
pub fn dump_records(
    env: &Arc<dyn Env>,
    path: &Path,
    options: &DumpOptions,
    sink: RecordSink<'_>,
) -> Result<()> {
    dump_to(env, path, &mut Printer::new(Output::Records(sink), options))
}

fn dump_to(env: &Arc<dyn Env>, path: &Path, printer: &mut Printer<'_>) -> Result<()> {
    let or_foreign = |error| foreign_or(&**env, path, error);
    let name = path.file_name().and_then(|name| name.to_str()).and_then(parse);
    let kind = match name {
        Some(FileName::Table(_)) => Kind::Table,
        Some(FileName::Wal(number)) => Kind::Wal(Some(number)),
        Some(FileName::Manifest(number)) => Kind::Manifest(Some(number)),
        Some(FileName::Current) => Kind::Current,
        Some(FileName::Stats) => Kind::Stats,
        Some(FileName::Lock | FileName::Temporary(_)) | None => {
            kind_of_contents(env, path).map_err(or_foreign)?
        }
    };
    let dumped = match kind {
        Kind::Table => dump_table(env, path, printer),
        Kind::Wal(number) => dump_wal(&**env, path, number, printer),
        Kind::Manifest(number) => dump_manifest(&**env, path, number, printer),
        Kind::Current => dump_current(env, path, printer),
        Kind::Stats => dump_stats(env, path, printer),
    };
    dumped.map_err(or_foreign)
}

/// The kind of a file, with its number if its name has one.
enum Kind {
    Table,
    Wal(Option<u64>),
    Manifest(Option<u64>),
    Current,
    Stats,
}

fn dump_current(env: &Arc<dyn Env>, path: &Path, printer: &mut Printer<'_>) -> Result<()> {
    let bytes = read_file(&**env, path, CURRENT_BYTES_MAX)?;
    match decode_current(&bytes).map_err(|bad| bad.into_error(path, 0))? {
        Current::Manifest(number) => {
            let line = format_args!("{} is current, checksum ok", FileName::Manifest(number));
            printer.record("current", &[("manifest", number.into())], line)
        }
        Current::Unfinished => {
            let line = format_args!("the copy here is unfinished, checksum ok");
            printer.record("current", &[("unfinished", 1_u64.into())], line)
        }
    }
}

/// Prints STATS: the counters of the database and of each keyspace, by their position in the file.
/// `siftdb stats` prints them by name.
fn dump_stats(env: &Arc<dyn Env>, path: &Path, printer: &mut Printer<'_>) -> Result<()> {
    let bytes = read_file(&**env, path, stats_file::BYTES_MAX)?;
    let Some(stats) = stats_file::decode(&bytes) else {
        let what = "damaged or of another version; the next opening counts from zero";
        return Err(Error::corruption(path, 0, what));
    };
    let (since, keyspaces) = (stats.since_unix_seconds, stats.keyspaces.len() as u64);
    let count = stats.database.len() as u64;
    let fields = [
        ("since_unix_seconds", since.into()),
        ("counters", count.into()),
        ("keyspaces", keyspaces.into()),
    ];
    let line = format_args!(
        "{count} counters since {since} s after 1970, and those of {keyspaces} keyspaces, checksum \
         ok"
    );
    printer.record("statistics", &fields, line)?;
    let database = std::iter::once((None, &stats.database));
    let keyspaces = stats.keyspaces.iter().map(|(id, totals)| (Some(*id), totals));
    for (keyspace, totals) in database.chain(keyspaces) {
        let of = keyspace.map_or(String::new(), |id| format!("keyspace {id}, "));
        for (number, &total) in (0u64..).zip(totals) {
            let fields = [
                ("keyspace", DumpValue::Number(keyspace.map(u64::from))),
                ("number", number.into()),
                ("total", total.into()),
            ];
            let line = format_args!("  {of}counter {number}: {total}");
            printer.record("counter", &fields, line)?;
        }
    }
    Ok(())
}

/// The kind of a file that was renamed, by its first and last bytes.
fn kind_of_contents(env: &Arc<dyn Env>, path: &Path) -> Result<Kind> {
    match end_words(&**env, path)? {
        Some([_, last]) if last == TABLE_MAGIC.to_le_bytes() => Ok(Kind::Table),
        Some([first, _]) if first == RecordFile::Wal.magic() => Ok(Kind::Wal(None)),
        Some([first, _]) if first == RecordFile::Manifest.magic() => Ok(Kind::Manifest(None)),
        Some([first, _]) if first == *stats_file::MAGIC => Ok(Kind::Stats),
        Some([first, _]) if first.starts_with(b"siftdb ") => Ok(Kind::Current),
        _ => {
            let what = "not a table, write-ahead log, manifest, CURRENT or STATS";
            Err(Error::InvalidArgument { what: format!("{}: {what}", path.display()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::inspect::tables::{layout, verify_table};
    use crate::base::events::delivery::Events;
    use crate::base::key::{KeyspaceLabel, ValueKind, put_internal_key};
    use crate::base::range_deletes::{RangeDelete, RangeDeletes};
    use crate::env::mem::MemEnv;
    use crate::log::wal::consistency::CleanClose;
    use crate::log::wal::format::DatabaseIdentity;
    use crate::log::wal::format::WalStart;
    use crate::log::wal::writer::WalWriter;
    use crate::state::stats_file::SavedStats;
    use crate::table::builder::{TableBuilder, TableOptions};
    use crate::table::compression::Compression;
    use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
    use crate::tree::current::set_current;
    use crate::tree::edit::{COMPARATOR, FirstLog, KeyspaceMeta, VersionEdit};
    use crate::tree::manifest::ManifestWriter;
    use siftdb_filter::construction::Construction;
    use siftdb_filter::encoding::Encoding;

    const FILTERS: [Option<FilterLayout>; 4] = [
        None,
        Some(FilterLayout::BlockBased { window_bytes: 128 }),
        Some(FilterLayout::Full),
        Some(FilterLayout::Partitioned { block_bytes: 64 }),
    ];

    fn table(env: &MemEnv, filter: Option<FilterLayout>) -> &'static Path {
        let path = Path::new("/000007.sst");
        let options = TableOptions {
            keyspace: KeyspaceLabel::default(),
            databases: Vec::new(),
            block_bytes: 256,
            restart_interval: 16,
            hash_index: false,
            index_partition_bytes: 0,
            compression: Compression::None,
            filter: filter.map(|layout| TableFilter {
                encoding: Encoding::FastLocalBloom { millibits: 10_000 },
                layout,
                members: FilterMembers::default(),
                range_millibits: 0,
            }),
            construction: Construction::default(),
            write_bytes: 64 << 10,
            events: Events::default(),
        };
        env.remove_file(path);
        let file = env.create_new(path).unwrap();
        let mut builder = TableBuilder::new(file, path.into(), 0x5175, options);
        for i in 0..40u64 {
            let kind = if i == 3 { ValueKind::Tombstone } else { ValueKind::Put };
            let mut key = Vec::new();
            put_internal_key(&mut key, format!("key{i:02}").as_bytes(), i + 1, kind);
            let value: &[u8] = if i == 3 { b"" } else { b"some value\xff" };
            builder.add(&key, value).unwrap();
        }
        let delete = |start: &str, end: Option<&str>, sequence| RangeDelete {
            start: start.into(),
            end: end.map(Into::into),
            sequence,
        };
        let deletes = [delete("key10", Some("key12"), 30), delete("x", None, 40)];
        builder.add_range_deletes(RangeDeletes::fragmented(&deletes, &[]));
        builder.finish().unwrap();
        path
    }

    fn records(env: &MemEnv) -> [&'static Path; 4] {
        let root = Path::new("/");
        let snapshot = VersionEdit {
            comparator: Some(COMPARATOR.into()),
            database: Some(DatabaseIdentity::default()),
            next_keyspace: Some(1),
            created: vec![KeyspaceMeta::default_keyspace()],
            first_log: Some(FirstLog { number: 3, flushed_through: 0 }),
            next_file_number: Some(9),
            last_sequence: Some(4),
            ..VersionEdit::default()
        };
        let close = CleanClose { log: 3, log_bytes: 78, last_sequence: 2 };
        let closed = VersionEdit { clean_close: Some(close), ..VersionEdit::default() };
        ManifestWriter::create(env, root, 4, &snapshot).unwrap().append(&closed).unwrap();
        set_current(env, root, 4, 5).unwrap();
        let start = WalStart { first_sequence: 1, manifest_number: 4, ..WalStart::default() };
        let mut wal = WalWriter::create(env, root, 3, &start, &[], 1 << 20).unwrap();
        let mut batch = crate::base::write_batch::WriteBatch::new();
        batch.put("a\n", "1").delete("b");
        wal.append(0, 1, 2, [&batch.entries[..]]).unwrap();
        let saved =
            SavedStats { since_unix_seconds: 9, database: vec![5, 3], keyspaces: Vec::new() };
        stats_file::save(env, root, 6, &saved);
        ["/MANIFEST-000004", "/CURRENT", "/000003.wal", "/STATS"].map(Path::new)
    }

    fn dumped(env: &MemEnv, path: &Path) -> (String, Result<()>) {
        let mut out = Vec::new();
        let env: Arc<dyn Env> = Arc::new(env.clone());
        let outcome = dump(&env, path, &DumpOptions::default(), &mut out);
        (String::from_utf8(out).unwrap(), outcome)
    }

    #[test]
    fn tables_print_their_layout_and_entries() {
        let env = MemEnv::new();
        for (filter, expected) in FILTERS.into_iter().zip([
            "  properties ",
            "    6 windows of 2^7 B, 2 of them empty",
            "  filter             848..",
            "    top-level index ",
        ]) {
            let path = table(&env, filter);
            let (text, outcome) = dumped(&env, path);
            outcome.unwrap();
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(text.contains("entries     40 (1 tombstones), sequences 1..=40"), "{text}");
            assert!(text.contains("  \"key02\" @3 = \"some value\\xff\"\n"), "{text}");
            assert!(text.contains("  \"key03\" @4 deleted\n"), "{text}");
            assert!(text.contains(" 2 range deletes\n"), "{text}");
            assert!(text.contains("  \"key10\"..\"key12\" @30 deleted\n"), "{text}");
            assert!(text.contains("  \"x\".. @40 deleted\n"), "{text}");
            let engine: Arc<dyn Env> = Arc::new(env.clone());
            let mut out = Vec::new();
            layout(&engine, path, &mut out).unwrap();
            assert!(text.starts_with(&String::from_utf8(out).unwrap()));
            assert_eq!(verify_table(&engine, path).unwrap().entries, 40);
        }
    }

    #[test]
    fn a_dump_can_be_limited_to_one_block() {
        let env = MemEnv::new();
        let path = table(&env, None);
        let engine: Arc<dyn Env> = Arc::new(env);
        let options = DumpOptions { block: Some(1), entries_max: 2, value_bytes_max: 4 };
        let mut out = Vec::new();
        dump(&engine, path, &options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.starts_with("block 1 ") && text.ends_with("\"some\"... (11 B)\n"), "{text}");
    }

    #[test]
    fn logs_and_manifests_print_record_by_record() {
        let env = MemEnv::new();
        let [manifest, current, wal, stats] = records(&env);
        let (text, outcome) = dumped(&env, manifest);
        outcome.unwrap();
        assert!(text.contains("; logs from 3, flushed through 0; next file 9"), "{text}");
        assert!(text.contains("edit 2: closed at sequence 2, log 3 at byte 78"), "{text}");
        assert!(
            text.contains("in all: tables none; logs from 3; next file 9; next keyspace 1"),
            "{text}"
        );
        assert_eq!(dumped(&env, current).0, "MANIFEST-000004 is current, checksum ok\n");
        let (text, outcome) = dumped(&env, stats);
        outcome.unwrap();
        assert!(
            text.starts_with("2 counters since 9 s") && text.contains("counter 1: 3\n"),
            "{text}"
        );
        let (text, outcome) = dumped(&env, wal);
        outcome.unwrap();
        assert!(text.contains("  \"a\\n\" @1 = \"1\"\n  \"b\" @2 deleted\n"), "{text}");
    }

    #[test]
    fn kinds_of_records_are_documented() {
        let env = MemEnv::new();
        let mut paths = records(&env).to_vec();
        paths.push(table(&env, None));
        let env: Arc<dyn Env> = Arc::new(env);
        for path in paths {
            let sink: RecordSink<'_> = &mut |record| {
                let kind = format!("`{}`", record.kind);
                assert!(include_str!("text.rs").contains(&kind), "{kind}");
                Ok(())
            };
            dump_records(&env, path, &DumpOptions::default(), sink).unwrap();
        }
    }

    #[test]
    fn renamed_files_are_recognized_by_content() {
        let env = MemEnv::new();
        let mut paths = records(&env).to_vec();
        paths.push(table(&env, None));
        for path in paths {
            let renamed = Path::new("/renamed");
            env.write_file(renamed, &env.read_file(path).unwrap());
            let (text, outcome) = dumped(&env, renamed);
            outcome.unwrap();
            assert!(!text.is_empty());
        }
        for foreign in [&b""[..], b"short", b"something else altogether"] {
            env.write_file(Path::new("/foreign"), foreign);
            let refused = dumped(&env, Path::new("/foreign")).1;
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
        }
        assert!(matches!(dumped(&env, Path::new("/missing")).1, Err(Error::Io { .. })));
    }

    #[test]
    fn dumps_notice_every_flip_and_cut() {
        let env = MemEnv::new();
        let mut paths = records(&env).to_vec();
        paths.push(table(&env, FILTERS[3]));
        for path in paths {
            let good = env.read_file(path).unwrap();
            let whole = dumped(&env, path).0;
            for index in 0..good.len() {
                let mut flipped = good.clone();
                flipped[index] ^= 0x21;
                env.write_file(path, &flipped);
                let (text, outcome) = dumped(&env, path);
                // The text names a damaged filter, and damage in the padding of a log.
                assert!(outcome.is_err() || text != whole, "{} byte {index}", path.display());
            }
            for cut in (0..good.len()).step_by(7) {
                env.write_file(path, &good[..cut]);
                let (text, outcome) = dumped(&env, path);
                assert!(outcome.is_err() || text != whole, "{} cut {cut}", path.display());
            }
            env.write_file(path, &good);
        }
    }
}
