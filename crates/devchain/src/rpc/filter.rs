//! `eth_getLogs`: by block hash or by range, with lists of addresses and topics.

use alloy::eips::BlockNumberOrTag;
use alloy::rpc::types::{Filter, FilterBlockOption, Log as RpcLog};

use super::read::rpc_log;
use super::view::View;
use super::{Answer, Params, json};
use crate::block::Block;
use crate::error::RpcError;

/// Error code of providers for a range that is too long.
const RANGE_ERROR_CODE: i64 = -32_005;

pub(super) fn logs(view: &View<'_>, mut params: Params) -> Answer {
    let filter: Filter = params.take(0, "filter")?;
    let mut logs = Vec::new();
    let block = match filter.block_option {
        FilterBlockOption::AtBlockHash(hash) => {
            let block = view.by_hash(&hash).ok_or_else(|| RpcError::server("unknown block"))?;
            collect(block, &filter, &mut logs);
            Some(block)
        }
        FilterBlockOption::Range { from_block, to_block } => {
            let (from, to) = range(view, from_block, to_block)?;
            let blocks = (from..=to).map_while(|number| view.chain.block(number));
            blocks.for_each(|block| collect(block, &filter, &mut logs));
            (from <= to).then(|| view.chain.block(to)).flatten()
        }
    };
    json(&view.engine.faults.distort(view.faults, &filter, block.map(Block::reference), logs))
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

fn collect(block: &Block, filter: &Filter, logs: &mut Vec<RpcLog>) {
    let Some(body) = &block.body else { return };
    let found = body.logs.iter().enumerate().filter(|(_, entry)| filter.matches(&entry.log));
    logs.extend(found.map(|(index, _)| rpc_log(block, body, index)));
}
