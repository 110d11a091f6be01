//! A [`Page`] of figures: an HTML file to read and pass on, JSON and CSV to compute with.
//!
//! All forms hold the same numbers. The HTML prints them with three digits, the others in full.

use crate::experiment::figure::{Cell, Figure};
use serde_json::{Value, json};

/// Figures of one run, with what a reader must know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// One sentence that says what the page shows.
    pub sentence: String,
    /// The shell command that makes the page again.
    pub command: String,
    /// Other facts of the run, such as its seed or the machine: names and texts.
    pub facts: Vec<(String, String)>,
    /// The figures, in reading order, with different ids.
    pub figures: Vec<Figure>,
}

impl Page {
    /// All figures with all numbers, and what the page says about them.
    #[must_use]
    pub fn json(&self) -> Value {
        let facts = self.facts.iter().map(|(name, text)| json!({ "name": name, "text": text }));
        json!({
            "title": self.title,
            "sentence": self.sentence,
            "command": self.command,
            "facts": facts.collect::<Value>(),
            "figures": self.figures.iter().map(figure_json).collect::<Value>(),
        })
    }

    /// A table for each figure: its id, and lines of comma-separated values under a line of the
    /// names of the columns.
    #[must_use]
    pub fn csv(&self) -> Vec<(&'static str, String)> {
        self.figures.iter().map(|figure| (figure.id, figure_csv(figure))).collect()
    }
}

fn figure_json(figure: &Figure) -> Value {
    let column = figure.columns.iter().map(|of| json!({ "name": of.name, "unit": of.unit.name() }));
    let row = |row: &Vec<Cell>| row.iter().map(cell_json).collect::<Value>();
    json!({
        "id": figure.id,
        "title": figure.title,
        "finding": figure.finding,
        "command": figure.command,
        "columns": column.collect::<Value>(),
        "rows": figure.rows.iter().map(row).collect::<Value>(),
    })
}

fn cell_json(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => json!(text),
        // A count is printed without a point.
        Cell::Number(number) if is_count(*number) => json!(*number as i64),
        Cell::Number(number) => json!(number),
        Cell::Absent => Value::Null,
    }
}

/// Whether a number is whole, and exact as an integer.
fn is_count(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 2f64.powi(53)
}

fn figure_csv(figure: &Figure) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let head = figure.columns.iter().map(|column| field(column.name)).collect();
    let rows = figure.rows.iter().map(|row| line(row.iter().map(cell_csv).collect()));
    line(head) + &rows.collect::<String>()
}

fn cell_csv(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => field(text),
        Cell::Number(number) if number.is_finite() => format!("{number}"),
        Cell::Number(_) | Cell::Absent => String::new(),
    }
}

/// A field of RFC 4180: quoted where it must be.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}
