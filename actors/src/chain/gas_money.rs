//! What the settler's account holds to pay for gas with: looked at now and then, beside the settler, which waits for none of it.
//!
//! Deliberately absent: what follows from it. A settler that cannot pay says so by itself (`SettlerHandle::trouble`).

use std::time::Duration;

use payferry_evm::client::ClientError;

use super::metrics;
use super::settler::SettlerArgs;

/// How often it is looked at: an account is emptied in days, and each look is a request to an endpoint.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// Looks until it is dropped. What was read last stands while nothing can be read.
pub(super) async fn weigh(args: SettlerArgs) {
    let chain = args.spec.chain;
    loop {
        match poorest(&args).await {
            Ok(wei) => {
                args.handle.weighed(wei);
                metrics::gas_balance(chain, wei);
            }
            // Endpoints that fail are told of by the watcher.
            Err(error) => tracing::debug!(%chain, %error, "the signer's gas money on {chain} could not be read"),
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
