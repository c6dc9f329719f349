//! What is taken out of answers before they are compared, and why. All else must be the same.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::pair::Answer;

/// Of a block, anvil alone. The devchain's headers are those of London: what came later Base has, Polygon and Arbitrum
/// have not, and nobody who reads three chains can count on it. `size` is of an encoding that the devchain never makes.
pub const BLOCK_ONLY_ANVIL: [&str; 7] =
    ["blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot", "requestsHash", "size", "withdrawals", "withdrawalsRoot"];

/// Of a block, on both and never the same. The devchain keeps no state root, its tips go to an account of its own, and
/// `mixHash` is made of the parent's hash. `extraData` is where it keeps what tells blocks apart that are otherwise
/// equal: chains at block 0, branches after a reorg.
pub const BLOCK_DIFFERENT: [&str; 4] = ["extraData", "miner", "mixHash", "stateRoot"];

/// Of a receipt, anvil alone: nodes have no `blockTimestamp` there (nor is it a quantity), and `blobGasPrice` with blob
/// transactions only.
pub const RECEIPT_ONLY_ANVIL: [&str; 2] = ["blobGasPrice", "blockTimestamp"];

/// The answer with block hashes replaced by what they name, and without the fields above.
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

/// Where two answers differ, by path.
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
