//! Files of the user that appear whole: they are written under another name and then renamed.
//!
//! A reader never meets half of one. A failure, a full disk or an interrupt leaves what was there.

use crate::failure::{Failure, Outcome};
use crate::interrupt::Uninterrupted;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Refuses a file that cannot be written. Another file may still fill the disk.
pub fn check_file(file: &Path) -> Outcome {
    match folder_of(file) {
        _ if file.is_dir() => Err(refused(file, ErrorKind::IsADirectory.into())),
        folder if folder.is_dir() => match is_special(file) {
            true => Ok(()),
            false => {
                let _uninterrupted = Uninterrupted::begin()?;
                temporary(&folder).map(drop).map_err(|error| refused(file, error))
            }
        },
        _ => Err(refused(file, ErrorKind::NotFound.into())),
    }
}

/// Writes a file, which replaces one that is there.
pub fn replace(file: &Path, text: &str) -> Outcome {
    replace_with(file, |out| Ok(out.write_all(text.as_bytes())?))
}

/// The same with what `write` writes. After a failure what was there stays.
pub fn replace_with<T>(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    let refuse = |error| refused(file, error);
    if is_special(file) {
        // A device or pipe is written to, not replaced.
        let device = std::fs::OpenOptions::new().write(true).open(file).map_err(refuse)?;
        return fill(file, &device, write);
    }
    // The file that a link names is replaced, not the link.
    let target = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let mut uninterrupted = Uninterrupted::begin()?;
    let whole = temporary(&folder_of(&target)).map_err(refuse)?;
    let path = whole.path().to_path_buf();
    #[expect(clippy::disallowed_methods, reason = "the user's own file, no part of a database")]
    uninterrupted.on_interrupt(move || drop(std::fs::remove_file(path)));
    drop(uninterrupted);
    // As a file that is written over keeps them.
    if let Ok(replaced) = target.metadata() {
        whole.as_file().set_permissions(replaced.permissions()).map_err(refuse)?;
    }
    let written = fill(file, whole.as_file(), write)?;
    whole.as_file().sync_all().map_err(refuse)?;
    whole.persist(&target).map_err(|error| refuse(error.error))?;
    Ok(written)
}

/// Lets `write` write to `open`, which becomes `file`. A failed write names `file`.
fn fill<T>(
    file: &Path,
    open: &File,
    write: impl FnOnce(&mut dyn Write) -> Outcome<T>,
) -> Outcome<T> {
    let mut out = BufWriter::new(Watched { file: open, failed: None });
    let written = write(&mut out).and_then(|written| {
        out.flush()?;
        Ok(written)
    });
    out.into_parts().0.failed.map_or(written, |error| Err(refused(file, error)))
}

/// A file that keeps the error of a failed write: a [`Failure`] of bare I/O would name standard
/// output.
struct Watched<'a> {
    file: &'a File,
    failed: Option<io::Error>,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            let kind = error.kind();
            // A call that was interrupted is made again.
            if kind != ErrorKind::Interrupted {
                self.failed.get_or_insert(error);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".siftdb-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As for any new file; a temporary one would be private.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => ".".into(),
    }
}

/// Whether something is there that is neither a file nor a directory.
fn is_special(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// A failed write of a file, with advice.
pub fn refused(file: &Path, error: io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::NotFound => "its folder does not exist: create it, or name another",
        ErrorKind::IsADirectory => "that is a directory: name a file",
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => "that is a file: name a folder",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "no right to write there: name another place"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full: free space, or name a place on another disk"
        }
        _ => "name another place",
    };
    Failure::unwritable(file, error, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let cases = [
            (ErrorKind::StorageFull, "free space"),
            (ErrorKind::NotFound, "create it"),
            (ErrorKind::PermissionDenied, "another place"),
            (ErrorKind::Other, "name another"),
        ];
        for (kind, advice) in cases {
            let failure = refused(Path::new("dir/page.html"), kind.into());
            let text = format!("{failure:?}");
            assert!(text.contains("dir/page.html") && text.contains(advice), "{text}");
        }
    }
}
