//! A figure: a table, how it is drawn, what to see in it, and the command that makes it again.
//!
//! Experiments answer with figures. A picture shows numbers of its table and no others, and the
//! table is what JSON and CSV hold. So every number that a page shows can be had as data.

/// A table and its picture.
#[derive(Clone, Debug, PartialEq)]
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
    pub picture: Picture,
}

/// The heading of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Names the column in JSON and CSV, with its unit at the end: `bytes_read`, `p99_nanos`.
    pub name: &'static str,
    /// The words over the column and beside an axis, without the unit.
    pub label: &'static str,
    /// How its numbers are printed.
    pub unit: Unit,
}

/// What a number counts, which decides how it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Nanoseconds, printed in ns, µs or ms.
    Nanos,
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

/// How the steps of an axis grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By addition, from zero.
    Linear,
    /// By multiplication. A value of zero is drawn at the lower edge.
    Log,
}

/// How a table is drawn. Numbers are positions of columns.
#[derive(Clone, Debug, PartialEq)]
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
    Bars {
        /// The texts that name the groups; several are joined.
        labels: Vec<usize>,
        /// The lengths of the bars.
        values: Vec<usize>,
        /// The steps of the axis.
        scale: Scale,
    },
    /// Boxes in lines: one line for each text of `group`, one box for each row, as wide as `size`.
    /// Draws the levels of a tree with their tables.
    Boxes {
        /// The text that names the line.
        group: usize,
        /// The words in the box.
        label: usize,
        /// The number that decides how wide the box is.
        size: usize,
        /// A share that decides how dark the box is.
        shade: Option<usize>,
    },
    /// Steps from top to bottom: one row each, in order. Draws what one lookup touched.
    Steps {
        /// What was asked: a memtable, a filter, an index, a block.
        what: usize,
        /// What it answered.
        answer: usize,
        /// The column that groups the steps: memory, or a table with its level.
        place: usize,
    },
    /// The table alone.
    Table,
}
