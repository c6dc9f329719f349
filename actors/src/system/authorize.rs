//! Checks an authorization of a payer (EIP-3009) before the payment decides about it: everything that the chain knows.
//!
//! The signature is verified by the token itself, in the call that the contract would make. So plain accounts, delegated
//! accounts (EIP-7702) and contract wallets need no code of their own here.

use alloy::primitives::{Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{
    Erc3009, PLAIN_SIGNATURE_BYTES, SIGNATURE_BYTES_MAX, SignedAuthorization, Token as TokenContract, collect_nonce,
    describe_reason,
};
use payferry_domain::payment::{AuthorizationKind, AuthorizationOrder, Command, Payment, Rejection, transition};
use payferry_domain::{Address, Amount, CommandError, Hash32, OperationId, Timestamp, TransitionError};
use payferry_entities::authorizations;
use payferry_evm::client::ClientError;
use payferry_evm::eip3009::Eip3009Domain;
use payferry_evm::wallet::{alloy_address, alloy_hash, domain_hash};

use super::System;

/// Terms that a payer signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTerms {
    /// Message.
    pub kind: AuthorizationKind,
    /// Payer.
    pub from: Address,
    /// Amount.
    pub value: Amount,
    /// Start, exclusive, in seconds since the epoch.
    pub valid_after: u64,
    /// End, exclusive, in seconds since the epoch.
    pub valid_before: u64,
    /// Nonce.
    pub nonce: Hash32,
    /// Signature.
    pub signature: Vec<u8>,
}

/// A verified authorization: the request to the payment, and the row with the signature.
#[derive(Debug, Clone)]
pub struct VerifiedAuthorization {
    /// Command to the payment.
    pub command: Command,
    /// Row that is written with it.
    pub row: authorizations::Model,
}

/// Reason why an authorization is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizeError {
    /// The token has no EIP-3009.
    #[error("the token of this payment does not support authorizations on this chain; send the amount instead")]
    Unsupported,
    /// The nonce does not commit to this payment.
    #[error("the nonce must be {0}")]
    WrongNonce(Hash32),
    /// The authorization is not valid yet.
    #[error("the authorization is not valid yet")]
    NotYetValid,
    /// The signature is too long.
    #[error("the signature has more than {SIGNATURE_BYTES_MAX} bytes")]
    SignatureLength,
    /// The payer has too little.
    #[error("the payer's account holds {held}, less than the amount")]
    BalanceTooLow {
        /// Balance of the payer.
        held: Amount,
    },
    /// The nonce is used or cancelled.
    #[error("the nonce is used or cancelled")]
    NonceUsed,
    /// The token refuses the signature.
    #[error("the token refuses the authorization: {0}")]
    Refused(String),
    /// The chain does not answer.
    #[error("the chain does not answer: {0}")]
    ChainAway(String),
    /// The payment does not take it.
    #[error(transparent)]
    Payment(CommandError<Rejection>),
}

impl From<ClientError> for AuthorizeError {
    fn from(error: ClientError) -> Self {
        Self::ChainAway(error.to_string())
    }
}

impl System {
    /// EIP-712 domain of the payment's token, if it supports authorizations.
    pub fn authorization_domain(&self, payment: &Payment) -> Option<Eip3009Domain> {
        let terms = &payment.terms;
        terms.purpose.is_pay_in().then(|| self.chains().watchlist().eip3009(terms.chain, terms.token_address))?
    }

    /// Recipient of the message, which the payer signs.
    pub fn authorization_recipient(&self, payment: &Payment, kind: AuthorizationKind) -> Option<Address> {
        match kind {
            AuthorizationKind::Receive => Some(self.chains().spec(payment.terms.chain)?.contract),
            AuthorizationKind::Transfer => Some(payment.terms.wallet),
        }
    }

    /// Nonce that the next `ReceiveWithAuthorization` of the payment must have.
    pub fn authorization_nonce(&self, payment: &Payment) -> Option<Hash32> {
        let terms = &payment.terms;
        let (spec, vaults) = (self.chains().spec(terms.chain)?, self.chains().vaults(terms.chain)?);
        let nonce = collect_nonce(
            spec.chain_id,
            alloy_address(spec.contract),
            terms.id.ulid().0,
            alloy_address(vaults.of_psp(terms.psp_id)),
            terms.fee_bps.get(),
            payment.next_attempt(),
        );
        Some(domain_hash(nonce))
    }

