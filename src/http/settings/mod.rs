//! The PSP's policies: those it decides, and those the operator has set for it.
//!
//! `payferry_domain` applies policies to payments, and `payferry_accounts::tenants` stores them.

pub mod change;
pub mod show;

use std::collections::BTreeMap;

use payferry_accounts::tenants::PspRecord;
use payferry_domain::Chain;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_httpkit::error::ApiError;
use payferry_journal::psps::EventFamilies;
use payferry_operator::psps::policies::{self, Tier};
use payferry_operator::psps::withdrawal::{self, WalletRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::state::Shared;

/// Settings of the PSP's payments, as decided by the PSP and the operator.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingsRecord {
    /// Accepted underpayment, as an amount; never more than the due amount.
    #[schema(example = "0.05")]
    tolerance: String,
    /// Accepted underpayment, in basis points of the due amount; the greater of the two applies.
    tolerance_bps: u16,
    /// Treatment of overpayments: `hold`, `accept` or `refund_excess`.
    #[schema(value_type = String, example = "hold")]
    overpayment: OverpaymentPolicy,
    /// True if refunds without an address may go to the sender.
    refund_to_sender: bool,
    /// True if every payment must name its customer.
    require_customer: bool,
    /// Transfers below this are ignored.
    #[schema(example = "0.001")]
    dust_floor: String,
    /// Which event names are sent: `both`, `payment` or `payin`. `payment.*` and `payin.*` are two names of the same
    /// event.
    #[schema(value_type = String, example = "both")]
    event_families: EventFamilies,
    /// Required finality on each running chain.
    #[schema(value_type = Object)]
    finality: BTreeMap<Chain, FinalityRecord>,
    /// The treasury's share of each settlement, in basis points. Set by the operator.
    fee_bps: u16,
    /// Limits of outbound transfers. Set by the operator.
    limits: LimitsRecord,
    /// The account's current and pending withdrawal wallets. Set by the operator.
    withdrawal_wallets: Vec<WalletRecord>,
    /// ISO 8601.
    #[schema(format = "date-time")]
    updated_at: String,
}

/// Required finality on one chain.
#[derive(Debug, Serialize, ToSchema)]
pub struct FinalityRecord {
    /// Bands of ascending amounts; the last has no upper bound.
    tiers: Vec<Tier>,
    /// True if these are the operator's bands, which apply until the account sets its own.
    is_default: bool,
    /// The minimum that the account's own bands must require.
    least: Vec<Tier>,
}

/// Limits of outbound transfers: refunds, payouts, withdrawals, transfers.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitsRecord {
    /// Maximum amount of a single outbound transfer.
    #[schema(example = "1000000.00")]
    send_max: String,
    /// Maximum amount in a token on one UTC day, over all chains.
    #[schema(example = "5000000.00")]
    send_daily_max: String,
}

impl SettingsRecord {
    /// The settings as they apply on this node.
    async fn of(app: &Shared, psp: &PspRecord) -> Result<Self, ApiError> {
        let wallets = withdrawal::list(app.database(), psp.id, app.clock().real_now()).await?;
        let policies = &psp.policies;
        let ceilings = policies.ceilings(app.system.psps().ceilings());
        let finality = app.system.chains().running().map(|spec| {
            let record = FinalityRecord {
                tiers: policies::shown(&policies.finality_on(spec.chain, spec.finality, spec.finality_least)),
                is_default: !policies.finality.contains_key(&spec.chain),
                least: policies::shown(&spec.finality_least),
            };
            (spec.chain, record)
        });
        Ok(Self {
            tolerance: policies.tolerance.absolute.to_string(),
            tolerance_bps: policies.tolerance.bps,
            overpayment: policies.overpayment,
            refund_to_sender: policies.refund_to_sender,
            require_customer: policies.require_customer,
            dust_floor: policies.dust_floor.to_string(),
            event_families: policies.event_families,
            finality: finality.collect(),
            fee_bps: policies.fee_bps.get(),
            limits: LimitsRecord {
                send_max: ceilings.send_max.to_string(),
                send_daily_max: ceilings.send_daily_max.to_string(),
            },
            withdrawal_wallets: WalletRecord::of_all(&wallets),
            updated_at: psp.updated_at.to_string(),
        })
    }
}
