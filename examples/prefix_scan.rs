//! Scans over one tenant's keys skip the tables that have none of them.
//!
//! The filter holds each key and its prefix, here up to the first slash.

use siftdb::env::MemEnv;
use siftdb::{Db, Filter, Options, Prefix};
use std::sync::Arc;

fn main() -> siftdb::Result<()> {
    let disk = Arc::new(MemEnv::new());
    let filters = [
        ("whole keys only", Filter::bloom(10.0)),
        ("with prefixes", Filter::bloom(10.0).prefix(Prefix::delimited(b'/', 1))),
    ];
    for (number, (name, filter)) in filters.into_iter().enumerate() {
        let options = Options::new().env(disk.clone()).filter(filter).auto_compaction(false);
        let db = options.open(format!("/db-{number}"))?;
        fill(&db)?;

        let invoices = db.prefix("tenant-07/").count();
        let none = db.prefix("tenant-99/").count();
        assert_eq!((invoices, none), (1000, 0));

        let total = db.stats().total();
        println!(
            "{name:<16} {} tables; two scans asked {} of their filters and passed {} by",
            total.tables,
            total.scan_checks(),
            total.scan_negatives
        );
        db.close()?;
    }
    Ok(())
}

/// Twelve tables whose key ranges overlap; each has the invoices of four tenants out of sixteen.
fn fill(db: &Db) -> siftdb::Result<()> {
    for table in 0..12 {
        for tenant in (table % 4..16).step_by(4) {
            for invoice in (table / 4..1000).step_by(3) {
                db.put(format!("tenant-{tenant:02}/invoice-{invoice:06}"), "paid")?;
            }
        }
        db.put("!first", "so that every table covers the whole range")?;
        db.put("~last", "so that every table covers the whole range")?;
        db.flush()?;
    }
    Ok(())
}
