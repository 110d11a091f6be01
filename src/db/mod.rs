//! One database, as its user sees it.

pub mod handle;
pub mod open;
pub mod background;
pub mod write;
pub mod scan;
pub mod read;
pub mod snapshot;
pub mod state;
