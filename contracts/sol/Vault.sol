// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The code behind every vault
/// @notice Owns: moving tokens out of the vault it is run in. Absent: any storage, any owner but the factory, any
/// way to call something other than `transfer`. A vault is a 34-byte clone that delegates here (see `Payferry`), so
/// `address(this)` is the vault and `msg.sender` is whoever called the vault.
contract Vault {
    /// The caller is not the factory.
    error Stranger();
    /// The token refused a transfer to `to`; `reason` is the start of what it answered (empty when it returned
    /// false, returned something else than a bool, or has no code).
    error TransferFailed(address to, bytes reason);

    /// Longest part of a token's refusal that is passed on. With the error's own 100 bytes it must not exceed the
    /// call data that `Payferry` sends, since a clone returns no more than it was sent.
    uint256 private constant REASON_BYTES_MAX = 160;

    address private immutable FACTORY = msg.sender;

    /// @notice Pay up to two receivers in one call; an amount of 0 is skipped.
    /// @return Always 1. A clone turns a revert into an ordinary return, so success needs a value that no error has.
    function pay(address token, address first, uint256 firstAmount, address second, uint256 secondAmount)
        external
        returns (uint256)
    {
        if (msg.sender != FACTORY) revert Stranger();
        if (firstAmount != 0) _transfer(token, first, firstAmount);
        if (secondAmount != 0) _transfer(token, second, secondAmount);
        return 1;
    }

    /// SafeERC20's reading of an answer: nothing (from an address that has code) or exactly `true` is success.
    /// Never more than one word of the answer is copied, however much a hostile token returns.
    function _transfer(address token, address to, uint256 amount) private {
        bool called;
        bool accepted;
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, 0xa9059cbb00000000000000000000000000000000000000000000000000000000)
            mstore(add(data, 0x04), to)
            mstore(add(data, 0x24), amount)
            called := call(gas(), token, 0, data, 0x44, 0x00, 0x20)
            switch returndatasize()
            case 0 { accepted := and(called, gt(extcodesize(token), 0)) }
            default { accepted := and(called, and(gt(returndatasize(), 0x1f), eq(mload(0x00), 1))) }
        }
        if (accepted) return;
        bytes memory reason;
        if (!called) {
            assembly ("memory-safe") {
                let size := returndatasize()
                if gt(size, REASON_BYTES_MAX) { size := REASON_BYTES_MAX }
                reason := mload(0x40)
                mstore(reason, size)
                // The encoder copies whole words: what follows the reason must be zero for a stable answer.
                calldatacopy(add(reason, 0x20), calldatasize(), REASON_BYTES_MAX)
                returndatacopy(add(reason, 0x20), 0, size)
                mstore(0x40, add(reason, add(0x20, REASON_BYTES_MAX)))
            }
        }
        revert TransferFailed(to, reason);
    }
}
