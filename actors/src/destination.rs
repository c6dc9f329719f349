//! Addresses that money must never be sent to: ours, the tokens' own, and nobody's.
//!
//! Deliberately absent: screening (who an address belongs to is the KYT provider's business), and checksums of what a caller
//! wrote.

use payferry_domain::Address;
use payferry_entities::{Database, payments, psps};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter, QuerySelect};

use crate::chain::ChainSpec;
use crate::wallet::Vaults;

/// Why an address must not be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// The zero address: what goes there is gone.
    #[error("is the zero address")]
    Zero,
    /// A token's contract, or a look-alike's.
    #[error("is the contract of a token")]
    Token,
    /// The settlement contract.
    #[error("is the settlement contract of this service")]
    Contract,
    /// Where fees go.
    #[error("is the treasury of this service")]
    Treasury,
    /// The vault of a payment or of a PSP: it would be money of that one.
    #[error("is a vault of this service")]
    Vault,
}

impl Unsuitable {
    /// The reason, for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Zero => "zero_address",
            Self::Token => "token_contract",
            Self::Contract => "service_contract",
            Self::Treasury => "treasury_address",
            Self::Vault => "service_vault",
        }
    }
}

/// Why an address must not be sent to, if so, as far as it can be told without the database.
pub fn unsuitable_by_itself<'a>(
    specs: impl IntoIterator<Item = &'a ChainSpec>,
    address: Address,
) -> Option<Unsuitable> {
    if address == Address([0; 20]) {
        return Some(Unsuitable::Zero);
    }
    // On any chain: an address is the same on all of them.
    specs.into_iter().find_map(|spec| {
        let is_token = spec.watched_contracts().any(|token| token == address);
        let is_treasury = spec.treasury == address;
        let is_contract = spec.contract == address;
        let own =
            [(is_token, Unsuitable::Token), (is_contract, Unsuitable::Contract), (is_treasury, Unsuitable::Treasury)];
        own.into_iter().find_map(|(is, reason)| is.then_some(reason))
    })
}

/// Why an address must not be sent to, if so.
pub async fn unsuitable<'a>(
    database: &Database,
    specs: impl IntoIterator<Item = &'a ChainSpec> + Clone,
    address: Address,
) -> Result<Option<Unsuitable>, DbErr> {
    if let Some(reason) = unsuitable_by_itself(specs.clone(), address) {
        return Ok(Some(reason));
    }
    let of_payment = payments::Entity::find().filter(payments::Column::Wallet.eq(address.to_string()));
    if of_payment.count(database.reader()).await? > 0 {
        return Ok(Some(Unsuitable::Vault));
    }
    // Their vaults are nowhere written down: they follow from the ids.
    let ids: Vec<String> =
        psps::Entity::find().select_only().column(psps::Column::Id).into_tuple().all(database.reader()).await?;
    let is_of_psp = specs.into_iter().any(|spec| {
        let vaults = Vaults::new(spec.contract);
        ids.iter().filter_map(|id| id.parse().ok()).any(|id| vaults.of_psp(id) == address)
    });
    Ok(is_of_psp.then_some(Unsuitable::Vault))
}
