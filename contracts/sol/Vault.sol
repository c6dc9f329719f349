// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The code behind every vault
/// @notice Moves tokens out of the vault that executes it. Not here: storage, any owner except the factory, any way
/// to call anything except `transfer`. A vault is a 34-byte clone that delegates to this code (see `Payferry`), so
/// `address(this)` is the vault and `msg.sender` is the caller of the vault.
contract Vault {
    /// The caller is not the factory.
    error Stranger();
    /// The token rejected a transfer to `to`. `reason` is the start of the returned data (empty if the token returned
    /// false, returned something other than a bool, or has no code).
    error TransferFailed(address to, bytes reason);

    /// Maximum length of a token's reason that is returned. With the 100 bytes of the error it must not exceed the
    /// call data that `Payferry` sends, because a clone returns at most as many bytes as it received.
    uint256 private constant REASON_BYTES_MAX = 160;

    address private immutable FACTORY = msg.sender;

    /// @notice Pays up to two recipients in one call. An amount of 0 is skipped.
    /// @return Always 1. A clone turns a revert into a normal return, so success needs a value that no error has.
    function pay(address token, address first, uint256 firstAmount, address second, uint256 secondAmount)
        external
        returns (uint256)
    {
        if (msg.sender != FACTORY) revert Stranger();
        if (firstAmount != 0) _transfer(token, first, firstAmount);
        if (secondAmount != 0) _transfer(token, second, secondAmount);
        return 1;
    }

    /// Checks the result like SafeERC20: success is no data (from an address with code) or exactly `true`. At most
    /// one word of the returned data is copied, however much a hostile token returns.
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
                // The encoder copies whole words, so the bytes after the reason must be zero for a stable result.
                calldatacopy(add(reason, 0x20), calldatasize(), REASON_BYTES_MAX)
                returndatacopy(add(reason, 0x20), 0, size)
                mstore(0x40, add(reason, add(0x20, REASON_BYTES_MAX)))
            }
        }
        revert TransferFailed(to, reason);
    }
}
