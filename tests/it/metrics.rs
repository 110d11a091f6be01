//! `Stats::to_openmetrics` by the rules of the specification, and the latencies of calls.

use crate::support::data::{bytes, key};
use crate::support::openmetrics::{Family, parse};
use crate::support::stores::{open, small_options};
use siftdb::env::MemEnv;
use siftdb::{Db, Options, ReadOptions, Stats, WriteBatch, WriteOptions};
use std::time::Duration;

/// Two keyspaces, one with a name that must be escaped, with lookups in each.
fn used(env: &MemEnv, options: &Options) -> Db {
    let db = open(env, options).unwrap();
    let odd = db.keyspace("an \"odd\" \\ name \u{e9}").unwrap();
    for n in 0..300 {
        db.put(key(n), bytes(n as u64, 100)).unwrap();
        odd.put(key(n), "v").unwrap();
    }
    db.flush().unwrap();
    for n in 0..500 {
        db.get(key(n)).unwrap();
        odd.get(key(n)).unwrap();
    }
    assert_eq!(db.iter().count() + odd.iter().rev().count(), 600);
    db
}

fn family<'f>(families: &'f [Family], name: &str) -> &'f Family {
    families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn sum(families: &[Family], name: &str) -> f64 {
    family(families, name).samples.iter().map(|sample| sample.value).sum()
}

/// Writes are the database's; means and bounds are in seconds.
fn check_histogram(histogram: &Family, stats: &Stats) {
    let of = |end: &str, call: &str| -> Vec<_> {
        let samples = histogram.samples.iter();
        samples.filter(|s| s.name.ends_with(end) && s.label("call") == Some(call)).collect()
    };
    let (counts, sums) = (of("_count", "write"), of("_sum", "write"));
    assert_eq!((counts.len(), counts[0].label("keyspace")), (1, None));
    assert_eq!(counts[0].value, stats.timed_calls("write") as f64);
    let mean = stats.mean_latency("write").unwrap().as_secs_f64();
    assert!((sums[0].value / counts[0].value - mean).abs() < 2e-9, "{sums:?} {mean}");
    let bounds: Vec<_> = of("_bucket", "write").iter().map(|s| s.label("le").unwrap()).collect();
    assert_eq!((bounds.len(), bounds[0], bounds[31]), (32, "0.000000064", "+Inf"));
    assert_eq!(bounds[30], "68.719476736");
}

#[test]
fn the_text_is_valid_and_adds_up() {
    for timed in [false, true] {
        let db = used(&MemEnv::new(), &small_options().latency_histograms(timed));
        let snapshot = db.snapshot();
        std::thread::sleep(Duration::from_millis(2));
        let stats = db.stats();
        let text = stats.to_openmetrics();
        let families = parse(&text).unwrap_or_else(|what| panic!("{what}\n{text}"));
        assert!(families.iter().all(|family| family.help.as_ref().is_some_and(|h| h.len() > 5)));
        assert_eq!(sum(&families, "siftdb_gets"), stats.gets as f64);
        assert_eq!(sum(&families, "siftdb_entries"), stats.entries as f64);
        assert_eq!(sum(&families, "siftdb_level_negatives"), stats.total().negatives as f64);
        assert_eq!(sum(&families, "siftdb_level_bytes"), stats.total().bytes as f64);
        assert_eq!(sum(&families, "siftdb_memtable_bytes"), stats.memtable_bytes as f64);
        assert_eq!(sum(&families, "siftdb_snapshots"), 1.0);
        let age = stats.oldest_snapshot_millis.unwrap() as f64 / 1e3;
        assert!((sum(&families, "siftdb_oldest_snapshot_seconds") - age).abs() < 1e-9);
        let units = ["siftdb_log_switch_seconds", "siftdb_wal_bytes", "siftdb_gets"];
        let units = units.map(|name| family(&families, name).unit.as_deref());
        assert_eq!(units, [Some("seconds"), Some("bytes"), None]);
        assert!(!text.contains("anosecond") && !text.contains("millisecond"), "{text}");
        let seconds = stats.log_switch_nanos as f64 / 1e9;
        assert!((sum(&families, "siftdb_log_switch_seconds") - seconds).abs() < 1e-12);
        let gets = &family(&families, "siftdb_gets").samples;
        let names: Vec<_> = gets.iter().map(|sample| sample.label("keyspace").unwrap()).collect();
        assert_eq!(names, ["default", "an \"odd\" \\ name \u{e9}"]);
        let histogram = families.iter().find(|f| f.name == "siftdb_call_duration_seconds");
        assert_eq!(histogram.is_some(), timed);
        if let Some(histogram) = histogram {
            let counts = histogram.samples.iter().filter(|s| s.name.ends_with("_count"));
            let of_gets = counts.filter(|sample| sample.label("call") == Some("get"));
            assert_eq!(of_gets.map(|sample| sample.value).sum::<f64>(), stats.gets as f64);
            check_histogram(histogram, &stats);
        }
        drop(snapshot);
    }
}

