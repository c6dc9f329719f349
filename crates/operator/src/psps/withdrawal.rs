//! `/ops/psps/{psp_id}/withdrawal-wallets`: withdrawal wallets of PSPs, set by the operator's listener, its page or the
//! command line. In production a change takes effect after one day.

use axum::extract::Path as UrlPath;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::keys::KeyMode;
use payferry_accounts::tenants;
use payferry_actors::chain::Watchlist;
use payferry_actors::destination::{self, Unsuitable};
use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::{Database, Transaction};
use payferry_evm::ChainSpec;
use payferry_evm::wallet::checksummed;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::lists::{Page, PageParams};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{
    Answer, ApiError, JsonBody, Path, Problem, QueryFields, RequestBody as _, Rule, read, request, rule,
};
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets::{
    self, PspWallet, WALLET_DELAY_SECS, WalletChange, WalletError, WalletState, Wallets,
};
use payferry_runtime::request;
use sea_orm::DbErr;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::approvals::action::ApprovalAction;
use crate::approvals::store::Proposal;
use crate::approvals::{self, Guarded, ProposedAction};
use crate::input::{id_of, tenant_failure, unknown};
use crate::page::form::{Filled, Sort};
use crate::page::words::{Tone, badge, head};
use crate::page::{Refused, path};
use crate::psps::page::{PspPage, policies_of};

/// Fields of the form of a wallet.
const FIELDS: [(&str, Sort); 2] = [("address", Sort::Text), ("chain", Sort::Text)];
/// Value of `address` that removes a wallet.
pub(crate) const NONE: &str = "none";

/// An address, or `none`.
const WALLET: Rule<Option<Address>> = Rule {
    read: |value| if value == NONE { Ok(None) } else { read::address(value).map(Some) },
    schema: || rule::string().pattern(Some("^(none|0x[0-9a-fA-F]{40})$")),
};

/// A chain, or all chains without a wallet of their own.
#[derive(Debug, Clone, Copy)]
pub struct OnChain(Option<Chain>);

/// See [`OnChain`].
const ON_CHAIN: Rule<OnChain> = Rule {
    read: |value| match read::string(value)? {
        EVERY_CHAIN => Ok(OnChain(None)),
        _ => read::word(value, "all, base, polygon, arbitrum").map(|chain| OnChain(Some(chain))),
    },
    schema: || rule::one_of([EVERY_CHAIN].into_iter().chain(Chain::ALL.iter().map(|chain| chain.as_str()))),
};

request! {
    /// A withdrawal wallet to set or to remove.
    pub struct WalletRequest refusing(unknown::<WalletRequest>) {
        /// The address; `none` removes the wallet.
        address: Option<Address> = required(WALLET).example("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
        /// `all`, the default, is every chain without a wallet of its own.
        chain: Option<OnChain> = optional(ON_CHAIN),
    }
}

impl WalletRequest {
    fn wallet(self) -> (Option<Chain>, Option<Address>) {
        (self.chain.and_then(|on| on.0), self.address)
    }
}

/// A page of the withdrawal wallets of a PSP.
#[derive(Serialize, ToSchema)]
pub struct WalletList {
    psp_id: String,
    total: usize,
    /// Pass it as `cursor` to get the next page; null on the last page.
    next_cursor: Option<String>,
    /// First those for every chain, and the current one before the pending one.
    wallets: Vec<WalletRecord>,
}

/// List the withdrawal wallets of a PSP
#[utoipa::path(
    get, path = "/ops/psps/{psp_id}/withdrawal-wallets", tag = "Administration", operation_id = "listWallets",
    params(("psp_id" = String, Path, description = "The id of the PSP."), PageParams),
    responses((status = 200, description = "The current and the pending wallets.", body = WalletList), UnreadableQuery),
)]
pub(crate) async fn show(
    operator: Operator,
    Path(psp_id): Path<String>,
    query: QueryFields,
) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let page = Page::read("wallets", query)?;
    let psp_id = tenants::find_psp(operator.system.database(), psp_id).await.map_err(tenant_failure)?.id;
    let all = of(&operator, psp_id).await?;
    let total = all.len();
    let rest = all.into_iter().filter(|wallet| page.after.is_none_or(|after| wallet.key() > after));
    let mut wallets: Vec<_> = rest.skip(page.offset.try_into().unwrap_or(usize::MAX)).collect();
    let next_cursor = page.next_cursor(&mut wallets, WalletRecord::key)?;
    Answer::ok(&WalletList { psp_id: psp_id.to_string(), total, next_cursor, wallets })
}

