//! A log of events by tenant and time: it keeps a week by expiry, and one call deletes all events
//! of a tenant.

use siftdb::env::MemEnv;
use siftdb::{Db, KeyspaceOptions, Options, keys};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Events of one tenant lie together, ordered by time.
fn key(tenant: &str, second: u64) -> Vec<u8> {
    keys::encode(&(tenant, second))
}

fn count(db: &Db, tenant: &str) -> usize {
    db.prefix(keys::encode(&(tenant,))).count()
}

fn main() -> siftdb::Result<()> {
    // In memory, with a clock that this program moves; a real one leaves the environment out.
    let env = MemEnv::new();
    let week = KeyspaceOptions::new().expire_after(7 * DAY);
    let options = Options::new().env(Arc::new(env.clone())).default_keyspace(&week);
    let db = options.open("/events")?;

    let tenants = ["acme", "globex", "initech"];
    for day in 0..10 {
        for hour in 0..24 {
            let now = UNIX_EPOCH + 20_000 * DAY + day * DAY + hour * DAY / 24;
            env.set_now(now);
            let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            for tenant in tenants {
                db.put(key(tenant, second), "signed in")?;
            }
        }
    }
    // Ten days were written, and seven are there.
    for tenant in tenants {
        println!("{tenant}: {} events", count(&db, tenant));
        assert_eq!(count(&db, tenant), 7 * 24);
    }

    // One entry in the log, however many events there are.
    db.delete_prefix(keys::encode(&("globex",)))?;
    assert_eq!(count(&db, "globex"), 0);
    assert_eq!(count(&db, "initech"), 7 * 24);

    db.flush()?;
    db.compact_range(..)?;
    let left: u64 = db.tables().iter().map(|table| table.entries).sum();
    println!("entries in tables after a compaction: {left}");
    assert_eq!(left as usize, count(&db, "acme") + count(&db, "initech"));
    db.close()
}
