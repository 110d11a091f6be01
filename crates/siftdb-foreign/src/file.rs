//! Opens files and reads short ones whole.

use crate::error;
use siftdb::Result;
use siftdb::env::{Env, RandomFile};
use std::path::Path;
use std::sync::Arc;

/// Opens a file. Its length comes with it.
///
/// # Errors
/// `Io`.
pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<(Arc<dyn RandomFile>, u64)> {
    let file = env.open_random(path).map_err(|source| error::io("open", path, source))?;
    let bytes = file.len().map_err(|source| error::io("read", path, source))?;
    Ok((file, bytes))
}

/// The contents of an open file of `bytes`.
///
/// # Errors
/// `Io`; `Corruption` if there are more than `bytes_max`.
pub(crate) fn read_whole(
    file: &dyn RandomFile,
    path: &Path,
    bytes: u64,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    if bytes > bytes_max {
        let what = format!("the file has {bytes} bytes, expected at most {bytes_max}");
        return Err(error::corruption(path, bytes_max, what));
    }
    let mut contents = vec![0; bytes as usize];
    file.read_exact_at(0, &mut contents).map_err(|source| error::io("read", path, source))?;
    Ok(contents)
}
