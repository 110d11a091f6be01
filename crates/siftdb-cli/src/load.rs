//! `siftdb load DIR FILE|-`: writes lines of KEY TAB VALUE, as `scan` prints them, or of other
//! columns.
//!
//! Escapes are read as `scan` writes them, so every byte survives. With `--raw` there are none. A
//! column ends at the next separator; the value, unless it has a column, at the end of the line.
//!
//! Lines whose keys ascend become tables directly, in one step at the end; see [`Sink`]. Others are
//! written in atomic batches. All is in tables at the end.
//!
//! The first unusable line ends the command. The message names the file, the line and the number of
//! lines before it that were written; these stay. On request unusable lines are left out, and
//! collected in a file: then the exit code is 5 if there are any.

use crate::args::ToWrite;
use crate::bars::Bar;
use crate::described::{help, result};
use crate::exchange::input::Input;
use crate::exchange::record::Expiry;
use crate::exchange::tsv::Columns;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown, note};
use crate::settings::Named;
use crate::sink::{Sink, check_sizes};
use crate::text::{counted, counted_entries, unescaped};
use clap::{Args, value_parser};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

result! {
    struct Loaded {
        /// entries written
        entries: u64;
        /// how long it took, flush and close included
        seconds: f64;
        /// lines that were left out
        bad_lines: u64;
        /// the first ten of these:
        first_bad_lines: Vec<BadLine>;
    }

    struct BadLine {
        /// its number
        line: u64;
        /// why
        what: String;
    }
}

/// Bad lines that are reported one by one.
const REPORTED: u64 = 10;

#[derive(Args)]
#[command(after_long_help = help::<Loaded>())]
pub struct Load {
    #[command(flatten)]
    place: ToWrite,
    /// Lines of KEY TAB VALUE, as `scan` prints them; `-` is standard input
    file: PathBuf,
    /// Read no escapes in keys and values
    #[arg(long)]
    raw: bool,
    /// The byte between columns, or an escape such as \x1f [default: \t]
    ///
    /// There are no quotes. Escapes in columns are read, unless --raw is given. A CR at the end of
    /// a line belongs to the value.
    #[arg(long, value_name = "BYTE")]
    separator: Option<OsString>,
    /// The column of the key, counted from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u16).range(1..))]
    key_column: u16,
    /// The column of the value [default: all that follows the column of the key]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    value_column: Option<u16>,
    /// Leave out unusable lines; exit code 5 if there are any
    #[arg(long)]
    skip_bad_lines: bool,
    /// Leave them out, and write them to this file, to be corrected and loaded
    #[arg(long, value_name = "FILE")]
    bad_lines: Option<PathBuf>,
    #[command(flatten)]
    named: Named,
}

/// Lines that were left out.
struct BadLines {
    count: u64,
    first: Vec<BadLine>,
    /// Where all of them go, if they are collected.
    path: Option<PathBuf>,
    /// The file, once there is a line for it.
    file: Option<BufWriter<File>>,
}

impl BadLines {
    /// Those of `--bad-lines FILE`.
    fn new(path: Option<&Path>) -> Outcome<Self> {
        // Said before the database is created; the file is created with its first line.
        if let Some(path) = path.filter(|path| path.symlink_metadata().is_ok()) {
            return Err(unwritable(path, std::io::ErrorKind::AlreadyExists.into()));
        }
        let path = path.map(Path::to_path_buf);
        Ok(BadLines { count: 0, first: Vec::new(), path, file: None })
    }

    fn add(&mut self, number: u64, line: &[u8], why: &Failure, bar: &Bar) -> Outcome {
        self.count += 1;
        if self.count <= REPORTED {
            let why = why.sentence().to_string();
            bar.hidden(|| note(&format!("line {number} left out: {why}")));
            self.first.push(BadLine { line: number, what: why });
        }
        let Some(path) = &self.path else { return Ok(()) };
        let file = match self.file.take() {
            Some(file) => file,
            // An existing one is never replaced: it may have lines that nobody corrected yet.
            None => {
                let created = File::create_new(path).map_err(|source| unwritable(path, source))?;
                BufWriter::new(created)
            }
        };
        let file = self.file.insert(file);
        let written = file.write_all(line).and_then(|()| file.write_all(b"\n"));
        written.map_err(|source| Failure::io(path, source))
    }

