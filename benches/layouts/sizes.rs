//! Bytes of filters and indexes of one table, by layout, block size and length of keys.

use crate::database::{Plan, Shape, full, partitioned};
use siftdb::Filter;
use siftdb_cli::experiment::{Column, bytes};

pub fn print(keys: u64) {
    println!(
        "{:>6} {:>6} {:>9} {:>8} {:>8} {:>9} {:>10} {:>9} {:>9} {:>12}",
        "keys",
        "blocks",
        "data",
        "index",
        "full",
        "partit.",
        "partitions",
        "top level",
        "its share",
        "block-based",
    );
    for shape in [Shape::Short, Shape::Long] {
        for block_bytes in [4 << 10, 16 << 10, 32 << 10] {
            let of = |filter| Plan { shape, block_bytes, ..Plan::new(keys, 1, filter) }.build();
            let (full, parts) = (of(full(10.0)).facts, of(partitioned(10.0)));
            let (top_level, parts) = (parts.top_level_bytes, parts.facts);
            println!(
                "{:>6} {:>3} KB {:>9} {:>8} {:>8} {:>9} {:>10} {:>9} {:>8.2}% {:>12}",
                shape.name(),
                block_bytes >> 10,
                bytes(full.data_bytes),
                bytes(full.index_bytes),
                bytes(full.filter_bytes),
                bytes(parts.filter_bytes),
                parts.filter_partitions,
                bytes(top_level),
                100.0 * top_level as f64 / parts.filter_bytes as f64,
                bytes(of(Column::BlockBased.filter(Filter::bloom(10.0))).facts.filter_bytes),
            );
        }
    }
}
