//! A [`Page`] of figures: an HTML file to read and pass on, JSON and CSV to compute with.
//!
//! All forms hold the same numbers. The HTML prints them with three digits, the others in full.

use crate::experiment::figure::{Cell, Figure, csv_line};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Figures of one run, with what a reader must know about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// One sentence that says what the page shows.
    pub sentence: String,
    /// The shell command that makes the page again.
    pub command: String,
    /// Other facts of the run, such as its seed or the machine: names and texts.
    #[serde(serialize_with = "named")]
    pub facts: Vec<(String, String)>,
    /// The figures, in reading order, with different ids.
    pub figures: Vec<Figure>,
}

impl Page {
    /// All figures with all numbers, and what the page says about them.
    pub fn json(&self) -> Value {
        json!(self)
    }

    /// A table for each figure: its id, and lines of comma-separated values under a line of the
    /// names of the columns.
    pub fn csv(&self) -> Vec<(&'static str, String)> {
        self.figures.iter().map(|figure| (figure.id, figure_csv(figure))).collect()
    }
}

fn named<S: Serializer>(facts: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(facts.iter().map(|(name, text)| json!({ "name": name, "text": text })))
}

fn figure_csv(figure: &Figure) -> String {
    let head = csv_line(figure.columns.iter().map(|column| json!(column.name)));
    let line = |row: &Vec<Cell>| csv_line(row.iter().map(|cell| json!(cell)));
    head + &figure.rows.iter().map(line).collect::<String>()
}
