//! JSON, one object a line: all that a database has.
//!
//! A line with `keyspace` and `settings` begins a keyspace. Every other line is an entry: `key`,
//! `value` and, if it expires, `expires_at`, in milliseconds since 1970. Bytes that are not UTF-8
//! are `key_base64` and `value_base64`. The last line says how many `entries` there are: a file
//! that begins with a keyspace and lacks that line was cut. `scan --json` prints entries alone.

use crate::described::result;
use crate::exchange::input::Input;
use crate::exchange::record::{Entry, Expiry, KeyspaceBegin, Reader, Record, Writer};
use crate::failure::{Failure, Outcome};
use crate::filter_args::{is_of_program, with_setting};
use crate::json::{FORMAT, from_base64};
use crate::output::{KeyValue, with_format};
use crate::settings::{Setting, settings_of};
use serde_json::{Map, Value, json};
use siftdb::KeyspaceOptions;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads a file.
#[derive(Default)]
pub struct JsonlReader {
    entries: u64,
    /// It began with a keyspace, and its last line is still to come.
    is_open: bool,
    ended: bool,
}

impl Reader for JsonlReader {
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>> {
        let Some(line) = input.line()? else {
            return match self.is_open {
                // Every export has lines. A tool that failed prints none.
                false if self.entries == 0 && !self.ended => {
                    Err(Failure::usage("the file is empty; `export` prints a line at least"))
                }
                false => Ok(None),
                true => Err(Failure::usage("the file ends before its line `entries`: it was cut")),
            };
        };
        if self.ended {
            return Err(Failure::usage("a line after the end of the export"));
        }
        let parsed: Value = serde_json::from_slice(line)
            .map_err(|error| Failure::usage(format!("no JSON: {error}")))?;
        let Value::Object(fields) = parsed else { return Err(Failure::usage("no JSON object")) };
        if fields.get("format").is_some_and(|format| *format != json!(FORMAT)) {
            return Err(Failure::usage(format!("a `format` other than {FORMAT}")));
        }
        if let Some(name) = fields.get("keyspace") {
            let name = name.as_str().ok_or_else(|| Failure::usage("`keyspace` is no string"))?;
            let (settings, left_out) = settings_in(&fields)?;
            let settings = Box::new(settings);
            self.is_open = true;
            return Ok(Some(Record::Keyspace { name: name.into(), settings, left_out }));
        }
        if let Some(count) = fields.get("entries") {
            if *count != json!(self.entries) {
                let what = format!("{} entries, the last line says {count}", self.entries);
                return Err(Failure::usage(what));
            }
            (self.is_open, self.ended) = (false, true);
            return self.next(input);
        }
        let (key, value) = (bytes_of(&fields, "key")?, bytes_of(&fields, "value")?);
        let expiry = match fields.get("expires_at") {
            // `scan` does not say when an entry expires; `export` does.
            None if !self.is_open => Expiry::OfKeyspace,
            None | Some(Value::Null) => Expiry::Never,
            Some(millis) => {
                let millis = millis.as_u64().map(Duration::from_millis);
                let at = millis.and_then(|since| UNIX_EPOCH.checked_add(since));
                Expiry::At(at.ok_or_else(|| Failure::usage("`expires_at` is no time"))?)
            }
        };
        self.entries += 1;
        Ok(Some(Record::Entry { key, value, expiry }))
    }
}

/// The field `name` of bytes.
fn bytes_of(fields: &Map<String, Value>, name: &str) -> Outcome<Vec<u8>> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match (text(name), text(&format!("{name}_base64"))) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => {
            from_base64(text).ok_or_else(|| Failure::usage(format!("`{name}_base64` is no base64")))
        }
        _ => Err(Failure::usage(format!("one of `{name}` and `{name}_base64` has to be there"))),
    }
}

/// The settings, and those that only a program can name.
fn settings_in(fields: &Map<String, Value>) -> Outcome<(KeyspaceOptions, Vec<Setting>)> {
    let (mut settings, mut left_out) = (KeyspaceOptions::new(), Vec::new());
    let all = match fields.get("settings") {
        None => &[][..],
        Some(Value::Array(all)) => all,
        Some(_) => return Err(Failure::usage("`settings` is no array")),
    };
    for setting in all {
        let text = |name: &str| setting.get(name).and_then(Value::as_str);
        let (Some(name), Some(value)) = (text("name"), text("value")) else {
            return Err(Failure::usage("a setting has a `name` and a `value`"));
        };
        match is_of_program(value) {
            true => left_out.push(Setting { name: name.into(), value: value.into() }),
            false => settings = with_setting(settings, &format!("{name}={value}"))?,
        }
    }
    Ok((settings, left_out))
}

// The comments above these are what `siftdb export --help` says.
result! {
    /// A note names the saved settings that a format leaves out, and those that import cannot name
    /// again: filter policies and prefixes of a program's own.
    ///
    /// JSON of --format jsonl, one object a line. The first of each keyspace:
    pub struct KeyspaceLine {
        /// its name
        keyspace: String;
        /// those that are not the defaults of the library: name and value
        settings: Vec<Setting>;
    }

    /// Its entries:
    pub struct EntryLine {
        #[serde(flatten)] entry: KeyValue;
        /// when it expires, in milliseconds since 1970; absent if never
        #[serde(skip_serializing_if = "Option::is_none")] expires_at: Option<u64>;
    }

    /// The last line, and what -o prints:
    pub struct EndLine {
        /// how many entries there are
        entries: u64;
    }
}

/// Writes a file.
pub struct JsonlWriter;

impl Writer for JsonlWriter {
    fn keyspace(&mut self, out: &mut dyn Write, begins: &KeyspaceBegin<'_>) -> Outcome {
        let settings = settings_of(begins.settings);
        let line = KeyspaceLine { keyspace: begins.name.into(), settings };
        Ok(writeln!(out, "{}", with_format(&line)?)?)
    }

    fn entry(&mut self, out: &mut dyn Write, entry: &Entry<'_>) -> Outcome {
        let millis = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let expires_at = entry.expires_at.map(millis);
        let expires_at = expires_at.map(|millis| u64::try_from(millis).unwrap_or(u64::MAX));
        let line = EntryLine { entry: KeyValue::new(entry.key, entry.value), expires_at };
        Ok(writeln!(out, "{}", with_format(&line)?)?)
    }

    fn finish(&mut self, out: &mut dyn Write, entries: u64) -> Outcome {
        Ok(writeln!(out, "{}", with_format(&EndLine { entries })?)?)
    }
}
