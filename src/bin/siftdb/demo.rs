//! `siftdb demo`: shows what filters save; `siftdb::experiment` measures it.
//!
//! Keys are generated from the seed or read from `--input`, and checked before anything is created.
//! The databases are in a temporary directory, which is removed at the end and on Ctrl-C, unless
//! `--keep` is given. Figures go to standard output, the hint of `--keep` to standard error. If
//! counts disagree, the command prints everything and then exits with code 4.

use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::filter_args::{ENCODING_DEFAULT, encoding_labels, encoding_of};
use crate::interrupt::{on_interrupt, wait_if_interrupted};
use crate::json::{fields, joined, list, path_field, variant};
use crate::load::{next_line, open_lines};
use crate::numbers::count;
use crate::output::{Output, Shown};
use crate::text::{escaped, shell_word};
use clap::{Args, value_parser};
use serde_json::{Value, json};
use siftdb::Filter;
use siftdb::experiment::{Act, Column, KeySet, Measurement, Report, Settings, Stage, run};
use siftdb::experiment::{KEYS_MAX, KEYS_MIN};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const JSON: &str = "\
JSON fields:
  format            1
  siftdb            the version of the command
  keys, key_bytes   how many keys, and their bytes
  value_bytes       bytes of each value
  input             the file of the keys, or null
  encoding, bits    how keys become bits, bits of filter for each key
  seed, lookups     as given
  databases         one for each column: column, tables (by level), entries, data_blocks,
                    data_bytes, filter_bytes, index_bytes
  acts              absent keys, present keys, absent keys with a cache too small:
    act             absent, present or starved
    cache_bytes     the block cache
    columns         one for each way to look up: column, and
      lookups, found            lookups made, and those that found a value
      data_blocks, data_blocks_read, data_bytes_read   searched, read from files, their bytes
      data_reads_saved          share of data block reads that filters saved, or null
      data_blocks_avoided       data blocks not searched because a filter said no
      index_seeks, index_blocks_read, index_bytes_read
      filter_blocks_read, filter_bytes_read
      false_positives, filter_answers_absent   filters that said maybe of absent keys, and all
      observed_fpr, expected_fpr               the rate, and the one to expect, or null
      p50_nanos, p99_nanos      time within which 50 or 99 of 100 lookups end
      env_read_calls, env_bytes_read           reads of files, counted by the file system layer
  faults            counts that disagree: what";

/// The number of keys to generate, such as 1e5.
fn key_count(text: &str) -> Result<u64, String> {
    let (least, most) = (KEYS_MIN as u64, KEYS_MAX as u64);
    count(text)
        .ok()
        .filter(|keys| (least..=most).contains(keys))
        .ok_or_else(|| format!("a whole number from {least} to {most}, such as 5000 or 1e5"))
}

