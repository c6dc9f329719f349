//! `/ops/psps/{psp_id}/withdrawal-wallets`: withdrawal wallets of a PSP. In production a change takes effect after one
//! day.

use axum::Form;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
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
use crate::input::{only, psp_id_of, tenant_failure};
use crate::page::failure::Refused;
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::Page;
use crate::page::words::{Tone, badge};
use crate::psps::page::{PspPage, policies_of};
use crate::psps::withdrawal::{self, EVERY_CHAIN, WalletRecord};

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

/// Fields of a wallet, named as in the API.
const FORM_FIELDS: [(&str, Sort); 2] = [("address", Sort::Text), ("chain", Sort::Text)];
const CHAINS: [(&str, &str); 4] = [
    ("all", "all chains without their own wallet"),
    ("base", "base"),
    ("polygon", "polygon"),
    ("arbitrum", "arbitrum"),
];

/// Sets a PSP's withdrawal wallet.
pub(crate) async fn set_by_form(
    State(operator): State<Operator>,
    UrlPath(psp_id): UrlPath<String>,
    Form(pairs): Form<Vec<(String, String)>>,
) -> Result<Response, Refused> {
    let mut site = PspPage::of(&operator, &psp_id).await?;
    let filled = Filled::sent(pairs);
    let body = filled.json(&FORM_FIELDS);
    let read = Fields::of_body(&body).and_then(|fields| {
        let asked = read_new(&fields);
        fields.finish(asked)
    });
    let outcome = match read {
        Ok(asked) => change(&operator, site.psp.id, asked).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to(&format!("{}/{}?done=wallet", path("psps"), site.psp.id)).into_response()),
        Err(error) => {
            site.wallet = filled.refused(error)?;
            let page = site.page(&site.wallet.summary(), &policies_of(&site.psp), &Filled::default());
            Ok(Page { status: StatusCode::UNPROCESSABLE_ENTITY, ..page }.into_response())
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
                    thead { tr { th scope="col" { "Chain" } th scope="col" { "Address" } th scope="col" { "State" } th.n.wide scope="col" { "From" } } }
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
                    div { button.danger { "Set wallet" } }
                }
            }
        }
    }
}
