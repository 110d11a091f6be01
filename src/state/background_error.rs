//! The background error: the first failure of a write, flush or compaction, which every later write
//! answers (I8).
//!
//! It stays until the database is reopened. If every failure was a lack of space, `resume` can
//! clear it, so the first failure of another kind is kept as well.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, AtomicBool, Mutex, Ordering};

/// No failure yet, or the first one.
#[derive(Debug, Default)]
pub(crate) struct BackgroundError {
    is_set: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    first: Option<Error>,
    /// The first failure that only reopening can clear.
    lasting: Option<Error>,
}

impl BackgroundError {
    /// Records a failure. Writes answer the first one. True if this is it.
    pub(crate) fn set(&self, error: &Error) -> bool {
        let mut failures = self.failures.lock();
        let is_first = failures.first.is_none();
        failures.first.get_or_insert_with(|| error.clone());
        if !error.is_out_of_space() {
            failures.lasting.get_or_insert_with(|| error.clone());
        }
        self.is_set.store(true, Ordering::Release);
        is_first
    }

    /// True after a failure.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// `ReadOnly` with the first failure, if there is one.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { read_only(self.failures.lock().first.as_ref()) } else { Ok(()) }
    }

    /// `ReadOnly` with the first failure that only reopening can clear, if there is one.
    pub(crate) fn check_lasting(&self) -> Result<()> {
        read_only(self.failures.lock().lasting.as_ref())
    }

    /// Forgets all failures: `resume` has replaced the files that they left in doubt. But not if
    /// one has come since that only reopening can clear.
    ///
    /// # Errors
    /// `ReadOnly` with that one.
    pub(crate) fn clear(&self) -> Result<()> {
        let mut failures = self.failures.lock();
        read_only(failures.lasting.as_ref())?;
        *failures = Failures::default();
        // Under the lock: a failure that comes now is recorded after this.
        self.is_set.store(false, Ordering::Release);
        Ok(())
    }
}

fn read_only(failure: Option<&Error>) -> Result<()> {
    failure.map_or(Ok(()), |cause| Err(Error::ReadOnly { cause: Arc::new(cause.clone()) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::testing::fault::ENOSPC;

    fn full_disk() -> Error {
        Error::io("write_at", "/db", std::io::Error::from_raw_os_error(ENOSPC))
    }

    #[test]
    fn a_failure_beside_a_resume_stays() {
        let background_error = BackgroundError::default();
        assert!(background_error.set(&full_disk()));
        background_error.clear().unwrap();
        assert!(!background_error.is_set() && background_error.set(&full_disk()));
        // A worker finds that the lock was taken after `resume` has asked for such failures.
        assert!(!background_error.set(&Error::LockLost { path: "/db/LOCK".into() }));
        let refused = background_error.clear().unwrap_err();
        let Error::ReadOnly { cause } = refused else { panic!("{refused}") };
        assert!(matches!(*cause, Error::LockLost { .. }), "{cause}");
        assert!(background_error.is_set());
    }
}
