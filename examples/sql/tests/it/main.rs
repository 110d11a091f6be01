//! The tests of the storage and of its shell.

mod suite;
