//! JSON values of things that JSON has no type for: bytes, paths, errors.
//!
//! UTF-8 bytes are a string under their own name. Other bytes are base64 under that name with the
//! suffix `_base64`, and the plain name is absent. So every value can be read back. Errors are
//! objects; their `what` and `advice` are text for people.

use crate::described::{Described, result};
use data_encoding::BASE64;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use siftdb::{DroppedPart, Error};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The version of the shape of every object that a command prints, in its field `format`. Fields
/// may be added under the same version.
pub const FORMAT: u64 = 1;

/// The bytes of base64 with padding, in its only spelling.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let bytes = BASE64.decode(text.as_bytes()).ok()?;
    (BASE64.encode(&bytes) == text).then_some(bytes)
}

/// A field of bytes. Under `#[serde(flatten)]` its name depends on the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Bytes {
    name: &'static str,
    bytes: Option<Vec<u8>>,
}

impl Bytes {
    /// The field `name`.
    pub fn new(name: &'static str, bytes: &[u8]) -> Self {
        Bytes::or_null(name, Some(bytes))
    }

    /// The same; null without bytes.
    pub fn or_null(name: &'static str, bytes: Option<&[u8]>) -> Self {
        Bytes { name, bytes: bytes.map(<[u8]>::to_vec) }
    }

    /// The field `path`.
    pub fn path(path: &Path) -> Self {
        Bytes::new("path", path.as_os_str().as_bytes())
    }

    /// The same with another text; other bytes stay.
    pub fn map_text(&mut self, change: impl Fn(&str) -> String) {
        if let Some(Ok(text)) = self.bytes.as_deref().map(std::str::from_utf8) {
            self.bytes = Some(change(text).into_bytes());
        }
    }
}

impl Described for Bytes {}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(1))?;
        let (name, value) = match &self.bytes {
            Some(bytes) => bytes_entry(self.name, bytes),
            None => (self.name.into(), Value::Null),
        };
        fields.serialize_entry(&name, &value)?;
        fields.end()
    }
}

/// The field `name` of these bytes, with the name that it has in JSON.
pub fn bytes_entry(name: &str, bytes: &[u8]) -> (String, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.into(), text.into()),
        Err(_) => (format!("{name}_base64"), BASE64.encode(bytes).into()),
    }
}

/// The name of a variant without fields, in the case of JSON: `FalsePositive` is `false_positive`.
pub fn variant(of: impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{of:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Ranges of sequence numbers as pairs of first and last.
pub fn ranges(ranges: &[RangeInclusive<u64>]) -> Vec<[u64; 2]> {
    ranges.iter().map(|range| [*range.start(), *range.end()]).collect()
}

result! {
    pub struct ErrorFields {
        /// not_found, usage, no_database, keyspace_not_found, disagreement, losses, or of the
        /// database: io, corruption, missing_file, memory_corruption, invalid_options,
        /// invalid_argument, key_order, locked, lock_lost, read_only, opened_read_only, closed,
        /// keyspace_dropped, defect, history_changed, follower_overtaken, too_few_descriptors,
        /// logs_too_large, unsupported_format, unfinished
        kind: &'static str;
        /// the file, or null
        #[serde(flatten)] path: Bytes;
        /// where in it, in bytes, or null
        offset: Option<u64>;
        /// open, read, write, sync, ..., or null
        operation: Option<&'static str>;
        /// what happened
        what: String;
        /// what to do, or null
        advice: Option<String>;
    }
}

impl ErrorFields {
    /// An error of the command itself.
    pub fn new(kind: &'static str, what: &str) -> Self {
        let path = Bytes::or_null("path", None);
        ErrorFields { kind, path, offset: None, operation: None, what: what.into(), advice: None }
    }

    /// An error of the database: kind, file, offset, and the words for it.
    pub fn of(error: &Error) -> Self {
        let mut fields = ErrorFields::new(error.kind(), &reason(error));
        fields.advice = advice(error).map(str::to_string);
        let mut is_at = |path: &Path, what: &str| {
            fields.path = Bytes::path(path);
            fields.what = what.into();
        };
        match error {
            Error::Io { op, path, source } => {
                is_at(path, &source.to_string());
                fields.operation = Some(*op);
            }
            Error::Corruption { path, offset, what, .. } => {
                is_at(path, what);
                fields.offset = Some(*offset);
            }
            Error::Missing { path, what } | Error::UnsupportedFormat { path, what } => {
                is_at(path, what);
            }
            Error::Locked { path, .. }
            | Error::LockLost { path }
            | Error::Unfinished { directory: path } => fields.path = Bytes::path(path),
            // The kind says that the database is read-only; the other fields describe the cause.
            Error::ReadOnly { cause } => {
                let (kind, cause) = (error.kind(), ErrorFields::of(cause));
                return ErrorFields { kind, advice: cause.advice.or(fields.advice), ..cause };
            }
            Error::MemoryCorruption { what }
            | Error::InvalidOptions { what }
            | Error::InvalidArgument { what } => fields.what = what.clone(),
            _ => {}
        }
        fields
    }
}

/// What to do about an error. Where the library names its own calls, it is said in commands.
fn advice(error: &Error) -> Option<&'static str> {
    Some(match error {
        // Of all commands that read, only `restore` needs what is in the log alone in tables.
        Error::OpenedReadOnly => {
            "it has entries that are only in its log; `siftdb flush DIR` writes them to a table"
        }
        Error::LogsTooLarge { .. } => "`siftdb flush DIR` writes the logs into tables",
        Error::KeyspaceNotFound { .. } => "`siftdb keyspace list DIR` lists them",
        Error::ReadOnly { cause } if cause.is_out_of_space() => {
            "free some space, then run the command again"
        }
        Error::ReadOnly { .. } => "remove the cause, then run the command again",
        error => return error.advice(),
    })
}

/// What happened, and what to do about it.
pub fn sentence(error: &Error) -> String {
    match advice(error) {
        Some(advice) => format!("{}; {advice}", reason(error)),
        None => error.to_string(),
    }
}

/// The text of an error without the advice, which has a field of its own.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let advice = error.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
    text.strip_suffix(&advice).unwrap_or(&text).to_string()
}

