//! Which tables exist.

pub mod set;
pub mod level_iter;
#[expect(clippy::module_inception, reason = "the field calls both so")]
pub mod version;
pub mod manifest;
pub mod edit;
