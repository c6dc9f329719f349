//! Logs by block hash or by range, with lists of addresses and topics; and the logs of new and removed blocks.

use alloy::eips::BlockNumberOrTag;
use alloy::rpc::types::{Filter, FilterBlockOption, FilterSet, Log as RpcLog};

use super::read::rpc_log;
use super::view::View;
use super::{Answer, Params, json};
use crate::block::Block;
use crate::error::RpcError;
use crate::orphans::Difference;

/// Error code of providers for a range that is too long.
const RANGE_ERROR_CODE: i64 = -32_005;

/// Maximum number of addresses and topics in a filter that is kept.
const KEPT_VALUES_MAX: usize = 1_000;

pub(super) fn by_filter(view: &View<'_>, mut params: Params) -> Answer {
    matching(view, &params.take(0, "filter")?)
}

/// Returns the logs of the filter's blocks.
pub(super) fn matching(view: &View<'_>, filter: &Filter) -> Answer {
    let mut logs = Vec::new();
    let block = match filter.block_option {
        FilterBlockOption::AtBlockHash(hash) => {
            let block = view.by_hash(&hash).ok_or_else(|| RpcError::server("unknown block"))?;
            logs.extend(of_block(block, filter));
            Some(block)
        }
        FilterBlockOption::Range { from_block, to_block } => {
            let (from, to) = range(view, from_block, to_block)?;
            let blocks = (from..=to).map_while(|number| view.chain.block(number));
            logs.extend(blocks.flat_map(|block| of_block(block, filter)));
            (from <= to).then(|| view.chain.block(to)).flatten()
        }
    };
    json(&view.engine.faults.distort(view.faults, filter, block.map(Block::reference), logs))
}

/// Returns the first and last block of the range, limited to the head like providers do. Beyond the head the range is
/// empty: the first block is after the last.
fn range(
    view: &View<'_>,
    from: Option<BlockNumberOrTag>,
    to: Option<BlockNumberOrTag>,
) -> Result<(u64, u64), RpcError> {
    let number = |tag: Option<BlockNumberOrTag>| match tag.unwrap_or_default() {
        BlockNumberOrTag::Number(number) => number,
        tag => view.chain.resolve(tag, view.head).unwrap_or(view.head),
    };
    let (from, to) = (number(from), number(to));
    if from > to {
        return Err(RpcError::new(-32_602, "invalid block range params"));
    }
    let range_max = view.faults.logs_range_blocks_max;
    if range_max > 0 && to - from >= range_max {
        let code =
            if view.faults.logs_range_error_code == 0 { RANGE_ERROR_CODE } else { view.faults.logs_range_error_code };
        return Err(RpcError::new(code, format!("query exceeds max block range {range_max}")));
    }
    Ok((from, to.min(view.head)))
}

fn of_block<'a>(block: &'a Block, filter: &'a Filter) -> impl DoubleEndedIterator<Item = RpcLog> + 'a {
    let logs = block.body.iter().flat_map(|body| body.logs.iter().enumerate().map(move |log| (body, log)));
    let matching = logs.filter(|(_, (_, entry))| filter.matches(&entry.log));
    matching.map(|(body, (index, _))| rpc_log(block, body, index))
}

/// A filter for the logs of blocks that are added or removed from now on.
pub(super) struct Follow {
    pub filter: Filter,
    from: u64,
    to: u64,
}

impl Follow {
    /// Returns an error if the filter is too large, or if its blocks cannot be followed. The messages are those of geth.
    pub(super) fn new(filter: Filter) -> Result<Self, RpcError> {
        let values = filter.address.len() + filter.topics.iter().map(FilterSet::len).sum::<usize>();
        if values > KEPT_VALUES_MAX {
            let message =
                format!("the filter has {values} addresses and topics, at most {KEPT_VALUES_MAX} are possible");
            return Err(RpcError::invalid_params(message));
        }
        let FilterBlockOption::Range { from_block, to_block } = filter.block_option else {
            return Err(RpcError::invalid_params("blockHash names one block: use eth_getLogs"));
        };
        let invalid_range = || RpcError::new(-32_602, "invalid block range params");
        // `None` is the newest block.
        let number = |tag: Option<BlockNumberOrTag>| match tag.unwrap_or_default() {
            BlockNumberOrTag::Latest => Ok(None),
            BlockNumberOrTag::Earliest => Ok(Some(0)),
            BlockNumberOrTag::Number(number) => Ok(Some(number)),
            BlockNumberOrTag::Pending => Err(RpcError::new(-32_602, "pending logs are not supported")),
            BlockNumberOrTag::Safe | BlockNumberOrTag::Finalized => Err(invalid_range()),
        };
        let (from, to) = match (number(from_block)?, number(to_block)?) {
            (from, None) => (from.unwrap_or(0), u64::MAX),
            (Some(from), Some(to)) if from <= to => (from, to),
            _ => return Err(invalid_range()),
        };
        Ok(Self { filter, from, to })
    }

    /// Returns the logs of removed blocks, the newest first, and then those of new blocks.
    pub(super) fn changes(&self, difference: &Difference<'_>) -> Vec<RpcLog> {
        let in_range = |block: &&Block| (self.from..=self.to).contains(&block.number);
        let removed = difference.removed.iter().copied().filter(in_range);
        let removed = removed.flat_map(|block| of_block(block, &self.filter).rev());
        let added = difference.added.iter().filter(in_range).flat_map(|block| of_block(block, &self.filter));
        removed.map(|log| RpcLog { removed: true, ..log }).chain(added).collect()
    }
}