/// Set a withdrawal wallet
///
/// In production, a change takes effect after one day.
#[utoipa::path(
    post, path = "/ops/psps/{psp_id}/withdrawal-wallets", tag = "Administration", operation_id = "setWallet",
    request_body = WalletRequest, params(("psp_id" = String, Path, description = "The id of the PSP.")),
    responses(
        (status = 200, description = "The current and the pending wallets.", body = WalletList),
        (status = 202, description = "The change waits for approval.", body = ProposedAction),
        (status = 409, description = "`approval_open`: another change of this wallet waits for approval.", body = Problem),
    ),
)]
pub(crate) async fn change(operator: Operator, Path(psp_id): Path<String>, body: JsonBody) -> Result<Answer, ApiError> {
    let psp_id = id_of("psp_id", &psp_id)?;
    let wallet = body.parse::<WalletRequest>()?.wallet();
    match set_by_operator(&operator, psp_id, wallet).await? {
        Guarded::CarriedOut(wallets) => {
            let (psp_id, total) = (psp_id.to_string(), wallets.len());
            Answer::ok(&WalletList { psp_id, total, next_cursor: None, wallets })
        }
        Guarded::Proposed(approval) => approvals::proposed(&operator, &approval),
    }
}

/// Sets a wallet for the operator, or proposes the change if it needs a second one. Used by the API and the page.
async fn set_by_operator(
    operator: &Operator,
    psp_id: PspId,
    wallet: (Option<Chain>, Option<Address>),
) -> Result<Guarded<Vec<WalletRecord>>, ApiError> {
    let system = &operator.system;
    let now = system.clock().real_now();
    suitable_for(operator, wallet.1).await?;
    let transaction = system.database().begin().await?;
    if operator.config.four_eyes {
        tenants::lock_psp(&transaction, psp_id).await.map_err(tenant_failure)?;
        let (chain, address) = wallet;
        let subject_state = approvals::action::wallet_state(&transaction, psp_id, chain, now).await?;
        let last = subject_state["pending_wallet"].as_str().or(subject_state["current_wallet"].as_str());
        if last == address.map(checksummed).as_deref() {
            return Ok(Guarded::CarriedOut(of(operator, psp_id).await?));
        }
        let action = ApprovalAction::WithdrawalWallet { psp_id, chain, address };
        let proposal = Proposal { action, psp_id, subject_state, reason: request::reason() };
        let approval = approvals::store::propose(&transaction, proposal, now).await?;
        transaction.commit().await?;
        approvals::announce(&approval);
        return Ok(Guarded::Proposed(Box::new(approval)));
    }
    set_in(&transaction, operator.config.key_mode, psp_id, wallet, now).await?;
    transaction.commit().await?;
    changed(psp_id);
    Ok(Guarded::CarriedOut(of(operator, psp_id).await?))
}

/// Refuses an address that withdrawals must not go to.
pub(crate) async fn suitable_for(operator: &Operator, address: Option<Address>) -> Result<(), WithdrawalWalletError> {
    let system = &operator.system;
    let specs: Vec<&ChainSpec> = system.chains().running().collect();
    suitable(system.database(), &specs, address).await
}

/// Logs a changed wallet, after its commit.
pub(crate) fn changed(psp_id: PspId) {
    tracing::warn!(psp.id = %psp_id, "operator changed the withdrawal wallet of PSP {psp_id}");
}

