//! Appearance of the page: the PSP's settings, with the name of the merchant or the PSP as the default.

use payferry_domain::payment::Payment;
use payferry_entities::merchants;
use payferry_httpkit::{ApiError, Away};
use payferry_journal::psps::{Checkout, Color, PspError};
use sea_orm::EntityTrait;

use crate::http::checkout::LOGOS;
use crate::http::state::AppShared;

/// Appearance of one page.
#[derive(Debug, Clone)]
pub(super) struct Brand {
    /// Name above the payment.
    pub(super) name: String,
    /// Path of the logo, relative to the page.
    pub(super) logo: Option<String>,
    /// Link back to the merchant or the PSP.
    pub(super) return_url: Option<String>,
    /// Style sheet with the colours; empty if the page has its own.
    pub(super) style: String,
}

impl Brand {
    pub(super) async fn read(app: &AppShared, payment: &Payment) -> Result<Self, ApiError> {
        let terms = &payment.terms;
        let psp = app.system.psps().get(terms.psp_id).await.map_err(|error| match error {
            PspError::Unavailable(_) => ApiError::Unavailable(Away::Database, error.to_string().into()),
            PspError::Unknown | PspError::Unreadable(..) => ApiError::internal(error),
        })?;
        let Checkout { name, color, return_url, logo } = psp.policies.checkout.clone();
        let name = match (name, terms.merchant_id) {
            (Some(name), _) => Some(name),
            (None, Some(id)) => {
                let row = merchants::Entity::find_by_id(id.to_string()).one(app.database().reader()).await?;
                row.map(|merchant| merchant.name)
            }
            (None, None) => None,
        };
        Ok(Self {
            name: name.unwrap_or_else(|| psp.name.clone()),
            logo: logo.map(|hash| format!("..{LOGOS}/{hash}")),
            return_url: return_url.map(|url| url.of(&terms.public_id())),
            style: color.map(style).unwrap_or_default(),
        })
    }
}

/// The style sheet of a colour. A colour has only hexadecimal digits, so that it cannot contain other rules.
fn style(color: Color) -> String {
    format!(":root{{--brand:{color};--onbrand:{}}}", color.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_the_colour_is_black_or_white() {
        let style = |color: &str| style(color.parse().unwrap());
        assert_eq!(style("#ffd400"), ":root{--brand:#ffd400;--onbrand:#000000}");
        assert_eq!(style("#0b6e75"), ":root{--brand:#0b6e75;--onbrand:#ffffff}");
    }
}
