//! Walking sorted internal keys: the contract, and the merge of many walks into one.

pub mod merging;
pub mod api;
