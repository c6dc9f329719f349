//! The chain as shown by the endpoint: with its real head or with an older one.

use payferry_devchain::Devchain;
use serde_json::{Value, json};

pub(super) struct View<'a> {
    pub(super) chain: &'a Devchain,
    /// The newest visible block.
    pub(super) head: Option<u64>,
}

type Answer = Result<Value, (i64, String)>;

impl View<'_> {
    pub(super) async fn call(&self, method: &str, mut params: Value) -> Answer {
        let Some(head) = self.head else { return self.straight(method, params).await };
        let hidden = |block: &Value| number(&block["number"]).or(number(&block["blockNumber"])) > Some(head);
        match method {
            "eth_blockNumber" => Ok(hex(head)),
            "eth_getBlockByNumber" => {
                if matches!(params[0].as_str(), Some("latest" | "pending")) {
                    params[0] = hex(head);
                }
                let is_tag = number(&params[0]).is_none();
                let block = self.straight(method, params).await?;
                match (hidden(&block), is_tag) {
                    (false, _) => Ok(block),
                    (true, false) => Ok(Value::Null),
                    (true, true) => self.straight(method, json!([hex(head), false])).await,
                }
            }
            "eth_getBlockByHash" | "eth_getTransactionReceipt" | "eth_getTransactionByHash" => {
                let found = self.straight(method, params).await?;
                Ok(if hidden(&found) { Value::Null } else { found })
            }
            "eth_getBlockReceipts" => {
                let found = self.straight(method, params).await?;
                Ok(if hidden(&found[0]) { Value::Null } else { found })
            }
            "eth_getLogs" => {
                if params[0]["blockHash"].is_string() {
                    let block = self.straight("eth_getBlockByHash", json!([params[0]["blockHash"], false])).await?;
                    if hidden(&block) {
                        return Err((-32_000, "unknown block".to_owned()));
                    }
                } else if number(&params[0]["fromBlock"]) > Some(head) {
                    return Ok(json!([]));
                } else if number(&params[0]["toBlock"]).is_none_or(|to| to > head) {
                    params[0]["toBlock"] = hex(head);
                }
                self.straight(method, params).await
            }
            _ => {
                // The block tag is the last parameter of methods that read state.
                if let Some(tag) = params.as_array_mut().and_then(|params| params.last_mut())
                    && tag == "latest"
                {
                    *tag = hex(head);
                }
                self.straight(method, params).await
            }
        }
    }

    /// Places logs without a block into the last block of the filter.
    pub(super) async fn placed(&self, mut logs: Vec<Value>, filter: &Value) -> Value {
        let (method, id) = if filter["blockHash"].is_string() {
            ("eth_getBlockByHash", filter["blockHash"].clone())
        } else {
            ("eth_getBlockByNumber", filter["toBlock"].clone())
        };
        let block = self.call(method, json!([id, false])).await.unwrap_or(Value::Null);
        for log in logs.iter_mut().filter(|log| log["blockHash"].is_null()) {
            log["blockHash"] = block["hash"].clone();
            log["blockNumber"] = block["number"].clone();
        }
        Value::Array(logs)
    }

    async fn straight(&self, method: &str, params: Value) -> Answer {
        self.chain.call(method, params).await.map_err(|error| (error.code, error.message))
    }
}

fn hex(number: u64) -> Value {
    json!(format!("{number:#x}"))
}

fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}
