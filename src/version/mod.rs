//! Which tables exist.

pub mod set;
pub mod level_iter;
pub mod version;
pub mod manifest;
pub mod edit;
