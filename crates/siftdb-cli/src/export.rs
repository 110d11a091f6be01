//! `siftdb export DIR --format FORMAT`: prints what a database has, to be read elsewhere.
//!
//! It prints the live entries of one moment, in key order. `import` reads each format back. A
//! format that cannot carry an entry is refused, before or at that entry: no entry and no expiry is
//! left out in silence.

use crate::args::{InKeyspace, options, unnamed};
use crate::bars::Bar;
use crate::described::help;
use crate::exchange::jsonl::{EndLine, EntryLine, JsonlWriter, KeyspaceLine};
use crate::exchange::mdb::MdbWriter;
use crate::exchange::record::{Entry, KeyspaceBegin, Writer};
use crate::exchange::tsv::Tsv;
use crate::failure::{Failure, Outcome};
use crate::filter_args::is_of_program;
use crate::output::{Output, Shown, note};
use crate::settings::{pairs, settings_of};
use crate::text::counted_entries;
use crate::whole_file::{check_file, replace_with};
use clap::{Args, ValueEnum};
use siftdb::Keyspace;
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_long_help = help::<KeyspaceLine>() + &help::<EntryLine>() + &help::<EndLine>())]
pub struct Export {
    #[command(flatten)]
    place: InKeyspace,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Write a file instead of standard output; it appears whole, or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// JSON, one object a line: keyspaces, settings, entries, expiry
    Jsonl,
    /// Lines of KEY TAB VALUE, as `scan` prints them: one keyspace, no expiry or settings
    Tsv,
    /// The text of `mdb_dump`, for LMDB's `mdb_load`: keyspaces, no expiry or settings
    Mdb,
    /// The text of `db_dump`, for Berkeley DB's `db_load`: keyspaces, no expiry or settings
    Bdb,
}

impl Export {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if output.is_json() && !matches!(self.format, Format::Jsonl) {
            return Err(Failure::usage("--json is --format jsonl; leave out one of the two"));
        }
        self.output.as_deref().map_or(Ok(()), check_file)?;
        self.place.read_all(options(), &unnamed(), |_, keyspaces| {
            let shown = match &self.output {
                None => {
                    let mut rows = output.rows();
                    self.write(keyspaces, rows.text())?;
                    rows.end()
                }
                Some(file) => {
                    let entries = replace_with(file, |out| self.write(keyspaces, out))?;
                    output.show(&EndLine { entries }, |out| {
                        writeln!(out, "{}: {}", counted_entries(entries), file.display())
                    })
                }
            }?;
            self.note_left_out(keyspaces);
            Ok(shown)
        })
    }

    /// Notes the settings that the file does not carry, or that import does not read back.
    fn note_left_out(&self, keyspaces: &[Keyspace]) {
        let carries = matches!(self.format, Format::Jsonl);
        let why = match carries {
            true => "import leaves out, as only a program can name it",
            false => "not exported, as only jsonl has settings",
        };
        for keyspace in keyspaces {
            let mut left_out = settings_of(&keyspace.settings());
            left_out.retain(|one| !carries || is_of_program(&one.value));
            if !left_out.is_empty() {
                note(&format!("keyspace {:?}: {why}: {}", keyspace.name(), pairs(&left_out)));
            }
        }
    }

    /// Writes all entries of `keyspaces`, and returns how many there are.
    fn write(&self, keyspaces: &[Keyspace], out: &mut dyn Write) -> Outcome<u64> {
        let mut writer: Box<dyn Writer> = match self.format {
            Format::Jsonl => Box::new(JsonlWriter),
            Format::Tsv => Box::new(Tsv),
            Format::Mdb => Box::new(MdbWriter::Lmdb),
            Format::Bdb => Box::new(MdbWriter::Berkeley),
        };
        let (entries, bytes) = match self.format {
            Format::Mdb => {
                refuse_names_as_keys(keyspaces)?;
                sizes(keyspaces)?
            }
            Format::Jsonl | Format::Tsv | Format::Bdb => (0, 0),
        };
        let bar = Bar::keys("export", None);
        let mut written = 0u64;
        for keyspace in keyspaces {
            let (name, settings) = (keyspace.name(), &keyspace.settings());
            let alone = keyspaces.len() == 1;
            writer.keyspace(out, &KeyspaceBegin { name, settings, entries, bytes, alone })?;
            let mut cursor = keyspace.cursor();
            cursor.seek_to_first()?;
            while let Some((key, value)) = cursor.entry() {
                let expires_at = cursor.expires_at();
                writer.entry(out, &Entry { key, value, expires_at })?;
                written = bar.step();
                cursor.next()?;
            }
            writer.end(out)?;
        }
        writer.finish(out, written)?;
        Ok(written)
    }
}

/// Refuses a key of `default` that is the name of another keyspace. LMDB stores the names of its
/// databases as keys of the main one, which is `default`, so `mdb_load` would mix up both.
fn refuse_names_as_keys(keyspaces: &[Keyspace]) -> Outcome {
    let Some(main) = keyspaces.iter().find(|one| one.name() == "default") else { return Ok(()) };
    for other in keyspaces.iter().map(Keyspace::name).filter(|name| *name != "default") {
        if main.contains_key(other)? {
            return Err(Failure::usage(format!(
                "`default` has the key {other:?}, which is also the name of a keyspace; LMDB keeps \
                 both in one place; use --format jsonl, or --keyspace for one at a time"
            )));
        }
    }
    Ok(())
}

/// How many entries there are, and the bytes of their keys and values.
fn sizes(keyspaces: &[Keyspace]) -> Outcome<(u64, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    for keyspace in keyspaces {
        let mut cursor = keyspace.cursor();
        cursor.seek_to_first()?;
        while let Some((key, value)) = cursor.entry() {
            entries += 1;
            bytes += (key.len() + value.len()) as u64;
            cursor.next()?;
        }
    }
    Ok((entries, bytes))
}
