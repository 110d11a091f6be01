//! Environments that fail on purpose.

pub mod fault;

pub use fault::FaultEnv;
