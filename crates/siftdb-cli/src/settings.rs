//! `siftdb settings DIR [--set NAME=VALUE]...`: shows and changes the settings of keyspaces.
//!
//! Settings are saved with the data, and every program that opens the database uses them unless it
//! names others. A change concerns tables that are written from then on. `siftdb filter stats`
//! finds tables with other filters; `siftdb filter rebuild` rewrites them. Settings that were
//! never named have the library's defaults and are not listed.

use crate::args::{InKeyspace, options, unnamed};
use crate::described::{help, result};
use crate::failure::Outcome;
use crate::filter_args::with_setting;
use crate::output::{Output, Shown};
use clap::Args;
use siftdb::{Keyspace, KeyspaceOptions};
use std::io::{self, Write};

result! {
    /// Settings:
    ///   filter=FILTER                   the filter of new tables
    ///   filter_at_level.LEVEL=FILTER    the filter at one level, 0 to 6
    ///   filter_at_last_level=FILTER     the filter at the last level, whatever its number
    ///   filter_last_level=true|false    whether tables of the last level have filters
    ///   block_bytes=SIZE                bytes of a data block before compression
    ///   block_hash_index=true|false     whether data blocks have a hash index
    ///   index_partition_bytes=SIZE      partitions of the data index; 0 for an index of one block
    ///   compression=HOW                 how data blocks are compressed: none, snappy, lz4, zstd:N
    ///   compression_at_level.LEVEL=HOW  the same at one level, 0 to 6
    ///   compression_at_last_level=HOW   the same at the last level, whatever its number
    ///   expire_after=DURATION|never     how long after its write an entry expires: 500ms, 60s, 7d
    /// A FILTER is none, bloom:BITS, ENCODING:BITS, bloom-then-ribbon:BITS:LEVEL or monkey:SIZE,
    /// and after a space each of layout=full|partitioned[:BYTES]|block-based[:BYTES], prefix=ID,
    /// whole_key=false and pinning=none|all. `siftdb filter sim` lists the encodings.
    ///
    struct All {
        /// all, or the one that was named or changed:
        keyspaces: Vec<OfKeyspace>;
    }

    struct OfKeyspace of from: &Keyspace {
        /// its name
        keyspace: String = from.name().into();
        /// those that are not the defaults of the library: name and value
        settings: Vec<Setting> = settings_of(&from.settings());
    }

    /// A setting as `--set` takes it.
    pub struct Setting {
        name, value: String;
    }
}

/// The arguments that name settings.
#[derive(Args)]
pub struct Named {
    /// Save a setting; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl Named {
    /// The settings.
    pub fn settings(&self) -> Outcome<KeyspaceOptions> {
        self.set.iter().try_fold(unnamed(), |settings, text| with_setting(settings, text))
    }
}

#[derive(Args)]
#[command(after_long_help = help::<All>())]
pub struct Settings {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    named: Named,
}

impl Settings {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let named = self.named.settings()?;
        let keyspaces = if named.settings().is_empty() {
            let all = |keyspaces: &[Keyspace]| keyspaces.iter().map(OfKeyspace::of).collect();
            self.place.read_all(options(), &named, |_, keyspaces| Ok(all(keyspaces)))?
        } else {
            self.place.write(options(), &named, |db, keyspace| {
                db.save_settings()?;
                Ok(vec![OfKeyspace::of(keyspace)])
            })?
        };
        let all = All { keyspaces };
        output.show(&all, |out| {
            all.keyspaces.iter().try_for_each(|OfKeyspace { keyspace, settings }| {
                writeln!(out, "keyspace {keyspace:?}:")?;
                write_settings(settings, out)
            })
        })
    }
}

/// Settings that are not the defaults of the library.
pub fn settings_of(settings: &KeyspaceOptions) -> Vec<Setting> {
    settings.settings().into_iter().map(|(name, value)| Setting { name, value }).collect()
}

/// Settings in one line, for a note.
pub fn pairs(settings: &[Setting]) -> String {
    let pair = |Setting { name, value }: &Setting| format!("{name}={value}");
    settings.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// Prints settings, one a line, as `--set` reads them.
pub fn write_settings(settings: &[Setting], out: &mut dyn Write) -> io::Result<()> {
    if settings.is_empty() {
        return writeln!(out, "  all settings have their defaults");
    }
    settings.iter().try_for_each(|Setting { name, value }| writeln!(out, "  {name}={value}"))
}
