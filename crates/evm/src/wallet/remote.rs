//! Remote signer: a service with Web3Signer's `eth1` API, which holds the key of an account and signs over HTTPS.
//!
//! A signature is used only if it recovers to the configured account. An error names the signer's host and never its URL or
//! a response. Deliberately absent: retries (the settler repeats what failed), and the certificates' files.

use std::time::Duration;

use alloy::hex;
use alloy::primitives::{Address as Account, Signature, keccak256};
use parking_lot::Mutex;
use payferry_domain::Address;
use reqwest::{Certificate, Identity, RequestBuilder, Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;
use url::Url;

use super::domain_address;
use crate::http;

/// Maximum duration of a request, including the signature by a key management service behind the signer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a signature in hexadecimal with white space, in bytes.
const SIGNATURE_BYTES_MAX: usize = 1_024;
/// Maximum size of the list of public keys, in bytes: about 7,000 keys.
const KEYS_BYTES_MAX: usize = 1024 * 1024;
/// After a request failed, all requests fail at once for this many times the duration of the failed one. A signer that does
/// not respond thus takes at most a third of the settler's time, which also checks sent transactions.
const PAUSE_FACTOR: u32 = 2;
/// Length of an uncompressed public key without its prefix.
const PUBLIC_KEY_BYTES: usize = 64;

/// Location of a key, and the certificates to reach it. The caller reads the files and wipes them.
#[derive(Clone, Copy)]
pub struct RemoteKey<'a> {
    /// Base URL of the signer.
    pub url: &'a Url,
    /// Account of the key.
    pub address: Address,
    /// The signer's name of the key: for Web3Signer the public key.
    pub identifier: &'a str,
    /// Client certificate with its chain, and its private key, in PEM.
    pub client_identity: Option<&'a [u8]>,
    /// Certificates of the authorities that may have issued the signer's certificate, in PEM; `None`: those of this machine.
    pub authorities: Option<&'a [u8]>,
}

/// Error of a remote signer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("remote signer {host}: {fault}")]
pub struct RemoteSignerError {
    /// Host and port of the signer.
    pub host: String,
    /// Cause.
    pub fault: RemoteFault,
}

/// Cause of a remote signer's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteFault {
    /// The client certificate cannot be used.
    #[error("the client certificate and its key must be PEM and belong together")]
    Identity,
    /// The authorities' certificates cannot be used.
    #[error("the CA certificate must be PEM")]
    Authorities,
    /// No response in time.
    #[error("no response within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    /// No connection, or TLS failed.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The signer refused the request.
    #[error("responded with HTTP {0}{hint}", hint = status_hint(*.0))]
    Status(u16),
    /// The response is malformed.
    #[error("responded with {0}")]
    Malformed(&'static str),
    /// The signature is of another key, or of other data.
    #[error(
        "the signature is of account {found}, expected {expected}; nothing was sent. Check the address and the identifier"
    )]
    OtherAccount {
        /// Account of the signature.
        found: Address,
        /// Configured account.
        expected: Address,
    },
    /// The signer lists its keys, and this one is not among them.
    #[error("lists no key {identifier}")]
    NotListed {
        /// Configured identifier.
        identifier: String,
    },
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => ": it does not accept the client",
        404 => ": it has no such key; check the identifier",
        _ => "",
    }
}

/// Response to the request for the list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyListing {
    /// It lists the key, which is of the configured account.
    Listed,
    /// It responds, but does not list its keys: the status of the response.
    Withheld(u16),
}

/// Client of a remote signer, for one key.
pub struct RemoteSigner {
    client: reqwest::Client,
    url: Url,
    identifier: String,
    address: Address,
    host: String,
    /// The last fault, and the end of the pause after it.
    paused: Mutex<Option<(Instant, RemoteFault)>>,
}

impl RemoteSigner {
    pub(super) fn new(key: RemoteKey<'_>) -> Result<Self, RemoteSignerError> {
        let host = host(key.url);
        let client = client(key).map_err(|fault| RemoteSignerError { host: host.clone(), fault })?;
        let (url, identifier) = (key.url.clone(), key.identifier.to_owned());
        Ok(Self { client, url, identifier, address: key.address, host, paused: Mutex::default() })
    }

