//! Money between accounts: four threads transfer at once, and no coin is lost or made.
//!
//! A transfer reads two accounts and writes both. Without a transaction, another thread could write
//! one of them in between, and its payment would be gone. With one, the commit fails if either
//! account was written since the transaction began, and `transact` runs the transfer again.
//!
//! `cargo run --example bank`

use siftdb::keys::{decode, encode};
use siftdb::{Db, Readable, Transaction};

const ACCOUNTS: u64 = 1_000;
const COINS_EACH: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS_EACH: u64 = 5_000;

/// What is on an account: in the database, a snapshot or a transaction.
fn balance(of: &impl Readable, account: u64) -> siftdb::Result<u64> {
    let coins = of.get(encode(&account))?;
    Ok(coins.and_then(|coins| decode(&coins).ok()).unwrap_or(0))
}

/// Moves coins, or fewer if there are not as many.
fn transfer(tx: &Transaction, from: u64, to: u64, coins: u64) -> siftdb::Result<()> {
    let rest = balance(tx, from)?;
    let coins = coins.min(rest);
    tx.put(encode(&from), encode(&(rest - coins)))?;
    // A transaction reads its own writes, so this is right even from an account to itself.
    let credit = balance(tx, to)? + coins;
    tx.put(encode(&to), encode(&credit))
}

/// What is on all accounts at one moment.
fn total(of: &impl Readable) -> siftdb::Result<u64> {
    (0..ACCOUNTS).map(|account| balance(of, account)).sum()
}

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-bank-{}", std::process::id()));
    let db = Db::open(&directory)?;
    for account in 0..ACCOUNTS {
        db.put(encode(&account), encode(&COINS_EACH))?;
    }
    let at_work = |thread: u64| -> siftdb::Result<()> {
        let mut draw = thread + 1;
        for _ in 0..TRANSFERS_EACH {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (from, to) = ((draw >> 32) % ACCOUNTS, (draw >> 48) % ACCOUNTS);
            db.transact(|tx| transfer(tx, from, to, 1 + thread))?;
        }
        // A snapshot sees each transfer whole or not at all, while other transfers continue.
        assert_eq!(total(&db.snapshot())?, ACCOUNTS * COINS_EACH);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || at_work(n))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    println!("{} transfers, total {}", THREADS * TRANSFERS_EACH, total(&db)?);
    assert_eq!(total(&db)?, ACCOUNTS * COINS_EACH);
    db.close()?;
    let _ = std::fs::remove_dir_all(&directory); // Leave no files.
    Ok(())
}
