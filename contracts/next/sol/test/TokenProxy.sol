// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title An upgrade proxy like those of the real tokens
/// @notice For gas measurements. Like the proxy of the real USDC, it reads two slots on every call: its admin and
/// its implementation.
contract TokenProxy {
    bytes32 private constant ADMIN_SLOT = keccak256("payferry.test.proxy.admin");
    bytes32 private constant CODE_SLOT = keccak256("payferry.test.proxy.code");

    constructor(address implementation) {
        bytes32 adminSlot = ADMIN_SLOT;
        bytes32 codeSlot = CODE_SLOT;
        assembly {
            sstore(adminSlot, not(0))
            sstore(codeSlot, implementation)
        }
    }

    fallback() external payable {
        bytes32 adminSlot = ADMIN_SLOT;
        bytes32 codeSlot = CODE_SLOT;
        assembly {
            if eq(caller(), sload(adminSlot)) { revert(0, 0) }
            calldatacopy(0, 0, calldatasize())
            let ok := delegatecall(gas(), sload(codeSlot), 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(ok) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}
