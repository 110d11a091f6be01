//! Failures of commands, and their exit codes.
//!
//! Commands answer an [`Outcome`]. `main` gives a failure to [`Failure::report`], the only place
//! that prints it, so every sentence appears once on standard error. With `--json` a failure is an
//! object there, one a line: `{"format":1,"error":{...}}`. `siftdb --help` documents the exit
//! codes: 1 not found, 2 usage, 3 damaged files, 4 the rest, 5 done with losses. A closed pipe is
//! not a failure, because its reader has finished.

use crate::json::{FORMAT, bytes_field, error_json, joined, path_field};
use crate::text::escaped;
use serde_json::{Value, json};
use siftdb::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// The failure of a command: its exit code, and each error as a sentence and as an object.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    errors: Vec<(String, Value)>,
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::damage(&[error])
    }
}

/// Only output is written with `?` on a bare I/O error.
impl From<std::io::Error> for Failure {
    fn from(source: std::io::Error) -> Self {
        Failure::io(Path::new("standard output"), source)
    }
}

impl Failure {
    fn new(code: u8, kind: &str, what: &str) -> Self {
        let rest = json!({ "path": null, "offset": null, "operation": null, "advice": null });
        let object = joined([rest, json!({ "kind": kind, "what": what })]);
        Failure { code, errors: vec![(what.into(), object)] }
    }

    /// The first error with another sentence, with this path and with more fields.
    fn told(self, sentence: String, path: Option<&Path>, more: Value) -> Self {
        let object = self.errors.into_iter().next().map(|(_, object)| object);
        let mut object = joined([object.unwrap_or_default(), more]);
        if let (Some(path), Some(fields)) = (path, object.as_object_mut()) {
            // A path that is not UTF-8 has another name.
            fields.remove("path");
            object = joined([object, path_field("path", path)]);
        }
        Failure { code: self.code, errors: vec![(sentence, object)] }
    }

    /// The key is not there.
    pub fn not_found(key: &[u8]) -> Self {
        let sentence = format!("not found: {}", escaped(key));
        let failure = Failure::new(1, "not_found", "no such key");
        failure.told(sentence, None, bytes_field("key", key))
    }

    /// Some of several keys are not there, and each is reported.
    pub fn some_not_found() -> Self {
        Failure { code: 1, errors: Vec::new() }
    }

    /// A wrong argument, or an unusable line of input.
    pub fn usage(what: impl AsRef<str>) -> Self {
        Failure::new(2, "usage", what.as_ref())
    }

    /// Counts that disagree.
    pub fn fault(what: impl AsRef<str>) -> Self {
        Failure::new(4, "disagreement", what.as_ref())
    }

    /// A command that did what it was asked for, but not with all entries; its report is printed,
    /// of which `report` says more.
    pub fn losses(what: &str, report: &str) -> Self {
        let sentence = format!("{what}; {report}");
        Failure::new(5, "losses", what).told(sentence, None, Value::Null)
    }

    /// A directory without a database, and advice.
    pub fn no_database(directory: &Path, advice: Option<&str>) -> Self {
        let hint = advice.map_or(String::new(), |advice| format!(" ({advice})"));
        let sentence = format!("no database in {}{hint}", directory.display());
        let failure = Failure::new(4, "no_database", "no database in this directory");
        failure.told(sentence, Some(directory), json!({ "advice": advice }))
    }

    /// A directory without a database of LevelDB.
    pub fn no_leveldb(directory: &Path) -> Self {
        let what = "no LevelDB database in this directory";
        let sentence = format!("no LevelDB database in {}", directory.display());
        Failure::new(4, "no_database", what).told(sentence, Some(directory), Value::Null)
    }

    /// A database without this keyspace, and advice.
    pub fn no_keyspace(directory: &Path, name: &str, advice: &str) -> Self {
        let what = format!("no keyspace {name:?}");
        let sentence = format!("{what} in {} ({advice})", directory.display());
        let failure = Failure::new(4, "keyspace_not_found", &what);
        failure.told(sentence, Some(directory), json!({ "advice": advice }))
    }

