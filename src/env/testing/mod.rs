//! Environments that fail on purpose.

pub(crate) mod fault;

pub use crate::env::mem::{CrashModel, LogWalk};
pub use fault::{
    CHANGES, Calls, Change, EINTR, EIO, EMFILE, ENOSPC, Fault, FaultEnv, FaultKind, READS,
};
