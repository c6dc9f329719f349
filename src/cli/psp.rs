//! `payferry psp create|list|set`.

use std::process::ExitCode;

use anyhow::bail;
use payferry_accounts::tenants::{self, LimitChange, Name, OwnOrDefault, PolicyChange, PspRecord, Slice};
use payferry_domain::payment::{OverpaymentPolicy, PayerRefunds};
use payferry_domain::{Address, Amount, Chain, FeeBps, PspId};
use payferry_entities::Database;
use payferry_httpkit::read;
use payferry_journal::psps::wallets::Wallets;
use payferry_journal::psps::{DUST_FLOOR_MAX, EventFamilies, PspPolicies};
use payferry_operator::psps::withdrawal::{self, WalletRecord};

use super::database::DatabaseArgs;
use super::{now, one_of};
use crate::config::Config;

/// Reason why a command refuses a change.
const FOUR_EYES: &str = "a second operator has to approve it, because `operators.four_eyes` is true";
/// PSPs per page.
const PAGE: usize = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create a PSP and print its id.
    #[command(after_help = "Examples:
  payferry psp create --name 'Northern Pay' --database-url payferry.db
  payferry psp create --name 'Northern Pay' --fee-bps 80 --require-customer true --data-dir payferry-data")]
    Create {
        /// Display name.
        #[arg(long)]
        name: Name,
        #[command(flatten)]
        policies: PolicyArgs,
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// List the PSPs and their policies.
    #[command(after_help = "Example:\n  payferry psp list --data-dir payferry-data")]
    List {
        #[command(flatten)]
        database: DatabaseArgs,
    },
    /// Change a PSP's policies. They apply to new payments; a running service uses them within a second.
    #[command(after_help = "Examples:
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --fee-bps 50 --data-dir payferry-data
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --tolerance 0.05 --overpayment accept --data-dir payferry-data
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --send-max 5000 --send-daily-max 20000 --data-dir payferry-data
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --refund-elsewhere-daily-max 2500 --data-dir payferry-data
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --withdrawal-wallet 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")]
    Set {
        /// Id of the PSP.
        psp_id: PspId,
        /// Display name.
        #[arg(long)]
        name: Option<Name>,
        #[command(flatten)]
        policies: PolicyArgs,
        #[command(flatten)]
        wallet: WalletArgs,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct WalletArgs {
    /// Address to withdraw to, or none. In production a new address takes effect after 24 hours.
    #[arg(long, value_name = "ADDRESS", value_parser = wallet)]
    withdrawal_wallet: Option<Wallet>,
    /// Set the address on this chain only [default: on every chain without its own address].
    #[arg(long, value_name = "CHAIN", requires = "withdrawal_wallet")]
    withdrawal_chain: Option<Chain>,
}

/// An address, or none.
type Wallet = Option<Address>;

fn wallet(text: &str) -> Result<Wallet, String> {
    if text == "none" {
        return Ok(None);
    }
    read::address(&text.into()).map(Some).map_err(|fault| fault.message.into_owned())
}

#[derive(Debug, clap::Args)]
pub(super) struct PolicyArgs {
    /// The treasury's share of each settlement, in basis points (100 is 1 %).
    #[arg(long, value_parser = fee)]
    fee_bps: Option<FeeBps>,
    /// Accepted shortfall of a payment, as an amount.
    #[arg(long, value_name = "AMOUNT")]
    tolerance: Option<Amount>,
    /// Accepted shortfall of a payment, in basis points; the greater of the two applies.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    tolerance_bps: Option<u16>,
    /// Surplus that is excess instead of an overpayment, as an amount.
    #[arg(long, value_name = "AMOUNT")]
    overpayment_tolerance: Option<Amount>,
    /// Surplus that is excess instead of an overpayment, in basis points; the greater of the two applies.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    overpayment_tolerance_bps: Option<u16>,
    /// Policy for payments above the amount due and the tolerance.
    #[arg(long, value_parser = one_of(OVERPAYMENT_POLICIES))]
    overpayment: Option<OverpaymentPolicy>,
    /// Allow refunds to the sender's address when no address is given.
    #[arg(long)]
    refund_to_sender: Option<bool>,
    /// Requests of payers for refunds of late, wrong or excess money.
    #[arg(long, value_parser = one_of(PAYER_REFUNDS))]
    payer_refunds: Option<PayerRefunds>,
    /// Require a customer on every payment.
    #[arg(long)]
    require_customer: Option<bool>,
    /// Ignore transfers below this amount; at most 1.
    #[arg(long, value_name = "AMOUNT", value_parser = dust_floor)]
    dust_floor: Option<Amount>,
    /// Event names to send where an event has two: payment.*, payin.* or both.
    #[arg(long, value_parser = one_of(EVENT_FAMILIES))]
    event_families: Option<EventFamilies>,
    /// Maximum of one payout, withdrawal or transfer: an amount, or `default` for the configured one.
    #[arg(long, value_name = "AMOUNT")]
    send_max: Option<OwnOrDefault<Amount>>,
    /// Maximum of payouts and withdrawals in one token per UTC day over all chains: an amount, or `default` for the
    /// configured one.
    #[arg(long, value_name = "AMOUNT")]
    send_daily_max: Option<OwnOrDefault<Amount>>,
    /// Maximum of refunds to other addresses than the payer's in one token per UTC day: an amount, or `default` for the
    /// configured one. Refunds above it wait for the operator's approval.
    #[arg(long, value_name = "AMOUNT")]
    refund_elsewhere_daily_max: Option<OwnOrDefault<Amount>>,
}

const EVENT_FAMILIES: &[(EventFamilies, &str, &str)] = &[
    (EventFamilies::Both, "both", "Both"),
    (EventFamilies::Payment, "payment", "payment.*, and events that have only one name"),
    (EventFamilies::Payin, "payin", "payin.*, and events that have only one name"),
];
const OVERPAYMENT_POLICIES: &[(OverpaymentPolicy, &str, &str)] = &[
    (OverpaymentPolicy::Hold, "hold", "The payment becomes mismatched and the PSP decides"),
    (OverpaymentPolicy::Accept, "accept", "The whole amount received is settled"),
    (
        OverpaymentPolicy::RefundExcess,
        "refund-excess",
        "The amount due is settled; the excess is refunded to the sender where that is allowed",
    ),
];

const PAYER_REFUNDS: &[(PayerRefunds, &str, &str)] = &[
    (PayerRefunds::Off, "off", "Payers cannot ask"),
    (PayerRefunds::Approve, "approve", "Every request waits for the PSP"),
    (
        PayerRefunds::Sender,
        "sender",
        "A request that the sending account signed is carried out at once; others wait for the PSP",
    ),
];

fn fee(text: &str) -> Result<FeeBps, String> {
    let bps: u16 = text.parse().map_err(|_| "expected a whole number from 0 to 10000".to_owned())?;
    FeeBps::new(bps).ok_or_else(|| "expected a whole number from 0 to 10000".to_owned())
}

fn dust_floor(text: &str) -> Result<Amount, String> {
    let amount: Amount = text.parse().map_err(|error: payferry_domain::money::AmountError| error.to_string())?;
    if amount > DUST_FLOOR_MAX { Err(format!("must be at most {DUST_FLOOR_MAX}")) } else { Ok(amount) }
}

impl From<PolicyArgs> for PolicyChange {
    fn from(args: PolicyArgs) -> Self {
        Self {
            fee_bps: args.fee_bps,
            tolerance: args.tolerance,
            tolerance_bps: args.tolerance_bps,
            overpayment_tolerance: args.overpayment_tolerance,
            overpayment_tolerance_bps: args.overpayment_tolerance_bps,
            overpayment: args.overpayment,
            refund_to_sender: args.refund_to_sender,
            payer_refunds: args.payer_refunds,
            require_customer: args.require_customer,
            dust_floor: args.dust_floor,
            event_families: args.event_families,
            limits: LimitChange {
                send_max: args.send_max,
                send_daily_max: args.send_daily_max,
                refund_elsewhere_daily_max: args.refund_elsewhere_daily_max,
            },
            ..Self::default()
        }
    }
}

pub(super) async fn run(command: Command, config: Config) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { name, policies, database } => {
            let database = database.open(&config).await?;
            let change = PolicyChange::from(policies);
            refuse_raised(&config, change.limits, &PspPolicies::default(), "/ops/view/psps")?;
            println!("{}", tenants::create_psp(&database, &name, change, now()).await?.id);
        }
        Command::List { database } => list(&database.open(&config).await?).await?,
        Command::Set { psp_id, name, policies, wallet, database: args } => {
            let database = args.open(&config).await?;
            let change = PolicyChange::from(policies);
            let page = format!("/ops/view/psps/{psp_id}");
            if config.operators.four_eyes && wallet.withdrawal_wallet.is_some() {
                bail!("--withdrawal-wallet: {FOUR_EYES}; change it on the operator's page {page}");
            }
            let before = tenants::find_psp(&database, psp_id).await?;
            refuse_raised(&config, change.limits, &before.policies, &page)?;
            // The address comes first: if it is refused, nothing is changed.
            let wallets = set_wallet(&database, &args, &config, psp_id, &wallet).await?;
            let psp = tenants::change_psp(&database, psp_id, name.as_ref(), change, now()).await?;
            println!("{}  {}", psp.id, settings(&psp)?);
            for WalletRecord { chain, address, status, effective_at, .. } in WalletRecord::of_all(&wallets) {
                println!("withdraws on {chain} to {address}, {status} from {effective_at}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses limits above the present ones while a second operator has to approve them.
fn refuse_raised(config: &Config, limits: LimitChange, policies: &PspPolicies, page: &str) -> anyhow::Result<()> {
    let (raised, _) = limits.split_raised(policies, config.limits.ceilings());
    if config.operators.four_eyes && !raised.is_empty() {
        bail!("a limit would be raised: {FOUR_EYES}; raise it on the operator's page {page}");
    }
    Ok(())
}

/// Sets the withdrawal wallet if requested. Returns the PSP's wallets.
async fn set_wallet(
    database: &Database,
    args: &DatabaseArgs,
    config: &Config,
    psp_id: PspId,
    asked: &WalletArgs,
) -> anyhow::Result<Wallets> {
    let Some(address) = asked.withdrawal_wallet else {
        return Ok(withdrawal::list(database, psp_id, now()).await?);
    };
    let (specs, mode) = (args.specs(config)?, args.mode(config));
    let specs: Vec<_> = specs.iter().collect();
    let asked = (asked.withdrawal_chain, address);
    Ok(withdrawal::set(database, &specs, mode, psp_id, asked, now()).await?)
}

async fn list(database: &Database) -> anyhow::Result<()> {
    for offset in (0..).step_by(PAGE) {
        let slice = Slice { limit: PAGE as u64, offset, after: None };
        let (total, psps) = tenants::list_psps(database, slice).await?;
        for psp in psps {
            println!("{}  {}  {}", psp.id, psp.name, settings(&psp)?);
        }
        if offset + PAGE as u64 >= total {
            break;
        }
    }
    Ok(())
}

fn settings(psp: &PspRecord) -> serde_json::Result<String> {
    serde_json::to_string(&psp.policies)
}
