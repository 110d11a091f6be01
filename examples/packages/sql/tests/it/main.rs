//! The tests of the storage and of its shell.

mod support;

mod suite;
mod key_order;
mod reads;
mod transactions;
mod shell;
mod crashes;
