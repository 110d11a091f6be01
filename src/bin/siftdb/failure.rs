//! Why a command failed, and which exit code says so.

use siftdb::Error;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The key is not there.
    NotFound,
    /// The command, or a line of its input, makes no sense.
    Usage(String),
    /// The database said no.
    Database(Error),
    /// A file that is no part of a database, or the output.
    Io { what: PathBuf, source: std::io::Error },
    /// Figures that do not add up.
    Fault(String),
}

/// What a command answers.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Database(error)
    }
}

/// Only output is written with `?` on a bare I/O error.
impl From<std::io::Error> for Failure {
    fn from(source: std::io::Error) -> Self {
        Failure::Io { what: PathBuf::from("standard output"), source }
    }
}

impl Failure {
    /// A failed call on `path`.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Failure::Io { what: path.to_path_buf(), source }
    }

    /// Whoever reads the output has seen enough.
    fn is_closed_pipe(&self) -> bool {
        let kind = match self {
            Failure::Database(Error::Io { source, .. }) => source.kind(),
            Failure::Io { source, .. } => source.kind(),
            _ => return false,
        };
        kind == ErrorKind::BrokenPipe
    }

    /// Says it on standard error.
    pub fn report(self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let (code, message) = match self {
            Failure::NotFound => (1, "not found".into()),
            Failure::Usage(what) => (2, what),
            Failure::Database(error) => (code_of(&error), error.to_string()),
            Failure::Io { what, source } => (4, format!("{}: {source}", what.display())),
            Failure::Fault(what) => (4, what),
        };
        // Nobody is left to tell if this fails.
        let _ = writeln!(std::io::stderr(), "siftdb: {message}");
        ExitCode::from(code)
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        error if error.is_corruption() => 3,
        Error::InvalidOptions { .. } | Error::InvalidArgument { .. } => 2,
        Error::ReadOnly { cause } => code_of(cause),
        _ => 4,
    }
}
