//! [`EnvLayer`]: an Env on top of another one, which states only the calls that it changes.
//!
//! Every layer is an [`Env`]. A call that a layer does not state goes to the Env below it, through
//! one list of calls at the end of this file.
//!
//! A call added to [`Env`] later starts with a default that is made of older calls. While it is
//! missing from the list here, a layer gets it as those older calls, so no layer misses it. Before
//! the call joins the list, check each layer: from then on the call passes a layer that does not
//! state it. `WatchedEnv` must see every call, so it implements [`Env`] itself, and the tests of
//! `FaultEnv` compare its calls with those in `api.rs`.

use crate::env::api::{
    DirectoryEntry, Env, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

macro_rules! forwarded_calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// An Env on top of another one: it changes some calls and forwards the others.
        ///
        /// ```
        /// use siftdb::env::{Env, EnvLayer, MemEnv};
        /// use std::io;
        /// use std::path::Path;
        ///
        /// /// Refuses to remove files.
        /// #[derive(Debug)]
        /// struct Hoarder(MemEnv);
        ///
        /// impl EnvLayer for Hoarder {
        ///     fn inner(&self) -> &dyn Env {
        ///         &self.0
        ///     }
        ///
        ///     fn remove(&self, _path: &Path) -> io::Result<()> {
        ///         Err(io::ErrorKind::PermissionDenied.into())
        ///     }
        /// }
        ///
        /// let env: &dyn Env = &Hoarder(MemEnv::new());
        /// env.create_new(Path::new("/file"))?;
        /// assert!(env.remove(Path::new("/file")).is_err());
        /// # Ok::<(), io::Error>(())
        /// ```
        pub trait EnvLayer: Send + Sync + Debug {
            /// The Env that gets the calls which this layer does not state.
            fn inner(&self) -> &dyn Env;

            $(
                #[doc = concat!("See [`Env::", stringify!($name), "`].")]
                fn $name(&self, $($argument: $type),*) -> $answer {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        impl<L: EnvLayer> Env for L {
            $(
                fn $name(&self, $($argument: $type),*) -> $answer {
                    EnvLayer::$name(self, $($argument),*)
                }
            )*
        }
    };
}

forwarded_calls! {
    open_random(path: &Path) -> io::Result<Arc<dyn RandomFile>>;
    create_new(path: &Path) -> io::Result<Box<dyn WritableFile>>;
    sync_dir(path: &Path) -> io::Result<()>;
    rename(from: &Path, to: &Path) -> io::Result<()>;
    remove(path: &Path) -> io::Result<()>;
    hard_link(existing: &Path, new: &Path) -> io::Result<()>;
    create_dir(path: &Path) -> io::Result<()>;
    list(path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    metadata(path: &Path) -> io::Result<Metadata>;
    lock(path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>>;
    change_signal(directory: &Path) -> io::Result<OwnedFd>;
    absolute(path: &Path) -> io::Result<PathBuf>;
    now() -> SystemTime;
}