#[derive(Args)]
#[command(after_long_help = JSON)]
pub struct Demo {
    /// Take the keys from this file, one a line, instead of generating them; `-` is standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Number of keys to generate, such as 1e5
    #[arg(long, default_value = "500_000", conflicts_with = "input", value_parser = key_count)]
    keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Bits of filter for each key
    #[arg(long, default_value_t = 10.0)]
    bits: f64,
    /// Encoding of the filters
    #[arg(long, default_value = ENCODING_DEFAULT, value_parser = encoding_labels())]
    encoding: String,
    /// Lookups of each act in each column
    #[arg(long, default_value_t = 50_000, value_parser = value_parser!(u32).range(1..))]
    lookups: u32,
    /// Seed of the keys, the values and the lookups
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Keep the databases, and print where they are
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let encoding = encoding_of(&self.encoding, self.bits)?;
        let keys = self.key_set()?;
        let directory = tempfile::Builder::new().prefix("siftdb-demo-").tempdir();
        let mut directory =
            directory.map_err(|source| Failure::io(&std::env::temp_dir(), source))?;
        directory.disable_cleanup(self.keep);
        if !self.keep {
            let path = directory.path().to_path_buf();
            on_interrupt(move || remove_whole(&path))?;
        }
        let mut settings = Settings::new(directory.path());
        settings.value_bytes = self.value_bytes;
        settings.lookups = self.lookups as usize;
        settings.seed = self.seed;
        settings.filter = Filter::from(encoding);
        let report = measure(&settings, &keys)?;
        let shown = output.show(self.report_json(&keys, &report), |out| {
            writeln!(out, "siftdb {} demo: {}\n", env!("CARGO_PKG_VERSION"), self.heading(&keys))?;
            writeln!(out, "{report}")
        })?;
        if self.keep {
            let key = keys.absent(1, self.seed).pop().unwrap_or_default();
            let next = explain_command(&settings.database(Column::Full), &key);
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "databases kept in {}", directory.path().display());
            let _ = writeln!(stderr, "next: {next}");
        }
        if report.faults.is_empty() {
            Ok(shown)
        } else {
            Err(Failure::fault(format!("{} counts disagree", report.faults.len())))
        }
    }

    fn key_set(&self) -> Outcome<KeySet> {
        let Some(path) = &self.input else {
            return Ok(KeySet::generate(self.keys as usize, self.seed));
        };
        let (mut lines, _) = open_lines(path)?;
        let (mut keys, mut line, mut number) = (Vec::new(), Vec::new(), 0);
        while next_line(&mut lines, &mut line, path)?.is_some() {
            number += 1;
            let (bytes, limit) = (line.len(), KeySet::KEY_BYTES_MAX);
            if bytes > limit {
                let what = format!("a key of {bytes} bytes; at most {limit} are allowed");
                return Err(Failure::usage(what).at_line(path, number, None));
            }
            if !line.is_empty() {
                keys.push(line.clone());
            }
        }
        Ok(KeySet::new(keys))
    }

    fn heading(&self, keys: &KeySet) -> String {
        let mean = keys.bytes() as f64 / keys.len().max(1) as f64;
        let source = match &self.input {
            Some(path) => format!("keys of {}", path.display()),
            None => "keys".into(),
        };
        format!(
            "{} {source}, {mean:.0} B on average, values of {} B; {}, {} bits a key; \
             seed {}; {} lookups each",
            keys.len(),
            self.value_bytes,
            self.encoding,
            self.bits,
            self.seed,
            self.lookups
        )
    }

    fn report_json(&self, keys: &KeySet, report: &Report) -> Value {
        let databases = list(&report.databases, |facts| {
            joined([
                json!({ "column": facts.column.name(), "tables": facts.tables }),
                fields!(facts.total; entries, data_blocks, data_bytes, filter_bytes, index_bytes),
            ])
        });
        let input = match &self.input {
            Some(path) => path_field("input", path),
            None => json!({ "input": null }),
        };
        joined([
            fields!(self; value_bytes, encoding, bits, seed, lookups),
            json!({
                "siftdb": env!("CARGO_PKG_VERSION"),
                "keys": keys.len(),
                "key_bytes": keys.bytes(),
                "databases": databases,
                "acts": list(&report.acts, act_json),
                "faults": list(&report.faults, |fault| json!({ "what": fault })),
            }),
            input,
        ])
    }
}

/// Removes a directory that other threads may still write to, which fail once it is removed.
fn remove_whole(directory: &Path) {
    while let Err(error) = std::fs::remove_dir_all(directory) {
        if error.kind() != ErrorKind::DirectoryNotEmpty {
            break;
        }
    }
}

/// A shell command that explains `key`, started in the same way as this process.
fn explain_command(database: &Path, key: &[u8]) -> String {
    // Cargo sets this for programs it runs, which need not be on the path.
    let program = match std::env::var_os("CARGO") {
        Some(_) => "cargo run --release --features cli --".into(),
        None => shell_word(&std::env::args().next().unwrap_or_else(|| "siftdb".into())),
    };
    let spelled = escaped(key);
    let option = if spelled.as_bytes() == key { "" } else { "--escaped " };
    let database = shell_word(&database.to_string_lossy());
    // After `--` a key may begin with a dash.
    format!("{program} explain {option}-- {database} {}", shell_word(&spelled))
}

fn measure(settings: &Settings, keys: &KeySet) -> Outcome<Report> {
    let mut shown: Option<(Stage, Bar)> = None;
    let report = run(settings, keys, &mut |progress| {
        wait_if_interrupted();
        if shown.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
            let name = match progress.stage {
                Stage::Load => "load",
                Stage::LookUp => "look up",
            };
            let bar = Bar::keys(name, Some(progress.total));
            if let Some((_, finished)) = shown.replace((progress.stage, bar)) {
                finished.finish("done");
            }
        }
        if let Some((_, bar)) = &shown {
            bar.set(progress.done);
        }
    });
    if let Some((_, bar)) = shown {
        bar.finish("done");
    }
    Ok(report?)
}

fn act_json(act: &Act) -> Value {
    let columns = list(&act.columns, |(column, one)| column_json(act, *column, one));
    json!({ "act": variant(act.kind), "cache_bytes": act.cache_bytes, "columns": columns })
}

fn column_json(act: &Act, column: Column, measured: &Measurement) -> Value {
    let total = &measured.total;
    joined([
        fields!(measured;
            lookups, found, expected_fpr, p50_nanos, p99_nanos, env_read_calls, env_bytes_read),
        fields!(total;
            data_blocks_read, data_bytes_read, index_seeks, index_blocks_read, index_bytes_read,
            filter_blocks_read, filter_bytes_read, false_positives),
        json!({
            "column": column.name(),
            "data_blocks": total.data_blocks(),
            "data_reads_saved": act.data_reads_saved(column),
            "data_blocks_avoided": total.data_blocks_avoided(),
            "filter_answers_absent": total.false_positives + total.negatives,
            "observed_fpr": total.observed_fpr(),
        }),
    ])
}
