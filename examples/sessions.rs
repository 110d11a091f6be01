//! Sessions that end by themselves: what is put to a keyspace with an expiry is gone after that
//! time, without a deletion. The clock is the environment's, so this program moves it.

use siftdb::env::MemEnv;
use siftdb::{KeyspaceOptions, Options, WriteOptions};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> siftdb::Result<()> {
    // A program with files leaves the environment out and has the clock of the system.
    let env = MemEnv::new();
    let start = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    env.set_now(start);
    let db = Options::new().env(Arc::new(env.clone())).open("/app")?;

    // Every session lives for 30 minutes after its last write.
    let options = KeyspaceOptions::new().expire_after(30 * MINUTE);
    let sessions = db.keyspace_with("sessions", &options)?;
    sessions.put("session/1", "ada")?;
    sessions.put("session/2", "grace")?;
    // One call may say otherwise; here the user wants to stay signed in.
    let long = WriteOptions::new().expire_after(24 * 60 * MINUTE);
    sessions.put_with("session/3", "alan", &long)?;

    env.set_now(start + 20 * MINUTE);
    if let Some(user) = sessions.get("session/2")? {
        sessions.put("session/2", user)?; // Still in use: 30 minutes from now.
    }

    for minutes in [20, 30, 50, 24 * 60] {
        env.set_now(start + minutes * MINUTE);
        let keys: Vec<String> = sessions
            .iter()
            .keys()
            .map(|key| key.map(|key| key.escape_ascii().to_string()))
            .collect::<siftdb::Result<_>>()?;
        println!("after {minutes:>4} minutes: {}", keys.join(" "));
    }
    assert_eq!(sessions.iter().count(), 0);
    assert_eq!(sessions.get("session/3")?, None);

    // Compactions give the space back; tables in which all has expired are removed unread.
    sessions.flush()?;
    sessions.compact_range(..)?;
    println!(
        "tables: {}, expired entries: {}",
        sessions.tables().len(),
        db.stats().entries_expired
    );
    db.close()
}
