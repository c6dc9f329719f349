//! Metrics of chains: every name with its unit and help text; those of endpoints are in `payferry_evm`. Labels are
//! chains and kinds that are listed here; never an address, an id or a block number.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use payferry_domain::{Chain, Timestamp};
use payferry_evm::Degradation;

use super::watchlist::ChainView;

const HEAD_NUMBER: &str = "payferry_chain_head_number";
const HEAD_AGE: &str = "payferry_chain_head_age_seconds";
const WALLETS_WATCHED: &str = "payferry_chain_wallets_watched";
const READ_NUMBER: &str = "payferry_chain_read_number";
const READ_LAG: &str = "payferry_chain_read_lag_blocks";
const SECOND_LOOK_NUMBER: &str = "payferry_chain_second_look_number";
const TROUBLE: &str = "payferry_chain_trouble";
const REORGS: &str = "payferry_chain_reorgs_total";
pub(crate) const REORG_DEPTH: &str = "payferry_chain_reorg_depth_blocks";
const LOGS_MISSED: &str = "payferry_chain_logs_missed_total";
const LOGS_LEFT_OUT: &str = "payferry_chain_logs_left_out_total";
const LOGS_REPEATED: &str = "payferry_chain_logs_repeated_total";
const LOOKS_FAILED: &str = "payferry_chain_looks_failed_total";
const LOGS_FORGED: &str = "payferry_chain_logs_forged_total";
const TRANSFERS: &str = "payferry_chain_transfers_total";
const QUEUED: &str = "payferry_settler_queued_operations";
const OPEN: &str = "payferry_settler_open_transactions";
const UNMINED: &str = "payferry_settler_unmined_transactions";
const TROUBLED: &str = "payferry_settler_trouble";
const SUBMITTED: &str = "payferry_settler_submitted_total";
const REPLACED: &str = "payferry_settler_replaced_total";
const REVERTED: &str = "payferry_settler_reverted_total";
const ORPHANED_TRANSACTIONS: &str = "payferry_settler_taken_back_total";
const MINED: &str = "payferry_settler_mined_total";
const GAS_USED: &str = "payferry_settler_gas_used_total";
const GAS_SPENT: &str = "payferry_settler_gas_spent_gwei_total";
const GAS_BALANCE: &str = "payferry_settler_gas_balance_gwei";
const OPERATIONS_FAILED: &str = "payferry_settler_operations_failed_total";

/// Counters with the chain as their only label.
const COUNTERS: [&str; 14] = [
    REORGS,
    LOGS_MISSED,
    LOGS_LEFT_OUT,
    LOGS_REPEATED,
    LOGS_FORGED,
    TRANSFERS,
    SUBMITTED,
    REPLACED,
    REVERTED,
    ORPHANED_TRANSACTIONS,
    MINED,
    GAS_USED,
    GAS_SPENT,
    OPERATIONS_FAILED,
];

const WEI_PER_GWEI: u128 = 1_000_000_000;

/// Registers the help texts.
pub(crate) fn describe() {
    payferry_evm::metrics::describe();
    describe_gauge!(HEAD_NUMBER, "Number of the newest block that an endpoint reported.");
    describe_gauge!(HEAD_AGE, Unit::Seconds, "Age of that block at the last poll.");
    describe_gauge!(
        WALLETS_WATCHED,
        "Watched wallets in memory: of live payments, and of payments that ended recently."
    );
    describe_gauge!(READ_NUMBER, "Number of the last block read completely.");
    describe_gauge!(READ_LAG, "Blocks between the newest one and the last one read.");
    describe_gauge!(SECOND_LOOK_NUMBER, "Number of the last rescanned block.");
    describe_gauge!(TROUBLE, "1 while a chain cannot be read for a reason of this kind.");
    describe_counter!(REORGS, "Reorganisations.");
    describe_histogram!(REORG_DEPTH, "Blocks orphaned by a reorganisation.");
    describe_counter!(LOGS_MISSED, "Transfers to payments that an endpoint omitted and a rescan found.");
    describe_counter!(LOGS_LEFT_OUT, "Logs of watched tokens that an endpoint omitted and the block's receipts had.");
    describe_counter!(LOGS_REPEATED, "Logs that an endpoint returned more than once.");
    describe_counter!(LOOKS_FAILED, "Failed polls of a chain, by kind of error.");
    describe_counter!(LOGS_FORGED, "Transfers to payments that an endpoint reported and no transaction emitted.");
    describe_counter!(TRANSFERS, "Transfers to payments recorded.");
    describe_gauge!(QUEUED, "Operations waiting for a transaction.");
    describe_gauge!(OPEN, "Own transactions that are not final.");
    describe_gauge!(UNMINED, "Own transactions that are not mined.");
    describe_gauge!(TROUBLED, "1 while settling is blocked.");
    describe_counter!(SUBMITTED, "Transactions signed and sent.");
    describe_counter!(REPLACED, "Unmined transactions signed again with higher fees.");
    describe_counter!(REVERTED, "Transactions that reverted.");
    describe_counter!(ORPHANED_TRANSACTIONS, "Transactions with an orphaned block.");
    describe_counter!(MINED, "Transactions mined, counted again after a reorganisation.");
    describe_counter!(GAS_USED, "Gas used by own transactions.");
    describe_counter!(GAS_SPENT, "Cost of that gas, in billionths of the native coin.");
    describe_gauge!(
        GAS_BALANCE,
        "Last read balance of the account that pays for gas, in billionths of the native coin; of two accounts the \
         lower one."
    );
    describe_counter!(OPERATIONS_FAILED, "Operations that failed permanently.");
}

