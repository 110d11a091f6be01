//! What fedimint-core names of `iroh-relay`, without a function.

#[derive(Default)]
pub struct RelayQuicConfig {}
