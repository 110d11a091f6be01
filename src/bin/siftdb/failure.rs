//! Why a command failed, and which exit code says so.
//!
//! Commands answer an [`Outcome`]; `main` gives what went wrong to [`Failure::report`], the only
//! place that prints it, so that every sentence stands on standard error once. The codes are part
//! of the interface and stand in `siftdb --help`: 1 not found, 2 usage, 3 damaged files, 4 the
//! rest, 5 repaired with losses. A closed pipe is no failure: whoever reads the output has seen
//! enough.

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
    /// A line of an input file, and how many lines were written before it.
    Line { file: PathBuf, line: u64, cause: Box<Failure>, written: Option<u64> },
    /// Tables that are not what they should be; at least one.
    Tables(Vec<Error>),
    /// No database where there should be one.
    NoDatabase(PathBuf),
    /// Figures that do not add up.
    Fault(String),
    /// A repair that could not save everything; its report is printed.
    Losses,
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
            Failure::Line { cause, .. } => return cause.is_closed_pipe(),
            _ => return false,
        };
        kind == ErrorKind::BrokenPipe
    }

    /// Says it on standard error.
    pub fn report(self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let (code, message) = self.described();
        // Nobody is left to tell if this fails.
        let _ = writeln!(std::io::stderr(), "siftdb: {message}");
        ExitCode::from(code)
    }

    fn described(&self) -> (u8, String) {
        match self {
            Failure::NotFound => (1, "not found".into()),
            Failure::Usage(what) => (2, what.clone()),
            Failure::Database(error) => (code_of(error), error.to_string()),
            Failure::Io { what, source } => (4, format!("{}: {source}", what.display())),
            Failure::Line { file, line, cause, written } => {
                let (code, message) = match &**cause {
                    // The file is named already.
                    Failure::Io { what, source } if what == file => (4, source.to_string()),
                    other => other.described(),
                };
                let written = match written {
                    None => String::new(),
                    Some(0) => "; nothing was written".into(),
                    Some(lines) => format!("; lines before it that were written: {lines}"),
                };
                (code, format!("{}: line {line}: {message}{written}", file.display()))
            }
            Failure::Tables(errors) => {
                let damaged = errors.iter().find(|error| error.is_corruption());
                let code = damaged.or(errors.first()).map_or(4, code_of);
                let sentences: Vec<String> = errors.iter().map(Error::to_string).collect();
                (code, sentences.join("\nsiftdb: "))
            }
            Failure::NoDatabase(directory) => {
                (4, format!("no siftdb database in {}", directory.display()))
            }
            Failure::Fault(what) => (4, what.clone()),
            Failure::Losses => {
                (5, "repaired; not everything could be saved, as the report says".into())
            }
        }
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
