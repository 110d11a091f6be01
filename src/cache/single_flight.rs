//! Several threads want one thing that takes long: one works, the others wait for what it got.
//!
//! The block cache keeps one [`Flights`] per shard, inside the shard's lock. Legal order: `join`
//! under that lock; who gets `None` leads, and must call `land` under the lock once, whatever
//! happens, then `announce` to the waiters if there are any. Who gets `Some` lets go of the lock
//! and waits. `None` announced means that the leader failed: each waiter starts over, so that an
//! error is never shared. Without waiters a flight costs no allocation.

use crate::base::sync::{Arc, Condvar, Mutex};

/// The loads under way, by key. Few at a time: a thread has one, so a scan is faster than a map.
pub struct Flights<K, V> {
    flights: Vec<(K, Option<Arc<Waiters<V>>>)>,
}

impl<K: PartialEq, V> Flights<K, V> {
    /// No loads.
    pub const fn new() -> Self {
        Flights { flights: Vec::new() }
    }

    /// Starts the load of `key`, or answers where to wait for the one that is under way.
    pub fn join(&mut self, key: K) -> Option<Arc<Waiters<V>>> {
        if let Some((_, waiters)) = self.flights.iter_mut().find(|(other, _)| *other == key) {
            return Some(Arc::clone(waiters.get_or_insert_with(Waiters::new)));
        }
        self.flights.push((key, None));
        None
    }

    /// Ends the load of `key`; answers those who wait, if any do.
    pub fn land(&mut self, key: &K) -> Option<Arc<Waiters<V>>> {
        let at = self.flights.iter().position(|(other, _)| other == key)?;
        self.flights.swap_remove(at).1
    }
}

/// Where the waiters of one load learn its outcome.
pub struct Waiters<V> {
    /// `None` while the load is under way; then what it announced.
    outcome: Mutex<Option<Option<V>>>,
    announced: Condvar,
}

impl<V> Waiters<V> {
    fn new() -> Arc<Self> {
        Arc::new(Waiters { outcome: Mutex::new(None), announced: Condvar::new() })
    }

    /// Tells every waiter the outcome; `None` says that the load failed.
    pub fn announce(&self, outcome: Option<V>) {
        *self.outcome.lock() = Some(outcome);
        self.announced.notify_all();
    }
}

impl<V: Clone> Waiters<V> {
    /// What the load got, or `None` when it failed and the caller must try by itself.
    pub fn wait(&self) -> Option<V> {
        let mut outcome = self.outcome.lock();
        while outcome.is_none() {
            self.announced.wait(&mut outcome);
        }
        outcome.clone().flatten()
    }
}

#[cfg(test)]
impl<K: PartialEq, V> Flights<K, V> {
    /// Loads under way.
    pub fn len(&self) -> usize {
        self.flights.len()
    }

    /// Threads that wait for `key`, between their join and their return.
    pub fn waiting(&self, key: &K) -> usize {
        let flight = self.flights.iter().find(|(other, _)| other == key);
        flight.and_then(|(_, waiters)| waiters.as_ref()).map_or(0, |w| Arc::strong_count(w) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_get_the_leaders_result() {
        for outcome in [Some(7), None] {
            let flights = Mutex::new(Flights::new());
            assert!(flights.lock().join("a").is_none());
            assert!(flights.lock().join("b").is_none(), "another key is another flight");
            std::thread::scope(|scope| {
                let joined: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            let waiters = flights.lock().join("a").expect("is under way");
                            waiters.wait()
                        })
                    })
                    .collect();
                while flights.lock().waiting(&"a") < 3 {
                    std::thread::yield_now();
                }
                let waiters = flights.lock().land(&"a").expect("three wait");
                assert!(flights.lock().join("a").is_none(), "landed: the next one leads");
                waiters.announce(outcome);
                assert!(joined.into_iter().all(|thread| thread.join().unwrap() == outcome));
            });
            assert!(flights.lock().land(&"b").is_none(), "nobody waited");
            assert!(flights.lock().land(&"b").is_none());
            assert_eq!(flights.lock().len(), 1);
        }
    }
}
