//! Authorizations of payers (EIP-3009): signs the typed data that the service offers, as a wallet does.

use alloy::primitives::{Address, B256, U256};
use alloy::signers::SignerSync;
use alloy::sol_types::{Eip712Domain, SolStruct};
use payferry_contracts::ReceiveWithAuthorization;
use payferry_devchain::DevWallet;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct PaymentMethod {
    typed_data: Option<TypedData>,
}

/// Typed data of `ReceiveWithAuthorization`, without the payer.
#[derive(Deserialize)]
struct TypedData {
    domain: Domain,
    message: Message,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Domain {
    name: String,
    version: String,
    chain_id: u64,
    verifying_contract: Address,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    to: Address,
    value: U256,
    valid_after: U256,
    valid_before: U256,
    nonce: B256,
}

/// Signs a payment with these payment methods. Returns the body of the request, or `None` if there is nothing to sign.
pub(super) fn sign(payer: &DevWallet, methods: &RawValue) -> Option<String> {
    let methods: Vec<PaymentMethod> = serde_json::from_str(methods.get()).ok()?;
    let TypedData { domain, message } = methods.into_iter().find_map(|method| method.typed_data)?;
    let Domain { name, version, chain_id, verifying_contract } = domain;
    let chain_id = Some(U256::from(chain_id));
    let domain = Eip712Domain::new(Some(name.into()), Some(version.into()), chain_id, Some(verifying_contract), None);
    let Message { to, value, valid_after, valid_before, nonce } = message;
    let from = payer.address();
    let signed =
        ReceiveWithAuthorization { from, to, value, validAfter: valid_after, validBefore: valid_before, nonce };
    let hash = signed.eip712_signing_hash(&domain);
    let body = json!({
        "type": "receive_with_authorization", "from": from, "value": value.to_string(),
        "valid_after": valid_after.saturating_to::<u64>(), "valid_before": valid_before.saturating_to::<u64>(),
        "nonce": nonce, "signature": payer.signer().sign_hash_sync(&hash).ok()?.to_string(),
    });
    Some(body.to_string())
}
