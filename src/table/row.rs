//! A row: what a table has of one key, as the cache keeps it in place of a data block.
//!
//! A lookup of a hot key in a block of cold ones needs a thirtieth of the block. So a full cache
//! may keep that alone (`cache/ghosts.rs`), and the next lookup of the key needs no block.
//!
//! A table does not change. So a lookup that can see all versions in it always has the same answer,
//! and that is the row: a stored value, "deleted" or "absent". A lookup at an older sequence reads
//! the block.
//!
//! ```text
//! size of the key (4)   answer (1)   key   stored value
//! ```
//!
//! The bytes are never written to a file. The key is there because two keys may have one hash.

use crate::base::key::Lookup;
use crate::base::sync::Arc;
use crate::base::value::Value;

/// There is no version of the key.
const ABSENT: u8 = 0;
/// The newest version is a tombstone, or a range delete deletes it.
const DELETED: u8 = 1;
/// The newest version is a put.
const PUT: u8 = 2;
/// The newest version is a put that expires.
const EXPIRING_PUT: u8 = 3;

/// The row of a key with this answer.
pub(super) fn encode(user_key: &[u8], answer: &Lookup) -> Arc<[u8]> {
    let (tag, stored): (u8, &[u8]) = match answer {
        Lookup::Absent => (ABSENT, &[]),
        Lookup::Deleted => (DELETED, &[]),
        Lookup::Found { stored, expires: false } => (PUT, stored),
        Lookup::Found { stored, expires: true } => (EXPIRING_PUT, stored),
    };
    // A key has at most 64 KiB.
    let key_bytes = (user_key.len() as u32).to_le_bytes();
    [&key_bytes[..], &[tag], user_key, stored].concat().into()
}

/// The answer of a row; `None` if it is of another key.
pub(super) fn decode(row: &[u8], user_key: &[u8]) -> Option<Lookup> {
    let (key_bytes, rest) = row.split_first_chunk()?;
    let (tag, rest) = rest.split_first()?;
    let (own_key, stored) = rest.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)?;
    let found = |expires| Lookup::Found { stored: Value::from(stored), expires };
    match *tag {
        _ if own_key != user_key => None,
        ABSENT => Some(Lookup::Absent),
        DELETED => Some(Lookup::Deleted),
        PUT => Some(found(false)),
        EXPIRING_PUT => Some(found(true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_for_their_key() {
        for len in [0, 1, 30, 31, 5000] {
            let stored = Value::from(&vec![b'v'; len][..]);
            for answer in [
                Lookup::Absent,
                Lookup::Deleted,
                Lookup::found(stored.clone()),
                Lookup::expiring(stored),
            ] {
                for key in [&b""[..], b"k", &[7; 70_000]] {
                    let row = encode(key, &answer);
                    assert_eq!(decode(&row, key), Some(answer.clone()));
                    assert_eq!(decode(&row, b"another"), None);
                    assert_eq!(decode(&row, &[key, b"v"].concat()), None);
                }
            }
        }
    }
}
