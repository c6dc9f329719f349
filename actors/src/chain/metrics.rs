//! Metrics of chains; those of endpoints are in `payferry_evm`. Labels are chains and kinds that are listed here; never
//! an address, an id or a block number.

use payferry_domain::{Chain, Timestamp};
use payferry_evm::Degradation;
use payferry_runtime::observe::MetricType;

use super::watchlist::ChainView;

payferry_runtime::metrics! {
    Gauge HEAD_NUMBER = "payferry_chain_head_number", "Number of the newest block that an endpoint reported.";
    Gauge(Seconds) HEAD_AGE = "payferry_chain_head_age_seconds", "Age of that block at the last poll.";
    Gauge WALLETS_WATCHED = "payferry_chain_wallets_watched",
        "Watched wallets in memory: of live payments, and of payments that ended recently.";
    Gauge READ_NUMBER = "payferry_chain_read_number", "Number of the last block read completely.";
    Counter BLOCKS_READ = "payferry_chain_blocks_read_total",
        "Blocks read completely; counted again if they are read again after a reorganisation.";
    Gauge READ_LAG = "payferry_chain_read_lag_blocks", "Blocks between the newest one and the last one read.";
    Gauge RESCAN_NUMBER = "payferry_chain_second_look_number", "Number of the last rescanned block.";
    Gauge DEGRADATION = "payferry_chain_trouble", "1 while a chain cannot be read for a reason of this kind.";
    Counter REORGS = "payferry_chain_reorgs_total", "Reorganisations.";
    Histogram REORG_DEPTH = "payferry_chain_reorg_depth_blocks", "Blocks orphaned by a reorganisation.";
    Counter LOGS_MISSED = "payferry_chain_logs_missed_total",
        "Transfers to payments that an endpoint omitted and a rescan found.";
    Counter LOGS_LEFT_OUT = "payferry_chain_logs_left_out_total",
        "Logs of watched tokens that an endpoint omitted and the block's receipts had.";
    Counter LOGS_REPEATED = "payferry_chain_logs_repeated_total", "Logs that an endpoint returned more than once.";
    Counter POLLS_FAILED = "payferry_chain_looks_failed_total", "Failed polls of a chain, by kind of error.";
    Counter LOGS_FORGED = "payferry_chain_logs_forged_total",
        "Transfers to payments that an endpoint reported and no transaction emitted.";
    Counter DISAGREEMENTS = "payferry_chain_disagreements_total",
        "Transfers of large payments held because two endpoints did not agree on them.";
    Gauge TRANSFERS_HELD = "payferry_chain_held_transfers",
        "Final transfers of large payments that wait until two endpoints agree on them.";
    Counter TRANSFERS = "payferry_chain_transfers_total", "Transfers to payments recorded.";
    Gauge QUEUED = "payferry_settler_queued_operations", "Operations waiting for a transaction.";
    Gauge OPEN = "payferry_settler_open_transactions", "Own transactions that are not final.";
    Gauge UNMINED = "payferry_settler_unmined_transactions", "Own transactions that are not mined.";
    Gauge BLOCKED = "payferry_settler_trouble", "1 while settling is blocked.";
    Counter SUBMITTED = "payferry_settler_submitted_total", "Transactions signed and sent.";
    Counter REPLACED = "payferry_settler_replaced_total", "Unmined transactions signed again with higher fees.";
    Counter REVERTED = "payferry_settler_reverted_total", "Transactions that reverted.";
    Counter ORPHANED = "payferry_settler_taken_back_total", "Transactions with an orphaned block.";
    Counter MINED = "payferry_settler_mined_total", "Transactions mined, counted again after a reorganisation.";
    Counter GAS_USED = "payferry_settler_gas_used_total", "Gas used by own transactions.";
    Counter GAS_SPENT = "payferry_settler_gas_spent_gwei_total",
        "Cost of that gas, in billionths of the native coin.";
    Gauge GAS_BALANCE = "payferry_settler_gas_balance_gwei",
        "Last read balance of the account that pays for gas, in billionths of the native coin; of two accounts the \
         lower one.";
    Counter OPERATIONS_FAILED = "payferry_settler_operations_failed_total", "Operations that failed permanently.";
}

const WEI_PER_GWEI: u128 = 1_000_000_000;

/// Label of a chain.
pub(crate) fn of(chain: Chain) -> [(&'static str, &'static str); 1] {
    [("chain", chain.as_str())]
}

fn of_kind(chain: Chain, kind: Degradation) -> [(&'static str, &'static str); 2] {
    [("chain", chain.as_str()), ("kind", kind.as_str())]
}

/// Exports every counter of a configured chain at 0, and the held transfers.
pub(crate) fn register(chain: Chain, endpoints: usize) {
    let counters = ALL.iter().filter(|metric| metric.r#type == MetricType::Counter);
    for counter in counters.filter(|counter| counter.name != POLLS_FAILED.name) {
        counter.register(&of(chain));
    }
    for kind in Degradation::ALL {
        POLLS_FAILED.register(&of_kind(chain, kind));
    }
    REORG_DEPTH.register(&of(chain));
    TRANSFERS_HELD.register(&of(chain));
    payferry_evm::metrics::register(chain, endpoints);
}

/// Records the watcher's view of a chain.
pub(super) fn record_view(view: &ChainView, now: Timestamp) {
    let chain = of(view.chain);
    HEAD_NUMBER.set_count(&chain, view.head_number);
    READ_NUMBER.set_count(&chain, view.read_number);
    READ_LAG.set_count(&chain, view.head_number.saturating_sub(view.read_number));
    head_age(view, now);
}

/// Records the age of the head, also without a new poll.
#[allow(clippy::cast_precision_loss, reason = "ages are far below 2^52 ms")]
pub(crate) fn head_age(view: &ChainView, now: Timestamp) {
    HEAD_AGE.set(&of(view.chain), view.head_age_ms(now) as f64 / 1_000.0);
}

/// Records the kind of error that prevents reading a chain, if any.
pub(super) fn record_degradation(chain: Chain, degradation: Option<Degradation>) {
    for kind in Degradation::ALL {
        DEGRADATION.set_count(&of_kind(chain, kind), u64::from(Some(kind) == degradation));
    }
}

/// Resets the gauges of a chain on which another node works.
pub(crate) fn forget(chain: Chain) {
    for gauge in [READ_LAG, TRANSFERS_HELD, QUEUED, OPEN, UNMINED] {
        gauge.set_count(&of(chain), 0);
    }
    record_degradation(chain, None);
    // An unknown balance is not 0, which would be an alarm.
    GAS_BALANCE.set(&of(chain), f64::NAN);
}

/// Counts a failed poll.
pub(super) fn poll_failed(chain: Chain, kind: Degradation) {
    POLLS_FAILED.add(&of_kind(chain, kind), 1);
}

/// Records the gas of a mined transaction; fractions of a gwei are dropped.
pub(super) fn gas(chain: Chain, used: u64, price_wei: u128) {
    let spent_gwei = u128::from(used).saturating_mul(price_wei) / WEI_PER_GWEI;
    GAS_USED.add(&of(chain), used);
    GAS_SPENT.add(&of(chain), u64::try_from(spent_gwei).unwrap_or(u64::MAX));
}

#[allow(
    clippy::cast_precision_loss,
    reason = "the gauge shows that an account runs out of gas; a gwei does not matter"
)]
pub(super) fn gas_balance(chain: Chain, wei: u128) {
    GAS_BALANCE.set(&of(chain), (wei / WEI_PER_GWEI) as f64);
}
