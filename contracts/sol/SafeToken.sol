// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The token rejected a transfer to `to`. `reason` is the start of the returned data (empty if the token returned
/// false, returned something other than a bool, or has no code).
error TransferFailed(address to, bytes reason);

// Maximum length of a token's reason that is returned. With the 100 bytes of the error it must not exceed the call
// data that `Payferry` sends to a vault, because a clone returns at most as many bytes as it received.
uint256 constant TOKEN_REASON_BYTES_MAX = 160;

/// Transfers `amount` of this contract's tokens. Checks the result like SafeERC20: success is no data (from an address
/// with code) or exactly `true`. At most one word of the returned data is copied, however much a hostile token returns.
function transferToken(address token, address to, uint256 amount) {
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
    if (!accepted) revert TransferFailed(to, called ? bytes("") : returnedData(TOKEN_REASON_BYTES_MAX));
}

/// Returns the balance of `account`, or reverts if the token does not return a word.
function tokenBalance(address token, address account) view returns (uint256 held) {
    bool valid;
    assembly ("memory-safe") {
        mstore(0x00, 0x70a0823100000000000000000000000000000000000000000000000000000000)
        mstore(0x04, account)
        // Arguments are evaluated from right to left: first the call, then the size of its result.
        valid := and(gt(returndatasize(), 0x1f), staticcall(gas(), token, 0x00, 0x24, 0x00, 0x20))
        held := mload(0x00)
    }
    if (!valid) revert TransferFailed(account, "");
}

/// Returns the data of the last call, cut to `bytesMax`. Only what is copied costs gas.
function returnedData(uint256 bytesMax) pure returns (bytes memory data) {
    assembly ("memory-safe") {
        let size := returndatasize()
        if gt(size, bytesMax) { size := bytesMax }
        data := mload(0x40)
        let end := add(add(data, 0x20), size)
        // The encoder copies whole words, so the bytes after the data must be zero for a stable result.
        mstore(end, 0)
        mstore(data, size)
        returndatacopy(add(data, 0x20), 0, size)
        mstore(0x40, and(add(end, 0x3f), not(0x1f)))
    }
}
