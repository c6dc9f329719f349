// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A contract wallet with the key of one owner (ERC-1271)
/// @notice For the tests of `Payferry`. A signature is the owner's 65 bytes followed by one more, so that it has no form
/// with v, r and s.
contract SmartWallet {
    address private immutable OWNER;

    constructor(address owner) {
        OWNER = owner;
    }

    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        if (signature.length != 66) return 0;
        address signer = ecrecover(digest, uint8(signature[64]), bytes32(signature[:32]), bytes32(signature[32:64]));
        return signer == OWNER ? this.isValidSignature.selector : bytes4(0);
    }
}
