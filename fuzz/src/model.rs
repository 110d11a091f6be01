//! What a database must have.

use std::collections::BTreeMap;

/// A value, and the millisecond from which on it is gone.
type Stored = (Vec<u8>, Option<u64>);
pub type Map = BTreeMap<Vec<u8>, Stored>;

/// The keyspaces by number, with name and entries. A number is never used again.
pub type Spaces = BTreeMap<u32, (String, Map)>;

/// The entries that have not expired.
pub fn live(map: &Map, now: u64) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
    let is_live = move |expires: &Option<u64>| expires.is_none_or(|at| at > now);
    map.iter().filter(move |(_, (_, at))| is_live(at)).map(|(key, (value, _))| (key, value))
}
