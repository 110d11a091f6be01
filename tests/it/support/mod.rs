//! What the integration tests share: numbers by chance, keys and values, every filter there is,
//! options that make many levels of little data, and a model to compare with.

pub mod data;
pub mod filters;
pub mod model;
pub mod rng;
pub mod stores;
