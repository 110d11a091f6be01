//! For whoever looks after a database: opening it to read only, what recovery left out, the check
//! of everything, and repair. Each public method makes one call down, as in `handle`.

use crate::db::handle::Db;
use crate::db::open;
use crate::db::verify::{self, VerifyProgress, VerifyReport};
use crate::error::Result;
use crate::options::database::Options;
use crate::recovery::RecoveryReport;
use crate::repair::report::RepairReport;
use std::path::Path;

impl Options {
    /// Opens the database in the directory `path` to read it, and changes nothing there, not a
    /// byte: no right to write is needed, nothing is created, compacted or removed, and counters
    /// are not saved. What logs hold is read into memory, also after a crash. Calls that would
    /// write answer [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly); everything else works
    /// as usual.
    ///
    /// Any number of readers, in any number of processes, may have a database open like this, and
    /// no writer meanwhile: `LOCK` is shared between them. A directory without `LOCK`, such as a
    /// copy of the other files, is read without.
    ///
    /// # Errors
    /// As for [`Options::open`]; `Locked` while a writer has the database open.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Db> {
        let shared = open::open_read_only(self, path.as_ref())?;
        Ok(Db::with(shared, Vec::new()))
    }
}

impl Db {
    /// Opens the database in the directory `path` to read it, with default options, and changes
    /// nothing there: see [`Options::open_read_only`].
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// # let db = siftdb::Db::open(&path)?;
    /// # db.put("ada", "1815")?;
    /// # db.close()?;
    /// let db = siftdb::Db::open_read_only(&path)?;
    /// assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
    /// assert!(matches!(db.put("bob", "1912"), Err(siftdb::Error::OpenedReadOnly)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_read_only(path)
    }

    /// What opening found in manifest and logs, and what it left out. Empty in a forked child.
    #[must_use]
    pub fn recovery_report(&self) -> RecoveryReport {
        let shared = self.shared();
        // In a forked child another thread may have held the lock.
        let mine = shared.process.is_current().then(|| shared.recovery.lock().clone());
        mine.unwrap_or_default()
    }

    /// Reads everything that the database is made of and checks it: manifest and logs, and of each
    /// table all checksums, the order of keys, the bounds in its index, sizes, counts and
    /// sequences against what it and the manifest say, and that each key is found by a lookup and
    /// passes the filter; and that no two tables of a level overlap where they must not. Nothing
    /// is taken from the cache and nothing stays there.
    ///
    /// Damage does not end the check, it is listed in the report. `progress` is called on this
    /// thread, after each data block. Reads and writes of other threads go on; tables that they
    /// replace meanwhile are checked all the same.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
    /// db.put("ada", "1815")?;
    /// db.flush()?;
    /// let report = db.verify(|done| println!("{} of {} bytes", done.bytes_done, done.bytes))?;
    /// assert!(report.is_sound() && report.entries == 1);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Closed`; damage is no error here.
    pub fn verify(&self, mut progress: impl FnMut(&VerifyProgress)) -> Result<VerifyReport> {
        verify::verify(self.shared(), &mut progress)
    }

    /// Makes the damaged database in the directory `path` into one that opens, with default
    /// options: see [`Options::repair`].
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("people.sift");
    /// # let db = siftdb::Db::open(&path)?;
    /// # db.put("ada", "1815")?;
    /// # db.close()?;
    /// # drop(db);
    /// let report = siftdb::Db::repair(&path)?;
    /// assert!(!report.changed, "{report}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Options::repair`].
    pub fn repair(path: impl AsRef<Path>) -> Result<RepairReport> {
        Options::new().repair(path)
    }
}