/// Exports every counter of a configured chain at 0: an alert on an increase does not fire if a counter first appears
/// at 1.
pub(crate) fn register(chain: Chain, endpoints: usize) {
    for name in COUNTERS {
        counter!(name, "chain" => chain.as_str()).increment(0);
    }
    for kind in Degradation::ALL {
        counter!(LOOKS_FAILED, "chain" => chain.as_str(), "kind" => kind.as_str()).increment(0);
    }
    payferry_evm::metrics::register(chain, endpoints);
}

/// Records the watcher's view of a chain.
#[allow(clippy::cast_precision_loss, reason = "block numbers are far below 2^52")]
pub(super) fn record_view(view: &ChainView, now: Timestamp) {
    let chain = view.chain.as_str();
    gauge!(HEAD_NUMBER, "chain" => chain).set(view.head_number as f64);
    gauge!(READ_NUMBER, "chain" => chain).set(view.read_number as f64);
    gauge!(READ_LAG, "chain" => chain).set(view.head_number.saturating_sub(view.read_number) as f64);
    head_age(view, now);
}

/// Records the age of the head, also without a new poll.
#[allow(clippy::cast_precision_loss, reason = "ages are far below 2^52 ms")]
pub(crate) fn head_age(view: &ChainView, now: Timestamp) {
    gauge!(HEAD_AGE, "chain" => view.chain.as_str()).set(view.head_age_ms(now) as f64 / 1_000.0);
}

/// Records the number of watched wallets.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn wallets_watched(count: usize) {
    gauge!(WALLETS_WATCHED).set(count as f64);
}

/// Records the kind of error that prevents reading a chain, if any.
pub(super) fn record_degradation(chain: Chain, trouble: Option<Degradation>) {
    for kind in Degradation::ALL {
        let is = f64::from(u8::from(Some(kind) == trouble));
        gauge!(TROUBLE, "chain" => chain.as_str(), "kind" => kind.as_str()).set(is);
    }
}

#[allow(clippy::cast_precision_loss, reason = "block numbers are far below 2^52")]
pub(super) fn record_rescan(chain: Chain, number: u64) {
    gauge!(SECOND_LOOK_NUMBER, "chain" => chain.as_str()).set(number as f64);
}

#[allow(clippy::cast_precision_loss, reason = "depths are far below 2^52")]
pub(super) fn reorganised(chain: Chain, depth: usize) {
    counter!(REORGS, "chain" => chain.as_str()).increment(1);
    histogram!(REORG_DEPTH, "chain" => chain.as_str()).record(depth as f64);
}

pub(super) fn logs_left_out(chain: Chain, count: usize) {
    counter!(LOGS_LEFT_OUT, "chain" => chain.as_str()).increment(count as u64);
}

pub(super) fn logs_repeated(chain: Chain, count: usize) {
    counter!(LOGS_REPEATED, "chain" => chain.as_str()).increment(count as u64);
}

pub(super) fn look_failed(chain: Chain, kind: Degradation) {
    counter!(LOOKS_FAILED, "chain" => chain.as_str(), "kind" => kind.as_str()).increment(1);
}

pub(super) fn logs_missed(chain: Chain, count: usize) {
    counter!(LOGS_MISSED, "chain" => chain.as_str()).increment(count as u64);
}

pub(super) fn logs_forged(chain: Chain, count: usize) {
    counter!(LOGS_FORGED, "chain" => chain.as_str()).increment(count as u64);
}

pub(super) fn transfers(chain: Chain, count: usize) {
    counter!(TRANSFERS, "chain" => chain.as_str()).increment(count as u64);
}

/// Records the settler's open transactions.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn settling(chain: Chain, open: usize, unmined: usize) {
    gauge!(OPEN, "chain" => chain.as_str()).set(open as f64);
    gauge!(UNMINED, "chain" => chain.as_str()).set(unmined as f64);
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn queued(chain: Chain, count: u64) {
    gauge!(QUEUED, "chain" => chain.as_str()).set(count as f64);
}

pub(super) fn settler_trouble(chain: Chain, is: bool) {
    gauge!(TROUBLED, "chain" => chain.as_str()).set(f64::from(u8::from(is)));
}

pub(super) fn submitted(chain: Chain) {
    counter!(SUBMITTED, "chain" => chain.as_str()).increment(1);
}

/// Records the gas of a mined transaction; fractions of a gwei are dropped.
pub(super) fn gas(chain: Chain, used: u64, price_wei: u128) {
    let spent_gwei = u128::from(used).saturating_mul(price_wei) / WEI_PER_GWEI;
    counter!(GAS_USED, "chain" => chain.as_str()).increment(used);
    counter!(GAS_SPENT, "chain" => chain.as_str()).increment(u64::try_from(spent_gwei).unwrap_or(u64::MAX));
}

#[allow(
    clippy::cast_precision_loss,
    reason = "the gauge shows that an account runs out of gas; a gwei does not matter"
)]
pub(super) fn gas_balance(chain: Chain, wei: u128) {
    gauge!(GAS_BALANCE, "chain" => chain.as_str()).set((wei / WEI_PER_GWEI) as f64);
}

pub(super) fn mined(chain: Chain) {
    counter!(MINED, "chain" => chain.as_str()).increment(1);
}

pub(super) fn replaced(chain: Chain) {
    counter!(REPLACED, "chain" => chain.as_str()).increment(1);
}

pub(super) fn reverted(chain: Chain) {
    counter!(REVERTED, "chain" => chain.as_str()).increment(1);
}

pub(super) fn record_orphaned(chain: Chain) {
    counter!(ORPHANED_TRANSACTIONS, "chain" => chain.as_str()).increment(1);
}

pub(super) fn operation_failed(chain: Chain) {
    counter!(OPERATIONS_FAILED, "chain" => chain.as_str()).increment(1);
}
