//! The files that every command with figures can write: a page, and a table for each figure.
//!
//! A command flattens [`PageArgs`] into its arguments, calls [`PageArgs::check`] before it measures
//! and [`PageArgs::write`] at its end. Files are written whole under another name and then renamed,
//! so a reader never meets half of one, and a full disk leaves what was there.

use crate::failure::{Failure, Outcome};
use crate::text::counted;
use clap::Args;
use siftdb::experiment::{Page, bytes};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The fields of a page in JSON, for the help of its command.
pub const PAGE_JSON: &str = "\
  title, sentence   what is shown
  command           what shows it again
  facts             what belongs to the run: name and text of each
  figures           each with its table:
    id, title       its name and heading
    finding         what to see in it
    command         what makes it again
    columns         name and unit of each column: text, count, number, share, bytes or nanos
    rows            the cells of each row, in the order of the columns; null if there is none";

#[derive(Args)]
pub struct PageArgs {
    /// Write the figures as a page with pictures: one HTML file that loads nothing
    #[arg(short = 'o', long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the table of each figure as DIR/ID.csv, for spreadsheets; DIR is created
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
}

impl PageArgs {
    /// Refuses files that cannot be written, before a long run.
    pub fn check(&self) -> Outcome {
        if let Some(file) = &self.html {
            check_file(file)?;
        }
        self.csv.as_deref().map_or(Ok(()), create_folder)
    }

    /// Writes what was asked for. Returns a line about each, for people.
    pub fn write(&self, page: &Page) -> Outcome<Vec<String>> {
        let mut written = Vec::new();
        if let Some(file) = &self.html {
            let html = page.html();
            replace(file, &html)?;
            written.push(format!("page: {} ({})", file.display(), bytes(html.len() as u64)));
        }
        if let Some(folder) = &self.csv {
            create_folder(folder)?;
            for (id, table) in page.csv() {
                replace(&folder.join(format!("{id}.csv")), &table)?;
            }
            let tables = counted(page.figures.len() as u64, "table");
            written.push(format!("{tables}: {}", folder.join("*.csv").display()));
        }
        Ok(written)
    }
}

/// Refuses a file that cannot be written. Another file may still fill the disk.
pub fn check_file(file: &Path) -> Outcome {
    match folder_of(file) {
        _ if file.is_dir() => Err(refused(file, ErrorKind::IsADirectory.into())),
        folder if folder.is_dir() => match is_special(file) {
            true => Ok(()),
            false => temporary(&folder).map(drop).map_err(|error| refused(file, error)),
        },
        _ => Err(refused(file, ErrorKind::NotFound.into())),
    }
}

/// Writes a file, which replaces one that is there.
pub fn replace(file: &Path, text: &str) -> Outcome {
    let write = || -> io::Result<()> {
        if is_special(file) {
            // A device or pipe is written to, not replaced.
            let mut device = std::fs::OpenOptions::new().write(true).open(file)?;
            return device.write_all(text.as_bytes());
        }
        // The file that a link names is replaced, not the link.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        let mut whole = temporary(&folder_of(&file))?;
        whole.write_all(text.as_bytes())?;
        whole.as_file().sync_all()?;
        whole.persist(&file).map_err(|error| error.error).map(drop)
    };
    write().map_err(|error| refused(file, error))
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

fn create_folder(folder: &Path) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "a folder of the user, not of a database")]
    std::fs::create_dir_all(folder).map_err(|error| refused(folder, error))
}

/// A failed write of a file, with advice.
fn refused(file: &Path, error: io::Error) -> Failure {
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
