//! A figure: a table, how it is drawn, what to see in it, and the command that makes it again.
//!
//! Experiments answer with figures. A picture shows numbers of its table and no others, and the
//! table is what JSON and CSV hold. So every number that a page shows can be had as data.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A table and its picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Names the figure in links, in JSON and as a CSV file: lower-case words joined by dashes,
    /// such as `fpr-by-bits`.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// One sentence that says what to see.
    pub finding: String,
    /// The shell command that makes the figure again.
    pub command: String,
    /// The headings of the table.
    pub columns: Vec<Heading>,
    /// The rows of the table, as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// How the table is drawn.
    #[serde(skip)]
    pub picture: Picture,
}

impl Figure {
    /// The same, made again by the shell command `command`.
    pub fn again(self, command: impl Into<String>) -> Self {
        Figure { command: command.into(), ..self }
    }

    /// The text of the cell at `row` and `column`, as people read it; a dash if there is none.
    pub fn text(&self, row: &[Cell], column: usize) -> String {
        match (row.get(column), self.columns.get(column)) {
            (Some(Cell::Text(text)), _) => text.clone(),
            (Some(Cell::Number(number)), Some(heading)) => heading.unit.print(*number),
            _ => "\u{2013}".into(),
        }
    }

    /// The number at `row` and `column`, if there is a finite one.
    pub fn number(&self, row: &[Cell], column: usize) -> Option<f64> {
        match row.get(column) {
            Some(Cell::Number(number)) if number.is_finite() => Some(*number),
            _ => None,
        }
    }

    /// The finite numbers of the column `column`.
    pub(crate) fn numbers(&self, column: usize) -> impl Iterator<Item = f64> + Clone {
        self.rows.iter().filter_map(move |row| self.number(row, column))
    }

    /// The rows by the texts of the column `column`, in the order of their first row.
    pub(crate) fn groups(&self, column: usize) -> Vec<(String, Vec<&Vec<Cell>>)> {
        let mut groups: Vec<(String, Vec<&Vec<Cell>>)> = Vec::new();
        for row in &self.rows {
            let name = self.text(row, column);
            match groups.iter_mut().find(|(other, _)| *other == name) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((name, vec![row])),
            }
        }
        groups
    }

    /// The words over the column `column`.
    pub fn label(&self, column: usize) -> &'static str {
        self.columns.get(column).map_or("", |heading| heading.label)
    }

    /// The unit of the numbers of the column `column`.
    pub fn unit(&self, column: usize) -> Unit {
        self.columns.get(column).map_or(Unit::Text, |heading| heading.unit)
    }
}

/// The heading of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Heading {
    /// Names the column in JSON and CSV, with its unit at the end: `bytes_read`, `p99_nanos`.
    pub name: &'static str,
    /// The words over the column and next to an axis, without the unit.
    #[serde(skip)]
    pub label: &'static str,
    /// How its numbers are printed.
    pub unit: Unit,
}

/// A figure without words: `table! { for ROW in VALUES; UNIT, NAME, LABEL => CELL; ... }` has a row
/// for each value and a column for each line, whose words are those of a [`Heading`].
macro_rules! table {
    (for $row:pat in $rows:expr; $($unit:expr, $name:expr, $label:expr => $cell:expr;)+) => {
        $crate::experiment::figure::Figure {
            columns: vec![$($crate::experiment::figure::Heading {
                name: $name,
                label: $label,
                unit: $unit,
            }),+],
            rows: ($rows).into_iter().map(|$row| vec![$(($cell).into()),+]).collect(),
            ..Default::default()
        }
    };
}
pub(crate) use table;

/// The unit of a number, which decides how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Words.
    Text,
    /// Whole things: keys, blocks, tables.
    Count,
    /// A mean of such things, or another plain number.
    Number,
    /// A share of one, printed as per cent.
    Share,
    /// Bytes, printed in kB, MB or GB.
    Bytes,
    /// Nanoseconds, printed in ns, µs, ms or s.
    Nanos,
}

impl Unit {
    /// A number as people read it: three digits and a unit, or a whole count.
    pub fn print(self, number: f64) -> String {
        match self {
            Unit::Text | Unit::Number => digits(number),
            Unit::Count if number.fract() == 0.0 => grouped(number),
            Unit::Count => digits(number),
            Unit::Share => format!("{} %", digits(100.0 * number)),
            Unit::Bytes => scaled(number, &["B", "kB", "MB", "GB", "TB"]),
            Unit::Nanos => scaled(number, &["ns", "µs", "ms", "s"]),
        }
    }
}

/// Divided by 1000 until it has three digits before the point.
fn scaled(mut number: f64, units: &[&str]) -> String {
    let mut units = units.iter().peekable();
    loop {
        let unit = units.next().copied().unwrap_or_default();
        if number.abs() < 999.5 || units.peek().is_none() {
            return format!("{} {unit}", digits(number));
        }
        number /= 1000.0;
    }
}

