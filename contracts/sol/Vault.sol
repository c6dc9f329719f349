// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {transferToken} from "./SafeToken.sol";

/// @title The code behind every vault
/// @notice Moves tokens and swept native coin out of the vault that executes it. Not here: storage, any owner except
/// the factory, any way to call anything except `transfer` of a token. A vault is a 40-byte clone that delegates to
/// this code (see `Payferry`), so `address(this)` is the vault and `msg.sender` is the caller of the vault.
///
/// Vaults refuse native coin: no function is payable, there is no fallback, and a clone reverts if this code does.
contract Vault {
    /// The caller is not the factory.
    error Stranger();
    /// The recipient refused the native coin.
    error SweepRefused();

    address private immutable FACTORY = msg.sender;

    modifier onlyFactory() {
        if (msg.sender != FACTORY) revert Stranger();
        _;
    }

    /// @notice Pays up to two recipients in one call. An amount of 0 is skipped.
    function pay(address token, address first, uint256 firstAmount, address second, uint256 secondAmount)
        external
        onlyFactory
    {
        if (firstAmount != 0) transferToken(token, first, firstAmount);
        if (secondAmount != 0) transferToken(token, second, secondAmount);
    }

    /// @notice Sends all native coin to `to`. It can be here only by force: from a contract that destroyed itself, as a
    /// block reward, or sent before the clone was deployed.
    function sweep(address payable to) external onlyFactory {
        (bool accepted,) = to.call{value: address(this).balance}("");
        if (!accepted) revert SweepRefused();
    }
}