    /// Writes what is left of the file.
    fn finish(&mut self) -> Outcome {
        let (Some(path), Some(file)) = (&self.path, &mut self.file) else { return Ok(()) };
        file.flush().map_err(|source| Failure::io(path, source))
    }
}

fn unwritable(path: &Path, source: std::io::Error) -> Failure {
    Failure::unwritable(path, source, "name a new file")
}

impl Load {
    fn columns(&self) -> Outcome<Columns> {
        let separator = match &self.separator {
            None => b'\t',
            Some(text) => match unescaped(&text.clone().into_vec()) {
                Ok(bytes) if bytes.len() == 1 && bytes != b"\n" => bytes[0],
                _ => {
                    let what = "--separator is one byte, or an escape such as \\t or \\x1f";
                    return Err(Failure::usage(what));
                }
            },
        };
        // Lines are cut before escapes are read.
        if !self.raw && (separator == b'\\' || separator.is_ascii_alphanumeric()) {
            let what = "--separator may be part of an escape; use another one, or --raw";
            return Err(Failure::usage(what));
        }
        let value = self.value_column.map(usize::from);
        Ok(Columns { separator, key: self.key_column.into(), value, raw: self.raw })
    }

    /// Gives all lines to `sink`.
    fn write_lines(
        &self,
        columns: &Columns,
        input: &mut Input,
        sink: &mut Sink<'_>,
        bad: &mut BadLines,
    ) -> Outcome {
        let skips = self.skip_bad_lines || self.bad_lines.is_some();
        loop {
            let (number, line, bar) = match input.next() {
                Ok(Some(next)) => next,
                Ok(None) => return sink.finish(),
                Err(failure) => return Err(input.at_line(failure, Some(sink.written))),
            };
            let entry = columns.entry(line).and_then(|(key, value)| {
                check_sizes(&key, &value)?;
                Ok((key, value))
            });
            let put = match entry {
                Ok((key, value)) => sink.put(&key, &value, Expiry::OfKeyspace),
                Err(why) if skips => bad.add(number, line, &why, bar),
                Err(why) => Err(why),
            };
            put.map_err(|failure| input.at_line(failure, Some(sink.written)))?;
        }
    }

    pub fn run(self, output: Output) -> Outcome<Shown> {
        // Before anything is created.
        let (columns, settings) = (self.columns()?, self.named.settings()?);
        let mut bad = BadLines::new(self.bad_lines.as_deref())?;
        let mut input = Input::open(&self.file, "load", if self.raw { 1 } else { 4 })?;
        let mut started = Instant::now();
        let entries = self.place.write(&settings, |db, keyspace| {
            started = Instant::now();
            let mut sink = Sink::new(db, keyspace.clone());
            let loaded = self.write_lines(&columns, &mut input, &mut sink, &mut bad);
            bad.finish()?;
            loaded?;
            // Only tables have filters and appear in most figures.
            keyspace.flush()?;
            Ok(sink.taken)
        })?;
        drop(input);
        let seconds = started.elapsed().as_secs_f64();
        note(&format!("{} loaded in {seconds:.1} s", counted_entries(entries)));
        let (bad_lines, first_bad_lines) = (bad.count, bad.first);
        let loaded = Loaded { entries, seconds, bad_lines, first_bad_lines };
        let shown = output.show_json(&loaded)?;
        match bad_lines {
            0 => Ok(shown),
            count => {
                let more = match &self.bad_lines {
                    Some(path) => format!("they are in {}", path.display()),
                    None => "all others were loaded".into(),
                };
                Err(Failure::losses(&format!("{} left out", counted(count, "bad line")), &more))
            }
        }
    }
}
