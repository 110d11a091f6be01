//! What each compression takes and saves, on files of the reader's own: a line is an entry.
//!
//! `cargo bench -p siftdb-benches --bench compression -- FILE...`; without a file, the sources of
//! siftdb. Each goes into one database for each compression of the last level, under the number of
//! the line, or as keys with short values if the name of the file begins with `keys`.
//!
//! A row has the bytes of the tables, also as a share of those with Snappy and blocks of the same
//! size, and two times: for writing and compacting all of it, and for a lookup. The cache has 8 MiB.

use siftdb::{Compression, Db, Options, Result, WriteBatch};
use siftdb_cli::experiment::mix;
use std::path::Path;
use std::time::Instant;

const COMPRESSIONS: [Compression; 6] = [
    Compression::Snappy,
    Compression::None,
    Compression::Lz4,
    Compression::Zstd(1),
    Compression::Zstd(3),
    Compression::Zstd(9),
];

/// Sizes of blocks: the default, and one for data that is read in order.
const BLOCK_KIB: [usize; 2] = [4, 16];

/// Lookups of one measurement.
const LOOKUPS: u64 = 50_000;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

#[expect(clippy::disallowed_methods, reason = "a file of the user's")]
fn read(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The sources below `directory`, one after the other.
#[expect(clippy::disallowed_methods, reason = "no files of a database")]
fn sources(directory: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let files = std::fs::read_dir(directory).expect("the sources of siftdb").flatten();
    for path in files.map(|file| file.path()) {
        match path.is_dir() {
            true => text.extend(sources(&path)),
            false => text.extend(read(&path)),
        }
    }
    text
}

/// The lines of `text`, which came from the file `name`, as entries.
fn entries_of(name: &str, text: &[u8]) -> Entries {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let entries = (0u64..).zip(lines).map(|(number, line)| match name.starts_with("keys") {
        true => (line.to_vec(), number.to_le_bytes().to_vec()),
        false => (format!("{number:012}").into_bytes(), line.to_vec()),
    });
    let mut entries: Entries = entries.collect();
    entries.sort();
    entries.dedup_by(|one, other| one.0 == other.0);
    entries
}

/// Writes the entries in a random order and compacts them.
fn write(db: &Db, entries: &Entries) -> Result<()> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|place| mix(*place as u64));
    for places in order.chunks(100) {
        let mut batch = WriteBatch::new();
        for (key, value) in places.iter().map(|place| &entries[*place]) {
            batch.put(key, value);
        }
        db.write(batch)?;
    }
    db.compact_range(..)
}

fn measure(
    directory: &Path,
    entries: &Entries,
    block_kib: usize,
    compression: Compression,
) -> Result<(u64, f64, f64)> {
    let options = Options::new().block_cache_bytes(8 << 20).block_bytes(block_kib << 10);
    let db = options.compression_at_last_level(compression).open(directory)?;
    let started = Instant::now();
    write(&db, entries)?;
    let seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    for n in 0..LOOKUPS {
        let (key, value) = &entries[(mix(n) % entries.len() as u64) as usize];
        assert!(db.get(key)?.as_deref() == Some(value));
    }
    let lookup = started.elapsed().as_secs_f64() / LOOKUPS as f64;
    let bytes = db.tables().iter().map(|table| table.bytes).sum();
    db.close()?;
    Ok((bytes, seconds, 1e9 * lookup))
}

fn main() -> Result<()> {
    let files = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let file_name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into();
    let mut inputs: Vec<(String, Vec<u8>)> =
        files.map(|file| (file_name(file.as_ref()), read(file.as_ref()))).collect();
    if inputs.is_empty() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
        inputs.push(("sources".to_string(), sources(&src)));
    }
    println!("file | block, KiB | compression | tables, MB | of Snappy | write, s | lookup, ns");
    for (name, text) in inputs {
        let entries = entries_of(&name, &text);
        for block_kib in BLOCK_KIB {
            let mut of_snappy = 0.0;
            for compression in COMPRESSIONS {
                let directory = tempfile::tempdir().expect("a directory");
                let (bytes, seconds, lookup) =
                    measure(directory.path(), &entries, block_kib, compression)?;
                if compression == Compression::Snappy {
                    of_snappy = bytes as f64;
                }
                let (megabytes, share) = (bytes as f64 / 1e6, bytes as f64 / of_snappy);
                println!(
                    "{name} | {block_kib} | {compression} | {megabytes:.2} | {share:.2} | \
                     {seconds:.2} | {lookup:.0}"
                );
            }
        }
    }
    Ok(())
}
