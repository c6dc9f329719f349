//! Charges of rollups for the data of a transaction, which they publish on L1: a part of its cost beside execution.

use alloy::primitives::{U256, address, keccak256};
use alloy::sol_types::SolCall;
use payferry_domain::Address;

use super::client::{ChainClient, ClientError};
use super::config::L1Data;
use super::wallet::domain_address;

/// Arbitrum precompile that returns the L1 part of a transaction's gas.
const NODE_INTERFACE: alloy::primitives::Address = address!("00000000000000000000000000000000000000c8");
/// OP stack contract that returns the L1 data fee of a transaction.
const GAS_PRICE_ORACLE: alloy::primitives::Address = address!("420000000000000000000000000000000000000F");
/// Margin for Arbitrum's L1 part of the gas limit, in percent: it varies with the price of L1 blobs.
const GAS_ROOM_PERCENT: u64 = 150;
/// Upper limit of the length of an encoded transaction without its call data.
const ENVELOPE_BYTES: usize = 120;
/// Bytes that are not zero in each word of a `settle` item: three ids, the fee's basis points, the token, two amounts.
const ITEM_WORDS: [usize; 7] = [16, 16, 16, 2, 20, 4, 3];

alloy::sol! {
    /// The part of Arbitrum's `NodeInterface` that is used.
    interface NodeInterface {
        function gasEstimateL1Component(address to, bool contractCreation, bytes calldata data) external payable returns (uint64 gasEstimateForL1, uint256 baseFee, uint256 l1BaseFeeEstimate);
    }

    /// The part of the OP stack's `GasPriceOracle` that is used.
    interface GasPriceOracle {
        function getL1Fee(bytes calldata unsignedTx) external view returns (uint256);
    }
}

/// Charge for the data of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L1Charge {
    /// Gas to add to the gas limit, with a margin.
    pub gas: u64,
    /// The whole charge, in wei.
    pub fee_wei: u128,
}

impl L1Charge {
    /// The charge as a fee per gas of a transaction whose execution may use this much gas, in wei per gas, rounded up.
    pub fn wei_per_gas(self, execution_gas: u64) -> u128 {
        self.fee_wei.div_ceil(u128::from(execution_gas.max(1)))
    }
}

impl ChainClient {
    /// Charge for a transaction to `to` with this call data.
    pub async fn l1_charge(&self, l1_data: L1Data, to: Address, input: &[u8]) -> Result<L1Charge, ClientError> {
        match l1_data {
            L1Data::None => Ok(L1Charge::default()),
            L1Data::Arbitrum => {
                let (to, data) = (super::wallet::alloy_address(to), input.to_vec().into());
                let call = NodeInterface::gasEstimateL1ComponentCall { to, contractCreation: false, data };
                let estimate = self.asked(NODE_INTERFACE, &call).await?;
                let gas = estimate.gasEstimateForL1;
                let fee = estimate.baseFee.saturating_mul(U256::from(gas));
                Ok(L1Charge { gas: gas.saturating_mul(GAS_ROOM_PERCENT) / 100, fee_wei: fee.saturating_to() })
            }
            L1Data::OpStack => {
                let data = [&[0xff; ENVELOPE_BYTES], input].concat();
                let fee =
                    self.asked(GAS_PRICE_ORACLE, &GasPriceOracle::getL1FeeCall { unsignedTx: data.into() }).await?;
                Ok(L1Charge { gas: 0, fee_wei: fee.saturating_to() })
            }
        }
    }

    /// L1 charge of one settlement in a batch of `items`, in wei.
    pub async fn l1_fee_per_settlement_wei(
        &self,
        l1_data: L1Data,
        contract: Address,
        items: usize,
    ) -> Result<u128, ClientError> {
        let charge = self.l1_charge(l1_data, contract, &sample(items)).await?;
        Ok(charge.fee_wei.div_ceil(items.max(1) as u128))
    }

    async fn asked<C: SolCall>(&self, to: alloy::primitives::Address, call: &C) -> Result<C::Return, ClientError> {
        let answer = self.call(domain_address(to), call.abi_encode()).await?;
        C::abi_decode_returns(&answer)
            .map_err(|error| ClientError::Malformed(format!("the L1 charge cannot be decoded: {error}")))
    }
}

/// Call data of the length and density of a batch of settlements.
fn sample(items: usize) -> Vec<u8> {
    let mut data = vec![0; 4];
    for word in 0..items * ITEM_WORDS.len() {
        let mut bytes = keccak256(word.to_be_bytes()).0;
        bytes[..32 - ITEM_WORDS[word % ITEM_WORDS.len()]].fill(0);
        data.extend(bytes);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_per_gas_is_rounded_up() {
        let charge = |fee_wei| L1Charge { gas: 0, fee_wei };
        assert_eq!(charge(0).wei_per_gas(100), 0);
        assert_eq!(charge(1).wei_per_gas(100), 1);
        assert_eq!(charge(200).wei_per_gas(100), 2);
        assert_eq!(charge(5).wei_per_gas(0), 5);
    }

    #[test]
    fn sample_has_the_density_of_a_batch() {
        let data = sample(50);
        assert_eq!(data.len(), 4 + 50 * 7 * 32);
        let used = data.iter().filter(|byte| **byte != 0).count();
        assert!((50 * 74..=50 * 77).contains(&used), "{used}");
    }
}
