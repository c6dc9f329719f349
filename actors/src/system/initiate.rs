//! Initiates payments: watch the wallet, commit, spawn the actor.

use payferry_domain::payment::{
    self, ChainCandidate, ChainChoice, Decision, OfferedChain, OverpaymentPolicy, Payment, Purpose, Terms,
};
use payferry_domain::{
    Address, Amount, Asset, Chain, CustomerId, FeeBps, InitiateError, MerchantId, PaymentId, PspId, Token,
};
use payferry_entities::audit_log;
use payferry_journal::payments::{RequestRows, initiation_write};
use payferry_journal::psps::{PspError, PspPolicies};
use payferry_journal::{JournalError, JournalWrite, violations};
use payferry_runtime::request::traceparent;

use super::System;
use crate::aggregate::Services;
use crate::chains::Chains;
use crate::compliance::{KytSubject, ScreenRequest};
use crate::pauses::Scope;
use crate::payment::AnswerRow;

/// Number of random bytes in a magic link.
const LINK_RANDOM_BYTES: usize = 24;
/// Number of bytes in a magic link for the creation time in milliseconds, as in the payment's id.
const LINK_TIME_BYTES: usize = 6;

/// Request for a new payment. All values are validated; the merchant belongs to the PSP.
pub struct InitiatePayment {
    /// The PSP.
    pub psp_id: PspId,
    /// Purpose of the payment.
    pub purpose: Purpose,
    /// Merchant; only for a pay-in.
    pub merchant_id: Option<MerchantId>,
    /// Paying customer, if given; for a transfer, the recipient.
    pub customer_id: Option<CustomerId>,
    /// The PSP's own reference.
    pub reference: Option<String>,
    /// Description of the order, shown to the payer.
    pub description: Option<String>,
    /// The PSP's own object.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Amount due.
    pub amount: Amount,
    /// Token.
    pub token: Token,
    /// Chain.
    pub chain: ChainChoiceRequest,
    /// Seconds until it expires.
    pub expires_in_secs: i64,
    /// Creates the idempotency row of the response.
    pub answer: Option<AnswerRow>,
    /// Audit entry of the request, without its subject, which is the new payment's id.
    pub audit: Option<audit_log::Model>,
}

/// Requested chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainChoiceRequest {
    /// This chain.
    Named(Chain),
    /// Selected by the service.
    Best,
    /// Selected by the payer, among all chains that are available.
    Payer,
}

impl System {
    /// Creates a payment; it is durable and watched when this returns.
    pub async fn initiate(&self, request: InitiatePayment) -> Result<Payment, InitiateError> {
        let services = self.payments();
        let psp = services.psps.get(request.psp_id).await.map_err(|error| match error {
            PspError::Unknown | PspError::Unreadable(..) | PspError::Unavailable(_) => {
                InitiateError::Unavailable(error.to_string())
            }
        })?;
        if services.pauses.is_paused(Scope::Psp(request.psp_id)) {
            return Err(InitiateError::PspPaused);
        }
        if psp.policies.require_customer && request.customer_id.is_none() {
            return Err(InitiateError::CustomerRequired);
        }
        let (chain, chain_choice) = self.choose(request.token, request.chain, &psp.policies)?;
        let unavailable = InitiateError::TokenUnavailable { token: request.token, chain: Some(chain) };
        let spec = services.chains.spec(chain).ok_or(unavailable.clone())?;
        let token_address = spec.token_address(request.token).ok_or(unavailable.clone())?;
        let vaults = services.chains.vaults(chain).ok_or(unavailable)?;
        if !self.inner.parts.admission.admit() {
            return Err(InitiateError::Busy);
        }
        let is_pay_in = request.purpose.is_pay_in();
        if let Purpose::Transfer { to } = request.purpose {
            let send_max = services.chains.send_max(psp.ceilings.send_max, Asset { chain, address: token_address });
            self.check_recipient(send_max, chain, to, request.amount).await?;
        }
        let id = services.held_id(PaymentId::generate);
        let fee_bps = if is_pay_in { psp.policies.fee_bps } else { FeeBps::ZERO };
        let now = services.clock.now();
        let terms = Terms {
            id,
            psp_id: request.psp_id,
            purpose: request.purpose,
            merchant_id: request.merchant_id,
            customer_id: request.customer_id,
            reference: request.reference,
            description: request.description,
            metadata: request.metadata,
            amount: request.amount,
            token: request.token,
            token_address,
            chain,
            chain_choice,
            wallet: vaults.of_payment(id, request.psp_id, fee_bps),
            link_token: link_token(id),
            fee_bps,
            tolerance: psp.policies.tolerance,
            overpayment_tolerance: psp.policies.overpayment_tolerance,
            overpayment: if is_pay_in { psp.policies.overpayment } else { OverpaymentPolicy::KeepExcess },
            refund_to_sender: psp.policies.refund_to_sender,
            payer_refunds: psp.policies.payer_refunds,
            dust_floor: psp.policies.dust_floor,
            finality: psp.policies.finality_on(spec.chain, spec.finality, spec.finality_least),
            traceparent: traceparent(),
            created_at: now,
        };
        let transition = payment::initiate(terms, now.plus_secs(request.expires_in_secs))
            .inspect_err(|violated| violations::report(id, violated))
            .map_err(InitiateError::Violated)?;
        let subject = transition.payment.terms.public_id();
        let rows = RequestRows {
            idempotency: request.answer.as_ref().map(|answer| answer(&transition.payment)),
            audit: request.audit.map(|entry| audit_log::Model { subject, ..entry }),
            ..RequestRows::default()
        };
        let write = initiation_write(&transition, rows).map_err(|e| InitiateError::Unavailable(e.to_string()))?;
        let write = JournalWrite::Initiation(Box::new(write));
        // The response maker holds its idempotency key until the write is executed: a second request learns that the
        // first is still running.
        let created = services.create(transition.payment, transition.effects, write, request.answer).await;
        created.map_err(|error| match error {
            JournalError::IdempotencyKeyTaken => InitiateError::IdempotencyKeyTaken,
            JournalError::Busy => InitiateError::Busy,
            JournalError::Unknown(_) => InitiateError::Unknown(error.to_string()),
            other => InitiateError::Unavailable(other.to_string()),
        })
    }

