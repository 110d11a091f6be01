//! `siftdb report DIR`: a page about a database, with its tree, its filters and two lookups.
//!
//! With `--memory` also what lookups read if that is all the memory. The database is opened
//! read-only. `experiment::contents_figures` makes the figures; without a
//! file to write, the command prints what they say.

use crate::args::{InKeyspace, Spelling, options};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::memory_args::GivenMemory;
use crate::output::{Output, Shown};
use crate::page_args::{PageArgs, PageJson};
use crate::text::{date, escaped, keyspace_option, shell_word};
use clap::Args;
use siftdb::{Db, Keyspace};
use siftdb_cli::experiment::{Page, Unit, bytes, contents_figures, memory_figure};
use std::ffi::OsString;
use std::io::Write;

result! {
    struct Reported {
        #[serde(flatten)] page: PageJson;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Reported>())]
pub struct Report {
    #[command(flatten)]
    place: InKeyspace,
    /// Explain the lookup of this key and of one next to it, instead of the first key
    #[arg(long)]
    key: Option<OsString>,
    #[command(flatten)]
    spelling: Spelling,
    #[command(flatten)]
    given: GivenMemory,
    #[command(flatten)]
    page: PageArgs,
}

impl Report {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let key = self.key.clone().map(|key| self.spelling.bytes(key)).transpose()?;
        self.page.check()?;
        self.given.check()?;
        let options = options().block_cache_bytes(self.given.cache);
        let page =
            self.place.read(options, |db, keyspace| self.page(db, keyspace, key.as_deref()))?;
        let written = self.page.write(&page)?;
        output.show(&Reported { page: PageJson(page.json()) }, |out| {
            writeln!(out, "{}\n{}", page.title, page.sentence)?;
            for figure in &page.figures {
                writeln!(out, "\n{}\n  {}", figure.title, figure.finding)?;
            }
            written.iter().try_for_each(|line| writeln!(out, "\n{line}"))
        })
    }

    fn page(&self, db: &Db, keyspace: &Keyspace, key: Option<&[u8]>) -> Outcome<Page> {
        let directory = shell_word(&db.path().to_string_lossy());
        let name = keyspace.name();
        let of = keyspace_option(name);
        let explain = |key: &[u8]| {
            let key = shell_word(&escaped(key));
            // After `--` a key may begin with a dash.
            format!("siftdb explain --escaped{of} -- {directory} {key}")
        };
        let named = key.map_or(String::new(), |key| {
            // A value of an option that begins with a dash needs the equals sign.
            format!(" --escaped --key={}", shell_word(&escaped(key)))
        });
        let memory = match self.given.memory {
            Some(memory) => format!(" --memory {memory} --cache {}", self.given.cache),
            None => String::new(),
        };
        let command = format!("siftdb report{of}{named}{memory} -o report.html -- {directory}");
        let (stats, count) = (keyspace.stats(), db.keyspaces().len());
        let total = stats.total();
        let others = match count {
            1 => String::new(),
            count => format!(" It is one of {count} keyspaces: `--keyspace` chooses."),
        };
        let fact = |name: &str, text: String| (name.to_string(), text);
        let mut facts = vec![
            fact("keyspace", name.into()),
            fact("tables", total.tables.to_string()),
            fact("entries in tables", Unit::Count.print(total.entries as f64)),
            fact("bytes of tables", bytes(total.bytes)),
            fact("log entries", Unit::Count.print(stats.memtable_entries as f64)),
        ];
        if stats.since_unix_seconds > 0 {
            facts.push(fact("counted since", date(stats.since_unix_seconds)));
        }
        facts.push(fact("siftdb", env!("CARGO_PKG_VERSION").into()));
        let mut figures = contents_figures(db, keyspace, key, &command, explain)?;
        if let Some(advice) = self.given.advice(keyspace) {
            figures.push(memory_figure(&advice).again(&command));
        }
        Ok(Page {
            title: format!("The database {}", db.path().display()),
            sentence: format!(
                "What keyspace \"{name}\" has in its tables, what its filters did, and what two \
                 lookups touch.{others}"
            ),
            command: command.clone(),
            facts,
            figures,
        })
    }
}
