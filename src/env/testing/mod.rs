//! Environments for tests: `fault` makes calls of another Env fail; `crash` computes what a
//! crash leaves of a disk in memory.

pub(crate) mod crash;
pub(crate) mod fault;

pub use crash::{CrashModel, LogWalk};
pub use fault::{
    CHANGES, Calls, Change, EINTR, EIO, EMFILE, ENOSPC, Fault, FaultEnv, FaultKind, READS,
};