    /// Returns true if new payments are accepted on a chain: it is read, and the operator has not paused it.
    pub fn takes_payments_on(&self, chain: Chain) -> bool {
        let Services { chains, clock, pauses, .. } = &**self.services();
        let is_read = chains.view(chain).is_some_and(|view| !view.is_stale(clock.now()));
        is_read && !pauses.is_paused(Scope::Chain(chain))
    }

    /// Rejects a transfer that could not be forwarded, so that no payer pays for it.
    async fn check_recipient(
        &self,
        send_max: Amount,
        chain: Chain,
        to: Address,
        amount: Amount,
    ) -> Result<(), InitiateError> {
        if amount > send_max {
            return Err(InitiateError::AboveSendLimit(send_max));
        }
        let Some(screening) = self.services().screening.read().clone() else {
            return Err(InitiateError::Unavailable("screening is not running yet".to_owned()));
        };
        let request = ScreenRequest::of_recipient(KytSubject::Recipient, chain, to, amount);
        match screening.screen_now(&request).await.map(|verdict| verdict.decision) {
            Some(Decision::Allow) => Ok(()),
            Some(Decision::Review) => Err(InitiateError::RecipientInReview),
            Some(Decision::Block) => Err(InitiateError::RecipientBlocked),
            None => Err(InitiateError::ScreeningAway),
        }
    }

    fn choose(
        &self,
        token: Token,
        asked: ChainChoiceRequest,
        policies: &PspPolicies,
    ) -> Result<(Chain, ChainChoice), InitiateError> {
        let Services { chains, clock, pauses, .. } = &**self.services();
        let (now, is_paused) = (clock.now(), |chain| pauses.is_paused(Scope::Chain(chain)));
        match asked {
            ChainChoiceRequest::Named(chain) => {
                // A chain that is not configured supports no token; waiting would not help.
                if chains.spec(chain).is_none_or(|spec| spec.token_address(token).is_none()) {
                    return Err(InitiateError::TokenUnavailable { token, chain: Some(chain) });
                }
                if is_paused(chain) {
                    return Err(InitiateError::ChainPaused(Some(chain)));
                }
                match chains.view(chain) {
                    Some(view) if !view.is_stale(now) => Ok((chain, ChainChoice::Asked)),
                    _ => Err(InitiateError::ChainAway),
                }
            }
            ChainChoiceRequest::Best | ChainChoiceRequest::Payer => {
                if let (Some(chain), candidates) = chains.best(token, now, is_paused) {
                    let choice = match asked {
                        ChainChoiceRequest::Payer => {
                            ChainChoice::Payer { offered: offered(chains, token, policies, &candidates) }
                        }
                        _ => ChainChoice::Best { candidates },
                    };
                    return Ok((chain, choice));
                }
                let mut taking = chains.running().filter(|spec| spec.token_address(token).is_some()).peekable();
                if taking.peek().is_none() {
                    Err(InitiateError::TokenUnavailable { token, chain: None })
                } else if taking.all(|spec| is_paused(spec.chain)) {
                    Err(InitiateError::ChainPaused(None))
                } else {
                    Err(InitiateError::ChainAway)
                }
            }
        }
    }
}

/// The eligible ones of these chains, as offers to a payer.
fn offered(chains: &Chains, token: Token, policies: &PspPolicies, candidates: &[ChainCandidate]) -> Vec<OfferedChain> {
    let eligible = candidates.iter().filter(|candidate| candidate.eligible);
    let offer = |candidate: &ChainCandidate| {
        let spec = chains.spec(candidate.chain)?;
        let finality = policies.finality_on(spec.chain, spec.finality, spec.finality_least);
        Some(OfferedChain { chain: spec.chain, token_address: spec.token_address(token)?, finality })
    };
    eligible.filter_map(offer).collect()
}

/// Unguessable, URL-safe part of a magic link. The creation time comes before the random bytes: tokens created at the
/// same time are adjacent in the index, which saves index page writes.
fn link_token(id: PaymentId) -> String {
    use base64::Engine;
    let mut token = [0; LINK_TIME_BYTES + LINK_RANDOM_BYTES];
    let (time, random) = token.split_at_mut(LINK_TIME_BYTES);
    time.copy_from_slice(&id.to_bytes()[..LINK_TIME_BYTES]);
    rand::fill(random);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}