#[test]
fn a_keyspace_has_a_text_of_its_own() {
    let db = used(&MemEnv::new(), &small_options().latency_histograms(true));
    let text = db.keyspace("an \"odd\" \\ name \u{e9}").unwrap().stats().to_openmetrics();
    let families = parse(&text).unwrap_or_else(|what| panic!("{what}\n{text}"));
    assert_eq!(sum(&families, "siftdb_gets"), 500.0);
    let samples = families.iter().flat_map(|family| &family.samples);
    assert!(samples.clone().count() > 50);
    assert!(samples.clone().all(|s| s.label("keyspace") == Some("an \"odd\" \\ name \u{e9}")));
    // What is counted once for the database is not there.
    assert!(families.iter().all(|family| family.name != "siftdb_batches"));
    parse(&Stats::default().to_openmetrics()).unwrap();
}

#[test]
fn many_keyspaces_are_one_row_beyond_a_hundred() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    for n in 0..130 {
        let keyspace = db.keyspace(&format!("keyspace {n}")).unwrap();
        keyspace.put("key", "value").unwrap();
        keyspace.get("key").unwrap();
    }
    let stats = db.stats();
    let families = parse(&stats.to_openmetrics()).unwrap();
    let gets = &family(&families, "siftdb_gets").samples;
    assert_eq!((gets.len(), sum(&families, "siftdb_gets")), (101, 130.0));
    assert_eq!((gets[100].label("keyspace"), gets[100].value), (None, 31.0));
    // Differences have the same rows.
    let later = db.stats().since(&stats).to_openmetrics();
    assert_eq!(sum(&parse(&later).unwrap(), "siftdb_gets"), 0.0);
}