/// Returns the current and the pending withdrawal wallets of a PSP.
pub(crate) async fn of(operator: &Operator, psp_id: PspId) -> Result<Vec<WalletRecord>, WithdrawalWalletError> {
    let system = &operator.system;
    let wallets = list(system.database(), psp_id, system.clock().real_now()).await?;
    Ok(WalletRecord::of_all(&wallets))
}

/// Choices of the form's chain.
const CHAINS: [(&str, &str); 4] = [
    ("all", "all chains without their own wallet"),
    ("base", "base"),
    ("polygon", "polygon"),
    ("arbitrum", "arbitrum"),
];

pub(crate) async fn set_by_form(
    operator: Operator,
    UrlPath(psp_id): UrlPath<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let mut site = PspPage::of(&operator, &psp_id).await?;
    let outcome =
        async { set_by_operator(&operator, site.psp.id, filled.read(&FIELDS, WalletRequest::read)?.wallet()).await };
    match filled.answered(outcome.await)? {
        Ok(Guarded::CarriedOut(_)) => {
            Ok(Redirect::to(&format!("{}/{}?done=wallet", path("psps"), site.psp.id)).into_response())
        }
        Ok(Guarded::Proposed(approval)) => Ok(approvals::page::redirect(&approval)),
        Err(refused) => {
            site.wallet = refused.filled;
            let page = site.page(&refused.said, &policies_of(&site.psp), &Filled::default());
            Ok(page.answer_form(refused.status))
        }
    }
}

/// Withdrawal wallets, with a form to change them.
pub(super) fn panel(here: &str, wallets: &[WalletRecord], filled: &Filled) -> Markup {
    html! {
        section.panel #wallets aria-labelledby="its-wallets" {
            header { h2 #its-wallets { "Withdrawal wallets" } p { "in production a change takes effect after one day" } }
            @if wallets.is_empty() { p.none { "None. The PSP cannot withdraw." } } @else {
                table {
                    (head(&[("", "Chain"), ("", "Address"), ("", "State"), ("n wide", "From")]))
                    tbody {
                        @for wallet in wallets {
                            tr id={ "wallet-" (wallet.chain) "-" (wallet.status) } {
                                th scope="row" { (wallet.chain) }
                                td.mono { (wallet.address) }
                                td { (badge(wallet.status, if wallet.status == "effective" { Tone::Good } else { Tone::Warn })) }
                                td.n.wide { (wallet.effective_at) }
                            }
                        }
                    }
                }
            }
            div.body {
                form.stack #new-wallet method="post" action={ (here) "/withdrawal-wallets" } {
                    div.pair {
                        (filled.line("address", "Address (none: remove the wallet)", "0x…", true))
                        (filled.choice("chain", "Chain", &CHAINS))
                    }
                    (filled.sign("who asked for it", "The PSP has confirmed this address"))
                    div { button.danger { "Set wallet" } }
                }
            }
        }
    }
}

/// Delay until a new wallet becomes effective; none in the sandbox.
const fn delay_secs(mode: KeyMode) -> i64 {
    match mode {
        KeyMode::Live => WALLET_DELAY_SECS,
        KeyMode::Test => 0,
    }
}

/// Sets a PSP's withdrawal wallet (`None` removes it) on one chain, or with `None` as chain on every chain without a
/// wallet of its own. `specs` are the known chains: an address of the service on one of them is refused.
pub async fn set(
    database: &Database,
    specs: &[&ChainSpec],
    mode: KeyMode,
    psp_id: PspId,
    wallet: (Option<Chain>, Option<Address>),
    now: Timestamp,
) -> Result<Wallets, WithdrawalWalletError> {
    suitable(database, specs, wallet.1).await?;
    let transaction = database.begin().await?;
    set_in(&transaction, mode, psp_id, wallet, now).await?;
    transaction.commit().await?;
    list(database, psp_id, now).await
}

