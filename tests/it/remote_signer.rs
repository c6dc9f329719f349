//! Signatures of a remote signer that requires a client certificate.

use alloy::consensus::transaction::SignerRecoverable as _;
use alloy::consensus::{TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Decodable2718 as _;
use alloy::primitives::{TxKind, U256};
use alloy::signers::local::PrivateKeySigner;
use payferry::config::SignerSection;
use payferry::service::secrets;
use payferry_evm::wallet::{
    KeyListing, OperatorSigner, RemoteFault, SignedTx, SignerError, alloy_address, domain_address,
};
use payferry_harness::signer::{RemoteSigner, SignerBehaviour};
use tempfile::TempDir;

struct Fixture {
    server: RemoteSigner,
    key: PrivateKeySigner,
    section: SignerSection,
    folder: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (key, folder) = (PrivateKeySigner::random(), tempfile::tempdir().unwrap());
        let server = RemoteSigner::start(key.clone(), folder.path()).await;
        let config = folder.path().join("payferry.toml");
        let signer = toml::Table::from_iter([("settler".to_owned(), server.settings().into())]);
        let settings = toml::Table::from_iter([("signer".to_owned(), signer.into())]);
        std::fs::write(&config, settings.to_string()).unwrap();
        let config = payferry::config::Config::load(Some(&config), []).unwrap();
        Self { server, key, section: config.signer.settler, folder }
    }

    fn signer(&self) -> OperatorSigner {
        secrets::signer("signer.settler", &self.section).unwrap()
    }

    /// The error of a signer with a change of this section.
    async fn fault(&self, change: impl FnOnce(&mut SignerSection)) -> RemoteFault {
        let mut section = self.section.clone();
        change(&mut section);
        fault(&secrets::signer("signer.settler", &section).unwrap()).await
    }
}

fn tx(nonce: u64) -> TxEip1559 {
    TxEip1559 {
        chain_id: 8_453,
        nonce,
        gas_limit: 100_000,
        max_fee_per_gas: 7,
        max_priority_fee_per_gas: 3,
        to: TxKind::Call([5; 20].into()),
        value: U256::ZERO,
        input: vec![1, 2, 3].into(),
        ..TxEip1559::default()
    }
}

async fn fault(signer: &OperatorSigner) -> RemoteFault {
    match signer.sign(tx(0)).await {
        Err(SignerError::Remote(error)) => error.fault,
        other => panic!("{other:?}"),
    }
}

fn sender(signed: &SignedTx) -> alloy::primitives::Address {
    let envelope = TxEnvelope::decode_2718(&mut signed.raw.as_ref()).unwrap();
    assert_eq!(envelope.tx_hash().0, signed.hash.0);
    envelope.recover_signer().unwrap()
}

#[tokio::test]
async fn signs_transactions_of_the_configured_account() {
    let fixture = Fixture::new().await;
    let signer = fixture.signer();
    assert_eq!(alloy_address(signer.address()), fixture.key.address());
    // Both parities of the signature occur.
    for nonce in 0..16 {
        let signed = signer.sign(tx(nonce)).await.unwrap();
        assert_eq!(sender(&signed), fixture.key.address());
        // The same key in this process gives the same bytes.
        let local = OperatorSigner::from_bytes(&fixture.key.to_bytes().0).unwrap();
        assert_eq!(signed.raw, local.sign(tx(nonce)).await.unwrap().raw);
    }
    assert_eq!(fixture.server.signed(), 16);
    assert_eq!(signer.remote().unwrap().check().await, Ok(KeyListing::Listed));
    assert_eq!(fixture.server.signed(), 16, "a check signs nothing");
}

