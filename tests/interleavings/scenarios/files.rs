//! The pool of open files: reads without a lock, while others make it close what they read.

use crate::base::sync::{Arc, AtomicUsize, Ordering, thread};
use crate::env::api::{Env, RandomFile};
use crate::env::handle::{FileHandle, FilePool, evict_descriptors};
use crate::env::layer::EnvLayer;
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use std::io;
use std::path::{Path, PathBuf};

/// Files that the pool may keep open.
const LIMIT: usize = 2;

/// Counts the files that are open.
#[derive(Debug)]
struct Counted {
    inner: MemEnv,
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn RandomFile>,
    open: Arc<AtomicUsize>,
}

impl EnvLayer for Counted {
    fn inner(&self) -> &dyn Env {
        &self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.inner.open_random(path)?;
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(CountedFile { inner, open: Arc::clone(&self.open) }))
    }
}

impl RandomFile for CountedFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // A file that is closed while it is read would be missing here.
        assert!(self.open.load(Ordering::SeqCst) > 0);
        self.inner.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn files_stay_open_while_they_are_read() {
    check("the pool of open files", 5000, 6, || {
        let (env, open) = (MemEnv::new(), Arc::new(AtomicUsize::new(0)));
        let counted: Arc<dyn Env> =
            Arc::new(Counted { inner: env.clone(), open: Arc::clone(&open) });
        let pool = FilePool::new(Arc::clone(&counted), LIMIT);
        let handles: Vec<FileHandle> = (0..4u8)
            .map(|n| {
                let path = PathBuf::from(format!("/{n}"));
                env.write_file(&path, &[n]);
                FileHandle::new(&pool, path)
            })
            .collect();
        let walks: [&[u8]; 3] = [&[0, 0, 1, 2], &[0, 2, 3], &[3, 0, 1]];
        thread::scope(|scope| {
            for walk in walks {
                let handles = &handles;
                scope.spawn(move || {
                    for &n in walk {
                        let mut byte = [9];
                        handles[usize::from(n)].read_exact_at(0, &mut byte).unwrap();
                        assert_eq!(byte, [n]);
                    }
                });
            }
            scope.spawn(|| evict_descriptors(&*counted));
        });
        // Nobody reads, so exactly those in the pool are open.
        let kept = open.load(Ordering::SeqCst);
        assert!(kept <= LIMIT);
        let which: Vec<usize> = (0..handles.len()).filter(|n| handles[*n].is_open()).collect();
        assert_eq!(which.len(), kept);
        drop(handles);
        assert_eq!(open.load(Ordering::SeqCst), 0, "a dropped handle closes its file");
        which
    });
}
