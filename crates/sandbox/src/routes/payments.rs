//! `POST /sandbox/payments/{id}/pay` and `.../panic`.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use payferry_actors::System;
use payferry_actors::system::SignedTerms;
use payferry_domain::payment::AuthorizationKind;
use payferry_domain::{Address, Amount, Chain, PaymentId, Token, named};
use payferry_entities::payments as payment_rows;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Caller, Fault, Path, Payments, read};
use payferry_nodes::LeaseName;
use payferry_runtime::observe::{ActorKind, LOG_ENTRIES_MAX};
use serde_json::{Value, json};

use super::{Body, away, fields};
use crate::chain::{Payer, TRANSFER_MAX, Unsigned};
use crate::env::SandboxEnv;
use crate::routes::SandboxHost;

/// Maximum number of panics per request.
const PANICS_MAX: i64 = 10;
/// Maximum time until a panic is visible, and the polling interval.
const PANIC_PATIENCE: Duration = Duration::from_secs(5);
const PANIC_POLL: Duration = Duration::from_millis(10);

/// Data that a payer needs to pay.
struct Due {
    id: PaymentId,
    /// Public id from the request: `pay_`, or `tr_` for a transfer.
    public_id: String,
    chain: Chain,
    token: Token,
    amount: Amount,
    wallet: Address,
}

/// Sends a real transfer from one of the sandbox's payers to the payment's wallet, in any state of the payment.
pub(super) async fn pay<H: SandboxHost>(
    State(app): State<H>,
    Extension(env): Extension<Arc<SandboxEnv>>,
    caller: Caller<Payments>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let row = app.own_payment(caller.psp_id, &id).await?;
    let due = due(&row, &id)?;
    let (method, amount, token, chain, payer) = fields(&body, |fields| {
        Some((
            fields.optional("method", read::name).unwrap_or(Method::Transfer),
            fields.optional("amount", amount),
            fields.optional("currency", read::name::<Token>),
            fields.optional("chain", read::name::<Chain>),
            fields.optional("from", read::name).unwrap_or(Payer::Clean),
        ))
    })?;
    if method == Method::Authorization {
        return authorize(&app, &env, &row, &due, payer).await;
    }
    let (amount, token, chain) = (amount.unwrap_or(due.amount), token.unwrap_or(due.token), chain.unwrap_or(due.chain));
    let tx_hash = env.chain(chain).transfer(payer, token, due.wallet, amount).await.map_err(away)?;
    Answer::ok(&json!({
        "message": "Transfer sent",
        "payment_id": due.public_id,
        "tx_hash": tx_hash,
        "chain": chain,
        "currency": token,
        "amount": amount.to_string(),
        "to": checksummed(due.wallet),
    }))
}

named! {
    /// How a payer pays.
    Method, "transfer, authorization" {
        /// A transfer to the payment's wallet.
        Transfer = "transfer",
        /// A signed authorization, which costs the payer no gas.
        Authorization = "authorization",
    }
}

/// Signs an authorization of the amount due, as a payer's wallet would.
async fn authorize<H: SandboxHost>(
    app: &H,
    env: &SandboxEnv,
    row: &payment_rows::Model,
    due: &Due,
    payer: Payer,
) -> Result<Answer, ApiError> {
    let payment = payferry_journal::payments::payment_of(row)?;
    let system = app.system();
    let unsupported = || {
        let text = "The token of this payment does not support authorizations on this chain.".to_owned();
        ApiError::conflict("authorization_unsupported", text)
    };
    let domain = system.authorization_domain(&payment).ok_or_else(unsupported)?;
    let nonce = system.authorization_nonce(&payment).ok_or_else(unsupported)?;
    let to = system.authorization_recipient(&payment, AuthorizationKind::Receive).ok_or_else(unsupported)?;
    let value = payment.amount_due();
    let valid_before = payment.expires_at.as_millis().div_euclid(1_000).unsigned_abs();
    let terms = |from| Unsigned { from, to, value, valid_before, nonce };
    let (from, signature) = env.chain(due.chain).sign_authorization(payer, &domain, terms).map_err(away)?;
    let kind = AuthorizationKind::Receive;
    let terms = SignedTerms { kind, from, value, valid_after: 0, valid_before, nonce, signature };
    let state = app.authorize(&payment, &terms).await?;
    Answer::ok(&json!({
        "message": "Authorization accepted",
        "payment_id": due.public_id,
        "state": state,
        "from": checksummed(from),
        "chain": due.chain,
        "currency": due.token,
        "amount": value.to_string(),
    }))
}

/// Makes the payment's actor panic a number of times, to show that it is restarted without loss.
pub(super) async fn panic<H: SandboxHost>(
    State(app): State<H>,
    caller: Caller<Payments>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let due = due(&app.own_payment(caller.psp_id, &id).await?, &id)?;
    let times =
        fields(&body, |fields| Some(fields.optional("times", |value| read::whole(value, 1, PANICS_MAX)).unwrap_or(1)))?;
    if !app.system().node().leases().holds(LeaseName::Shard(due.id.shard())) {
        return Err(away("The actor is on another node, and only those of the first one can panic."));
    }
    let mut panics = 0;
    for _ in 0..times {
        if !panic_once(app.system(), due.id).await {
            break;
        }
        panics += 1;
    }
    let quarantined = app.system().is_quarantined(due.id);
    let message = if quarantined { "The payment is quarantined" } else { "The actor panicked and was restarted" };
    Answer::ok(&json!({"message": message, "payment_id": due.public_id, "panics": panics, "quarantined": quarantined}))
}

/// Causes one panic and waits for the supervisor. Returns `false` if none was visible because the payment is
/// quarantined.
async fn panic_once(system: &System, id: PaymentId) -> bool {
    let name = id.to_string();
    let incidents = || system.log().latest_of(ActorKind::Payment, &name, LOG_ENTRIES_MAX).len();
    let before = incidents();
    system.inject_panic(id);
    let showed = async {
        while incidents() == before {
            tokio::time::sleep(PANIC_POLL).await;
        }
    };
    !system.is_quarantined(id) && tokio::time::timeout(PANIC_PATIENCE, showed).await.is_ok()
}

fn due(row: &payment_rows::Model, id: &str) -> Result<Due, ApiError> {
    let unreadable = |what: &str| ApiError::internal(format!("the {what} of {id} cannot be read"));
    Ok(Due {
        id: row.id.parse().map_err(|_| unreadable("id"))?,
        public_id: id.to_owned(),
        chain: row.chain.parse().map_err(|_| unreadable("chain"))?,
        token: row.token.parse().map_err(|_| unreadable("token"))?,
        amount: Amount(row.amount),
        wallet: row.wallet.parse().map_err(|_| unreadable("wallet"))?,
    })
}

/// Reads any amount that a transfer can move, including zero: real senders send zero too.
pub(super) fn amount(value: &Value) -> Result<Amount, Fault> {
    let text = read::string(value)?;
    let amount: Amount =
        text.parse().map_err(|error| Fault::new("amount_malformed", format!("is refused: {error}")))?;
    let too_large = Fault::new("amount_too_large", format!("must be at most {TRANSFER_MAX}"));
    if amount > TRANSFER_MAX { Err(too_large) } else { Ok(amount) }
}
