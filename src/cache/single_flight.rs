//! Single flight: several threads that want one value share one load.
//!
//! The block cache keeps one [`Calls`] per shard, inside the shard's lock. Legal order: `join`
//! under that lock. The thread that gets `None` leads: it loads without the lock. Then it calls
//! `finish` under the lock exactly once, on success, error or panic, and publishes the outcome to
//! the waiters, if there are any. A thread that gets `Some` releases the lock and waits. A
//! published `None` means that the leader failed: each waiter tries again by itself, so no error is
//! shared. A call without waiters allocates nothing.

use crate::base::sync::{Arc, Condvar, Mutex};

/// The loads in progress, by key. A thread has at most one, so a scan is faster than a map.
pub(crate) struct Calls<K, V> {
    calls: Vec<(K, Option<Arc<Waiters<V>>>)>,
}

impl<K: PartialEq, V> Calls<K, V> {
    pub(crate) const fn new() -> Self {
        Calls { calls: Vec::new() }
    }

    /// Starts the load of `key`, or returns where to wait for the one in progress.
    pub(crate) fn join(&mut self, key: K) -> Option<Arc<Waiters<V>>> {
        if let Some((_, waiters)) = self.calls.iter_mut().find(|(other, _)| *other == key) {
            return Some(Arc::clone(waiters.get_or_insert_with(Waiters::new)));
        }
        self.calls.push((key, None));
        None
    }

    /// Ends the load of `key` and returns its waiters, if there are any.
    pub(crate) fn finish(&mut self, key: &K) -> Option<Arc<Waiters<V>>> {
        let index = self.calls.iter().position(|(other, _)| other == key)?;
        self.calls.swap_remove(index).1
    }
}

/// The waiters of one load, and its outcome.
pub(crate) struct Waiters<V> {
    /// `None` while the load is in progress, then what the leader published.
    outcome: Mutex<Option<Option<V>>>,
    published: Condvar,
}

impl<V> Waiters<V> {
    fn new() -> Arc<Self> {
        Arc::new(Waiters { outcome: Mutex::new(None), published: Condvar::new() })
    }

    /// Wakes every waiter with the outcome; `None` if the load failed.
    pub(crate) fn publish(&self, outcome: Option<V>) {
        *self.outcome.lock() = Some(outcome);
        self.published.notify_all();
    }
}

impl<V: Clone> Waiters<V> {
    /// The loaded value; `None` if the load failed and the caller must try by itself.
    pub(crate) fn wait(&self) -> Option<V> {
        let mut outcome = self.outcome.lock();
        while outcome.is_none() {
            self.published.wait(&mut outcome);
        }
        outcome.clone().flatten()
    }
}

#[cfg(test)]
impl<K: PartialEq, V> Calls<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Threads that wait for `key`.
    pub(crate) fn waiting(&self, key: &K) -> usize {
        let call = self.calls.iter().find(|(other, _)| other == key);
        call.and_then(|(_, waiters)| waiters.as_ref()).map_or(0, |w| Arc::strong_count(w) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_get_the_leaders_result() {
        for outcome in [Some(7), None] {
            let calls = Mutex::new(Calls::new());
            assert!(calls.lock().join("a").is_none());
            assert!(calls.lock().join("b").is_none(), "another key is another call");
            std::thread::scope(|scope| {
                let joined: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            let waiters = calls.lock().join("a").expect("is in progress");
                            waiters.wait()
                        })
                    })
                    .collect();
                while calls.lock().waiting(&"a") < 3 {
                    std::thread::yield_now();
                }
                let waiters = calls.lock().finish(&"a").expect("three wait");
                assert!(calls.lock().join("a").is_none(), "finished: the next one leads");
                waiters.publish(outcome);
                assert!(joined.into_iter().all(|thread| thread.join().unwrap() == outcome));
            });
            assert!(calls.lock().finish(&"b").is_none(), "nobody waited");
            assert!(calls.lock().finish(&"b").is_none());
            assert_eq!(calls.lock().len(), 1);
        }
    }
}
