//! Payers with keys, and the authorizations that they sign.

use alloy::primitives::{Address, B256, Bytes, Signature, U256, keccak256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolStruct;
use payferry_contracts::{
    Authorization, CancelAuthorization, CollectGroup, CollectItem, DepositItem, Erc3009, ReceiveWithAuthorization,
    TransferWithAuthorization, collect_nonce,
};

use crate::env::{BPS, CHAIN_ID, Env, ulid};

pub struct Payer {
    signer: PrivateKeySigner,
    pub address: Address,
}

/// Terms of an authorization, without its nonce.
#[derive(Clone, Copy)]
pub struct Terms {
    pub from: Address,
    pub value: u128,
    pub valid_after: u64,
    pub valid_before: u64,
}

impl Payer {
    pub fn new(name: &str) -> Self {
        let signer = PrivateKeySigner::from_bytes(&keccak256(name)).unwrap();
        Self { address: signer.address(), signer }
    }

    pub fn terms(&self, env: &Env, value: u128) -> Terms {
        Terms { from: self.address, value, valid_after: 0, valid_before: env.now + 600 }
    }

    /// Signs a payment of `psp` to the contract. The fee is 1 %.
    pub fn pays(&self, env: &mut Env, token: Address, payment: &str, psp: &str, value: u128) -> CollectItem {
        let terms = self.terms(env, value);
        self.pays_on(env, token, payment, psp, 1, terms)
    }

    pub fn pays_on(
        &self,
        env: &mut Env,
        token: Address,
        payment: &str,
        psp: &str,
        attempt: u16,
        terms: Terms,
    ) -> CollectItem {
        let nonce = nonce_of(env, payment, psp, attempt);
        let hash = ReceiveWithAuthorization {
            from: terms.from,
            to: env.factory,
            value: U256::from(terms.value),
            validAfter: U256::from(terms.valid_after),
            validBefore: U256::from(terms.valid_before),
            nonce,
        }
        .eip712_hash_struct();
        CollectItem {
            paymentId: ulid(payment),
            maxFeeBps: BPS,
            attempt,
            fee: terms.value / 100,
            authorization: self.authorization(env, token, hash, terms),
            signature: Bytes::new(),
        }
    }

    /// Signs a transfer to the payment's own vault, with a nonce of the payer's choice.
    pub fn deposits(&self, env: &mut Env, token: Address, payment: &str, nonce: B256, terms: Terms) -> DepositItem {
        let to = env.vault(payment);
        let authorization = self.transfers(env, token, to, nonce, terms);
        DepositItem {
            paymentId: ulid(payment),
            pspId: ulid("psp_1"),
            maxFeeBps: BPS,
            token,
            nonce,
            authorization,
            signature: Bytes::new(),
        }
    }

    pub fn transfers(&self, env: &mut Env, token: Address, to: Address, nonce: B256, terms: Terms) -> Authorization {
        let hash = TransferWithAuthorization {
            from: terms.from,
            to,
            value: U256::from(terms.value),
            validAfter: U256::from(terms.valid_after),
            validBefore: U256::from(terms.valid_before),
            nonce,
        }
        .eip712_hash_struct();
        self.authorization(env, token, hash, terms)
    }

    /// Makes a nonce unusable.
    pub fn cancels(&self, env: &mut Env, token: Address, nonce: B256) {
        let hash = CancelAuthorization { authorizer: self.address, nonce }.eip712_hash_struct();
        let signature = self.sign(env, token, hash);
        let call = Erc3009::cancelAuthorization_0Call {
            authorizer: self.address,
            nonce,
            v: v_of(&signature),
            r: signature.r().into(),
            s: signature.s().into(),
        };
        assert!(env.call(self.address, token, &call).ok);
    }

    fn authorization(&self, env: &mut Env, token: Address, hash: B256, terms: Terms) -> Authorization {
        let signature = self.sign(env, token, hash);
        Authorization {
            from: terms.from,
            value: terms.value,
            validAfter: U256::from(terms.valid_after),
            validBefore: U256::from(terms.valid_before),
            v: v_of(&signature),
            r: signature.r().into(),
            s: signature.s().into(),
        }
    }

    fn sign(&self, env: &mut Env, token: Address, struct_hash: B256) -> Signature {
        let domain = env.read(token, &Erc3009::DOMAIN_SEPARATORCall {});
        let digest = keccak256([&[0x19, 0x01], domain.as_slice(), struct_hash.as_slice()].concat());
        self.signer.sign_hash_sync(&digest).unwrap()
    }
}

pub fn nonce_of(env: &Env, payment: &str, psp: &str, attempt: u16) -> B256 {
    collect_nonce(CHAIN_ID, env.factory, ulid(payment), env.psp_vault(psp), BPS, attempt)
}

pub fn group(psp: &str, token: Address, items: Vec<CollectItem>) -> CollectGroup {
    CollectGroup { pspId: ulid(psp), token, items }
}

fn v_of(signature: &Signature) -> u8 {
    27 + u8::from(signature.v())
}