    /// A failed call on the output, or on a file outside the database.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        let code = if source.kind() == ErrorKind::BrokenPipe { 0 } else { 4 };
        let sentence = format!("{}: {source}", path.display());
        Failure::new(code, "io", &source.to_string()).told(sentence, Some(path), Value::Null)
    }

    /// A file of the user that cannot be written, and what to do.
    pub fn unwritable(path: &Path, source: std::io::Error, advice: &str) -> Self {
        // An error without a number is that of a crate, and may name a temporary file.
        let source = match source.raw_os_error() {
            Some(_) => source,
            None => source.kind().into(),
        };
        let sentence = format!("{}: not written: {source} ({advice})", path.display());
        let more = json!({ "operation": "write", "advice": advice });
        Failure::io(path, source).told(sentence, Some(path), more)
    }

    /// The same, with what to do.
    pub fn with_advice(self, advice: &str) -> Self {
        let sentence = format!("{}; {advice}", self.sentence());
        self.told(sentence, None, json!({ "advice": advice }))
    }

    /// The same, with `to` where messages and paths have `from`, such as a temporary directory.
    pub fn with_place(self, from: &Path, to: &Path) -> Self {
        let [from, to] = [from, to].map(|path| path.display().to_string());
        let errors = self.errors.into_iter().map(|(sentence, mut object)| {
            for value in object.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
                if let Value::String(text) = value {
                    *text = text.replace(&from, &to);
                }
            }
            (sentence.replace(&from, &to), object)
        });
        Failure { code: self.code, errors: errors.collect() }
    }

    /// The same, with how many entries of an import were written.
    pub fn with_entries_written(self, entries: u64) -> Self {
        let sentence = self.sentence().to_string();
        self.told(sentence, None, json!({ "entries_written": entries }))
    }

    /// Errors of the database; at least one. Damage decides the exit code.
    pub fn damage(errors: &[Error]) -> Self {
        let damaged = errors.iter().find(|error| error.is_corruption());
        Failure {
            code: damaged.or(errors.first()).map_or(4, code_of),
            errors: errors.iter().map(|error| (error.to_string(), error_json(error))).collect(),
        }
    }

    /// The same at a line of an input file; `written` lines before it were written.
    pub fn at_line(self, file: &Path, line: u64, written: Option<u64>) -> Self {
        let name = file.display().to_string();
        let message = self.sentence();
        // An error of the file itself names it already.
        let message = message.strip_prefix(&format!("{name}: ")).unwrap_or(message);
        let rest = match written {
            None => String::new(),
            Some(0) => "; nothing was written".into(),
            Some(lines) => format!("; lines written before it: {lines}"),
        };
        let sentence = format!("{name}: line {line}: {message}{rest}");
        self.told(sentence, Some(file), json!({ "line": line, "lines_written": written }))
    }

    /// What happened, as a sentence.
    pub fn sentence(&self) -> &str {
        self.errors.first().map_or("", |(sentence, _)| sentence)
    }

    /// Prints it on standard error, as JSON or as text, and returns the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        let code = self.code;
        let mut stderr = std::io::stderr().lock();
        // Code 0 is a closed pipe. Its reader has gone, so nothing is printed.
        for (sentence, error) in self.errors.iter().filter(|_| code != 0) {
            // There is no other place to report an error of standard error.
            let _ = if json {
                let error = joined([error.clone(), json!({ "exit_code": code })]);
                writeln!(stderr, "{}", json!({ "format": FORMAT, "error": error }))
            } else {
                writeln!(stderr, "siftdb: {sentence}")
            };
        }
        ExitCode::from(code)
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        error if error.is_corruption() => 3,
        Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => 0,
        Error::InvalidOptions { .. } | Error::InvalidArgument { .. } | Error::KeyOrder { .. } => 2,
        Error::ReadOnly { cause } => code_of(cause),
        _ => 4,
    }
}