/// The reader itself refuses texts that break a rule.
#[test]
fn broken_texts_are_refused() {
    let good =
        "# TYPE a counter\n# HELP a x\na_total{l=\"v\"} 1\n# TYPE b gauge\nb -1.5e3\n# EOF\n";
    parse(good).unwrap();
    let histogram = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\n\
                     h_count 2\nh_sum 1.5\n# EOF\n";
    parse(histogram).unwrap();
    let changes = [
        (good, "# EOF\n", ""),
        (good, "# EOF\n", "# EOF"),
        (good, "a_total", "a"),
        (good, "a_total{l=\"v\"} 1", "a_total{l=\"v\"} -1"),
        (good, "a_total{l=\"v\"} 1", "a_total{l=\"v\"} x"),
        (good, "a_total{l=\"v\"} 1", "a_total{l=\"v\"}  1"),
        (good, "a_total{l=\"v\"} 1", "a_total{l=\"v\"} 1\n"),
        (good, "l=\"v\"", "l=\"v\\t\""),
        (good, "l=\"v\"", "l=\"v\"\""),
        (good, "l=\"v\"", "l=\"v\",l=\"w\""),
        (good, "l=\"v\"", "1=\"v\""),
        (good, "a_total{l=\"v\"} 1\n", "a_total{l=\"v\"} 1\na_total{l=\"v\"} 2\n"),
        (good, "# HELP a x\n", "# UNIT a seconds\n"),
        (good, "# HELP a x\n", "# HELP a x\n# HELP a y\n"),
        (good, "# TYPE b gauge", "# TYPE a gauge"),
        (good, "# TYPE b gauge\nb ", "# TYPE a_total gauge\na_total "),
        (good, "gauge", "thing"),
        (histogram, "\"+Inf\"} 2", "\"+Inf\"} 0"),
        (histogram, "h_count 2", "h_count 3"),
        (histogram, "h_sum 1.5\n", ""),
        (histogram, "h_bucket{le=\"+Inf\"} 2\n", ""),
        (histogram, "le=\"1\"", "x=\"1\""),
    ];
    for (text, from, to) in changes {
        let broken = text.replacen(from, to, 1);
        assert!(broken != text && parse(&broken).is_err(), "{broken}");
    }
}

#[test]
fn timed_reads_answer_as_untimed() {
    for timed in [false, true] {
        let db = open(&MemEnv::new(), &small_options().latency_histograms(timed)).unwrap();
        db.put("key", "old").unwrap();
        let snapshot = db.snapshot();
        db.put("key", "new").unwrap();
        db.flush().unwrap();
        assert_eq!(snapshot.get("key").unwrap().unwrap(), "old");
        assert_eq!(db.get("key").unwrap().unwrap(), "new");
        let unfiltered = ReadOptions::new().use_filters(false);
        assert_eq!(db.get_with("kex", &unfiltered).unwrap(), None);
        assert_eq!(db.stats().total().negatives, 0);
    }
}

#[test]
fn calls_are_timed_by_kind() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().latency_histograms(true)).unwrap();
    let other = db.keyspace("other").unwrap();
    (0..3).for_each(|n| db.put(key(n), "v").unwrap());
    db.put_with("k", "v", &WriteOptions::new().sync(true)).unwrap();
    db.sync().unwrap();
    db.write(WriteBatch::new()).unwrap(); // writes nothing and waits for nothing
    db.transact(|tx| tx.get("k").and_then(|_| tx.put("k", "w"))).unwrap();
    let synced = WriteOptions::new().sync(true);
    db.transact(|tx| tx.get("k").and_then(|_| tx.put_with("k", "x", &synced))).unwrap();
    (0..5).for_each(|n| drop(db.get(key(n)).unwrap()));
    other.get("k").unwrap();
    db.snapshot().get("k").unwrap();
    db.multi_get(["k", "l"]).unwrap();
    let mut both = db.iter();
    (0..2).for_each(|_| drop((both.next(), both.next_back())));
    let mut cursor = db.cursor();
    assert!(cursor.seek("k").unwrap() && cursor.next().unwrap());
    assert!(cursor.seek_to_last().unwrap());
    let counts = |stats: &Stats| Stats::TIMED_CALLS.map(|call| stats.timed_calls(call));
    let stats = db.stats();
    // A transaction reads and writes; each end of an iterator is one seek.
    assert_eq!(counts(&stats), [9, 1, 4, 4, 3]);
    assert_eq!(counts(&other.stats()), [1, 0, 0, 0, 0]);
    for call in Stats::TIMED_CALLS {
        let [low, median, most] = [0.0, 0.5, 1.0].map(|share| stats.latency(call, share).unwrap());
        assert!(low <= median && median <= most && most < Duration::from_secs(60), "{call}");
        let mean = stats.mean_latency(call).unwrap();
        assert!(mean <= most && mean > Duration::ZERO, "{call}");
        assert!(stats.to_string().contains(&format!("{call}: ")), "{stats}");
    }
    assert_eq!(counts(&stats.since(&stats)), [0; 5]);
    // They are kept across openings, like the other counters.
    db.close().unwrap();
    drop((db, other, both, cursor));
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(counts(&db.stats()), counts(&stats));
    db.get("k").unwrap();
    assert_eq!(counts(&db.stats()), counts(&stats), "not switched on");
    drop(db);
    let db = open(&env, &small_options().reset_stats(true)).unwrap();
    assert_eq!(db.stats().latency("get", 0.5), None);
}

