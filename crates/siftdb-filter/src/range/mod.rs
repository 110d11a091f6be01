//! Range filters: may a block of sorted keys hold one in `[a, b)`?
//!
//! A sorted table is cut into data blocks, and its index holds a separator between each two of
//! them. The index is in memory, so it is a sample of the keys that costs nothing. Between two
//! separators a range filter keeps each key's approximate position, in a few bits:
//!
//! 1. `key_model` maps what follows the bytes that both separators share to a number. The order
//!    of these numbers is the order of the keys, and bytes that are frequent in the table get more
//!    room, so text spreads as evenly as random bytes do.
//! 2. The span between the separators is divided into equal cells, a few hundred a key.
//! 3. `elias_fano` stores the cells of the keys, sorted.
//!
//! A range is empty if no stored cell lies between the cells of its ends. So it is answered
//! "maybe" wrongly if a key is in the same cell as one of its ends. Keys that are clustered between
//! two separators share cells, and ranges between such keys are not told apart from them.
//!
//! Sampled keys with approximate positions between them are the class of Diva (VLDB 2025). A
//! table is written once and sorted, so the structure is static: no slack, no deletes, and the
//! sample is the data index. `docs/decisions.md` of siftdb has what was measured against it.

pub(crate) mod builder;
pub(crate) mod partition;
pub(crate) mod key_model;
pub(crate) mod elias_fano;

pub use builder::{BuiltRangeFilter, RangeFilterBuilder};
pub use partition::{BLOCKS_PER_PARTITION, BlockRange, RangeModel};
