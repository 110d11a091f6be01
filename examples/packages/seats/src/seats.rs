//! The seats, who has them, and how many each buyer has.

use siftdb::{Change, ChangedEntry, Db, Error, Keyspace, Options, Transaction, WriteBatch};
use siftdb::{WriteOptions, keys};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long a hold lasts.
const HOLD: Duration = Duration::from_millis(500);
/// Where the counts have the sequence of the last change. No buyer has the empty name.
const POSITION: &str = "";

/// A result, and any error.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The database of the service.
#[derive(Clone)]
pub struct Seats {
    db: Db,
    /// By seat: its state and the buyer. A free seat is not there.
    seats: Keyspace,
    /// By buyer and seat: nothing.
    orders: Keyspace,
    /// By buyer: the number of seats.
    counts: Keyspace,
}

impl Seats {
    /// Opens or creates the database in `path`.
    pub fn open(path: &Path) -> Outcome<Self> {
        let db = Options::new().write_buffer_bytes(1 << 20).keep_log_bytes(4 << 20).open(path)?;
        let [seats, orders, counts] = ["seats", "orders", "counts"].map(|name| db.keyspace(name));
        Ok(Seats { db, seats: seats?, orders: orders?, counts: counts? })
    }

    /// Holds a free seat for a while; false if it is not free.
    pub fn hold(&self, seat: &str, buyer: &str) -> Outcome<bool> {
        let lease = WriteOptions::new().expire_after(HOLD);
        Ok(self.seats.put_if_absent_with(seat, format!("held {buyer}"), &lease)?)
    }

    /// Sells a seat to the buyer who holds it.
    pub fn buy(&self, seat: &str, buyer: &str) -> Outcome<bool> {
        self.transact(|tx| {
            let held = tx.in_keyspace(&self.seats).get(seat)?;
            if held.as_deref() != Some(format!("held {buyer}").as_bytes()) {
                return Ok(false);
            }
            tx.in_keyspace(&self.seats).put(seat, format!("sold {buyer}"))?;
            tx.in_keyspace(&self.orders).put(keys::encode(&(buyer, seat)), "")?;
            Ok(true)
        })
    }

    /// Takes a seat back from the buyer who has it. It is free a moment later.
    pub fn take_back(&self, seat: &str, buyer: &str) -> Outcome<bool> {
        self.transact(|tx| {
            let order = keys::encode(&(buyer, seat));
            if !tx.in_keyspace(&self.orders).contains_key(&order)? {
                return Ok(false);
            }
            // Not a deletion: the change says whose seat it was.
            let brief = WriteOptions::new().expire_after(Duration::from_millis(1));
            tx.in_keyspace(&self.seats).put_with(seat, format!("returned {buyer}"), &brief)?;
            tx.in_keyspace(&self.orders).delete(order)?;
            Ok(true)
        })
    }

    /// Durable when it returns.
    fn transact(&self, run: impl FnMut(&Transaction) -> siftdb::Result<bool>) -> Outcome<bool> {
        Ok(self.db.transact_with(&WriteOptions::new().sync(true), run)?)
    }

    /// A backup that is brought up to date by the next call.
    pub fn checkpoint(&self, path: &str) -> Outcome<bool> {
        self.db.checkpoint(path)?;
        Ok(true)
    }

    /// The number of seats of a buyer, as far as they are counted.
    pub fn count_of(&self, buyer: &str) -> Outcome<u64> {
        let count = self.counts.get(buyer)?;
        Ok(count.map_or(Ok(0), |count| keys::decode(&count))?)
    }

    /// Counts seats as they are sold, until the database is closed.
    pub fn count(&self) -> Outcome<()> {
        let mut watch = match self.seats.watch_from(.., self.count_of(POSITION)? + 1) {
            // The logs do not reach back that far.
            Err(Error::ChangesGone { .. }) => {
                let watch = self.seats.watch(..)?;
                self.count_all()?;
                watch
            }
            watch => watch?,
        };
        loop {
            match watch.next() {
                Some(Ok(change)) => self.count_one(&change)?,
                Some(Err(Error::ChangesGone { .. })) => self.count_all()?,
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
    }

    fn count_one(&self, change: &Change) -> Outcome<()> {
        let ChangedEntry::Put { value, .. } = &change.entry else { return Ok(()) };
        let Some((state, buyer)) = std::str::from_utf8(value)?.split_once(' ') else {
            return Err(format!("no state of a seat: {value:?}").into());
        };
        let step = match state {
            "sold" => 1,
            "returned" => -1,
            _ => return Ok(()),
        };
        if change.sequence <= self.count_of(POSITION)? {
            return Ok(());
        }
        let count = self.count_of(buyer)?.checked_add_signed(step);
        let count = count.ok_or_else(|| format!("{buyer} returns more than was sold"))?;
        let mut batch = WriteBatch::new();
        // In one step: after a crash it goes on exactly there.
        batch.in_keyspace(&self.counts).put(buyer, keys::encode(&count));
        batch.in_keyspace(&self.counts).put(POSITION, keys::encode(&change.sequence));
        Ok(self.db.write(batch)?)
    }

    /// Counts all orders again, at one read point.
    fn count_all(&self) -> Outcome<()> {
        let snapshot = self.orders.snapshot();
        let mut counts = BTreeMap::<String, u64>::new();
        for order in snapshot.iter().keys() {
            let (buyer, _): (String, String) = keys::decode(&order?)?;
            *counts.entry(buyer).or_default() += 1;
        }
        counts.insert(POSITION.into(), snapshot.last_sequence());
        let mut batch = WriteBatch::new();
        batch.in_keyspace(&self.counts).delete_range(..);
        for (buyer, count) in counts {
            batch.in_keyspace(&self.counts).put(buyer, keys::encode(&count));
        }
        Ok(self.db.write(batch)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch may also hand out what a count of all orders has counted.
    #[test]
    fn a_change_is_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let seats = Seats::open(directory.path()).unwrap();
        while !(seats.hold("1", "ada").unwrap() && seats.buy("1", "ada").unwrap()) {}
        let changes: Vec<_> = {
            let mut watch = seats.seats.watch_from(.., 1).unwrap();
            std::iter::from_fn(|| watch.next_timeout(Duration::ZERO).unwrap()).collect()
        };
        for _ in 0..2 {
            changes.iter().for_each(|change| seats.count_one(change).unwrap());
            assert_eq!(seats.count_of("ada").unwrap(), 1);
        }
    }
}
