//! What a cursor saves that asks filters at each seek: a graph's adjacency lists, half of them
//! empty, in the order of chance.
//!
//! A key is a node and its neighbour, eight bytes each. Filters hold the nodes as prefixes. Every
//! second node has neighbours, 10 on average. Rounds read 1,000 lists, all of them empty or none:
//!
//! - by one cursor ([`siftdb::Cursor::seek_prefix`]), and by one that asks no filters;
//! - by one cursor, and by an iterator for each list ([`Db::prefix`]).
//!
//! `cargo bench -p siftdb-benches --bench seeks`. Short rounds alternate between the two sides and
//! are measured in processor time. The result is the median ratio of the pairs, so a disturbance
//! of the machine disturbs both sides. Blocks are those that a list touches, by the counters.

use siftdb::{Db, Filter, FilterLayout, Options, Prefix, ReadOptions};
use siftdb_benches::{Paired, processor_time};
use siftdb_cli::experiment::mix;
use std::hint::black_box;
use std::path::Path;

/// Lists of a round.
const LISTS: u64 = 1_000;

/// The database: all entries in one settled level, or two fifths of them in four tables of level 0.
fn graph(directory: &Path, layout: FilterLayout, nodes: u64, level0: bool) -> Db {
    let filter = Filter::bloom(10.0).layout(layout).prefix(Prefix::fixed(8));
    let options = Options::new().filter(filter).auto_compaction(false);
    let db = options.block_cache_bytes(1 << 30).open(directory).expect("open");
    for part in 0..5 {
        for edge in 0..nodes * 5 {
            // The settled part has six of ten edges, and each table of level 0 one.
            if (mix(edge) % 10).saturating_sub(5) == part {
                let node = mix(edge << 20) % (nodes / 2) * 2;
                db.put(key(node, mix(edge << 40)), edge.to_le_bytes()).expect("put");
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

fn key(node: u64, neighbour: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&node.to_be_bytes());
    key[8..].copy_from_slice(&neighbour.to_be_bytes());
    key
}

/// How a side reads its lists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Cursor,
    CursorWithoutFilters,
    Iterators,
}

/// Reads all lists and answers how many entries they have.
fn read(db: &Db, way: Way, lists: &[[u8; 8]]) -> usize {
    if way == Way::Iterators {
        return lists.iter().map(|list| db.prefix(black_box(list)).keys().count()).sum();
    }
    let options = ReadOptions::new().use_filters(way == Way::Cursor);
    let (mut cursor, mut entries) = (db.range_with(.., &options).cursor(), 0);
    for list in lists {
        let mut found = cursor.seek_prefix(black_box(list)).expect("seek");
        while found {
            entries += 1;
            found = cursor.next().expect("step");
        }
    }
    entries
}

fn compare(db: &Db, name: &str, nodes: u64, rounds: u64, other: Way) {
    for empty in [true, false] {
        let ways = [Way::Cursor, other];
        let mut blocks = [0.0; 2];
        let paired = Paired::measure(rounds, |round, side| {
            // Each side has lists that the other has not just brought into the caches.
            let numbers = ((2 * round + side as u64) * LISTS + 1..).take(LISTS as usize);
            let node = |n| mix(n) % (nodes / 2) * 2 + u64::from(empty);
            let lists: Vec<_> = numbers.map(|n| node(n).to_be_bytes()).collect();
            let before = db.stats();
            let took = processor_time(|| {
                assert_eq!(read(db, ways[side], &lists) == 0, empty);
            });
            let did = db.stats().since(&before).total();
            let touched = did.scan_data_blocks_cached + did.scan_data_blocks_read;
            blocks[side] += touched as f64 / (LISTS * rounds) as f64;
            took.as_nanos() as f64 / LISTS as f64
        });
        let [own, others] = paired.medians;
        println!(
            "{name:21} {} lists: cursor {own:6.0} ns, {other:?} {others:6.0} ns, ratio {:5.3}; \
             data blocks {:.3} and {:.3}",
            if empty { "empty" } else { "other" },
            1.0 / paired.ratio,
            blocks[0],
            blocks[1],
        );
    }
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (nodes, rounds) = if test { (2_000, 2) } else { (100_000, 251) };
    let layouts = [
        ("full", FilterLayout::Full),
        ("partitioned", FilterLayout::Partitioned { block_bytes: 4096 }),
    ];
    for (name, layout) in layouts {
        for level0 in [false, true] {
            let directory = tempfile::tempdir().expect("directory");
            let db = graph(directory.path(), layout, nodes, level0);
            let name = format!("{name}, {}", if level0 { "level 0" } else { "settled" });
            read(&db, Way::CursorWithoutFilters, &[[0; 8]]);
            for entry in db.iter() {
                entry.expect("entry");
            }
            for other in [Way::CursorWithoutFilters, Way::Iterators] {
                compare(&db, &name, nodes, rounds, other);
            }
        }
    }
}