#[tokio::test]
async fn connection_needs_the_certificates_of_both_sides() {
    let fixture = Fixture::new().await;
    let unreachable = |fault: RemoteFault, reason: &str| match fault {
        RemoteFault::Unreachable(why) => assert!(why.contains(reason), "{why}"),
        other => panic!("{other:?}"),
    };
    let without = fixture.fault(|section| {
        section.remote_client_certificate_file = None;
        section.remote_client_key_file = None;
    });
    unreachable(without.await, "CertificateRequired");
    let [certificate, key] = fixture.server.stranger();
    let stranger = fixture.fault(|section| {
        section.remote_client_certificate_file = Some(certificate.clone());
        section.remote_client_key_file = Some(key.clone());
    });
    unreachable(stranger.await, "alert");
    unreachable(fixture.fault(|section| section.remote_ca_certificate_file = None).await, "UnknownIssuer");
    assert_eq!(fixture.server.signed(), 0);

    // A key of another certificate, and files that are not PEM, are found at the start.
    let mut section = fixture.section.clone();
    section.remote_client_key_file = Some(key);
    let error = format!("{:#}", secrets::signer("signer.settler", &section).unwrap_err());
    assert!(error.contains("the client certificate and its key must be PEM and belong together"), "{error}");
    std::fs::write(fixture.folder.path().join("bad.pem"), "hunter2").unwrap();
    section.remote_client_key_file = Some(fixture.folder.path().join("bad.pem"));
    let error = format!("{:#}", secrets::signer("signer.settler", &section).unwrap_err());
    assert!(error.contains("must be PEM") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn signature_of_another_key_is_not_used() {
    let fixture = Fixture::new().await;
    let other = PrivateKeySigner::random();
    fixture.server.sign_with(other.clone());
    let (found, expected) = (domain_address(other.address()), domain_address(fixture.key.address()));
    assert_eq!(fault(&fixture.signer()).await, RemoteFault::OtherAccount { found, expected });

    // `check` finds an identifier of another account without a signature.
    let mut section = fixture.section.clone();
    section.remote_address = Some(found);
    let signer = secrets::signer("signer.settler", &section).unwrap();
    let error = signer.remote().unwrap().check().await.unwrap_err();
    assert_eq!(error.fault, RemoteFault::OtherAccount { found: expected, expected: found });
    section.remote_identifier = "settler".to_owned();
    let signer = secrets::signer("signer.settler", &section).unwrap();
    let error = signer.remote().unwrap().check().await.unwrap_err();
    assert_eq!(error.fault, RemoteFault::NotListed { identifier: "settler".to_owned() });
    fixture.server.list_keys(false);
    assert_eq!(signer.remote().unwrap().check().await, Ok(KeyListing::Withheld(403)));
    assert_eq!(
        fixture.fault(|section| section.remote_identifier = "settler".to_owned()).await,
        RemoteFault::Status(404)
    );
}

#[tokio::test]
async fn failing_signer_is_asked_again() {
    let fixture = Fixture::new().await;
    let signer = fixture.signer();
    for (behaviour, expected) in [
        (SignerBehaviour::Failing, RemoteFault::Status(500)),
        (
            SignerBehaviour::Garbage,
            RemoteFault::Malformed("something else than a signature of 65 bytes in hexadecimal"),
        ),
        (SignerBehaviour::Flood, RemoteFault::Malformed("more bytes than expected")),
    ] {
        fixture.server.behave(behaviour);
        assert_eq!(fixture.fault(|_| {}).await, expected);
    }
    fixture.server.behave(SignerBehaviour::Well);
    signer.sign(tx(0)).await.unwrap();

    fixture.server.shut_down();
    assert!(matches!(fault(&signer).await, RemoteFault::Unreachable(_)));
    fixture.server.listen_again().await;
    recovers(&signer, fixture.key.address()).await;
}

#[tokio::test]
async fn silent_signer_takes_a_third_of_the_time_at_most() {
    let fixture = Fixture::new().await;
    let signer = fixture.signer();
    fixture.server.behave(SignerBehaviour::Silent);
    let since = std::time::Instant::now();
    assert_eq!(fault(&signer).await, RemoteFault::Timeout);
    let waited = since.elapsed();
    for _ in 0..1_000 {
        assert_eq!(fault(&signer).await, RemoteFault::Timeout);
    }
    assert!(since.elapsed() < waited * 2, "fails at once after a timeout of {waited:?}: {:?}", since.elapsed());
    fixture.server.behave(SignerBehaviour::Well);
    recovers(&signer, fixture.key.address()).await;
}

/// Waits until the signer signs.
async fn recovers(signer: &OperatorSigner, account: alloy::primitives::Address) {
    let signed = async || signer.sign(tx(0)).await.map_err(|error| error.to_string());
    let signed = payferry_harness::eventually("it signs again", signed).await;
    assert_eq!(sender(&signed), account);
}

/// In production, only a signer on this machine may be without TLS and client certificates.
#[tokio::test]
async fn production_refuses_an_open_connection_to_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("payferry.toml");
    let error = |url: &str, more: &str| {
        let key = |address: u8| {
            format!(
                "remote_url = \"{url}\"\nremote_address = \"0x{}\"\nremote_identifier = \"key\"\n{more}",
                hex_byte(address)
            )
        };
        std::fs::write(&file, format!("[signer.settler]\n{}\n[signer.sender]\n{}", key(1), key(2))).unwrap();
        let config = payferry::config::Config::load(Some(&file), []).unwrap();
        secrets::signers(&config).map(|signers| signers.keys()).map_err(|error| format!("{error:#}"))
    };
    error("http://127.0.0.1:9000", "").unwrap();
    let plain = error("http://user:hunter2@signer.example:9000", "").unwrap_err();
    assert!(
        plain.contains("`signer.settler.remote_url`: the connection to signer.example:9000 is not encrypted"),
        "{plain}"
    );
    assert!(!plain.contains("hunter2"), "{plain}");
    let open = error("https://signer.example", "").unwrap_err();
    assert!(open.contains("`signer.settler.remote_client_certificate_file` is not set"), "{open}");
    let missing =
        error("https://signer.example", "remote_client_certificate_file = \"/nowhere/client.pem\"").unwrap_err();
    assert!(missing.contains("set both `signer.settler.remote_client_certificate_file`"), "{missing}");
}

fn hex_byte(byte: u8) -> String {
    hex::encode([byte; 20])
}
