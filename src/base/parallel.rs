//! Work that several threads share and that ends before the call returns.

use crate::base::error::Result;
use crate::base::sync::plain::Mutex;
use crate::base::sync::{AtomicUsize, Ordering};
use std::thread;

/// The results of `work` for 0, 1 and so on, up to the first `None` or error, by up to `threads`
/// threads, the caller's own among them. The others have the name `name`. Numbers are taken in
/// order, so the results for all numbers below an error are there, and perhaps some above it.
pub(crate) fn in_parallel<T: Send>(
    name: &str,
    threads: usize,
    work: impl Fn(usize) -> Option<Result<T>> + Sync,
) -> Vec<Result<T>> {
    let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let results = Mutex::new(Vec::new());
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= end.load(Ordering::Relaxed) {
                return;
            }
            let Some(result) = work(at) else { return };
            if result.is_err() {
                end.fetch_min(at, Ordering::Relaxed);
            }
            results.lock().push((at, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If the system refuses a thread, the others do its work.
            let _ = thread::Builder::new().name(name.into()).spawn_scoped(scope, take);
        }
        take();
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

    #[test]
    fn results_keep_their_order() {
        let refuse = |at: usize| Err(Error::InvalidArgument { what: at.to_string() });
        for threads in [1, 2, 5] {
            let all = in_parallel("test", threads, |at| (at < 40).then_some(Ok(at)));
            let all: Vec<usize> = all.into_iter().collect::<Result<_>>().unwrap();
            assert_eq!(all, (0..40).collect::<Vec<_>>());
            let answer = |at| (at < 40).then(|| if at % 7 == 6 { refuse(at) } else { Ok(at) });
            let failed: Result<Vec<usize>> =
                in_parallel("test", threads, answer).into_iter().collect();
            assert_eq!(failed.unwrap_err().to_string(), refuse(6).unwrap_err().to_string());
        }
        assert!(in_parallel("test", 3, |_| None::<Result<()>>).is_empty());
    }
}
