//! What a range filter saves scans, by the shape of the keys: numbers, UUIDs, URLs, paths of files.
//!
//! Each database has the keys in one settled level, or two fifths of them in four tables of level
//! 0, and values of 100 bytes. Scans read:
//!
//! - empty ranges. They start at a key that is drawn like the others and not stored. Among numbers
//!   they are 2^-20 to 1/2 of the mean gap wide. Of text they have all keys that begin with the
//!   start.
//! - the rest of a stored key's gap: from its immediate successor to the next stored key.
//! - ranges of the next 1 to 10 stored keys.
//!
//! `cargo bench -p siftdb-benches --bench ranges` takes a million keys of each shape;
//! `-- 10000000 integers` takes ten million of one.
//! Short rounds alternate between scans that ask filters and scans that do not, on the same files,
//! in processor time; the result is the median ratio of the pairs. "Cold" is a block cache that has
//! room for indexes and filters only: data blocks are read from the operating system's cache.

use siftdb::{Db, Filter, Options, ReadOptions};
use siftdb_cli::experiment::{Paired, mix, processor_time};
use std::hint::black_box;
use std::path::Path;

/// Scans of a round.
const SCANS: u64 = 1_000;

type Key = Vec<u8>;

/// A shape of keys: its name, the bits of its range filter, the key with a number.
type Shape = (&'static str, f64, fn(u64) -> Key);

const SHAPES: [Shape; 4] = [
    ("integers", 12.0, integer),
    ("UUIDs", 12.0, uuid),
    ("URLs", 16.0, url),
    ("paths", 16.0, path),
];

fn integer(number: u64) -> Key {
    mix(number).to_be_bytes().to_vec()
}

fn uuid(number: u64) -> Key {
    let (a, b) = (mix(number), mix(number << 32 | 1));
    let (time, low) = (a >> 32, b & 0xffff_ffff_ffff);
    format!("{time:08x}-{:04x}-{:04x}-{:04x}-{low:012x}", a >> 16 & 0xffff, a & 0xffff, b >> 48)
        .into_bytes()
}

const SYLLABLES: [&str; 16] = [
    "an", "ber", "con", "de", "er", "fi", "gra", "in", "lo", "ma", "net", "or", "per", "re", "st",
    "un",
];

/// One of `words` words; the first are much more frequent than the last.
fn word(chance: u64, words: u64) -> String {
    let part = (chance >> 11) as f64 / (1u64 << 53) as f64;
    let number = mix((part.powi(3) * words as f64) as u64);
    let syllables = 2 + number % 3;
    (0..syllables).map(|at| SYLLABLES[(number >> (4 + 4 * at)) as usize % 16]).collect()
}

fn url(number: u64) -> Key {
    let chance = |at: u64| mix(number << 8 | at);
    let (host, section, page) =
        (word(chance(1), 50_000), word(chance(2), 200), word(chance(3), 20_000));
    let id = chance(4) % 1_000_000;
    format!("https://www.{host}.com/{section}/{page}-{id}").into_bytes()
}

fn path(number: u64) -> Key {
    let chance = |at: u64| mix(number << 8 | at);
    let names = [(1, 20), (2, 300), (3, 5_000), (4, 20_000)];
    let [root, project, directory, file] = names.map(|(at, words)| word(chance(at), words));
    let extension = ["c", "html", "jpg", "rs", "txt"][(chance(5) % 5) as usize];
    let version = chance(6) % 100;
    format!("/{root}/{project}/{directory}/{file}{version}.{extension}").into_bytes()
}

/// The keys that are stored, sorted, and as many like them that are not.
fn keys(shape: fn(u64) -> Key, count: u64) -> (Vec<Key>, Vec<Key>) {
    let mut stored: Vec<Key> = (0..count).map(shape).collect();
    stored.sort();
    stored.dedup();
    let absent = (count..2 * count).map(shape);
    let absent = absent.filter(|key| stored.binary_search(key).is_err()).collect();
    (stored, absent)
}

fn database(directory: &Path, keys: &[Key], bits: f64, level0: bool, cached: bool) -> Db {
    let options = Options::new().filter(Filter::bloom(10.0).ranges(bits)).auto_compaction(false);
    // Indexes and filters take less than 10 bytes a key.
    let cache_bytes = if cached { 4 << 30 } else { 24 * keys.len() as u64 + (1 << 20) };
    let db = options.block_cache_bytes(cache_bytes).open(directory).expect("open");
    for part in 0..5 {
        for (at, key) in keys.iter().enumerate() {
            // The settled part has six of ten keys, and each table of level 0 one.
            if (mix(at as u64) % 10).saturating_sub(5) == part {
                db.put(key, [b'v'; 100]).expect("put");
            }
        }
        db.flush().expect("flush");
        if part == 0 {
            db.compact_range(..).expect("compact");
        }
    }
    if !level0 {
        db.compact_range(..).expect("compact");
    }
    db
}

/// The ranges of a kind of scan.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Empty,
    AfterKey,
    Found,
}

