//! Two connections of one database: what each sees of the other, and when they conflict.

use crate::support::{Sql, connect, new, query, refused, run};
use siftdb_sql::Database;

/// A database with two accounts, and two connections that have begun a transaction.
fn two_in_transactions() -> (Database, Sql, Sql) {
    let database = new();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(&mut one, "CREATE TABLE accounts (name TEXT PRIMARY KEY, money INT)");
    run(&mut one, "INSERT INTO accounts VALUES ('ada', 100), ('bob', 100)");
    run(&mut one, "BEGIN");
    run(&mut other, "BEGIN");
    (database, one, other)
}

/// The commit must be refused, and leave nothing.
fn assert_conflict(sql: &mut Sql) {
    let said = refused(sql, "COMMIT");
    assert!(said.contains("conflict") && said.contains("try again"), "{said}");
    assert!(!sql.storage.is_in_transaction());
}

#[test]
fn lost_updates_conflict() {
    let (_database, mut one, mut other) = two_in_transactions();
    for sql in [&mut one, &mut other] {
        assert_eq!(query(sql, "SELECT money FROM accounts WHERE name = 'ada'"), ["100"]);
        run(sql, "UPDATE accounts SET money = money + 10 WHERE name = 'ada'");
    }
    run(&mut other, "COMMIT");
    assert_conflict(&mut one);
    assert_eq!(query(&mut one, "SELECT * FROM accounts"), ["ada 110", "bob 100"]);
    // Again, as the message says.
    run(&mut one, "UPDATE accounts SET money = money + 10 WHERE name = 'ada'");
    assert_eq!(query(&mut other, "SELECT * FROM accounts"), ["ada 120", "bob 100"]);
}

#[test]
fn threads_that_try_again_lose_no_update() {
    let database = new();
    run(&mut connect(&database), "CREATE TABLE count (n INT); INSERT INTO count VALUES (0)");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut sql = connect(&database);
                for _ in 0..25 {
                    while let Err(error) = sql.execute("UPDATE count SET n = n + 1") {
                        assert!(error.to_string().contains("conflict"), "{error}");
                    }
                }
            });
        }
    });
    assert_eq!(query(&mut connect(&database), "SELECT n FROM count"), ["100"]);
}

#[test]
fn write_skew_conflicts() {
    let (_database, mut one, mut other) = two_in_transactions();
    // Each may take money from one account, as long as the sum allows it.
    for (sql, name) in [(&mut one, "ada"), (&mut other, "bob")] {
        assert_eq!(query(sql, "SELECT SUM(money) FROM accounts"), ["200"]);
        run(sql, &format!("INSERT INTO accounts VALUES ('{name} spends', -200)"));
    }
    run(&mut one, "COMMIT");
    assert_conflict(&mut other);
    assert_eq!(query(&mut other, "SELECT SUM(money) FROM accounts"), ["0"]);
}

#[test]
fn phantoms_conflict() {
    let (_database, mut one, mut other) = two_in_transactions();
    let of_c = "SELECT COUNT(*) FROM accounts WHERE name >= 'c' AND name < 'd'";
    assert_eq!(query(&mut one, of_c), ["0"]);
    run(&mut other, "INSERT INTO accounts VALUES ('cid', 1); COMMIT");
    // It still sees the snapshot, in which there is none.
    assert_eq!(query(&mut one, of_c), ["0"]);
    run(&mut one, "INSERT INTO accounts VALUES ('first of c', 0)");
    assert_conflict(&mut one);
    assert_eq!(query(&mut one, of_c), ["1"]);
}

#[test]
fn rows_beside_a_range_do_not_conflict() {
    let (_database, mut one, mut other) = two_in_transactions();
    let of_c = "SELECT * FROM accounts WHERE name >= 'c' AND name < 'd'";
    assert_eq!(query(&mut one, of_c), [""; 0]);
    assert_eq!(query(&mut one, "SELECT money FROM accounts WHERE name = 'bob'"), ["100"]);
    run(&mut other, "INSERT INTO accounts VALUES ('b', 1), ('e', 1); COMMIT");
    run(&mut one, "INSERT INTO accounts VALUES ('cid', 0); COMMIT");
    assert_eq!(query(&mut one, "SELECT COUNT(*) FROM accounts"), ["5"]);
}

