//! Reads the gas balance of the settler's accounts periodically, in a task beside the settler.
//!
//! Deliberately absent: consequences. A settler that cannot pay reports it by itself (`SettlerHandle::trouble`).

use std::time::Duration;

use payferry_evm::client::ClientError;

use super::metrics;
use super::settler::SettlerArgs;

/// Interval of reads: an account lasts for days, and each read is a request to an endpoint.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Runs until it is dropped. Keeps the last value on read errors.
pub(super) async fn refresh_until_dropped(args: SettlerArgs) {
    let chain = args.spec.chain;
    loop {
        match poorest(&args).await {
            Ok(wei) => {
                args.handle.weighed(wei);
                metrics::gas_balance(chain, wei);
            }
            // The watcher reports failing endpoints.
            Err(error) => tracing::debug!(%chain, %error, "the gas balance of the signer on {chain} could not be read"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn poorest(args: &SettlerArgs) -> Result<u128, ClientError> {
    let mut least = u128::MAX;
    for payer in args.payers() {
        let held = args.client.balance_wei(payer).await?;
        least = least.min(u128::try_from(held).unwrap_or(u128::MAX));
    }
    Ok(least)
}