    /// Account of the key.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Host and port of the signer.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Signs the hash of `data`, which the signer computes. `s` of the signature is in the lower half of the curve's order,
    /// as transactions require.
    pub(super) async fn sign(&self, data: &[u8]) -> Result<Signature, RemoteSignerError> {
        let since = Instant::now();
        if let Some((until, fault)) = self.paused.lock().clone()
            && since < until
        {
            return Err(self.error(fault));
        }
        let signed = self.signature(data).await;
        let pause = |fault: &RemoteFault| (Instant::now() + since.elapsed() * PAUSE_FACTOR, fault.clone());
        *self.paused.lock() = signed.as_ref().err().map(pause);
        signed.map_err(|fault| self.error(fault))
    }

    async fn signature(&self, data: &[u8]) -> Result<Signature, RemoteFault> {
        let body = json!({ "data": hex::encode_prefixed(data) });
        let response = send(self.client.post(self.endpoint(&["sign", &self.identifier])).json(&body)).await?;
        if response.status() != StatusCode::OK {
            return Err(RemoteFault::Status(response.status().as_u16()));
        }
        let text = text(response, SIGNATURE_BYTES_MAX).await?;
        let malformed = RemoteFault::Malformed("something else than a signature of 65 bytes in hexadecimal");
        let bytes: [u8; 65] = hex::decode_to_array(text.trim()).map_err(|_| malformed.clone())?;
        let signature = Signature::from_raw_array(&bytes).map_err(|_| malformed.clone())?;
        let signature = signature.normalized_s();
        let found = signature.recover_address_from_prehash(&keccak256(data)).map_err(|_| malformed)?;
        if domain_address(found) == self.address {
            Ok(signature)
        } else {
            Err(RemoteFault::OtherAccount { found: domain_address(found), expected: self.address })
        }
    }

    /// Asks the signer for its keys, without a signature.
    pub async fn check(&self) -> Result<KeyListing, RemoteSignerError> {
        self.listing().await.map_err(|fault| self.error(fault))
    }

    async fn listing(&self) -> Result<KeyListing, RemoteFault> {
        let configured = public_key(&self.identifier);
        if let Some(found) = configured.map(|key| account(&key)).filter(|found| *found != self.address) {
            return Err(RemoteFault::OtherAccount { found, expected: self.address });
        }
        let response = send(self.client.get(self.endpoint(&["publicKeys"]))).await?;
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED) => return Ok(KeyListing::Withheld(status.as_u16())),
            status => return Err(RemoteFault::Status(status.as_u16())),
        }
        let text = text(response, KEYS_BYTES_MAX).await?;
        let keys: Vec<String> =
            serde_json::from_str(&text).map_err(|_| RemoteFault::Malformed("something else than a list of keys"))?;
        // An identifier that is not a public key is the signer's own name of it.
        if keys.iter().filter_map(|key| public_key(key)).any(|key| account(&key) == self.address) {
            Ok(KeyListing::Listed)
        } else {
            Err(RemoteFault::NotListed { identifier: self.identifier.clone() })
        }
    }

    fn endpoint(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        // An http URL always has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1", "eth1"]).extend(segments);
        }
        url
    }

    fn error(&self, fault: RemoteFault) -> RemoteSignerError {
        RemoteSignerError { host: self.host.clone(), fault }
    }
}

fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or("?");
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

fn client(key: RemoteKey<'_>) -> Result<reqwest::Client, RemoteFault> {
    let mut builder = http::builder().timeout(REQUEST_TIMEOUT);
    if let Some(pem) = key.authorities {
        let authorities = Certificate::from_pem_bundle(pem).map_err(|_| RemoteFault::Authorities)?;
        if authorities.is_empty() {
            return Err(RemoteFault::Authorities);
        }
        builder = builder.tls_certs_only(authorities);
    }
    if let Some(pem) = key.client_identity {
        builder = builder.identity(Identity::from_pem(pem).map_err(|_| RemoteFault::Identity)?);
    }
    // The certificates were parsed above, so what fails here is a key of another certificate.
    builder.build().map_err(|_| RemoteFault::Identity)
}

