//! Withdrawal wallets of a PSP: a panel of its page, and the handler of its form.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_httpkit::extract::Fields;

use crate::Operator;
use crate::page::failure::Refused;
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::Page;
use crate::page::words::{Tone, badge};
use crate::psps::page::{Site, policies_of};
use crate::psps::wallet_record::WalletRecord;
use crate::psps::wallets;

/// Fields of a wallet, named as in the API.
const FIELDS: [(&str, Sort); 2] = [("address", Sort::Text), ("chain", Sort::Text)];
const CHAINS: [(&str, &str); 4] = [
    ("all", "all chains without their own wallet"),
    ("base", "base"),
    ("polygon", "polygon"),
    ("arbitrum", "arbitrum"),
];

/// Sets a PSP's withdrawal wallet.
pub(crate) async fn set(
    State(operator): State<Operator>,
    Path(psp_id): Path<String>,
    Form(pairs): Form<Vec<(String, String)>>,
) -> Result<Response, Refused> {
    let mut site = Site::of(&operator, &psp_id).await?;
    let filled = Filled::sent(pairs);
    let body = filled.json(&FIELDS);
    let read = Fields::of_body(&body).and_then(|fields| {
        let asked = wallets::read_new(&fields);
        fields.finish(asked)
    });
    let outcome = match read {
        Ok(asked) => wallets::change(&operator, site.psp.id, asked).await,
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
