//! Failures of commands, and their exit codes.
//!
//! Commands answer an [`Outcome`]. `main` gives a failure to [`Failure::report`], the only place
//! that prints it, so every sentence appears once on standard error. With `--json` a failure is an
//! object there, one a line: `{"format":1,"error":{...}}`. `siftdb help exit-codes` documents the
//! exit codes: 1 not found, 2 usage, 3 damaged files, 4 the rest, 5 done with losses. A closed pipe
//! is not a failure, because its reader has finished.

use crate::described::result;
use crate::json::{Bytes, ErrorFields, FORMAT, sentence};
use crate::text::escaped;
use serde_json::json;
use siftdb::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// The failure of a command: its exit code and its errors.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    errors: Vec<Reported>,
}

/// An error as a sentence and as an object.
#[derive(Debug)]
struct Reported {
    sentence: String,
    object: EndingError,
}

result! {
    /// An error that ends a command.
    pub struct EndingError {
        #[serde(flatten)] error: ErrorFields;
        /// see `siftdb help exit-codes`
        exit_code: u8;
        /// of `get`: the absent key
        #[serde(flatten)] key: Option<Bytes>;
        /// of `load` and `import`: the line of input
        #[serde(skip_serializing_if = "Option::is_none")] line: Option<u64>;
        /// of `load`: how many lines before it were written
        #[serde(skip_serializing_if = "Option::is_none")] lines_written: Option<Option<u64>>;
        /// of `import`: how many entries before it were written
        #[serde(skip_serializing_if = "Option::is_none")] entries_written: Option<u64>;
    }
}

impl EndingError {
    fn new(exit_code: u8, error: ErrorFields) -> Self {
        let (key, line, lines_written, entries_written) = (None, None, None, None);
        EndingError { error, exit_code, key, line, lines_written, entries_written }
    }
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
    fn new(code: u8, kind: &'static str, what: &str) -> Self {
        let object = EndingError::new(code, ErrorFields::new(kind, what));
        Failure { code, errors: vec![Reported { sentence: what.into(), object }] }
    }

    /// The first error with another sentence and other fields.
    fn told(mut self, sentence: String, change: impl FnOnce(&mut EndingError)) -> Self {
        self.errors.truncate(1);
        if let Some(first) = self.errors.first_mut() {
            first.sentence = sentence;
            change(&mut first.object);
        }
        self
    }

    /// The same, at `path` and with advice.
    fn told_at(self, sentence: String, path: &Path, advice: Option<&str>) -> Self {
        self.told(sentence, |EndingError { error, .. }| {
            error.path = Bytes::path(path);
            error.advice = advice.map(str::to_string);
        })
    }

    /// The key is not there.
    pub fn not_found(key: &[u8]) -> Self {
        let sentence = format!("not found: {}", escaped(key));
        let failure = Failure::new(1, "not_found", "no such key");
        failure.told(sentence, |object| object.key = Some(Bytes::new("key", key)))
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
        Failure::new(5, "losses", what).told(format!("{what}; {report}"), |_| {})
    }

    /// A directory without a database, and advice.
    pub fn no_database(directory: &Path, advice: Option<&str>) -> Self {
        let failure = Failure::new(4, "no_database", "no database in this directory");
        failure.not_in("no database", directory, advice)
    }

    /// A directory without a database of another store.
    pub fn no_foreign(store: &str, directory: &Path) -> Self {
        let what = format!("no {store} database");
        let failure = Failure::new(4, "no_database", &format!("{what} in this directory"));
        failure.not_in(&what, directory, None)
    }

    /// A database without this keyspace, and advice.
    pub fn no_keyspace(directory: &Path, name: &str, advice: &str) -> Self {
        let what = format!("no keyspace {name:?}");
        Failure::new(4, "keyspace_not_found", &what).not_in(&what, directory, Some(advice))
    }

