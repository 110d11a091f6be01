//! Golden vectors for tests: JSON files that LevelDB and RocksDB wrote.
//!
//! They lie in the folder that the environment variable `SIFTDB_VECTORS` names. Without it [`load`]
//! returns `None` and a test skips that part; each test has golden facts of its own. If the
//! variable is set and a file is missing, the test fails, so a typo is noticed.

use serde_json::Value;
use std::io::Read;

/// The parsed file, or `None` where no folder of vectors is named.
#[allow(clippy::disallowed_methods, reason = "a test reads its vectors, not a database")]
pub fn load(name: &str) -> Option<Value> {
    let directory = std::env::var_os("SIFTDB_VECTORS")?;
    let path = std::path::Path::new(&directory).join(name);
    let mut text = String::new();
    std::fs::File::open(&path)
        .and_then(|mut file| file.read_to_string(&mut text))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_str(&text).expect("vectors are JSON"))
}

/// The list under `name`.
pub fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name}"))
}

/// The bytes written as hex under `name`.
pub fn bytes(value: &Value, name: &str) -> Vec<u8> {
    unhex(value[name].as_str().unwrap_or_else(|| panic!("no hex {name}")))
}

/// The number under `name`.
pub fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no number {name}"))
}

/// The 16 hex digits under `name`, as a value.
pub fn hex_u64(value: &Value, name: &str) -> u64 {
    let text = value[name].as_str().unwrap_or_else(|| panic!("no hash {name}"));
    u64::from_str_radix(text, 16).expect("hex")
}

/// The bytes of a hex string.
pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
        .collect()
}

/// Lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `K8(i)` of the vectors: 8 bytes, multiples of a constant.
pub fn key8(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}
