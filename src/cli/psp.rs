//! `payferry psp create|list|set`.

use std::process::ExitCode;

use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, FeeBps, PspId, Timestamp};
use payferry_entities::Database;

use super::database::DatabaseArgs;
use crate::config::Config;
use crate::tenants::{self, Name, PolicyChange, PspRecord, Slice};

/// PSPs read at once.
const PAGE: usize = 1_000;

/// Options of `psp`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a PSP and print its id.
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
    /// Change a PSP's policies. They hold for payments made from then on; a running service sees them within a second.
    #[command(after_help = "Examples:
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --fee-bps 50 --data-dir payferry-data
  payferry psp set psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --tolerance 0.05 --overpayment accept --data-dir payferry-data")]
    Set {
        /// Which PSP.
        psp_id: PspId,
        /// Display name.
        #[arg(long)]
        name: Option<Name>,
        #[command(flatten)]
        policies: PolicyArgs,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

#[derive(Debug, clap::Args)]
struct PolicyArgs {
    /// The treasury's share of each settlement, in basis points (100 is 1 %).
    #[arg(long, value_parser = fee)]
    fee_bps: Option<FeeBps>,
    /// How much less than due still pays, as an amount.
    #[arg(long, value_name = "AMOUNT")]
    tolerance: Option<Amount>,
    /// How much less than due still pays, in basis points; the greater of the two holds.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    tolerance_bps: Option<u16>,
    /// What happens with more than was due.
    #[arg(long)]
    overpayment: Option<Overpayment>,
    /// Whether refunds may go to the sender when no address is given.
    #[arg(long)]
    refund_to_sender: Option<bool>,
    /// Whether every payment must name its customer.
    #[arg(long)]
    require_customer: Option<bool>,
    /// Transfers below this are ignored.
    #[arg(long, value_name = "AMOUNT")]
    dust_floor: Option<Amount>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Overpayment {
    /// The payment is mismatched and the PSP decides.
    Hold,
    /// All of it is settled.
    Accept,
    /// The amount is settled, the rest goes back to the sender where that is allowed.
    RefundExcess,
}

fn fee(text: &str) -> Result<FeeBps, String> {
    let bps: u16 = text.parse().map_err(|_| "expected a whole number from 0 to 10000".to_owned())?;
    FeeBps::new(bps).ok_or_else(|| "expected a whole number from 0 to 10000".to_owned())
}

impl From<PolicyArgs> for PolicyChange {
    fn from(args: PolicyArgs) -> Self {
        let overpayment = args.overpayment.map(|policy| match policy {
            Overpayment::Hold => OverpaymentPolicy::Hold,
            Overpayment::Accept => OverpaymentPolicy::Accept,
            Overpayment::RefundExcess => OverpaymentPolicy::RefundExcess,
        });
        Self {
            fee_bps: args.fee_bps,
            tolerance: args.tolerance,
            tolerance_bps: args.tolerance_bps,
            overpayment,
            refund_to_sender: args.refund_to_sender,
            require_customer: args.require_customer,
            dust_floor: args.dust_floor,
        }
    }
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Create { name, policies, database } => {
            let database = database.open(&config).await?;
            println!("{}", tenants::create_psp(&database, &name, policies.into(), now()).await?.id);
        }
        Command::List { database } => list(&database.open(&config).await?).await?,
        Command::Set { psp_id, name, policies, database } => {
            let database = database.open(&config).await?;
            let psp = tenants::change_psp(&database, psp_id, name.as_ref(), policies.into(), now()).await?;
            println!("{}  {}", psp.id, settings(&psp)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(database: &Database) -> anyhow::Result<()> {
    for offset in (0..).step_by(PAGE) {
        let slice = Slice { limit: PAGE as u64, offset };
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

fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}