    /// The same in words: what is not in a directory, and advice.
    fn not_in(self, what: &str, directory: &Path, advice: Option<&str>) -> Self {
        let hint = advice.map_or(String::new(), |advice| format!(" ({advice})"));
        self.told_at(format!("{what} in {}{hint}", directory.display()), directory, advice)
    }

    /// The failure to open the database in `directory`: there may be none.
    pub fn opening(error: Error, directory: &Path, advice: Option<&str>) -> Self {
        // Errors have absolute paths.
        let is_of_directory =
            |path: &Path| std::path::absolute(directory).is_ok_and(|absolute| absolute == path);
        match error {
            Error::Io { path, source, .. }
                if source.kind() == ErrorKind::NotFound && is_of_directory(&path) =>
            {
                Failure::no_database(directory, advice)
            }
            error => error.into(),
        }
    }

    /// A failed call on the output, or on a file outside the database.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        let code = if source.kind() == ErrorKind::BrokenPipe { 0 } else { 4 };
        let sentence = format!("{}: {source}", path.display());
        Failure::new(code, "io", &source.to_string()).told_at(sentence, path, None)
    }

    /// A file of the user that cannot be written, and what to do.
    pub fn unwritable(path: &Path, source: std::io::Error, advice: &str) -> Self {
        // An error without a number is that of a crate, and may name a temporary file.
        let source = match source.raw_os_error() {
            Some(_) => source,
            None => source.kind().into(),
        };
        let sentence = format!("{}: not written: {source} ({advice})", path.display());
        Failure::io(path, source).told(sentence, |EndingError { error, .. }| {
            error.advice = Some(advice.into());
            error.operation = Some("write");
        })
    }

    /// The same, with what to do.
    pub fn with_advice(self, advice: &str) -> Self {
        let sentence = format!("{}; {advice}", self.sentence());
        self.told(sentence, |object| object.error.advice = Some(advice.into()))
    }

    /// The same, with `to` where messages and paths have `from`, such as a temporary directory.
    pub fn with_place(mut self, from: &Path, to: &Path) -> Self {
        let [from, to] = [from, to].map(|path| path.display().to_string());
        let place = |text: &str| text.replace(&from, &to);
        for Reported { sentence, object: EndingError { error, .. } } in &mut self.errors {
            *sentence = place(sentence);
            error.what = place(&error.what);
            error.advice = error.advice.as_deref().map(place);
            error.path.map_text(place);
        }
        self
    }

    /// The same, with how many entries of an import were written.
    pub fn with_entries_written(self, entries: u64) -> Self {
        let sentence = self.sentence().to_string();
        self.told(sentence, |object| object.entries_written = Some(entries))
    }

    /// Errors of the database; at least one. Damage decides the exit code.
    pub fn damage(errors: &[Error]) -> Self {
        let damaged = errors.iter().find(|error| error.is_corruption());
        let code = damaged.or(errors.first()).map_or(4, code_of);
        let reported = |error: &Error| Reported {
            sentence: sentence(error),
            object: EndingError::new(code, ErrorFields::of(error)),
        };
        Failure { code, errors: errors.iter().map(reported).collect() }
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
        self.told(sentence, |object| {
            object.error.path = Bytes::path(file);
            object.line = Some(line);
            object.lines_written = Some(written);
        })
    }

    /// What happened, as a sentence.
    pub fn sentence(&self) -> &str {
        self.errors.first().map_or("", |first| &first.sentence)
    }

    /// Prints it on standard error, as JSON or as text, and returns the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        let code = self.code;
        let mut stderr = std::io::stderr().lock();
        // Code 0 is a closed pipe. Its reader has gone, so nothing is printed.
        for Reported { sentence, object } in self.errors.iter().filter(|_| code != 0) {
            // There is no other place to report an error of standard error.
            let _ = match json {
                true => writeln!(stderr, "{}", json!({ "format": FORMAT, "error": object })),
                false => writeln!(stderr, "siftdb: {sentence}"),
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
