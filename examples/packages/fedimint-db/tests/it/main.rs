//! The tests of the adapter: fedimint's suite, what that leaves open, power cuts and kills.

mod crashes;
mod differential;
mod isolation;
mod kills;
mod random;
mod suite;
mod transactions;