/// Sets a wallet in a transaction that the caller commits, after a check of the address.
pub(crate) async fn set_in(
    transaction: &Transaction,
    mode: KeyMode,
    psp_id: PspId,
    (chain, address): (Option<Chain>, Option<Address>),
    now: Timestamp,
) -> Result<(), WithdrawalWalletError> {
    let change = WalletChange { chain, address, delay_secs: delay_secs(mode) };
    wallets::change(transaction, psp_id, change, &Actor::Operator, now).await?;
    Ok(())
}

/// Refuses an address that is not a wallet. `specs` are the known chains.
async fn suitable(
    database: &Database,
    specs: &[&ChainSpec],
    address: Option<Address>,
) -> Result<(), WithdrawalWalletError> {
    let Some(address) = address else { return Ok(()) };
    let specs = specs.iter().copied();
    match destination::unsuitable(database, &Watchlist::default(), specs, address).await? {
        Some(reason) => Err(WithdrawalWalletError::Unsuitable(address, reason)),
        None => Ok(()),
    }
}

/// Reads a PSP's current and pending withdrawal wallets.
pub async fn list(database: &Database, psp_id: PspId, now: Timestamp) -> Result<Wallets, WithdrawalWalletError> {
    Ok(wallets::load(database.reader(), psp_id, now).await?)
}

/// Error of reading or setting a withdrawal wallet.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawalWalletError {
    /// Money must not be sent to this address.
    #[error("{address} {reason}", address = checksummed(*.0), reason = .1)]
    Unsuitable(Address, Unsuitable),
    /// The wallet could not be read or changed.
    #[error(transparent)]
    Wallet(#[from] WalletError),
    /// The database is not available.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
}

impl From<WithdrawalWalletError> for ApiError {
    fn from(error: WithdrawalWalletError) -> Self {
        match error {
            WithdrawalWalletError::Unsuitable(_, reason) => Self::field("address", reason.code(), reason.to_string()),
            WithdrawalWalletError::Wallet(WalletError::NoPsp(_)) => Self::NotFound("psp"),
            WithdrawalWalletError::Wallet(error @ WalletError::Unreadable(_)) => Self::internal(error),
            WithdrawalWalletError::Wallet(WalletError::Database(error)) | WithdrawalWalletError::Database(error) => {
                error.into()
            }
        }
    }
}

/// Name for all chains without a wallet of their own.
pub const EVERY_CHAIN: &str = "all";

/// A current or pending withdrawal wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WalletRecord {
    /// The chain, or `all`: every chain without a wallet of its own.
    #[schema(example = "all")]
    pub chain: &'static str,
    /// Address of the wallet.
    #[schema(example = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")]
    pub address: String,
    /// `effective`, or `pending` until `effective_at`. If you did not request a pending wallet, inform the operator
    /// immediately.
    pub status: &'static str,
    /// When it becomes or became effective.
    #[schema(format = "date-time")]
    pub effective_at: String,
    /// When the operator set it.
    #[schema(format = "date-time")]
    pub set_at: String,
}

impl WalletRecord {
    /// Lists all wallets: first those for every chain, and the current one before the pending one.
    pub fn of_all(wallets: &Wallets) -> Vec<Self> {
        let each = wallets.iter().flat_map(|(chain, WalletState { current, pending })| {
            let record = |wallet: &Option<PspWallet>, status| wallet.map(|wallet| Self::of(*chain, wallet, status));
            [record(current, "effective"), record(pending, "pending")]
        });
        each.flatten().collect()
    }

    /// Position in the list of all wallets.
    fn key(&self) -> (Option<Chain>, bool) {
        (self.chain.parse().ok(), self.status == "pending")
    }

    fn of(chain: Option<Chain>, wallet: PspWallet, status: &'static str) -> Self {
        Self {
            chain: chain.map_or(EVERY_CHAIN, Chain::as_str),
            address: checksummed(wallet.address),
            status,
            effective_at: wallet.effective_at.to_string(),
            set_at: wallet.set_at.to_string(),
        }
    }
}