    /// Verifies an authorization for this payment.
    pub async fn verify_authorization(
        &self,
        payment: &Payment,
        terms: &SignedTerms,
    ) -> Result<VerifiedAuthorization, AuthorizeError> {
        let chain = payment.terms.chain;
        self.authorization_domain(payment).ok_or_else(|| {
            // After a start, the tokens are read later than the payments.
            let is_known = self.chains().watchlist().knows_eip3009(chain);
            let unread = || AuthorizeError::ChainAway(format!("the tokens of {chain} were not read yet"));
            if is_known { AuthorizeError::Unsupported } else { unread() }
        })?;
        let now: Timestamp = self.clock().now();
        let valid_before = i64::try_from(terms.valid_before).unwrap_or(i64::MAX).saturating_mul(1_000);
        let order = AuthorizationOrder {
            operation: OperationId::generate(),
            kind: terms.kind,
            attempt: payment.next_attempt(),
            from: terms.from,
            value: terms.value,
            valid_before: Timestamp(valid_before),
            nonce: terms.nonce,
        };
        let command = Command::Authorize(order.clone());
        // The payment decides again in its actor. Decided here first, so that a rejected request asks the chain nothing.
        transition(payment, &command, now).map_err(|error| {
            AuthorizeError::Payment(match error {
                TransitionError::Rejected(rejection) => CommandError::Rejected(rejection),
                TransitionError::Violated(violated) => CommandError::Violated(violated),
            })
        })?;
        if terms.kind == AuthorizationKind::Receive {
            let required = self.authorization_nonce(payment).ok_or(AuthorizeError::Unsupported)?;
            if terms.nonce != required {
                return Err(AuthorizeError::WrongNonce(required));
            }
        }
        if i64::try_from(terms.valid_after).unwrap_or(i64::MAX) >= now.as_millis().div_euclid(1_000) {
            return Err(AuthorizeError::NotYetValid);
        }
        let by_contract = self.ask_the_chain(payment, terms).await?;
        let row = authorizations::Model {
            operation_id: order.operation.to_string(),
            payment_id: payment.id().to_string(),
            attempt: order.attempt.into(),
            valid_after: i64::try_from(terms.valid_after).unwrap_or(i64::MAX),
            signature: alloy::hex::encode_prefixed(&terms.signature),
            by_contract,
            created_at: now.as_millis(),
        };
        Ok(VerifiedAuthorization { command, row })
    }

    /// Verifies the state of the nonce, the balance and the signature; returns true if the signature has no v, r and s.
    async fn ask_the_chain(&self, payment: &Payment, terms: &SignedTerms) -> Result<bool, AuthorizeError> {
        let (chain, token) = (payment.terms.chain, payment.terms.token_address);
        let spec = self.chains().spec(chain).ok_or(AuthorizeError::Unsupported)?;
        let away = || AuthorizeError::ChainAway("it is not running".to_owned());
        let client = self.inner.parts.accounts.client(chain).ok_or_else(away)?;
        let is_plain = self.is_plain(chain, terms.from).await.ok_or_else(away)?;
        let length = terms.signature.len();
        if length > SIGNATURE_BYTES_MAX {
            return Err(AuthorizeError::SignatureLength);
        }
        // A plain account that delegates can have a signature of its contract's own form.
        let by_contract = !is_plain || length != PLAIN_SIGNATURE_BYTES;
        let to = self.authorization_recipient(payment, terms.kind).ok_or(AuthorizeError::Unsupported)?;
        let signed = SignedAuthorization {
            from: alloy_address(terms.from),
            value: u128::from(terms.value.units().unsigned_abs()),
            valid_after: terms.valid_after,
            valid_before: terms.valid_before,
            nonce: alloy_hash(terms.nonce),
            signature: Bytes::from(terms.signature.clone()),
            by_contract,
        };
        let submit = match terms.kind {
            AuthorizationKind::Receive => signed.receive_call(alloy_address(to)),
            AuthorizationKind::Transfer => signed.transfer_call(alloy_address(to)),
        };
        let state = Erc3009::authorizationStateCall { authorizer: signed.from, nonce: signed.nonce }.abi_encode();
        let balance = TokenContract::balanceOfCall { account: signed.from }.abi_encode();
        let calls = vec![(token, state), (token, balance), (token, submit)];
        let answers = client.calls_from(spec.contract, spec.item_gas, calls).await?;
        let [is_used, held, submitted] = <[_; 3]>::try_from(answers)
            .map_err(|_| AuthorizeError::ChainAway("it did not answer all calls".to_owned()))?;
        let malformed = |error: alloy::sol_types::Error| ClientError::Malformed(error.to_string());
        if Erc3009::authorizationStateCall::abi_decode_returns(&is_used?).map_err(malformed)? {
            return Err(AuthorizeError::NonceUsed);
        }
        let held = TokenContract::balanceOfCall::abi_decode_returns(&held?).map_err(malformed)?;
        if held < U256::from(signed.value) {
            return Err(AuthorizeError::BalanceTooLow {
                held: Amount::from_units(i64::try_from(held).unwrap_or(i64::MAX)),
            });
        }
        match submitted {
            Ok(_) => Ok(by_contract),
            Err(ClientError::Reverted { data, reason }) => {
                Err(AuthorizeError::Refused(if data.is_empty() { reason } else { describe_reason(&data) }))
            }
            Err(error) => Err(error.into()),
        }
    }
}
