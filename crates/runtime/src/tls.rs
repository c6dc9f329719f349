//! The process's one TLS provider.

/// Installs rustls's ring provider, once; further calls change nothing.
pub fn install() {
    // An error says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