/// Three digits without zeros at the end, or all digits of a whole number.
fn digits(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || size >= 999.5 {
        return grouped(number);
    }
    if size < 1e-6 {
        return format!("{number:.1e}");
    }
    let places = (2.0 - size.log10().floor()).max(0.0) as usize;
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A whole number, its digits in groups of three.
fn grouped(number: f64) -> String {
    let text = format!("{:.0}", number.abs());
    let mut grouped = String::from(if number <= -0.5 { "\u{2212}" } else { "" });
    for (place, digit) in text.chars().enumerate() {
        if place > 0 && (text.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words: a layout, an encoding, a level.
    Text(String),
    /// A finite number.
    Number(f64),
    /// Does not apply, or was not measured. Printed as a dash, `null` in JSON, empty in CSV.
    Absent,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => serializer.serialize_str(text),
            // A count is printed without a point, if it is exact as an integer.
            Cell::Number(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
                serializer.serialize_i64(*number as i64)
            }
            Cell::Number(number) => serializer.serialize_f64(*number),
            Cell::Absent => serializer.serialize_none(),
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Cell::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Cell::Number(count as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Absent, T::into)
    }
}

/// A line of comma-separated values by RFC 4180: quoted where needed, empty without a value.
pub(crate) fn csv_line(values: impl IntoIterator<Item = Value>) -> String {
    let fields = values.into_iter().map(|value| match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text,
        value => value.to_string(),
    });
    fields.collect::<Vec<_>>().join(",") + "\n"
}

/// How the steps of an axis grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By addition, from zero.
    Linear,
    /// By multiplication. A value of zero is drawn at the lower edge.
    Log,
}

/// How a table is drawn. Numbers are positions of columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Picture {
    /// Lines over a number: one for each text of the column `series`, in the order of the rows.
    Lines {
        /// The texts that tell the lines apart.
        series: usize,
        /// The number along the horizontal axis.
        x: usize,
        /// The number along the vertical axis, drawn as points and a line.
        y: usize,
        /// The ends of the interval of `y`, drawn as a vertical stroke.
        interval: Option<(usize, usize)>,
        /// A number that theory expects for `y`, drawn as a dashed line of the same color.
        expected: Option<usize>,
        /// The steps of the horizontal axis.
        x_scale: Scale,
        /// The steps of the vertical axis.
        y_scale: Scale,
    },
    /// Horizontal bars: one group for each row, one bar for each of `values`, which share a unit.
    /// A column of zeros has no bars.
    Bars {
        /// The texts that name the groups; several are joined.
        labels: Vec<usize>,
        /// The lengths of the bars.
        values: Vec<usize>,
        /// The ends of the interval of the first of `values`, drawn as a line over its bar.
        interval: Option<(usize, usize)>,
    },
    /// Boxes in lines: one line for each text of `group`, one box for each row, from one share of
    /// the width to another. Boxes of a group that overlap are below each other. Draws the levels
    /// of a tree, with their tables along the range of keys.
    Boxes {
        /// The text that names the line.
        group: usize,
        /// The words in the box.
        label: usize,
        /// The shares at which the box begins and ends.
        ends: (usize, usize),
        /// A share that decides how dark the box is.
        shade: Option<usize>,
    },
    /// Steps from top to bottom: one row each, in order. Draws what one lookup touched.
    Steps {
        /// The part that was asked: a memtable, a filter, an index, a block.
        what: usize,
        /// Its answer.
        answer: usize,
        /// The column that groups the steps: memory, or a table with its level.
        place: usize,
        /// Bytes that the step read from a file: more than none fills its marker. Absent if it
        /// touched nothing.
        read: usize,
    },
    /// The table alone.
    #[default]
    Table,
}

impl Picture {
    /// Bars of the columns `values`, each row named by its first column.
    pub(crate) fn bars(values: &[usize]) -> Self {
        let (labels, values) = (vec![0], values.to_vec());
        Picture::Bars { labels, values, interval: None }
    }

    /// Lines of the column `y` over `x`, named by the first column, both axes logarithmic.
    pub(crate) fn log_lines(x: usize, y: usize) -> Self {
        let (x_scale, y_scale) = (Scale::Log, Scale::Log);
        Picture::Lines { series: 0, x, y, interval: None, expected: None, x_scale, y_scale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_three_digits_and_a_unit() {
        let cases = [
            (Unit::Count, 1_234_567.0, "1,234,567"),
            (Unit::Count, 999.0, "999"),
            (Unit::Number, 0.012_345, "0.0123"),
            (Unit::Number, 12.0, "12"),
            (Unit::Number, 9.996, "10"),
            (Unit::Number, 1234.5, "1,234"),
            (Unit::Number, 1e-9, "1.0e-9"),
            (Unit::Share, 0.009_53, "0.953 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Bytes, 999.6, "1 kB"),
            (Unit::Bytes, 4.5e6, "4.5 MB"),
            (Unit::Nanos, 297_000.0, "297 µs"),
            (Unit::Nanos, 5e9, "5 s"),
            (Unit::Nanos, 5e12, "5,000 s"),
            (Unit::Number, -0.25, "-0.25"),
            (Unit::Number, 0.0, "0"),
        ];
        for (unit, number, text) in cases {
            assert_eq!(unit.print(number), text);
        }
    }
}