result! {
    /// A sentence for people.
    pub struct What of text: &str {
        what: String = text.into();
    }

    /// The interval of an observed rate.
    pub struct Interval {
        /// the ends of its 95 % interval, or null
        observed_fpr_low, observed_fpr_high: Option<f64>;
    }
}

impl Interval {
    pub fn of(ends: Option<(f64, f64)>) -> Self {
        let (observed_fpr_low, observed_fpr_high) = ends.unzip();
        Interval { observed_fpr_low, observed_fpr_high }
    }
}

result! {
    /// A part of a log or manifest that was left out.
    pub struct Dropped of part: &DroppedPart {
        /// the file
        #[serde(flatten)] path: Bytes = Bytes::path(&part.path);
        /// where in it
        offset: u64;
        /// what, and why it was dropped
        what: String;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn base64_is_that_of_the_rfc_and_strict() {
        let words: [(&[u8], &str); 9] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe\xfd", "//79"),
            (b"\0\0\0", "AAAA"),
        ];
        for (bytes, text) in words {
            assert_eq!(BASE64.encode(bytes), text);
            assert_eq!(from_base64(text).unwrap(), bytes);
        }
        for wrong in ["Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Zm9=", "Z===", "====", "Zm9_"] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn variants_are_in_snake_case() {
        let names = [variant(siftdb::ExplainOutcome::FalsePositive), variant(Some(1).is_none())];
        assert_eq!(names, ["false_positive", "false"]);
    }

    /// The library advises its own calls, which a user of the command does not have.
    #[test]
    fn advice_on_a_full_disk_names_no_call_of_the_library() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let cause = Error::Io { op: "write", path: "db".into(), source: Arc::new(full) };
        let error = Error::ReadOnly { cause: Arc::new(cause) };
        assert!(error.to_string().contains("Db::resume"));
        let sentence = sentence(&error);
        assert!(sentence.ends_with("; free some space, then run the command again"), "{sentence}");
        assert!(!sentence.contains("Db::"), "{sentence}");
        assert!(ErrorFields::of(&error).advice.is_some_and(|advice| !advice.contains("Db::")));
    }

    #[test]
    fn only_non_text_is_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&Bytes::new("key", bytes)).unwrap();
        assert_eq!(json(b"a\tb\\"), r#"{"key":"a\tb\\"}"#);
        assert_eq!(json(b"\xff"), r#"{"key_base64":"/w=="}"#);
    }
}
