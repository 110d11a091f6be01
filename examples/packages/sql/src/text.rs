//! What the shell prints for the answer to a statement.

use gluesql_core::data::Value;
use gluesql_core::prelude::{Payload, PayloadVariable};

/// The answer as lines of text.
#[must_use]
pub fn of(answer: &Payload) -> String {
    match answer {
        Payload::Select { labels, rows } => table(labels, rows.iter().map(|row| texts(row))),
        Payload::SelectMap(rows) => {
            let rows = rows.iter().map(|row| vec![String::from(Value::Map(row.clone()))]);
            table(&["row".to_owned()], rows)
        }
        Payload::ShowColumns(columns) => {
            let labels = ["column".to_owned(), "type".to_owned()];
            let rows = columns.iter().map(|(name, of)| vec![name.clone(), of.to_string()]);
            table(&labels, rows)
        }
        Payload::ShowVariable(PayloadVariable::Tables(names)) => lines("table", names),
        Payload::ShowVariable(PayloadVariable::Functions(names)) => lines("function", names),
        Payload::ShowVariable(PayloadVariable::Version(version)) => format!("{version}\n"),
        Payload::Insert(count) => format!("{} inserted\n", rows(*count)),
        Payload::Update(count) => format!("{} updated\n", rows(*count)),
        Payload::Delete(count) => format!("{} deleted\n", rows(*count)),
        Payload::DropTable(1) => "1 table dropped\n".into(),
        Payload::DropTable(count) => format!("{count} tables dropped\n"),
        Payload::Create => "created\n".into(),
        Payload::DropFunction | Payload::DropIndex => "dropped\n".into(),
        Payload::AlterTable => "altered\n".into(),
        Payload::CreateIndex => "created\n".into(),
        Payload::StartTransaction => "transaction begun\n".into(),
        Payload::Commit => "committed\n".into(),
        Payload::Rollback => "rolled back\n".into(),
    }
}

fn rows(count: usize) -> String {
    match count {
        1 => "1 row".into(),
        count => format!("{count} rows"),
    }
}

fn texts(row: &[Value]) -> Vec<String> {
    row.iter().map(String::from).collect()
}

fn lines(label: &str, names: &[String]) -> String {
    table(&[label.to_owned()], names.iter().map(|name| vec![name.clone()]))
}

/// A table with a line of labels, and columns as wide as their widest text.
fn table(labels: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    // A text over several lines would break the table.
    let one_line = |text: &String| text.replace('\n', "\\n").replace('\r', "\\r");
    let cells = |row: &[String]| row.iter().map(one_line).collect::<Vec<_>>();
    let table: Vec<Vec<String>> =
        std::iter::once(cells(labels)).chain(rows.map(|row| cells(&row))).collect();
    let mut widths = vec![0; labels.len()];
    for row in &table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for (number, row) in table.iter().enumerate() {
        // Not by a format: it panics at widths above 65,535.
        let pad = |(cell, width): (&String, &usize)| {
            cell.clone() + &" ".repeat(width - cell.chars().count())
        };
        let padded = row.iter().zip(&widths).map(pad);
        text += padded.collect::<Vec<_>>().join(" | ").trim_end();
        text += "\n";
        if number == 0 {
            text += &widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("-+-");
            text += "\n";
        }
    }
    text + &format!("({})\n", self::rows(table.len() - 1))
}
