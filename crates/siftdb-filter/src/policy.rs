//! `FilterPolicy`, the interface of a user's own encoding, and the guard around users' code.
//!
//! A policy works in every layout. The built-in encodings do not use the trait: they work on
//! hashes, which a lookup computes once. Only `builder.rs` and `encoding.rs` call a policy, each
//! time through [`guarded`]: a panic is an error while a table is built, and "may match" while one
//! is read.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A filter of your own: which bytes represent a set of keys, and what they say of a key.
///
/// # The contract
///
/// 1. **The name is persisted** with every table and decides, by exact equality, which policy may
///    read a filter. If the bytes that [`create_filter`](Self::create_filter) writes change in any
///    way, the name must change too. Tables under the old name are then read without their filters,
///    which costs time and never changes an answer. A name has 1 to 255 printable ASCII characters
///    and is none of the built-in names (they start with `leveldb.`, `rocksdb.` or `siftdb.`).
/// 2. **A member must match.** For every key in `keys`, `key_may_match` on the appended bytes must
///    return true, today and after an upgrade. siftdb asks for every key after a filter is built. A
///    "no" fails that flush or compaction, and no table is written.
/// 3. **Equal bytes are equal keys.** Keys are user keys without sequence number, or prefixes of
///    such keys if the filter holds prefixes. A policy must not fold case or normalize.
/// 4. **Keys arrive sorted and may repeat**; there is at least one. The empty key is a key.
/// 5. **`create_filter` appends**: what is already in `dst` stays as it is.
/// 6. **Any bytes may be asked.** `key_may_match` gets the appended bytes unchanged (siftdb
///    verifies a checksum first), but must also take any other bytes, and return true when in
///    doubt. The block-based layout asks with no bytes for a window without keys.
/// 7. **No error channel.** A panic in `key_may_match` counts as "may match"; a panic in
///    `create_filter` fails the flush or compaction. Both methods are called by several threads at
///    once and should not block.
///
/// # Example
///
/// A policy that remembers the first bytes of its keys:
///
/// ```
/// # use siftdb_filter::FilterPolicy;
/// #[derive(Debug)]
/// struct FirstBytes;
///
/// impl FilterPolicy for FirstBytes {
///     fn name(&self) -> &str {
///         "example.FirstBytes1"
///     }
///
///     fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>) {
///         let mut seen = [0u8; 32];
///         for key in keys {
///             let byte = key.first().copied().unwrap_or(0);
///             seen[usize::from(byte / 8)] |= 1 << (byte % 8);
///         }
///         dst.extend_from_slice(&seen);
///     }
///
///     fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
///         let byte = key.first().copied().unwrap_or(0);
///         match filter.get(usize::from(byte / 8)) {
///             Some(bits) => bits & (1 << (byte % 8)) != 0,
///             None => true,
///         }
///     }
/// }
///
/// let mut filter = Vec::new();
/// FirstBytes.create_filter(&[b"ada", b"bob"], &mut filter);
/// assert!(FirstBytes.key_may_match(b"ada", &filter));
/// assert!(!FirstBytes.key_may_match(b"eve", &filter));
/// ```
pub trait FilterPolicy: Send + Sync + Debug {
    /// The persisted name; always the same.
    fn name(&self) -> &str;

    /// Appends to `dst` the filter of `keys`.
    fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>);

    /// False only if `key` is certainly not among the keys that `filter` was built from.
    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool;

    /// After how many keys a partition of about `partition_bytes` is full. The partitioned layout
    /// cuts there, since a policy's filter has no size before it is built. The default assumes 10
    /// bits per key; at least 1.
    fn keys_per_partition(&self, partition_bytes: usize) -> usize {
        (partition_bytes.saturating_mul(8) / 10).max(1)
    }
}

/// Runs a user's code; a panic comes back as text. The caller must then discard everything that
/// `call` changed.
pub fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = panic_text(&*payload);
        // The drop of what a panic carries is the user's code, too, and could panic once more.
        std::mem::forget(payload);
        text
    })
}

/// What is wrong with a name that a user chose and tables persist, if anything. `what` names it in
/// the message.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    if !(1..=255).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("a {what} has 1 to 255 printable ASCII characters, not {name:?}"));
    }
    match ["leveldb.", "rocksdb.", "siftdb."].iter().find(|start| name.starts_with(**start)) {
        Some(start) => Err(format!("the {what} {name:?} is not free: {start}* are built in")),
        None => Ok(()),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without text".to_string())
}
