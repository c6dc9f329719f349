//! The PSP's policies: what it may decide, and beside it what the operator has decided about it.
//!
//! Deliberately absent: how a policy acts on a payment (`payferry_domain`), where it is kept (`crate::tenants`).

pub mod change;
pub mod show;

use std::collections::BTreeMap;

use payferry_accounts::tenants::PspRecord;
use payferry_actors::psps::EventFamilies;
use payferry_domain::Chain;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_httpkit::error::ApiError;
use payferry_operator::psps::tiers::{self, Tier};
use payferry_operator::psps::wallet_record::WalletRecord;
use payferry_operator::psps::withdrawal;
use serde::Serialize;
use utoipa::ToSchema;

use super::state::Shared;

/// What a PSP and the operator have decided about the PSP's payments.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingsRecord {
    /// How much less than due still pays, as an amount; never more than due.
    #[schema(example = "0.05")]
    tolerance: String,
    /// How much less than due still pays, in basis points; the greater of the two holds.
    tolerance_bps: u16,
    /// What happens with more than was due: `hold`, `accept` or `refund_excess`.
    #[schema(value_type = String, example = "hold")]
    overpayment: OverpaymentPolicy,
    /// Whether refunds may go to the sender when no address is given.
    refund_to_sender: bool,
    /// Whether every payment must name its customer.
    require_customer: bool,
    /// Transfers below this are ignored.
    #[schema(example = "0.001")]
    dust_floor: String,
    /// `payment.*` and `payin.*` are two names of one happening; which are sent: `both`, `payment` or `payin`.
    #[schema(value_type = String, example = "both")]
    event_families: EventFamilies,
    /// What "final" means on each chain that runs here.
    #[schema(value_type = Object)]
    finality: BTreeMap<Chain, FinalityRecord>,
    /// The treasury's share of each settlement, in basis points. Set by the operator.
    fee_bps: u16,
    /// How much may be sent. Set by the operator.
    limits: LimitsRecord,
    /// Where the account withdraws to, and will. Set by the operator.
    withdrawal_wallets: Vec<WalletRecord>,
    /// ISO 8601.
    #[schema(format = "date-time")]
    updated_at: String,
}

/// What "final" means on one chain.
#[derive(Debug, Serialize, ToSchema)]
pub struct FinalityRecord {
    /// Bands of amounts, rising; the last has no bound.
    tiers: Vec<Tier>,
    /// Whether they are the operator's, which the account follows until it sets its own.
    is_default: bool,
    /// The least that own tiers have to want.
    least: Vec<Tier>,
}

/// How much may be sent: refunds, payouts, withdrawals, transfers.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitsRecord {
    /// By one of them.
    #[schema(example = "1000000.00")]
    send_max: String,
    /// In a token on one UTC day, over all chains.
    #[schema(example = "5000000.00")]
    send_daily_max: String,
}

impl SettingsRecord {
    /// As they hold on this node.
    async fn of(app: &Shared, psp: &PspRecord) -> Result<Self, ApiError> {
        let wallets = withdrawal::list(app.database(), psp.id, app.clock().real_now()).await?;
        let policies = &psp.policies;
        let ceilings = policies.ceilings(app.system.psps().ceilings());
        let finality = app.system.chains().running().map(|spec| {
            let record = FinalityRecord {
                tiers: tiers::shown(&policies.finality_on(spec)),
                is_default: !policies.finality.contains_key(&spec.chain),
                least: tiers::shown(&spec.finality_least),
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
