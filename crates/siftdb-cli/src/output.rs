//! The output of results: every subcommand prints text and JSON through here.
//!
//! A subcommand gives its answer to [`Output::show`], as a JSON object and as a function that
//! writes text, or row by row to [`Rows`]. Only these two make a [`Shown`], which `main` needs from
//! every subcommand. So no subcommand can forget one of the forms, and every object has `format`.
//! Results go to standard output, notes to standard error. On a terminal, text is folded to its
//! width ([`crate::fold`]); entries are not.

use crate::described::result;
use crate::failure::{Failure, Outcome};
use crate::fold::{columns, folded};
use crate::json::{Bytes, FORMAT};
use crate::text::escaped;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// How results are printed.
#[derive(Clone, Copy)]
pub struct Output {
    json: bool,
}

/// Proof that a subcommand printed its answer.
#[must_use]
pub struct Shown(());

/// The writer of text: standard output, folded to the width of a terminal.
pub struct Text<'a> {
    out: BufWriter<StdoutLock<'a>>,
    /// The width, and what is not folded yet.
    unfolded: Option<(usize, Vec<u8>)>,
}

impl Text<'static> {
    fn new(width: Option<usize>) -> Self {
        let out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        Text { out, unfolded: width.map(|width| (width, Vec::new())) }
    }
}

impl Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.unfolded {
            Some((_, text)) => text.write(bytes),
            None => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((width, text)) = &mut self.unfolded {
            let lines = String::from_utf8_lossy(text);
            self.out.write_all(folded(&lines, *width).as_bytes())?;
            text.clear();
        }
        self.out.flush()
    }
}

/// The object that `result` serializes to, with the version of its format.
pub fn with_format(result: &impl Serialize) -> io::Result<Value> {
    let mut fields = Map::from_iter([("format".to_string(), FORMAT.into())]);
    match serde_json::to_value(result)? {
        Value::Object(more) => fields.extend(more),
        other => return Err(io::Error::other(format!("{other} is no object"))),
    }
    Ok(fields.into())
}

result! {
    /// An entry as JSON.
    pub struct KeyValue {
        /// the key, or key_base64 if it is not UTF-8
        #[serde(flatten)] key: Bytes;
        /// the value, or value_base64 if it is not UTF-8
        #[serde(flatten)] value: Bytes;
    }
}

impl KeyValue {
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        KeyValue { key: Bytes::new("key", key), value: Bytes::new("value", value) }
    }
}

impl Output {
    /// Prints JSON or text.
    pub fn new(json: bool) -> Self {
        NOTES.store(!json, Ordering::Relaxed);
        Output { json }
    }

    /// True if results are printed as JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// True if results are text on a terminal.
    pub fn is_read_by_people(self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// Prints the whole answer.
    pub fn show<E: Into<Failure>>(
        self,
        json: &impl Serialize,
        text: impl FnOnce(&mut Text<'_>) -> Result<(), E>,
    ) -> Outcome<Shown> {
        let width = self.is_read_by_people().then(columns);
        self.write(json, Text::new(width), text)
    }

    /// The same for text that is not folded, such as a value.
    pub fn show_whole<E: Into<Failure>>(
        self,
        json: &impl Serialize,
        text: impl FnOnce(&mut Text<'_>) -> Result<(), E>,
    ) -> Outcome<Shown> {
        self.write(json, Text::new(None), text)
    }

    fn write<E: Into<Failure>>(
        self,
        json: &impl Serialize,
        mut out: Text<'_>,
        text: impl FnOnce(&mut Text<'_>) -> Result<(), E>,
    ) -> Outcome<Shown> {
        match self.json {
            true => writeln!(out, "{:#}", with_format(json)?)?,
            false => text(&mut out).map_err(E::into)?,
        }
        out.flush()?;
        Ok(Shown(()))
    }

    /// Prints text where the JSON is printed elsewhere.
    pub fn show_text<E: Into<Failure>>(
        self,
        text: impl FnOnce(&mut Text<'_>) -> Result<(), E>,
    ) -> Outcome<Shown> {
        self.show(&Value::Null, text)
    }

    /// Prints the JSON alone: text says nothing where the exit code says all.
    pub fn show_json(self, json: &impl Serialize) -> Outcome<Shown> {
        self.show(json, |_| Outcome::Ok(()))
    }

    /// Prints help or the version, as the parser of arguments formats it.
    pub fn show_help(self, help: &clap::Error) -> Outcome<Shown> {
        help.print()?;
        Ok(Shown(()))
    }

    /// Begins an answer of rows, which are not folded.
    pub fn rows(self) -> Rows {
        Rows { is_json: self.json, out: Text::new(None) }
    }

    /// Begins an answer of rows that are texts, folded to the width of a terminal.
    pub fn folded_rows(self) -> Rows {
        Rows { is_json: self.json, out: Text::new(self.is_read_by_people().then(columns)) }
    }
}

/// Whether notes are printed: not if the output is JSON.
static NOTES: AtomicBool = AtomicBool::new(true);

/// Prints a note on standard error, unless the output is JSON.
pub fn note(line: &str) {
    if NOTES.load(Ordering::Relaxed) {
        // There is no other place to report an error of standard error.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Rows: lines of text, or JSON objects, one a line.
pub struct Rows {
    is_json: bool,
    out: Text<'static>,
}

impl Rows {
    /// Prints one object.
    pub fn json(&mut self, result: &impl Serialize) -> io::Result<()> {
        writeln!(self.out, "{}", with_format(result)?)
    }

    /// Prints one row.
    pub fn row(
        &mut self,
        json: &impl Serialize,
        text: impl FnOnce(&mut Text<'static>) -> io::Result<()>,
    ) -> Outcome {
        match self.is_json {
            true => self.json(json)?,
            false => text(&mut self.out)?,
        }
        Ok(())
    }

    /// Prints an entry: a line of key, TAB and value, as `load` reads it, or an object.
    pub fn entry(&mut self, key: &[u8], value: &[u8], raw: bool) -> Outcome {
        match (self.is_json, raw) {
            (true, _) => self.json(&KeyValue::new(key, value))?,
            (false, true) => {
                for part in [key, b"\t", value, b"\n"] {
                    self.out.write_all(part)?;
                }
            }
            (false, false) => writeln!(self.out, "{}\t{}", escaped(key), escaped(value))?,
        }
        Ok(())
    }

    /// Where rows of a format of its own are written.
    pub fn text(&mut self) -> &mut Text<'static> {
        &mut self.out
    }

    /// Reports an error that does not end the answer, after the rows before it.
    pub fn error(&mut self, failure: &Failure) -> Outcome {
        self.out.flush()?;
        failure.report(self.is_json);
        Ok(())
    }

    /// Prints what there is so far, before a wait.
    pub fn flush(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }

    /// Ends the answer.
    pub fn end(mut self) -> Outcome<Shown> {
        self.out.flush()?;
        Ok(Shown(()))
    }
}
