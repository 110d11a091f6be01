//! `siftdb settings DIR [--set NAME=VALUE]...`: shows and changes the settings of keyspaces.
//!
//! Settings are saved with the data, and every program that opens the database uses them unless it
//! names others. A change concerns tables that are written from then on. `siftdb filter stats`
//! finds tables with other filters; `siftdb filter rebuild` rewrites them. Settings that were
//! never named have the library's defaults and are not listed.

use crate::args::{InKeyspace, options, unnamed};
use crate::failure::Outcome;
use crate::filter_args::with_setting;
use crate::json::list;
use crate::output::{Output, Shown};
use clap::Args;
use serde_json::{Value, json};
use siftdb::{Keyspace, KeyspaceOptions};
use std::io::{self, Write};

const JSON: &str = "\
JSON fields:
  format          1
  keyspaces       all, or the one that was named or changed:
    keyspace      its name
    settings      those that are not the defaults of the library: name and value";

const AFTER: &str = "\
Settings:
  filter=FILTER                   the filter of new tables
  filter_at_level.LEVEL=FILTER    the filter at one level, 0 to 6
  filter_last_level=true|false    whether tables of the last level have filters
  block_bytes=SIZE                bytes of a data block before compression
  block_hash_index=true|false     whether data blocks have a hash index
  snappy=true|false               whether data blocks are compressed
  expire_after=DURATION|never     how long after its write an entry expires: 500ms, 60s, 7d
A FILTER is none, bloom:BITS, ENCODING:BITS, bloom-then-ribbon:BITS:LEVEL or monkey:SIZE, and after
a space each of layout=full|partitioned[:BYTES]|block-based[:BYTES], prefix=ID, whole_key=false and
pinning=none|all. `siftdb filter sim` lists the encodings.

";

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
#[command(after_long_help = format!("{AFTER}{JSON}"))]
pub struct Settings {
    #[command(flatten)]
    place: InKeyspace,
    #[command(flatten)]
    named: Named,
}

impl Settings {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let named = self.named.settings()?;
        let of = |keyspace: &Keyspace| (keyspace.name().to_string(), keyspace.settings());
        let keyspaces = if named.settings().is_empty() {
            let all = |keyspaces: &[Keyspace]| keyspaces.iter().map(of).collect::<Vec<_>>();
            self.place.read_all(options(), &named, |_, keyspaces| Ok(all(keyspaces)))?
        } else {
            self.place.write(options(), &named, |db, keyspace| {
                db.save_settings()?;
                Ok(vec![of(keyspace)])
            })?
        };
        let json = list(
            &keyspaces,
            |(name, settings)| json!({ "keyspace": name, "settings": settings_json(settings) }),
        );
        output.show(json!({ "keyspaces": json }), |out| {
            keyspaces.iter().try_for_each(|(name, settings)| {
                writeln!(out, "keyspace {name:?}:")?;
                write_settings(settings, out)
            })
        })
    }
}

/// Settings as an array of their names and values.
pub fn settings_json(settings: &KeyspaceOptions) -> Value {
    pairs_json(&settings.settings())
}

/// The same for some of them.
pub fn pairs_json(settings: &[(String, String)]) -> Value {
    list(settings, |(name, value)| json!({ "name": name, "value": value }))
}

/// Settings in one line, for a note.
pub fn pairs(settings: &[(String, String)]) -> String {
    let pair = |(name, value): &(String, String)| format!("{name}={value}");
    settings.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// Prints settings, one a line, as `--set` reads them.
pub fn write_settings(settings: &KeyspaceOptions, out: &mut dyn Write) -> io::Result<()> {
    let settings = settings.settings();
    if settings.is_empty() {
        return writeln!(out, "  all settings have their defaults");
    }
    settings.iter().try_for_each(|(name, value)| writeln!(out, "  {name}={value}"))
}
