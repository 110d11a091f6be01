//! Cold files: drops a database from the system's page cache, and checks that it is gone.
//!
//! [`make_cold`] syncs each file and advises the system to drop its pages. That is a wish: a page
//! that another program maps or that is being written stays. Some file systems keep all files in
//! memory. So the check asks for 100 pages whether they are cached; with more than 5 of them there
//! are no cold figures.

use crate::experiment::keys::random_numbers;
use std::fs::File;
use std::io;
use std::path::Path;

/// Pages that the check asks for.
const SAMPLED_PAGES: u64 = 100;

/// Sampled pages that may still be cached.
const CACHED_MAX: usize = 5;

/// How often pages are dropped before they count as kept: a page may just be in use.
const ATTEMPTS: usize = 3;

/// The unit in which the system caches files, or a divisor of it.
const PAGE_BYTES: u64 = 4096;

/// Drops the pages of the files in `directory` from the system's cache.
///
/// # Errors
/// One line that says why the files are not cold and what to do. There must be no cold figures.
pub fn make_cold(directory: &Path) -> Result<(), String> {
    let named = |what: String| format!("no cold figures of {}: {what}", directory.display());
    let files = Files::open(directory).map_err(|error| named(error.to_string()))?;
    let mut checked = Ok(());
    for _ in 0..ATTEMPTS {
        files.drop_pages().map_err(|error| named(error.to_string()))?;
        checked = check(&files.sample(), |page| files.is_cached(page));
        // The question itself has the page read.
        files.drop_sampled().map_err(|error| named(error.to_string()))?;
        if checked.is_ok() {
            break;
        }
    }
    checked.map_err(named)
}

/// Bytes that this process had read from disks so far; `None` if the system does not count them.
pub fn disk_bytes_read() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// A page: the position of its file, and the offset in it.
type Page = (usize, u64);

/// Counts the cached ones among `pages`.
fn check(
    pages: &[Page],
    mut is_cached: impl FnMut(Page) -> io::Result<bool>,
) -> Result<(), String> {
    let mut cached = 0;
    for page in pages {
        match is_cached(*page) {
            Ok(is_cached) => cached += usize::from(is_cached),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return Err("its file system does not say which pages are cached, or keeps all \
                            files in memory; use a directory on a disk (TMPDIR=DIR for the demo)"
                    .into());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    match cached {
        // A few of few pages are too many as well.
        0..=CACHED_MAX if 20 * cached <= pages.len() => Ok(()),
        _ => Err(format!(
            "{cached} of {} sampled pages stay in the system's cache; close programs that use \
             these files, or use a directory on another disk",
            pages.len()
        )),
    }
}

/// The files of a directory, open, with their bytes.
struct Files(Vec<(File, u64)>);

impl Files {
    #[expect(clippy::disallowed_methods, reason = "the system's cache lies below every Env")]
    fn open(directory: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A file that the database has removed in the meantime has no pages to drop.
                match File::open(entry.path()) {
                    Ok(file) => files.push(file),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let what = format!("{}: {error}", entry.path().display());
                        return Err(io::Error::new(error.kind(), what));
                    }
                }
            }
        }
        let with_bytes = |file: File| file.metadata().map(|metadata| (file, metadata.len()));
        Ok(Files(files.into_iter().map(with_bytes).collect::<io::Result<_>>()?))
    }

    /// [`SAMPLED_PAGES`] pages at random, each of all pages as likely as another.
    fn sample(&self) -> Vec<Page> {
        let pages_of = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
        let pages: u64 = self.0.iter().map(|(_, bytes)| pages_of(*bytes)).sum();
        let numbers = random_numbers(pages.max(1)).take(SAMPLED_PAGES.min(pages) as usize);
        let page = |mut number: u64| {
            for (position, (_, bytes)) in self.0.iter().enumerate() {
                if number < pages_of(*bytes) {
                    return Some((position, number * PAGE_BYTES));
                }
                number -= pages_of(*bytes);
            }
            None
        };
        numbers.filter_map(page).collect()
    }
}

#[cfg(target_os = "linux")]
impl Files {
    fn drop_pages(&self) -> io::Result<()> {
        for (file, _) in &self.0 {
            // Only pages that are on the disk can be dropped.
            file.sync_all()?;
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
            // Then a question for one page reads no others. Other descriptors do not notice.
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random)?;
        }
        Ok(())
    }

    /// Reads a byte on condition that it is in memory.
    fn is_cached(&self, (position, offset): Page) -> io::Result<bool> {
        let mut byte = [0];
        let mut into = [io::IoSliceMut::new(&mut byte)];
        let (file, _) = &self.0[position];
        match rustix::io::preadv2(file, &mut into, offset, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Drops the pages that the check had read. A page is not dropped while it is being read, so
    /// an ordinary read waits for it.
    fn drop_sampled(&self) -> io::Result<()> {
        for (position, offset) in self.sample() {
            let (file, _) = &self.0[position];
            std::os::unix::fs::FileExt::read_at(file, &mut [0], offset)?;
        }
        self.drop_pages()
    }
}

#[cfg(not(target_os = "linux"))]
impl Files {
    fn drop_pages(&self) -> io::Result<()> {
        Err(io::Error::other("this system has no call that drops files from its cache"))
    }

    fn is_cached(&self, _: Page) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn drop_sampled(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: u64) -> Vec<Page> {
        (0..count).map(|page| (0, page * PAGE_BYTES)).collect()
    }

    #[test]
    fn cached_pages_are_refused() {
        let with = |cached: u64, count| {
            check(&pages(count), |(_, offset)| Ok(offset < cached * PAGE_BYTES))
        };
        assert_eq!(with(0, 100), Ok(()));
        assert_eq!(with(5, 100), Ok(()));
        let refused = with(6, 100).unwrap_err();
        assert!(refused.contains("6 of 100 sampled pages stay"), "{refused}");
        assert!(with(1, 10).is_err() && with(0, 0).is_ok());
    }

    #[test]
    fn file_systems_that_cannot_say_are_refused() {
        let refused = check(&pages(9), |_| Err(io::ErrorKind::Unsupported.into())).unwrap_err();
        assert!(refused.contains("TMPDIR") && !refused.contains('\n'), "{refused}");
    }

    #[test]
    fn missing_directories_are_named() {
        let refused = make_cold(Path::new("/no/such/place")).unwrap_err();
        assert!(refused.contains("/no/such/place"), "{refused}");
    }

    /// On a file system that can drop pages, files are cold afterwards; on others the refusal says
    /// why.
    #[expect(clippy::disallowed_methods, reason = "the test's own files")]
    #[test]
    fn files_are_cold_or_a_line_says_why() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            let bytes = vec![7; 300 * PAGE_BYTES as usize];
            std::fs::write(directory.path().join(name), bytes).unwrap();
        }
        let files = Files::open(directory.path()).unwrap();
        assert_eq!(files.sample().len(), 100);
        assert!(files.sample().iter().any(|(file, _)| *file == 0));
        assert!(files.sample().iter().any(|(file, _)| *file == 1));
        // On a busy machine the last pages that the check had read may stay.
        let is_cold_or_refused = || match make_cold(directory.path()) {
            Ok(()) => check(&files.sample(), |page| files.is_cached(page)).is_ok(),
            Err(why) => why.starts_with("no cold figures of "),
        };
        assert!((0..20).any(|_| is_cold_or_refused()));
    }
}