#[test]
fn the_same_primary_key_conflicts() {
    let (_database, mut one, mut other) = two_in_transactions();
    run(&mut one, "INSERT INTO accounts VALUES ('cid', 1)");
    run(&mut other, "INSERT INTO accounts VALUES ('cid', 2)");
    run(&mut other, "COMMIT");
    assert_conflict(&mut one);
    let said = refused(&mut one, "INSERT INTO accounts VALUES ('cid', 1)");
    assert!(said.contains("duplicate entry"), "{said}");
}

#[test]
fn inserts_without_primary_keys_never_conflict() {
    let database = new();
    let (mut one, mut other) = (connect(&database), connect(&database));
    run(&mut one, "CREATE TABLE log (line TEXT)");
    run(&mut one, "BEGIN; INSERT INTO log VALUES ('1')");
    run(&mut other, "BEGIN; INSERT INTO log VALUES ('2'), ('3')");
    run(&mut one, "INSERT INTO log VALUES ('4'); COMMIT");
    run(&mut other, "COMMIT");
    assert_eq!(query(&mut one, "SELECT line FROM log"), ["1", "2", "3", "4"]);
}

#[test]
fn readers_are_never_refused() {
    let (_database, mut one, mut other) = two_in_transactions();
    let all = "SELECT * FROM accounts";
    let before = query(&mut one, all);
    run(&mut other, "DELETE FROM accounts; COMMIT");
    assert_eq!(query(&mut one, all), before);
    run(&mut one, "COMMIT");
    assert_eq!(query(&mut one, all), [""; 0]);
}

#[test]
fn tables_are_rolled_back() {
    let (_database, mut one, mut other) = two_in_transactions();
    run(&mut one, "CREATE TABLE fruit (name TEXT); INSERT INTO fruit VALUES ('fig')");
    run(&mut one, "ALTER TABLE accounts ADD COLUMN age INT DEFAULT 7");
    run(&mut one, "ALTER TABLE accounts RENAME TO people");
    assert_eq!(query(&mut one, "SELECT age FROM people"), ["7", "7"]);
    // Others see nothing of it.
    assert_eq!(query(&mut other, "SELECT * FROM accounts"), ["ada 100", "bob 100"]);
    run(&mut one, "ROLLBACK");
    assert_eq!(query(&mut one, "SELECT * FROM accounts"), ["ada 100", "bob 100"]);
    run(&mut one, "BEGIN; DROP TABLE accounts; ROLLBACK");
    assert_eq!(query(&mut one, "SELECT * FROM accounts"), ["ada 100", "bob 100"]);
    assert!(refused(&mut one, "SELECT * FROM fruit").contains("table not found"));
}

#[test]
fn a_dropped_table_conflicts_with_its_writers() {
    let (_database, mut one, mut other) = two_in_transactions();
    run(&mut one, "INSERT INTO accounts VALUES ('cid', 1)");
    run(&mut other, "DROP TABLE accounts; COMMIT");
    assert_conflict(&mut one);
    run(&mut one, "CREATE TABLE accounts (name TEXT PRIMARY KEY)");
    assert_eq!(query(&mut one, "SELECT * FROM accounts"), [""; 0]);
}

#[test]
fn a_drop_takes_rows_of_other_transactions() {
    let (_database, mut one, mut other) = two_in_transactions();
    run(&mut one, "DROP TABLE accounts");
    run(&mut other, "INSERT INTO accounts VALUES ('cid', 1); COMMIT");
    run(&mut one, "COMMIT; CREATE TABLE accounts (name TEXT PRIMARY KEY)");
    assert_eq!(query(&mut one, "SELECT * FROM accounts"), [""; 0]);
}

#[test]
fn misplaced_begins_and_ends_are_refused() {
    let (_database, mut one, _other) = two_in_transactions();
    assert!(refused(&mut one, "BEGIN").contains("open already"));
    run(&mut one, "COMMIT");
    assert!(refused(&mut one, "COMMIT").contains("no transaction is open"));
    assert!(refused(&mut one, "ROLLBACK").contains("no transaction is open"));
}

#[test]
fn a_failed_write_leaves_nothing_of_its_statement() {
    let (_database, mut one, _other) = two_in_transactions();
    run(&mut one, "INSERT INTO accounts VALUES ('cid', 1)");
    // The second key is longer than a key may be.
    let long = "x".repeat(70_000);
    refused(&mut one, &format!("INSERT INTO accounts VALUES ('dan', 1), ('{long}', 1)"));
    run(&mut one, "COMMIT");
    assert_eq!(query(&mut one, "SELECT name FROM accounts"), ["ada", "bob", "cid"]);
}
