//! TLS provider of the process.

/// Installs rustls's ring provider; further calls have no effect.
pub fn install() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
