//! What fedimint-core names of `iroh`: an endpoint that cannot be bound, so none exists.

pub use iroh_base::{RelayUrl, SecretKey};

use iroh_base::PublicKey;

pub mod defaults {
    pub const DEFAULT_STUN_PORT: u16 = 3478;
}

pub mod discovery {
    pub mod pkarr {
        use crate::SecretKey;
        use url::Url;

        pub struct PkarrPublisher;

        impl PkarrPublisher {
            pub fn new(_key: SecretKey, _relay: Url) -> Self {
                PkarrPublisher
            }
        }

        pub struct PkarrResolver;

        impl PkarrResolver {
            pub fn new(_relay: Url) -> Self {
                PkarrResolver
            }

            pub fn n0_dns() -> Self {
                PkarrResolver
            }
        }
    }
}

pub mod endpoint {
    use crate::{Endpoint, RelayMode, SecretKey};
    use std::io;
    use std::net::{SocketAddrV4, SocketAddrV6};
    use std::time::Duration;

    #[derive(Default)]
    pub struct TransportConfig;

    impl TransportConfig {
        pub fn max_idle_timeout(&mut self, _timeout: Option<Duration>) -> &mut Self {
            self
        }

        pub fn keep_alive_interval(&mut self, _interval: Option<Duration>) -> &mut Self {
            self
        }
    }

    pub struct Builder;

    impl Builder {
        pub fn add_discovery<D>(self, _service: impl FnOnce(&SecretKey) -> Option<D>) -> Self {
            self
        }

        pub fn discovery_dht(self) -> Self {
            self
        }

        pub fn discovery_n0(self) -> Self {
            self
        }

        pub fn relay_mode(self, _mode: RelayMode) -> Self {
            self
        }

        pub fn secret_key(self, _key: SecretKey) -> Self {
            self
        }

        pub fn alpns(self, _alpns: Vec<Vec<u8>>) -> Self {
            self
        }

        pub fn transport_config(self, _config: TransportConfig) -> Self {
            self
        }

        pub fn bind_addr_v4(self, _address: SocketAddrV4) -> Self {
            self
        }

        pub fn bind_addr_v6(self, _address: SocketAddrV6) -> Self {
            self
        }

        pub async fn bind(self) -> io::Result<Endpoint> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

pub enum Endpoint {}

impl Endpoint {
    pub fn builder() -> endpoint::Builder {
        endpoint::Builder
    }

    pub fn node_id(&self) -> PublicKey {
        match *self {}
    }
}

pub enum RelayMode {
    Disabled,
    Custom(Vec<RelayNode>),
}

pub struct RelayNode {
    pub url: RelayUrl,
    pub stun_only: bool,
    pub stun_port: u16,
    pub quic: Option<iroh_relay::RelayQuicConfig>,
}
