//! A figure as text: its heading, its table and what to see in it.

use siftdb_cli::experiment::{Figure, Unit};

/// The lines of `figure`, after an empty one.
pub fn figure_text(figure: &Figure) -> String {
    let columns = 0..figure.columns.len();
    let cell = |row: usize, column| figure.text(&figure.rows[row], column);
    let width = |column: usize| {
        let cells = (0..figure.rows.len()).map(|row| cell(row, column).chars().count());
        cells.max().unwrap_or(0).max(figure.label(column).chars().count())
    };
    let line = |text: &dyn Fn(usize) -> String| {
        let cells = columns.clone().map(|column| match figure.unit(column) {
            Unit::Text => format!("{:<1$}", text(column), width(column)),
            _ => format!("{:>1$}", text(column), width(column)),
        });
        format!("   {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut all = format!("\n{}\n", figure.title);
    all += &line(&|column| figure.label(column).into());
    (0..figure.rows.len()).for_each(|row| all += &line(&|column| cell(row, column)));
    all + &format!("   -> {}\n", figure.finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb_cli::experiment::{Cell, Heading, Picture};

    #[test]
    fn columns_are_aligned() {
        let figure = Figure {
            id: "a",
            title: "Title".into(),
            finding: "This.".into(),
            command: String::new(),
            columns: vec![
                Heading { name: "a", label: "who", unit: Unit::Text },
                Heading { name: "b", label: "much", unit: Unit::Bytes },
            ],
            rows: vec![
                vec![Cell::Text("one".into()), Cell::Number(12_300_000.0)],
                vec![Cell::Text("three".into()), Cell::Absent],
            ],
            picture: Picture::Table,
        };
        let text = "\nTitle\n   who       much\n   one    12.3 MB\n   three        \u{2013}\n   -> This.\n";
        assert_eq!(figure_text(&figure), text);
    }
}
