//! Parts that are removed from results before the comparison, with reasons. Everything else must be equal.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::pair::Answer;

/// Block fields of anvil only. The headers of the devchain are those of London. Base has later fields, but Polygon and
/// Arbitrum do not, so a reader of all three chains cannot rely on them. `size` refers to an encoding that the devchain
/// never makes.
pub const BLOCK_ONLY_ANVIL: [&str; 7] =
    ["blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot", "requestsHash", "size", "withdrawals", "withdrawalsRoot"];

/// Block fields that exist on both, but always differ. The devchain has no state root, its tips go to a separate
/// account, and `mixHash` is derived from the parent's hash. `extraData` contains the value that distinguishes
/// otherwise equal blocks: chains at block 0, and branches after a reorg.
pub const BLOCK_DIFFERENT: [&str; 4] = ["extraData", "miner", "mixHash", "stateRoot"];

/// Receipt fields of anvil only. Other nodes have no `blockTimestamp` there (nor is it a quantity), and `blobGasPrice`
/// only with blob transactions.
pub const RECEIPT_ONLY_ANVIL: [&str; 2] = ["blobGasPrice", "blockTimestamp"];

/// Returns the result with block hashes replaced by names, and without the fields above.
pub fn normal(node: &str, answer: &Value, names: &HashMap<String, String>) -> Value {
    match answer {
        Value::String(text) => Value::String(names.get(text).unwrap_or(text).clone()),
        Value::Array(values) => values.iter().map(|value| normal(node, value, names)).collect(),
        Value::Object(fields) => {
            let left_out = |name: &str| {
                let anvil = node == "anvil";
                let block = fields.contains_key("parentHash");
                let receipt = fields.contains_key("cumulativeGasUsed");
                block && (BLOCK_DIFFERENT.contains(&name) || anvil && BLOCK_ONLY_ANVIL.contains(&name))
                    || receipt && anvil && RECEIPT_ONLY_ANVIL.contains(&name)
            };
            let kept = fields.iter().filter(|(name, _)| !left_out(name));
            Value::Object(kept.map(|(name, value)| (name.clone(), normal(node, value, names))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Lists the differences of two results, by path.
pub fn diff(anvil: &Answer, devchain: &Answer) -> String {
    let mut out = String::new();
    match (anvil, devchain) {
        (Ok(anvil), Ok(devchain)) => walk("", Some(anvil), Some(devchain), &mut out),
        _ => write!(out, "  anvil    {anvil:?}\n  devchain {devchain:?}").unwrap(),
    }
    out
}

fn walk(path: &str, anvil: Option<&Value>, devchain: Option<&Value>, out: &mut String) {
    match (anvil, devchain) {
        (Some(Value::Object(a)), Some(Value::Object(d))) => {
            let mut names: Vec<_> = a.keys().chain(d.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                walk(&format!("{path}.{name}"), a.get(name), d.get(name), out);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(d))) => {
            for index in 0..a.len().max(d.len()) {
                walk(&format!("{path}[{index}]"), a.get(index), d.get(index), out);
            }
        }
        _ if anvil == devchain => {}
        _ => {
            let show = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
            writeln!(out, "  {path}: anvil {}, devchain {}", show(anvil), show(devchain)).unwrap();
        }
    }
}
