//! The keys of tables and rows.
//!
//! Everything is in one keyspace. A keyspace for each table would be nicer to look at, but no
//! transaction of siftdb creates or drops one: only a `WriteBatch` does, which checks no reads. So
//! `CREATE TABLE` could not be rolled back, and would not conflict. Here the first byte tells what
//! an entry is:
//!
//! | key | value |
//! |---|---|
//! | `0`, table | the schema |
//! | `1`, table, key of the row | that key and the values of the columns |
//! | `2` | the first row number that was never given out |
//!
//! The key of a row is its primary key, or a row number if the table has none. Keys sort as their
//! values do, so a range of primary keys is a range of the keyspace. GlueSQL's own
//! `Key::to_cmp_be_bytes` would not do: it makes the same bytes of the decimals 1.5 and 1.05, and
//! sorts dates before year 0 after all others.

use gluesql_core::chrono::{Datelike, NaiveDate, NaiveTime, Timelike};
use gluesql_core::data::{Interval, Key};
use siftdb::keys::{EncodeKey, encode};
use std::net::IpAddr;
use std::ops::RangeInclusive;

const TABLES: u8 = 0;
const ROWS: u8 = 1;
const NEXT_ROW: u8 = 2;

/// The highest scale that a decimal has.
const DECIMAL_SCALE: u32 = 28;

/// The key under which the schema of a table is.
#[must_use]
pub fn of_table(table: &str) -> Vec<u8> {
    encode(&(TABLES, table))
}

/// The prefix of the keys of all schemas.
#[must_use]
pub fn of_all_tables() -> Vec<u8> {
    encode(&TABLES)
}

/// The key of a row.
#[must_use]
pub fn of_row(table: &str, key: &Key) -> Vec<u8> {
    encode(&(ROWS, table, RowKey(key)))
}

/// The prefix of the keys of all rows of a table.
#[must_use]
pub fn of_rows(table: &str) -> Vec<u8> {
    encode(&(ROWS, table))
}

/// The keys of the rows from `low` to `high`, both included. `None` is no bound.
#[must_use]
pub fn of_range(table: &str, low: Option<&Key>, high: Option<&Key>) -> RangeInclusive<Vec<u8>> {
    // Every encoding of a row's key begins with a tag between these two.
    let end = |tag: u8| encode(&(ROWS, table, tag));
    let low = low.map_or_else(|| end(0), |key| of_row(table, key));
    low..=high.map_or_else(|| end(u8::MAX), |key| of_row(table, key))
}

/// The key of the first row number that was never given out.
#[must_use]
pub fn of_next_row() -> Vec<u8> {
    encode(&NEXT_ROW)
}

/// A tag for the type, then the value: rows keep their keys when a primary key is dropped, so a
/// table may have keys of two types.
struct RowKey<'a>(&'a Key);

impl EncodeKey for RowKey<'_> {
    fn encode_to(&self, to: &mut Vec<u8>) {
        match self.0 {
            Key::I8(value) => (1u8, *value).encode_to(to),
            Key::I16(value) => (2u8, *value).encode_to(to),
            Key::I32(value) => (3u8, *value).encode_to(to),
            Key::I64(value) => (4u8, *value).encode_to(to),
            Key::I128(value) => (5u8, *value).encode_to(to),
            Key::U8(value) => (6u8, *value).encode_to(to),
            Key::U16(value) => (7u8, *value).encode_to(to),
            Key::U32(value) => (8u8, *value).encode_to(to),
            Key::U64(value) => (9u8, *value).encode_to(to),
            Key::U128(value) => (10u8, *value).encode_to(to),
            Key::F32(value) => (11u8, ordered(f64::from(value.0))).encode_to(to),
            Key::F64(value) => (12u8, ordered(value.0)).encode_to(to),
            Key::Decimal(value) => {
                // Of 1.50 and 1.5, which are equal, the same number of parts of 10^-28.
                let fraction = value.fract();
                let parts = 10i128.pow(DECIMAL_SCALE - fraction.scale());
                let fraction = fraction.mantissa() * parts;
                (13u8, value.trunc().mantissa(), fraction).encode_to(to);
            }
            Key::Bool(value) => (14u8, *value).encode_to(to),
            Key::Str(value) => (15u8, value.as_str()).encode_to(to),
            Key::Bytea(value) => (16u8, value.as_slice()).encode_to(to),
            Key::Date(value) => (17u8, days(*value)).encode_to(to),
            Key::Timestamp(value) => (18u8, days(value.date()), time(value.time())).encode_to(to),
            Key::Time(value) => (19u8, time(*value)).encode_to(to),
            Key::Interval(Interval::Microsecond(value)) => (20u8, 0u8, *value).encode_to(to),
            Key::Interval(Interval::Month(value)) => (20u8, 1u8, *value).encode_to(to),
            Key::Uuid(value) => (21u8, *value).encode_to(to),
            Key::Inet(IpAddr::V4(value)) => (22u8, 4u8, value.to_bits()).encode_to(to),
            Key::Inet(IpAddr::V6(value)) => (22u8, 6u8, value.to_bits()).encode_to(to),
            Key::None => 23u8.encode_to(to),
        }
    }
}

/// A number that sorts as `value` does in the total order of floats.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    match value.is_sign_negative() {
        true => !bits,
        false => bits | 1 << 63,
    }
}

fn days(date: NaiveDate) -> i32 {
    date.num_days_from_ce()
}

fn time(time: NaiveTime) -> (u32, u32) {
    (time.num_seconds_from_midnight(), time.nanosecond())
}
