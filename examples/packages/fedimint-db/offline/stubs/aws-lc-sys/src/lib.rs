//! Nothing: fedimint-core names this package only to choose its version or features.
