//! Keys of rows sort as their values do.

use gluesql_core::chrono::{NaiveDate, NaiveTime};
use gluesql_core::data::{Interval, Key};
use siftdb_sql::keys::{of_range, of_row};

/// Values of each type, ascending.
fn ascending() -> Vec<Vec<Key>> {
    let date = |year| NaiveDate::from_ymd_opt(year, 5, 1).unwrap();
    let time = |second, nano| NaiveTime::from_num_seconds_from_midnight_opt(second, nano).unwrap();
    let decimal = |text: &str| {
        let value = gluesql_core::data::Value::Str(text.into());
        Key::try_from(value.cast(&gluesql_core::ast::DataType::Decimal).unwrap()).unwrap()
    };
    let at = |year, second, nano| Key::Timestamp(date(year).and_time(time(second, nano)));
    let address = |text: &str| Key::Inet(text.parse().unwrap());
    vec![
        [i8::MIN, -1, 0, 1, i8::MAX].map(Key::I8).into(),
        [i16::MIN, -256, -1, 0, 255, 256].map(Key::I16).into(),
        [i32::MIN, -1, 0, 65536].map(Key::I32).into(),
        [i64::MIN, -1, 0, i64::MAX].map(Key::I64).into(),
        [i128::MIN, -1, 0, i128::MAX].map(Key::I128).into(),
        [0, 1, u8::MAX].map(Key::U8).into(),
        [0, 255, 256].map(Key::U16).into(),
        [0, 65535, 65536].map(Key::U32).into(),
        [0, 1, u64::MAX].map(Key::U64).into(),
        [0, 1, u128::MAX].map(Key::U128).into(),
        [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-40, 1.5].map(|n| Key::F32(n.into())).into(),
        [f64::MIN, -1.5, -0.0, 0.0, 1e-310, f64::INFINITY].map(|n| Key::F64(n.into())).into(),
        [
            "-79228162514264337593543950335",
            "-1.5",
            "-1.05",
            "-1",
            "-0.5",
            "-0.05",
            "0",
            "0.0000000000000000000000000001",
            "0.05",
            "0.5",
            "1.005",
            "1.05",
            "1.5",
            "10",
            "79228162514264337593543950335",
        ]
        .map(decimal)
        .into(),
        [false, true].map(Key::Bool).into(),
        ["", "\0", "\0a", "a", "a\0", "aa", "b", "ä"].map(|text| Key::Str(text.into())).into(),
        [&b""[..], b"\0", b"\0\xff", b"\x01", b"\xff"].map(|b| Key::Bytea(b.into())).into(),
        [-4000, -1, 0, 1999, 2000].map(|year| Key::Date(date(year))).into(),
        vec![at(-4000, 0, 0), at(1969, 9, 0), at(1969, 9, 1), at(1969, 10, 0), at(2000, 0, 0)],
        vec![Key::Time(time(0, 0)), Key::Time(time(0, 5)), Key::Time(time(1, 0))],
        vec![
            Key::Interval(Interval::Microsecond(-1)),
            Key::Interval(Interval::Microsecond(1)),
            Key::Interval(Interval::Month(-1)),
            Key::Interval(Interval::Month(1)),
        ],
        [0, 1, u128::MAX].map(Key::Uuid).into(),
        ["0.0.0.1", "127.0.0.1", "255.0.0.0", "::", "::1", "ff::"].map(address).into(),
        vec![Key::None],
    ]
}

#[test]
fn keys_sort_as_their_values() {
    for keys in ascending() {
        assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
        let encoded: Vec<_> = keys.iter().map(|key| of_row("t", key)).collect();
        assert!(encoded.is_sorted_by(|one, next| one < next), "{keys:?}");
    }
}

#[test]
fn a_range_without_ends_has_every_row() {
    let all = of_range("t", None, None);
    for keys in ascending() {
        for key in &keys {
            assert!(all.contains(&of_row("t", key)), "{key:?}");
            assert!(of_range("t", Some(key), Some(key)).contains(&of_row("t", key)));
            assert!(!all.contains(&of_row("s", key)) && !all.contains(&of_row("tt", key)));
        }
    }
}