fn range(kind: Kind, shape: &Shape, keys: &(Vec<Key>, Vec<Key>), number: u64) -> (Key, Key) {
    let (stored, absent) = keys;
    let at = |keys: &[Key]| (mix(number) % (keys.len() as u64 - 11)) as usize;
    let longer = |key: &Key, byte: u8| [&key[..], &[byte]].concat();
    match kind {
        Kind::Empty => {
            let gap = u64::MAX / stored.len() as u64;
            let width = gap >> (1 + mix(number << 20) % 20);
            let end = |start: &Key| match (shape.0, start.first_chunk()) {
                ("integers", Some(head)) => {
                    u64::from_be_bytes(*head).saturating_add(width).to_be_bytes().to_vec()
                }
                _ => longer(start, 0xff),
            };
            // From the first of these keys whose range has no stored key.
            let starts = (0..).map(|step| &absent[(at(absent) + step) % absent.len()]);
            let mut ranges = starts.map(|start| (start.clone(), end(start)));
            let next = |start: &Key| stored.get(stored.partition_point(|key| key < start));
            let is_empty = |(start, end): &(Key, Key)| next(start).is_none_or(|next| end <= next);
            ranges.find(is_empty).expect("an empty range")
        }
        Kind::AfterKey => {
            let at = at(stored);
            (longer(&stored[at], 0), stored[at + 1].clone())
        }
        Kind::Found => {
            let at = at(stored);
            (stored[at].clone(), stored[at + 1 + (mix(number << 20) % 10) as usize].clone())
        }
    }
}

fn compare(db: &Db, name: &str, shape: &Shape, keys: &(Vec<Key>, Vec<Key>), rounds: u64) {
    for kind in [Kind::Empty, Kind::AfterKey, Kind::Found] {
        let mut entered = [0.0; 2];
        let paired = Paired::measure(rounds, |round, side| {
            let numbers = ((2 * round + side as u64) * SCANS..).take(SCANS as usize);
            let ranges: Vec<_> = numbers.map(|number| range(kind, shape, keys, number)).collect();
            let options = ReadOptions::new().use_filters(side == 0);
            let before = db.stats();
            let took = processor_time(|| {
                for (start, end) in &ranges {
                    let range = start.as_slice()..end.as_slice();
                    let found = db.range_with(black_box(range), &options).keys().count();
                    assert_eq!(found == 0, kind != Kind::Found);
                }
            });
            let did = db.stats().since(&before).total();
            entered[side] += did.scan_tables as f64;
            took.as_nanos() as f64 / SCANS as f64
        });
        let [asked, unasked] = paired.medians;
        println!(
            "{name:34} {kind:8?}: {asked:6.0} ns, without filters {unasked:6.0} ns, ratio {:5.3}; \
             tables entered {:7.3} %",
            1.0 / paired.ratio,
            100.0 * entered[0] / entered[1],
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let count = arguments.iter().find_map(|argument| argument.parse().ok());
    let (count, rounds) = if test { (2_000, 2) } else { (count.unwrap_or(1_000_000), 101) };
    let is_wanted = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !SHAPES.iter().any(|(name, ..)| is_wanted(name));
    for shape in SHAPES.into_iter().filter(|(name, ..)| all || is_wanted(name)) {
        let keys = keys(shape.2, count);
        for level0 in [false, true] {
            let directory = tempfile::tempdir().expect("directory");
            for cached in [true, false] {
                let path = directory.path().join(if cached { "cached" } else { "cold" });
                let db = database(&path, &keys.0, shape.1, level0, cached);
                let tree = if level0 { "level 0" } else { "settled" };
                let name =
                    format!("{}, {tree}, {}", shape.0, if cached { "cached" } else { "cold" });
                for entry in db.iter().keys() {
                    entry.expect("entry");
                }
                compare(&db, &name, &shape, &keys, rounds);
            }
        }
    }
}
