//! Which rows a query reads, and in what order.

use crate::support::{Sql, connect, new, query, refused, run};
use siftdb_sql::Database;

/// A table of the numbers below 1000 by primary key, each twice and thrice.
fn numbers() -> (Database, Sql) {
    let database = new();
    let mut sql = connect(&database);
    run(&mut sql, "CREATE TABLE numbers (id INT PRIMARY KEY, twice INT, thrice INT)");
    let rows: Vec<String> = (0..1000).map(|n| format!("({n}, {}, {})", 2 * n, 3 * n)).collect();
    run(&mut sql, &format!("INSERT INTO numbers VALUES {}", rows.join(", ")));
    (database, sql)
}

/// Whether a transaction with `query` conflicts with a write of the row `id`: it has read it.
fn reads(database: &Database, text: &str, id: i64) -> bool {
    let (mut reader, mut writer) = (connect(database), connect(database));
    run(&mut reader, "BEGIN");
    query(&mut reader, text);
    run(&mut writer, &format!("DELETE FROM numbers WHERE id = {id}"));
    run(&mut writer, &format!("INSERT INTO numbers VALUES ({id}, {}, {})", 2 * id, 3 * id));
    run(&mut reader, "CREATE TABLE any (id INT)");
    let conflicts = reader.execute("COMMIT").is_err();
    if !conflicts {
        run(&mut reader, "DROP TABLE any");
    }
    conflicts
}

#[test]
fn a_primary_key_is_looked_up_once() {
    let (database, mut sql) = numbers();
    let before = database.db().stats();
    assert_eq!(query(&mut sql, "SELECT twice FROM numbers WHERE id = 500"), ["1000"]);
    let after = database.db().stats().since(&before);
    // The schema: to plan, to name the columns, to find the primary key. Then the row.
    assert_eq!((after.scans, after.gets), (0, 4), "{after:?}");
    // Nor is anything written or synced.
    assert_eq!((after.write_groups, after.wal_syncs), (0, 0), "{after:?}");
    let text = "SELECT twice FROM numbers WHERE id = 500";
    assert!(reads(&database, text, 500));
    assert!(!reads(&database, text, 499) && !reads(&database, text, 501));
}

#[test]
fn ranges_read_nothing_beside_them() {
    let (database, mut sql) = numbers();
    for (filter, found, first, last) in [
        ("id BETWEEN 10 AND 20", 11, 10, 20),
        ("id >= 10 AND id <= 20", 11, 10, 20),
        ("id > 10 AND id < 20", 9, 10, 20),
        ("20 >= id AND (id >= 10)", 11, 10, 20),
        ("numbers.id >= 10 AND twice < 32 AND id < +20", 6, 10, 20),
        ("id < 3 AND id >= 0", 3, 0, 3),
        ("id >= 990", 10, 990, 999),
    ] {
        let text = format!("SELECT * FROM numbers WHERE {filter}");
        assert_eq!(query(&mut sql, &text).len(), found, "{text}");
        let counted = format!("SELECT COUNT(*) FROM numbers WHERE {filter}");
        assert_eq!(query(&mut sql, &counted), [found.to_string()]);
        for text in [&text, &counted, &format!("{text} ORDER BY twice LIMIT 1 OFFSET 1")] {
            assert!(reads(&database, text, first) && reads(&database, text, last), "{text}");
            assert!(!reads(&database, text, first - 1), "{text}");
            assert!(last == 999 || !reads(&database, text, last + 1), "{text}");
        }
    }
    assert!(!reads(&database, "SELECT * FROM numbers WHERE id < -1", 0));
}

#[test]
fn the_order_of_primary_keys_needs_no_sort() {
    let (database, mut sql) = numbers();
    let lowest = "SELECT id FROM numbers WHERE id > 9 ORDER BY id LIMIT 3";
    assert_eq!(query(&mut sql, lowest), ["10", "11", "12"]);
    assert!(reads(&database, lowest, 12) && !reads(&database, lowest, 20));
    let highest = "SELECT n.id FROM numbers AS n WHERE n.id < 900 ORDER BY n.id DESC LIMIT 2";
    assert_eq!(query(&mut sql, highest), ["899", "898"]);
    assert!(reads(&database, highest, 898) && !reads(&database, highest, 890));
    let offset = "SELECT id FROM numbers ORDER BY id DESC LIMIT 2 OFFSET 3";
    assert_eq!(query(&mut sql, offset), ["996", "995"]);
    assert!(!reads(&database, offset, 990));
}

