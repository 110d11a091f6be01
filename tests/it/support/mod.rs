//! What the integration tests share: numbers by chance, keys and values, every filter there is,
//! options that make many levels of little data, a model to compare with, a judge of what several
//! threads saw, and files with checksums that hold over any contents.

pub mod alone;
pub mod data;
pub mod expected;
pub mod filters;
pub mod gate;
pub mod history;
pub mod indexes;
pub mod linearizability;
pub mod model;
pub mod reads;
pub mod restless;
pub mod rng;
pub mod run;
pub mod seal;
pub mod stores;