async fn send(request: RequestBuilder) -> Result<Response, RemoteFault> {
    request.send().await.map_err(fault)
}

/// Body of a response as text.
async fn text(mut response: Response, bytes_max: usize) -> Result<String, RemoteFault> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(fault)? {
        if body.len() + piece.len() > bytes_max {
            return Err(RemoteFault::Malformed("more bytes than expected"));
        }
        body.extend_from_slice(&piece);
    }
    String::from_utf8(body).map_err(|_| RemoteFault::Malformed("something else than text"))
}

/// The innermost cause names the reason, such as the alert of TLS.
fn fault(error: reqwest::Error) -> RemoteFault {
    if error.is_timeout() {
        return RemoteFault::Timeout;
    }
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    RemoteFault::Unreachable(cause.to_string())
}

/// Parses an uncompressed public key in hexadecimal.
fn public_key(text: &str) -> Option<[u8; PUBLIC_KEY_BYTES]> {
    hex::decode_to_array(text).ok()
}

fn account(key: &[u8; PUBLIC_KEY_BYTES]) -> Address {
    domain_address(Account::from_raw_public_key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first account of the mnemonic of development nodes.
    const KEY: &str = "0x8318535b54105d4a7aae60c08fc45f9687181b4fdfc625bd1a753fa7397fed753547f11ca8696646f2f3acb08e31016afac23e630c5d11f59f61fef57b0d2aa5";
    const ADDRESS: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

    fn signer(url: &str) -> Result<RemoteSigner, RemoteSignerError> {
        let url = url.parse().unwrap();
        let address = ADDRESS.parse().unwrap();
        RemoteSigner::new(RemoteKey { url: &url, address, identifier: KEY, client_identity: None, authorities: None })
    }

    #[test]
    fn public_key_yields_the_account() {
        let address: Address = ADDRESS.parse().unwrap();
        // The example of the documentation.
        let example = "0xba5734d8f7091719471e7f7ed6b9df170dc70cc661ca05e688601ad984f068b0d67351e5f06073092499336ab0839ef8a521afd334e53807205fa2f08eec74f4";
        assert_eq!(account(&public_key(example).unwrap()).to_string(), "0x70997970c51812dc3a010c7d01b50e0d17dc79c8");
        assert_eq!(account(&public_key(KEY).unwrap()), address);
        assert_eq!(account(&public_key(&KEY[2..]).unwrap()), address);
        assert_eq!(public_key("settler"), None);
    }

    #[test]
    fn endpoints_are_below_the_base_url() {
        for (base, expected) in [
            ("https://signer.example:9000", "https://signer.example:9000/api/v1/eth1/publicKeys"),
            ("https://signer.example/keys/", "https://signer.example/keys/api/v1/eth1/publicKeys"),
        ] {
            assert_eq!(signer(base).unwrap().endpoint(&["publicKeys"]).as_str(), expected);
        }
        let odd = signer("https://signer.example").unwrap().endpoint(&["sign", "a/b"]);
        assert_eq!(odd.path(), "/api/v1/eth1/sign/a%2Fb");
    }

    #[test]
    fn errors_name_the_host_and_no_credentials() {
        let signer = signer("https://user:hunter2@signer.example:9000/hunter2").unwrap();
        let error = signer.error(RemoteFault::Status(404)).to_string();
        assert_eq!(
            error,
            "remote signer signer.example:9000: responded with HTTP 404: it has no such key; check the identifier"
        );
    }

    #[test]
    fn certificates_are_checked_at_the_start() {
        let url: Url = "https://signer.example".parse().unwrap();
        let key = RemoteKey {
            url: &url,
            address: ADDRESS.parse().unwrap(),
            identifier: KEY,
            client_identity: None,
            authorities: None,
        };
        let fault = |key| RemoteSigner::new(key).err().unwrap().fault;
        assert_eq!(fault(RemoteKey { client_identity: Some(b"hunter2"), ..key }), RemoteFault::Identity);
        assert_eq!(fault(RemoteKey { authorities: Some(b"hunter2"), ..key }), RemoteFault::Authorities);
    }
}
