//! Failures of commands, and their exit codes.
//!
//! Commands answer an [`Outcome`]. `main` gives a failure to [`Failure::report`], the only place
//! that prints it, so every sentence appears once on standard error. With `--json` a failure is an
//! object there, one a line: `{"format":1,"error":{...}}`. `siftdb --help` documents the exit
//! codes: 1 not found, 2 usage, 3 damaged files, 4 the rest, 5 repaired with losses. A closed pipe
//! is not a failure, because its reader has finished.

use crate::json::{FORMAT, error_json, joined, path_field};
use serde_json::{Value, json};
use siftdb::Error;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The key is not there.
    NotFound,
    /// A wrong argument, or an unusable line of input.
    Usage(String),
    /// An error of the database.
    Database(Error),
    /// An I/O error of the output, or of a file outside the database.
    Io { what: PathBuf, source: std::io::Error },
    /// A line of an input file, and how many lines were written before it.
    Line { file: PathBuf, line: u64, cause: Box<Failure>, written: Option<u64> },
    /// Damaged tables; at least one.
    Tables(Vec<Error>),
    /// A directory without a database, and advice.
    NoDatabase { directory: PathBuf, advice: Option<&'static str> },
    /// Counts that disagree.
    Fault(String),
    /// A repair that lost entries; its report is printed.
    Losses,
}

/// The result of a command.
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

    /// True if the reader of the output has closed it.
    fn is_closed_pipe(&self) -> bool {
        let kind = match self {
            Failure::Database(Error::Io { source, .. }) => source.kind(),
            Failure::Io { source, .. } => source.kind(),
            Failure::Line { cause, .. } => return cause.is_closed_pipe(),
            _ => return false,
        };
        kind == ErrorKind::BrokenPipe
    }

    /// Prints it on standard error, as JSON or as text.
    pub fn report(self, json: bool) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        let code = self.code();
        let mut stderr = std::io::stderr().lock();
        // There is no other place to report an error of standard error.
        if json {
            for error in self.errors() {
                let error = joined([error, json!({ "exit_code": code })]);
                let _ = writeln!(stderr, "{}", json!({ "format": FORMAT, "error": error }));
            }
        } else {
            for sentence in self.sentences() {
                let _ = writeln!(stderr, "siftdb: {sentence}");
            }
        }
        ExitCode::from(code)
    }

    fn code(&self) -> u8 {
        match self {
            Failure::NotFound => 1,
            Failure::Usage(_) => 2,
            Failure::Database(error) => code_of(error),
            Failure::Line { cause, .. } => cause.code(),
            Failure::Tables(errors) => {
                let damaged = errors.iter().find(|error| error.is_corruption());
                damaged.or(errors.first()).map_or(4, code_of)
            }
            Failure::Io { .. } | Failure::NoDatabase { .. } | Failure::Fault(_) => 4,
            Failure::Losses => 5,
        }
    }

    fn sentences(&self) -> Vec<String> {
        vec![match self {
            Failure::NotFound => "not found".into(),
            Failure::Usage(what) | Failure::Fault(what) => what.clone(),
            Failure::Database(error) => error.to_string(),
            Failure::Io { what, source } => format!("{}: {source}", what.display()),
            Failure::Line { file, line, cause, written } => {
                let message = match &**cause {
                    // The file is named already.
                    Failure::Io { what, source } if what == file => source.to_string(),
                    other => other.sentences().join("; "),
                };
                let written = match written {
                    None => String::new(),
                    Some(0) => "; nothing was written".into(),
                    Some(lines) => format!("; lines written before it: {lines}"),
                };
                format!("{}: line {line}: {message}{written}", file.display())
            }
            Failure::Tables(errors) => return errors.iter().map(Error::to_string).collect(),
            Failure::NoDatabase { directory, advice } => {
                let advice = advice.map_or(String::new(), |advice| format!(" ({advice})"));
                format!("no database in {}{advice}", directory.display())
            }
            Failure::Losses => "repaired, but entries are lost; the report says which".into(),
        }]
    }

    /// The same as objects.
    fn errors(&self) -> Vec<Value> {
        let own = |kind: &str, what: &str, advice: Option<&str>| {
            let rest = json!({ "path": null, "offset": null, "operation": null });
            joined([json!({ "kind": kind, "what": what, "advice": advice }), rest])
        };
        vec![match self {
            Failure::NotFound => own("not_found", "no such key", None),
            Failure::Usage(what) => own("usage", what, None),
            Failure::Fault(what) => own("disagreement", what, None),
            Failure::Losses => own("losses", "repaired, but entries are lost", None),
            Failure::Database(error) => error_json(error),
            Failure::Io { what, source } => {
                let error = own("io", &source.to_string(), None);
                with_path(error, what)
            }
            Failure::Line { file, line, cause, written } => {
                let cause = cause.errors().into_iter().next().unwrap_or_default();
                let place = json!({ "line": line, "lines_written": written });
                joined([with_path(cause, file), place])
            }
            Failure::Tables(errors) => return errors.iter().map(error_json).collect(),
            Failure::NoDatabase { directory, advice } => {
                with_path(own("no_database", "no database in this directory", *advice), directory)
            }
        }]
    }
}

fn with_path(mut error: Value, path: &Path) -> Value {
    if let Some(fields) = error.as_object_mut() {
        fields.remove("path");
    }
    joined([error, path_field("path", path)])
}

fn code_of(error: &Error) -> u8 {
    match error {
        error if error.is_corruption() => 3,
        Error::InvalidOptions { .. } | Error::InvalidArgument { .. } => 2,
        Error::ReadOnly { cause } => code_of(cause),
        _ => 4,
    }
}
