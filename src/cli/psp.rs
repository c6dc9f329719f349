//! `payferry psp create|list|set`.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use payferry_actors::psps::PspPolicies;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, FeeBps, PspId, Timestamp};
use payferry_entities::{Database, psps};
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel, QueryOrder, Set};

use super::database::DatabaseArgs;
use crate::config::Config;
use crate::tenants::psp_row;

/// Longest name of a PSP, in characters.
const NAME_CHARS_MAX: usize = 200;

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
        name: String,
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
        name: Option<String>,
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

impl PolicyArgs {
    fn apply(self, policies: &mut PspPolicies) {
        let Self { fee_bps, tolerance, tolerance_bps, overpayment, refund_to_sender, require_customer, dust_floor } =
            self;
        set(&mut policies.fee_bps, fee_bps);
        set(&mut policies.tolerance.absolute, tolerance);
        set(&mut policies.tolerance.bps, tolerance_bps);
        let overpayment = overpayment.map(|policy| match policy {
            Overpayment::Hold => OverpaymentPolicy::Hold,
            Overpayment::Accept => OverpaymentPolicy::Accept,
            Overpayment::RefundExcess => OverpaymentPolicy::RefundExcess,
        });
        set(&mut policies.overpayment, overpayment);
        set(&mut policies.refund_to_sender, refund_to_sender);
        set(&mut policies.require_customer, require_customer);
        set(&mut policies.dust_floor, dust_floor);
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Create { name, policies, database } => {
            let database = database.open(&config).await?;
            create(&database, &name, policies).await?;
        }
        Command::List { database } => list(&database.open(&config).await?).await?,
        Command::Set { psp_id, name, policies, database } => {
            let database = database.open(&config).await?;
            change(&database, psp_id, name, policies).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(database: &Database, name: &str, args: PolicyArgs) -> anyhow::Result<()> {
    let mut policies = PspPolicies::default();
    args.apply(&mut policies);
    let id = PspId::generate();
    let row = psp_row(id, checked(name)?, &policies, now())?;
    psps::Entity::insert(row.into_active_model()).exec_without_returning(database.writer()).await?;
    println!("{id}");
    Ok(())
}

async fn list(database: &Database) -> anyhow::Result<()> {
    for row in psps::Entity::find().order_by_asc(psps::Column::CreatedAt).all(database.reader()).await? {
        println!("{}  {}  {}", row.id, row.name, row.settings);
    }
    Ok(())
}

async fn change(database: &Database, id: PspId, name: Option<String>, args: PolicyArgs) -> anyhow::Result<()> {
    let txn = database.begin().await?;
    let row = psps::Entity::find_by_id(id.to_string()).one(&txn).await?;
    let row = row.with_context(|| format!("there is no PSP {id}"))?;
    let mut policies: PspPolicies =
        serde_json::from_str(&row.settings).with_context(|| format!("the settings of {id} are unreadable"))?;
    args.apply(&mut policies);
    let mut row = row.into_active_model();
    if let Some(name) = name {
        row.name = Set(checked(&name)?.to_owned());
    }
    let settings = serde_json::to_string(&policies)?;
    println!("{id}  {settings}");
    row.settings = Set(settings);
    row.updated_at = Set(now().as_millis());
    row.update(&txn).await?;
    txn.commit().await?;
    Ok(())
}

fn checked(name: &str) -> anyhow::Result<&str> {
    let name = name.trim();
    ensure!(!name.is_empty() && name.chars().count() <= NAME_CHARS_MAX, "a name has 1 to {NAME_CHARS_MAX} characters");
    Ok(name)
}

fn now() -> Timestamp {
    Timestamp::from(chrono::Utc::now())
}
