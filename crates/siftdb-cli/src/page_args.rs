//! The files that every command with figures can write: a page, and a table for each figure.
//!
//! A command flattens [`PageArgs`] into its arguments, calls [`PageArgs::check`] before it measures
//! and [`PageArgs::write`] at its end. Files are replaced whole; see [`crate::whole_file`].

use crate::described::result;
use crate::failure::Outcome;
use crate::text::counted;
use crate::whole_file::{check_file, refused, replace};
use clap::Args;
use siftdb_cli::experiment::{Page, bytes};
use std::path::{Path, PathBuf};

result! {
    /// A page as JSON.
    pub value PageJson {
        /// what is shown
        title, sentence;
        /// what shows it again
        command;
        /// what belongs to the run: name and text of each
        facts;
        /// each with its table:
        figures: FigureJson;
    }

    pub value FigureJson {
        /// its name and heading
        id, title;
        /// what to see in it
        finding;
        /// what makes it again
        command;
        /// name and unit of each column: text, count, number, share, bytes or nanos
        columns;
        /// the cells of each row, in the order of the columns; null if there is none
        rows;
    }
}

#[derive(Args)]
pub struct PageArgs {
    /// Write the figures as a page with pictures: one HTML file that loads nothing
    #[arg(short = 'o', long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the table of each figure as DIR/ID.csv, for spreadsheets; DIR is created
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
}

impl PageArgs {
    /// Whether there is anything to write.
    pub fn is_asked(&self) -> bool {
        self.html.is_some() || self.csv.is_some()
    }

    /// Refuses files that cannot be written, before a long run.
    pub fn check(&self) -> Outcome {
        if let Some(file) = &self.html {
            check_file(file)?;
        }
        self.csv.as_deref().map_or(Ok(()), create_folder)
    }

    /// Writes what was asked for. Returns a line about each, for people.
    pub fn write(&self, page: &Page) -> Outcome<Vec<String>> {
        let mut written = Vec::new();
        if let Some(file) = &self.html {
            let html = page.html();
            replace(file, &html)?;
            written.push(format!("page: {} ({})", file.display(), bytes(html.len() as u64)));
        }
        if let Some(folder) = &self.csv {
            create_folder(folder)?;
            for (id, table) in page.csv() {
                replace(&folder.join(format!("{id}.csv")), &table)?;
            }
            let tables = counted(page.figures.len() as u64, "table");
            written.push(format!("{tables}: {}", folder.join("*.csv").display()));
        }
        Ok(written)
    }
}

fn create_folder(folder: &Path) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "a folder of the user, not of a database")]
    std::fs::create_dir_all(folder).map_err(|error| refused(folder, error))
}
