//! A remote signer: HTTPS with client certificates, and Web3Signer's `eth1` API over one key.
//!
//! Written from Web3Signer's documentation, not from the client under test. It counts signatures, and can be made to fail.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy::hex;
use alloy::primitives::keccak256;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use axum::Json;
use axum::Router;
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::install_tls;

/// Manner of the responses to requests for a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignerBehaviour {
    /// Signs.
    #[default]
    Well,
    /// Does not respond.
    Silent,
    /// Responds with 500.
    Failing,
    /// Responds with 200 and text that is no signature.
    Garbage,
    /// Responds with 200 and more bytes than any signature has.
    Flood,
}

/// A running remote signer.
pub struct RemoteSigner {
    address: SocketAddr,
    tls: TlsAcceptor,
    state: Arc<Data>,
    folder: PathBuf,
    serving: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct Data {
    /// Key that is listed.
    listed: PrivateKeySigner,
    /// Key that signs.
    signing: Mutex<PrivateKeySigner>,
    behaviour: Mutex<SignerBehaviour>,
    lists_keys: Mutex<bool>,
    signed: AtomicU64,
}

#[derive(Deserialize)]
struct SignRequest {
    data: String,
}

impl RemoteSigner {
    /// Starts a signer with this key on a free port. Writes the certificates into the folder.
    pub async fn start(key: PrivateKeySigner, folder: &Path) -> Self {
        install_tls();
        let tls = TlsAcceptor::from(Arc::new(certificates(folder)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Data {
            listed: key.clone(),
            signing: Mutex::new(key),
            behaviour: Mutex::default(),
            lists_keys: Mutex::new(true),
            signed: AtomicU64::new(0),
        });
        let this = Self { address, tls, state, folder: folder.to_owned(), serving: Mutex::default() };
        this.serve(listener);
        this
    }

    fn serve(&self, listener: TcpListener) {
        let serving = tokio::spawn(accept(listener, self.tls.clone(), router(Arc::clone(&self.state))));
        *self.serving.lock() = Some(AbortOnDropHandle::new(serving));
    }

    /// Closes the port and all connections.
    pub fn shut_down(&self) {
        self.serving.lock().take();
    }

    /// Listens again on the same port.
    pub async fn listen_again(&self) {
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    /// Base URL. Its name is the one of the certificate.
    pub fn url(&self) -> Url {
        format!("https://localhost:{}", self.address.port()).parse().unwrap()
    }

    /// Web3Signer's identifier of the key: its public key.
    pub fn identifier(&self) -> String {
        identifier(&self.state.listed)
    }

    /// Changes the manner of the responses.
    pub fn behave(&self, behaviour: SignerBehaviour) {
        *self.state.behaviour.lock() = behaviour;
    }

    /// Signs with another key from now on.
    pub fn sign_with(&self, key: PrivateKeySigner) {
        *self.state.signing.lock() = key;
    }

    /// Shows or hides the list of public keys.
    pub fn list_keys(&self, lists_keys: bool) {
        *self.state.lists_keys.lock() = lists_keys;
    }

    /// Number of signatures.
    pub fn signed(&self) -> u64 {
        self.state.signed.load(Ordering::Relaxed)
    }

    /// File of the authority's certificate.
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// File of the client's certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// File of the client's private key.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// File of a client's certificate that another authority has issued, and of its key.
    pub fn stranger(&self) -> [PathBuf; 2] {
        ["stranger.pem", "stranger.key"].map(|name| self.folder.join(name))
    }

    /// Section of the configuration with this signer.
    pub fn settings(&self) -> toml::Table {
        let text = |path: PathBuf| toml::Value::from(path.to_str().unwrap());
        toml::Table::from_iter([
            ("remote_url".to_owned(), self.url().as_str().into()),
            ("remote_address".to_owned(), self.state.listed.address().to_string().into()),
            ("remote_identifier".to_owned(), self.identifier().into()),
            ("remote_client_certificate_file".to_owned(), text(self.client_certificate())),
            ("remote_client_key_file".to_owned(), text(self.client_key())),
            ("remote_ca_certificate_file".to_owned(), text(self.ca_certificate())),
        ])
    }
}

fn identifier(key: &PrivateKeySigner) -> String {
    hex::encode_prefixed(key.public_key())
}

/// Creates the certificates of the signer and of its client, and writes the files of the client.
fn certificates(folder: &Path) -> ServerConfig {
    let authority = authority("Payferry test authority");
    let write = |name: &str, pem: String| std::fs::write(folder.join(name), pem).unwrap();
    write("ca.pem", authority.pem());
    for (name, issuer) in [("client", &authority), ("stranger", &self::authority("another authority"))] {
        let (certificate, key) = issued(issuer, "payferry", ExtendedKeyUsagePurpose::ClientAuth);
        write(&format!("{name}.pem"), certificate);
        write(&format!("{name}.key"), key);
    }
    let (certificate, key) = issued(&authority, "localhost", ExtendedKeyUsagePurpose::ServerAuth);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.der().to_vec())).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key).unwrap()
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate and its private key, in PEM.
fn issued(issuer: &CertifiedIssuer<'static, KeyPair>, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.extended_key_usages.push(usage);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, router: Router) {
    // Connections close with the signer.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let (tls, service) = (tls.clone(), TowerToHyperService::new(router.clone()));
        connections.spawn(async move {
            // The client reports a failed handshake.
            if let Ok(stream) = tls.accept(stream).await {
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}

fn router(state: Arc<Data>) -> Router {
    Router::new()
        .route("/api/v1/eth1/publicKeys", get(public_keys))
        .route("/api/v1/eth1/sign/{identifier}", post(sign))
        .with_state(state)
}

async fn public_keys(State(state): State<Arc<Data>>) -> Response {
    if *state.lists_keys.lock() {
        Json([identifier(&state.listed)]).into_response()
    } else {
        StatusCode::FORBIDDEN.into_response()
    }
}

async fn sign(
    State(state): State<Arc<Data>>,
    Segment(asked): Segment<String>,
    Json(request): Json<SignRequest>,
) -> Response {
    let behaviour = *state.behaviour.lock();
    match behaviour {
        SignerBehaviour::Well => {}
        SignerBehaviour::Silent => std::future::pending().await,
        SignerBehaviour::Failing => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        SignerBehaviour::Garbage => return "0x00".into_response(),
        SignerBehaviour::Flood => return "0".repeat(1 << 20).into_response(),
    }
    if asked.trim_start_matches("0x") != identifier(&state.listed).trim_start_matches("0x") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Ok(data) = hex::decode(request.data) else { return StatusCode::BAD_REQUEST.into_response() };
    let signature = state.signing.lock().sign_hash_sync(&keccak256(data)).unwrap();
    state.signed.fetch_add(1, Ordering::Relaxed);
    hex::encode_prefixed(signature.as_bytes()).into_response()
}