/// The bytes and the bounds of all parts are right.
#[test]
fn parts_of_memory_stand_beside_their_bounds() {
    const MEMORY: u64 = 16 << 20;
    let (env, options) = (MemEnv::new(), Options::new().memory_bytes(MEMORY).block_bytes(512));
    let db = open(&env, &options).unwrap();
    (0..3_000).for_each(|n| db.put(key(n), bytes(n as u64, 100)).unwrap());
    db.compact_range(..).unwrap();
    assert!(db.get(key(1)).unwrap().is_some());
    // A table without partitions, whose index has no top level.
    let small = db.keyspace("small").unwrap();
    small.put("a", "1").unwrap();
    small.flush().unwrap();
    let table = &small.tables()[0];
    assert!((1..100).contains(&table.index_bytes) && table.index_top_level_bytes == 0, "{table:?}");
    assert_eq!((table.data_blocks, table.raw_bytes), (1, 10), "{table:?}");
    assert!((30..100).contains(&table.data_bytes), "{table:?}");
    db.put("in memory", bytes(0, 10_000)).unwrap();
    let (one, other) = (db.transaction(), db.transaction());
    one.put("a", bytes(0, 10_000)).unwrap();
    let of_one = db.stats().transaction_bytes;
    assert!((10_000..12_000).contains(&of_one), "{of_one}");
    assert_eq!(other.get("b").unwrap(), None);
    // Others write while they live.
    db.put("c", "").unwrap();
    let stats = db.stats();
    assert!((1..200).contains(&(stats.transaction_bytes - of_one)), "{stats}");
    assert!((1..200).contains(&stats.recent_write_bytes), "{stats}");
    assert!(stats.whole_index_bytes > 3_000 && stats.whole_index_bytes < stats.pinned_bytes);
    let part = MEMORY / 16;
    assert!((10_000..part).contains(&stats.memtable_bytes), "{stats}");
    let bounds = [stats.memtable_bytes_max, stats.transaction_bytes_max, stats.pinned_bytes_max];
    assert_eq!(bounds, [3 * part, part, 5 * part]);
    let bounds = [stats.whole_index_bytes_max, stats.construction_bytes_max];
    assert_eq!(bounds, [5 * part / 4, 5 * part]);
    let bounds = [stats.recent_write_bytes_max, stats.cache_capacity_bytes];
    assert_eq!(bounds, [part / 8, 10 * part]);
    let total = stats.total();
    let tables = [db.keyspace("default").unwrap().tables(), small.tables()].concat();
    assert_eq!(total.index_bytes, tables.iter().map(|table| table.index_bytes).sum::<u64>());
    let tops = tables.iter().map(|t| t.index_top_level_bytes + t.filter_top_level_bytes);
    assert_eq!(total.top_level_bytes, tops.sum::<u64>());
    assert!((1..total.index_bytes / 10).contains(&total.top_level_bytes), "{stats}");
    let text = stats.to_string();
    assert!(text.contains(" of 3.1 MB, recent writes "), "{text}");
    drop(one);
    other.commit().unwrap();
    let stats = db.stats();
    assert_eq!((stats.transaction_bytes, stats.recent_write_bytes), (0, 0));
    db.close().unwrap();
    // What is read only has the entries of the logs in place of memtables.
    let reader = options.env(std::sync::Arc::new(env)).open_read_only("/db").unwrap();
    assert_eq!(reader.stats().memtable_bytes_max, 6 * part);
}