/// Every query of a table with a primary key has the answer that it has without one.
#[test]
fn ranges_find_what_a_scan_finds() {
    // Ascending, so that both tables are scanned in the same order.
    let (mut number, mut found) = (0, 0);
    for (of, values) in [
        ("INT", &["-9000000000", "-1", "0", "1", "255", "256", "9000000000"][..]),
        ("UINT64", &["0", "1", "255", "18446744073709551615"]),
        ("DECIMAL", &["-1.5", "-1.05", "-0.5", "0", "0.05", "0.5", "1.05", "1.5", "10"]),
        ("TEXT", &["''", "'5'", "'a'", "'aa'", "'ab'", "'b'", "'ä'"]),
        ("DATE", &["'0001-01-01'", "'1999-12-31'", "'2000-01-01'", "'9999-12-31'"]),
        ("INET", &["'0.0.0.1'", "'127.0.0.1'", "'::1'"]),
        ("BYTEA", &["X''", "X'00'", "X'0001'", "X'01'", "X'ff'"]),
        ("UUID", &["'036DA01F9ABD4D9D80C702AF85C822A8'", "'936DA01F-9ABD-4D9D-80C7-02AF85C822A8'"]),
    ] {
        let mut sql = connect(&new());
        run(&mut sql, &format!("CREATE TABLE keyed (id {of} PRIMARY KEY, n INT)"));
        run(&mut sql, &format!("CREATE TABLE plain (id {of}, n INT)"));
        for (n, value) in values.iter().enumerate() {
            run(&mut sql, &format!("INSERT INTO keyed VALUES ({value}, {n})"));
            run(&mut sql, &format!("INSERT INTO plain VALUES ({value}, {n})"));
        }
        let others = ["1.3", "-3", "NULL", "'1'", "2 - 1"];
        let ends: Vec<&str> = values.iter().chain(&others).copied().collect();
        for end in &ends {
            for filter in [
                format!("id < {end}"),
                format!("{end} < id"),
                format!("id >= {end} AND n < 3"),
                format!("id BETWEEN {end} AND {}", values[values.len() / 2]),
                format!("id NOT BETWEEN {} AND {end}", values[0]),
                format!("id > {end} OR n = 0"),
            ] {
                for query in [
                    format!("SELECT n FROM plain WHERE {filter} ORDER BY n"),
                    format!("SELECT n FROM plain WHERE {filter} ORDER BY id"),
                    format!("SELECT 0 - n AS id FROM plain WHERE {filter} ORDER BY id LIMIT 5"),
                    format!(
                        "SELECT p.n FROM plain AS p WHERE {filter} ORDER BY p.id DESC OFFSET 1"
                    ),
                    format!("SELECT n, id FROM plain WHERE {filter} ORDER BY id LIMIT 2 OFFSET 2"),
                    format!("SELECT b FROM plain AS p(b, n) WHERE {filter} ORDER BY b"),
                    format!("SELECT COUNT(*), MAX(n) FROM plain WHERE {filter}"),
                    format!(
                        "SELECT SUM(n) FROM plain WHERE {filter} GROUP BY n % 3 ORDER BY id DESC"
                    ),
                    format!(
                        "SELECT id, COUNT(*) FROM plain WHERE {filter} GROUP BY id \
                         HAVING id > {end} ORDER BY id DESC"
                    ),
                ] {
                    // A fifth of them is enough, others for each end.
                    number += 1;
                    if number % 5 > 0 {
                        continue;
                    }
                    let plain = sql.execute(&query).ok();
                    found += usize::from(plain.is_some());
                    let keyed = query.replace("plain", "keyed");
                    assert_eq!(sql.execute(&keyed).ok(), plain, "{of}: {keyed}");
                }
            }
        }
    }
    // Not because all of them are refused.
    assert!(found * 2 > number / 5, "{found} of {number}");
}

#[test]
fn a_plan_for_another_key_is_refused() {
    let (database, mut sql) = numbers();
    let plan = sql.plan("SELECT * FROM numbers WHERE id > 990").unwrap().remove(0);
    assert!(sql.execute_stmt(&plan).is_ok());
    let mut other = connect(&database);
    for change in [
        "ALTER TABLE numbers RENAME COLUMN id TO other",
        "DROP TABLE numbers; CREATE TABLE numbers (id TEXT PRIMARY KEY)",
        "ALTER TABLE numbers DROP COLUMN id",
        "DROP TABLE numbers",
    ] {
        run(&mut other, change);
        assert!(sql.execute_stmt(&plan).is_err(), "{change}");
    }
}

#[test]
fn keys_that_differ_are_different_rows() {
    let mut sql = connect(&new());
    run(&mut sql, "CREATE TABLE prices (price DECIMAL PRIMARY KEY)");
    run(&mut sql, "INSERT INTO prices VALUES (1.5), (1.05), (1.005)");
    assert_eq!(query(&mut sql, "SELECT price FROM prices WHERE price = 1.050"), ["1.05"]);
    assert_eq!(query(&mut sql, "SELECT price FROM prices"), ["1.005", "1.05", "1.5"]);
    let said = refused(&mut sql, "INSERT INTO prices VALUES (2), (2.0)");
    assert!(said.contains("duplicate entry"), "{said}");
}

#[test]
fn tables_with_similar_names_stay_apart() {
    let mut sql = connect(&new());
    for table in ["a", "aa", "a\0", "a\0b", "b"] {
        run(&mut sql, &format!("CREATE TABLE \"{table}\" (id INT PRIMARY KEY)"));
        run(&mut sql, &format!("INSERT INTO \"{table}\" VALUES (1)"));
    }
    run(&mut sql, "DROP TABLE a; INSERT INTO aa VALUES (2)");
    for (table, count) in [("aa", "2"), ("a\0", "1"), ("a\0b", "1"), ("b", "1")] {
        let counted = query(&mut sql, &format!("SELECT COUNT(*) FROM \"{table}\""));
        assert_eq!(counted, [count], "{table:?}");
    }
}

#[test]
fn altered_tables_keep_their_rows() {
    let (_database, mut sql) = numbers();
    let said = refused(&mut sql, "ALTER TABLE numbers RENAME TO numbers");
    assert!(said.contains("exists"), "{said}");
    run(&mut sql, "CREATE TABLE other (id INT); INSERT INTO other VALUES (1)");
    assert!(refused(&mut sql, "ALTER TABLE other RENAME TO numbers").contains("exists"));
    let said = refused(&mut sql, "ALTER TABLE other ADD COLUMN key INT DEFAULT 1 PRIMARY KEY");
    assert!(said.contains("only CREATE TABLE"), "{said}");
    run(&mut sql, "ALTER TABLE numbers RENAME TO renamed; ALTER TABLE renamed DROP COLUMN id");
    run(&mut sql, "INSERT INTO renamed VALUES (0, 0)");
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM renamed"), ["1001"]);
    assert_eq!(query(&mut sql, "SELECT twice FROM renamed WHERE thrice = 1500"), ["1000"]);
}
