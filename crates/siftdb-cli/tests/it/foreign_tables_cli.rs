//! The command on single tables of LevelDB and RocksDB.

use crate::cli::{Place, fails, json, ok, read, siftdb, write};
use crate::output_cli::foreign_table;
use serde_json::Value;
use std::path::Path;

fn leveldb() -> String {
    foreign_table("leveldb/000011.ldb")
}

fn rocksdb(name: &str) -> String {
    foreign_table(&format!("rocksdb/{name}.sst"))
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = ok(arguments);
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What RocksDB says of a table that it wrote.
fn facts(name: &str) -> Value {
    let facts: Value =
        serde_json::from_slice(&read(Path::new(&foreign_table("rocksdb/facts.json")))).unwrap();
    facts[name].clone()
}

#[test]
fn layouts_name_every_part_of_a_table() {
    let text = ok(&["sst", "layout", &leveldb()]);
    assert!(text.starts_with("000011.ldb  392 B  LevelDB, checksums CRC-32C\n"), "{text}");
    for part in ["data ", "filter ", "filter.leveldb.BuiltinBloomFilter2", "metaindex", "footer"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let name = "v6_xxh3_partitioned_snappy";
    let text = ok(&["sst", "layout", &rocksdb(name)]);
    let first = "RocksDB, format version 6, index two-level, checksums XXH3";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("rocksdb.comparator = \"leveldb.BytewiseComparator\""), "{text}");
    let object = json(&["sst", "layout", &rocksdb(name), "--json"]);
    let parts = object["parts"].as_array().unwrap();
    let count = |kind: &str| parts.iter().filter(|part| part["kind"] == kind).count();
    assert_eq!(count("data") as u64, facts(name)["data_blocks"]);
    assert!(count("filter partition") > 1 && count("index partition") > 1, "{text}");
    for kind in ["filter index", "index", "range deletes", "properties", "metaindex", "footer"] {
        assert_eq!(count(kind), 1, "{kind}");
    }
    // Every byte belongs to one part.
    let mut places: Vec<(u64, u64)> = parts
        .iter()
        .map(|part| (part["offset"].as_u64().unwrap(), part["bytes"].as_u64().unwrap()))
        .collect();
    places.sort_unstable();
    let end = places.iter().fold(0, |end, &(offset, bytes)| {
        assert_eq!(offset, end, "{text}");
        offset + bytes
    });
    assert_eq!(object["bytes"], end);
}

#[test]
fn dumps_have_sequence_and_kind() {
    let name = "v7_crc32c_snappy";
    let all = rows(&["sst", "dump", &rocksdb(name), "--json"]);
    let of = |record: &str| all.iter().filter(|row| row["record"] == record).count() as u64;
    assert_eq!(of("entry") + of("deletion"), facts(name)["entries"]);
    assert_eq!(of("deletion") + of("range_deletion"), facts(name)["deletions"]);
    assert_eq!(of("block"), facts(name)["data_blocks"]);
    assert!(all.iter().any(|row| row["kind"] == "merge" && row["sequence"].is_u64()), "{all:?}");
    let limited = rows(&["sst", "dump", &rocksdb(name), "--limit", "3", "--json"]);
    assert_eq!(limited.iter().filter(|row| row.get("kind").is_some()).count(), 3);
    let one = rows(&["sst", "dump", &rocksdb(name), "--block", "1", "--json"]);
    assert_eq!((&one[0]["record"], &one[0]["number"]), (&"block".into(), &1.into()));
    let text = ok(&["sst", "dump", &rocksdb(name)]);
    for part in ["\"a\"..\"b\" @", " merge = \"", " deleted\n", "block 0  data "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = ok(&["sst", "dump", &leveldb()]);
    assert!(text.contains("  \"k\\x0") && text.contains(" = \""), "{text}");
    let refused = fails(2, &["sst", "dump", &leveldb(), "--block", "9"]);
    assert!(refused.contains("block 9 of 3 data blocks, counted from 0"), "{refused}");
}

#[test]
fn sound_tables_are_in_order() {
    for name in ["v2_crc32c", "v3_xxhash_snappy", "v4_xxhash64_first_keys", "v7_xxh3"] {
        let answer = json(&["sst", "verify", &rocksdb(name), "--json"]);
        let table = &answer["tables"][0];
        assert_eq!((&answer["sound"], &table["ok"]), (&true.into(), &true.into()));
        assert_eq!(table["table"]["entries"], facts(name)["entries"]);
        assert_eq!(table["table"]["store"], "rocksdb");
    }
    let text = ok(&["sst", "verify", &leveldb()]);
    assert!(text.contains("000011.ldb: ok, LevelDB, 5 entries in 3 data blocks\n"), "{text}");
    let text = ok(&["sst", "verify", &rocksdb("v5_none_partitioned")]);
    assert!(text.contains("it has no checksums"), "{text}");
}

#[test]
fn damaged_foreign_tables_are_named() {
    let place = Place::new();
    for (name, good) in [("t.sst", rocksdb("v5_crc32c_partitioned")), ("t.ldb", leveldb())] {
        let (path, mut bytes) = (place.path(name), read(Path::new(&good)));
        bytes[5] ^= 4;
        write(&path, &bytes);
        for command in [["sst", "verify"], ["sst", "dump"], ["filter", "stats"]] {
            let refused = fails(3, &[&command[..], &[&path]].concat());
            assert!(
                refused.contains(name) && refused.contains("at byte 0: a block fails its checksum"),
                "{refused}"
            );
            assert!(
                !refused.contains("siftdb repair") && !refused.contains("salvage"),
                "{refused}"
            );
            assert!(refused.contains("; restore the table from a copy, or "), "{refused}");
        }
        let output = siftdb(&["sst", "verify", &path, "--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = &answer["tables"][0]["error"];
        assert_eq!((&answer["sound"], &error["offset"]), (&false.into(), &0.into()));
        // Half a table is no table: nothing at its end says what it is.
        write(&path, &bytes[..bytes.len() / 2]);
        assert!(fails(3, &["sst", "layout", &path]).contains("not a siftdb table"));
    }
}

#[test]
fn tables_that_are_not_read_are_named() {
    let place = Place::new();
    let path = place.path("000009.sst");
    let bytes = read(Path::new(&rocksdb("v2_crc32c")));
    let at_end = |front: usize, changed: &[u8]| {
        let mut bytes = bytes.clone();
        let at = bytes.len() - front;
        bytes[at..at + changed.len()].copy_from_slice(changed);
        write(&path, &bytes);
    };
    let refused = || -> String {
        let commands = [["sst", "layout"], ["sst", "dump"], ["sst", "verify"], ["filter", "stats"]];
        commands.map(|command| fails(3, &[&command[..], &[&path]].concat())).concat()
    };
    at_end(8, &0x8242_2296_63bf_9564u64.to_le_bytes());
    assert_eq!(refused().matches("a plain table of RocksDB").count(), 4);
    at_end(12, &8u32.to_le_bytes());
    assert_eq!(refused().matches("format version 8; read are 2 to 7").count(), 4);
}

/// Some tables of RocksDB are compressed in a way that is not read. That says nothing about them.
#[test]
fn unread_compression_is_no_verdict() {
    let (place, good) = (Place::new(), rocksdb("v5_none_partitioned"));
    let (path, mut bytes) = (place.path("bzip2.sst"), read(Path::new(&good)));
    let layout = json(&["sst", "layout", &good, "--json"]);
    let data = layout["parts"].as_array().unwrap().iter().find(|part| part["kind"] == "data");
    let number = |name: &str| data.unwrap()[name].as_u64().unwrap() as usize;
    bytes[number("offset") + number("bytes") - 5] = 3;
    write(&path, &bytes);
    let refused = fails(3, &["sst", "verify", &path]);
    assert!(refused.contains("compression bzip2 (3)"), "{refused}");
    for output in [&[][..], &["--json"]] {
        let output = siftdb(&[&["sst", "verify", &path], output].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("not in order") && !text.contains("sound"), "{text}");
    }
}

#[test]
fn filters_of_single_tables_are_shown() {
    let place = Place::new();
    let probes = place.path("probes");
    let keys: String = (0..200).map(|i| format!("user{:06}x\n", i % 55)).collect();
    write(&probes, keys.as_bytes());
    let path = rocksdb("v5_crc32c_partitioned");
    let report = json(&["filter", "stats", &path, "--probe", &probes, "--json"]);
    assert_eq!((&report["store"], &report["tables"]), (&"rocksdb".into(), &1.into()));
    assert_eq!(report["encodings"], serde_json::json!(["fast-local-bloom"]));
    assert_eq!(report["layouts"], serde_json::json!(["partitioned"]));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("partitions") > 1 && count("negatives") > 100, "{report}");
    assert_eq!(count("negatives") + count("false_positives"), 200);
    assert_eq!((count("found"), &report["in_partitions"]), (0, &Value::Null));
    let text = ok(&["filter", "stats", &path, "--probe", &probes]);
    for part in
        ["RocksDB: 1 table", "fast-local-bloom with ", " in 2 partitions", "observed: ", "ribbon"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = ok(&["filter", "stats", &rocksdb("v7_crc32c_snappy")]);
    assert!(text.contains("one a table") && !text.contains("a lookup needs their index"), "{text}");
    let text = ok(&["filter", "stats", &rocksdb("v6_xxhash64_hash")]);
    assert!(text.contains("ribbon of 7 columns, one a table"), "{text}");
    let text = ok(&["filter", "stats", &rocksdb("v6_none")]);
    assert!(text.contains("without a filter of RocksDB's own for whole keys: 1 table"), "{text}");
    let report = json(&["filter", "stats", &leveldb(), "--json"]);
    assert_eq!((&report["store"], &report["keys"]), (&"leveldb".into(), &5.into()));
    assert_eq!(report["in_partitions"], Value::Null, "{report}");
}

#[test]
fn options_of_databases_are_refused_for_single_tables() {
    let file = rocksdb("v7_crc32c_snappy");
    let options = [
        ["--keyspace", "default"],
        ["--bits", "10"],
        ["--encoding", "ribbon"],
        ["--layout", "full"],
        ["--monkey", "1MB"],
        ["--cache", "1MB"],
    ];
    for option in options {
        let refused = fails(2, &[&["filter", "stats", &file], &option[..]].concat());
        assert!(refused.contains(&format!("{} is for databases", option[0])), "{refused}");
    }
}
