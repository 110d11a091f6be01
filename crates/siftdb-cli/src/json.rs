//! JSON values of things that JSON has no type for: bytes, paths, errors.
//!
//! UTF-8 bytes are a string under their own name. Other bytes are base64 under that name with the
//! suffix `_base64`, and the plain name is absent. So every value can be read back. Errors are
//! objects; their `what` and `advice` are text for people.

use serde_json::{Map, Value, json};
use siftdb::{DroppedPart, Error};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The version of the shape of every object that a command prints, in its field `format`. Fields
/// may be added under the same version.
pub const FORMAT: u64 = 1;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` in base64 with padding, as in RFC 4648.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| chunk.get(at).copied().unwrap_or(0) as usize;
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            // A chunk of n bytes has n + 1 digits.
            let symbol = BASE64[bits >> (18 - 6 * digit) & 63];
            text.push(if digit <= chunk.len() { symbol as char } else { '=' });
        }
    }
    text
}

/// The bytes of base64 with padding.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for place in 0..4 {
            let digit = group.get(place).copied();
            let value = digit.map_or(Some(0), |digit| BASE64.iter().position(|&d| d == digit))?;
            bits = bits << 6 | value as u32;
        }
        let group_bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        // A group of n + 1 digits has n bytes; what is left of the last digit is zero.
        let count = group.len().saturating_sub(1);
        if group_bytes[count..].iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&group_bytes[..count]);
    }
    Some(bytes)
}

/// An object of a field `name` that holds `bytes`.
pub fn bytes_field(name: &str, bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ name: text }),
        Err(_) => json!({ format!("{name}_base64"): base64(bytes) }),
    }
}

/// An object of a field `name` that holds `path`.
pub fn path_field(name: &str, path: &Path) -> Value {
    bytes_field(name, path.as_os_str().as_bytes())
}

/// An object of fields of `$from`, under the names that they have in the library.
macro_rules! fields {
    ($from:expr; $($field:ident),* $(,)?) => {{
        let mut fields = serde_json::Map::new();
        $(fields.insert(stringify!($field).into(), serde_json::json!($from.$field));)*
        serde_json::Value::Object(fields)
    }};
}
pub(crate) use fields;

/// One object of the fields of all `parts`.
pub fn joined<const PARTS: usize>(parts: [Value; PARTS]) -> Value {
    let mut fields = Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            fields.extend(part);
        }
    }
    Value::Object(fields)
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

/// An array of `one` for each item.
pub fn list<T>(items: impl IntoIterator<Item = T>, one: impl FnMut(T) -> Value) -> Value {
    items.into_iter().map(one).collect()
}

/// Ranges of sequence numbers as pairs of first and last.
pub fn ranges(ranges: &[RangeInclusive<u64>]) -> Value {
    list(ranges, |range| json!([range.start(), range.end()]))
}

/// An error: kind, file, offset, and the words for it.
pub fn error_json(error: &Error) -> Value {
    let (path, offset, operation, what) = match error {
        Error::Io { op, path, source } => (Some(path), None, Some(*op), source.to_string()),
        Error::Corruption { path, offset, what, .. } => {
            (Some(path), Some(*offset), None, what.clone())
        }
        Error::Missing { path, what } | Error::UnsupportedFormat { path, what } => {
            (Some(path), None, None, what.clone())
        }
        Error::Locked { path, .. }
        | Error::LockLost { path }
        | Error::Unfinished { directory: path } => (Some(path), None, None, reason(error)),
        // The kind says that the database is read-only; the other fields describe the cause.
        Error::ReadOnly { cause } => {
            return joined([error_json(cause), json!({ "kind": error.kind() })]);
        }
        Error::MemoryCorruption { what }
        | Error::InvalidOptions { what }
        | Error::InvalidArgument { what } => (None, None, None, what.clone()),
        other => (None, None, None, reason(other)),
    };
    joined([
        json!({
            "kind": error.kind(),
            "operation": operation,
            "offset": offset,
            "what": what,
            "advice": error.advice(),
        }),
        path.map_or_else(|| json!({ "path": null }), |path| path_field("path", path)),
    ])
}

/// The text of an error without the advice, which has a field of its own.
fn reason(error: &Error) -> String {
    let text = error.to_string();
    let advice = error.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
    text.strip_suffix(&advice).unwrap_or(&text).to_string()
}

/// A part of a log or manifest that was left out.
pub fn dropped_json(part: &DroppedPart) -> Value {
    joined([path_field("path", &part.path), fields!(part; offset, what)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_equals_the_rfc() {
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
            assert_eq!(base64(bytes), text);
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

    #[test]
    fn only_non_text_is_base64() {
        assert_eq!(bytes_field("key", b"a\tb\\"), json!({ "key": "a\tb\\" }));
        assert_eq!(bytes_field("key", b"\xff"), json!({ "key_base64": "/w==" }));
    }
}
