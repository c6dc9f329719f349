//! `/ops/psps/{psp_id}/withdrawal-wallets`: withdrawal wallets of a PSP. In production a change takes effect after one
//! day.

use axum::extract::State;
use payferry_accounts::tenants;
use payferry_domain::{Address, Chain, PspId};
use payferry_evm::ChainSpec;
use payferry_httpkit::Answer;
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::read::{self, address as wallet};
use payferry_httpkit::extract::{Fields, JsonBody, Path};
use serde::Serialize;
use serde_json::Value;

use crate::Operator;
use crate::input::tenant_failure;
use crate::input::{only, psp_id_of};
use crate::psps::wallet_record::{EVERY_CHAIN, WalletRecord};
use crate::psps::withdrawal;

const FIELDS: [&str; 2] = ["address", "chain"];
/// Value of `address` that removes a wallet.
pub(crate) const NONE: &str = "none";

#[derive(Serialize)]
struct WalletList {
    psp_id: PspId,
    wallets: Vec<WalletRecord>,
}

/// Returns the current and the pending withdrawal wallets of a PSP.
pub(crate) async fn list(State(operator): State<Operator>, Path(psp_id): Path<String>) -> Result<Answer, ApiError> {
    let psp_id = tenants::find_psp(operator.system.database(), psp_id_of(&psp_id)?).await.map_err(tenant_failure)?.id;
    Answer::ok(&WalletList { psp_id, wallets: of(&operator, psp_id).await? })
}

/// Sets a withdrawal wallet: `{"address": "0x..." or "none", "chain": "base"}`. Without a chain it applies to all
/// chains.
pub(crate) async fn set(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let psp_id = psp_id_of(&psp_id)?;
    let asked = body.read(read_new)?;
    Answer::ok(&WalletList { psp_id, wallets: change(&operator, psp_id, asked).await? })
}

/// Chain and address that the fields name. `None` means every chain, or no wallet.
pub(crate) fn read_new(fields: &Fields<'_>) -> Option<(Option<Chain>, Option<Address>)> {
    only(fields, &FIELDS);
    let address = |value: &Value| if value == NONE { Ok(None) } else { wallet(value).map(Some) };
    let chain = |value: &Value| match read::string(value)? {
        EVERY_CHAIN => Ok(None),
        _ => read::name::<Chain>(value, "all, base, polygon, arbitrum").map(Some),
    };
    let (address, chain) = (fields.required("address", address), fields.optional("chain", chain));
    Some((chain.unwrap_or_default(), address?))
}

/// Sets a wallet for the operator. Used by the API and the page.
pub(crate) async fn change(
    operator: &Operator,
    psp_id: PspId,
    asked: (Option<Chain>, Option<Address>),
) -> Result<Vec<WalletRecord>, ApiError> {
    let system = &operator.system;
    let specs: Vec<&ChainSpec> = system.chains().running().collect();
    let now = system.clock().real_now();
    let wallets = withdrawal::set(system.database(), &specs, operator.key_mode, psp_id, asked, now).await?;
    tracing::warn!(psp.id = %psp_id, "operator changed the withdrawal wallet of PSP {psp_id}");
    Ok(WalletRecord::of_all(&wallets))
}

/// Returns the current and the pending withdrawal wallets of a PSP.
pub(crate) async fn of(operator: &Operator, psp_id: PspId) -> Result<Vec<WalletRecord>, ApiError> {
    let system = &operator.system;
    let wallets = withdrawal::list(system.database(), psp_id, system.clock().real_now()).await?;
    Ok(WalletRecord::of_all(&wallets))
}
