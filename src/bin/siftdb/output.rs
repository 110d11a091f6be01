//! Where results go: one seam for all subcommands, so that each has text and JSON.
//!
//! A subcommand hands its answer to [`Output::show`], as a JSON object and as a function that
//! writes the same as text, or row by row to [`Rows`]. Both give back [`Shown`], and only they do;
//! `main` wants one of every subcommand. So none can print in one form and forget the other, and
//! every object has its `format`. Results go to standard output, notes to standard error.

use crate::failure::Outcome;
use crate::json::{FORMAT, joined};
use serde_json::{Value, json};
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

/// How results are printed.
#[derive(Clone, Copy)]
pub struct Output {
    json: bool,
}

/// Proof that a subcommand gave its answer.
#[must_use]
pub struct Shown(());

/// What text is written to.
pub type Text<'a> = BufWriter<StdoutLock<'a>>;

fn stdout() -> Text<'static> {
    BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
}

/// `object` with the version of its shape in front.
pub fn with_format(object: Value) -> Value {
    joined([json!({ "format": FORMAT }), object])
}

impl Output {
    /// Prints JSON or text.
    pub fn new(json: bool) -> Self {
        Output { json }
    }

    /// True if results are printed as JSON.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// True if results are read by a person: text, and no pipe or file.
    pub fn is_read_by_people(self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// Prints the whole answer.
    pub fn show(self, json: Value, text: impl FnOnce(&mut Text<'_>) -> Outcome) -> Outcome<Shown> {
        let mut out = stdout();
        match self.json {
            true => writeln!(out, "{:#}", with_format(json))?,
            false => text(&mut out)?,
        }
        out.flush()?;
        Ok(Shown(()))
    }

    /// Begins an answer of rows.
    pub fn rows(self) -> Rows {
        Rows { is_json: self.json, out: stdout() }
    }

    /// Says something beside the result, unless a program reads.
    pub fn note(self, line: &str) {
        if !self.json {
            // Nobody is left to tell if this fails.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// Rows: lines of text, or JSON objects, one a line.
pub struct Rows {
    is_json: bool,
    out: Text<'static>,
}

impl Rows {
    /// Prints one object.
    pub fn json(&mut self, object: Value) -> std::io::Result<()> {
        writeln!(self.out, "{}", with_format(object))
    }

    /// Prints one row.
    pub fn row(
        &mut self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce(&mut Text<'static>) -> std::io::Result<()>,
    ) -> Outcome {
        match self.is_json {
            true => self.json(json())?,
            false => text(&mut self.out)?,
        }
        Ok(())
    }

    /// Ends the answer.
    pub fn end(mut self) -> Outcome<Shown> {
        self.out.flush()?;
        Ok(Shown(()))
    }
}
