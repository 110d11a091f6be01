//! What fedimint-core names of `tokio-rustls`: a provider that cannot be installed.

pub mod rustls {
    pub mod crypto {
        pub mod aws_lc_rs {
            pub struct CryptoProvider;

            pub fn default_provider() -> CryptoProvider {
                CryptoProvider
            }

            impl CryptoProvider {
                pub fn install_default(self) -> Result<(), ()> {
                    Err(())
                }
            }
        }
    }
}
