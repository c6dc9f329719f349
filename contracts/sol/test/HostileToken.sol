// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A misbehaving token
/// @notice For the tests of `Payferry`. The effect of a transfer is configurable. Balances are correct in the modes
/// that move funds, so that a double payment would be visible.
contract HostileToken {
    enum Mode {
        Honest,
        ReturnFalse,
        ReturnTwo,
        ReturnBomb,
        RevertBomb,
        BurnGas,
        Reenter,
        TakeFee, // delivers one unit less
        Ignore // reports success and moves nothing
    }

    Mode public mode;
    /// The mode of authorizations only. Transfers stay in `mode`.
    Mode public authorizationMode;
    address public target;
    bytes public payload;
    /// Returned data of the last re-entrant call.
    bool public reentered;
    uint256 public reentries;
    bytes public answer;
    mapping(address account => uint256 balance) public balanceOf;

    function mint(address to, uint256 value) external {
        balanceOf[to] += value;
    }

    function setMode(Mode mode_) external {
        mode = mode_;
    }

    function setAuthorizationMode(Mode mode_) external {
        authorizationMode = mode_;
    }

    /// Calls `target_` with `payload_` during the next transfer.
    function setReenter(address target_, bytes calldata payload_) external {
        mode = Mode.Reenter;
        target = target_;
        payload = payload_;
    }

    /// Makes any call as this token, which may have a role.
    function run(address target_, bytes calldata data) external {
        (bool ok, bytes memory result) = target_.call(data);
        if (!ok) {
            assembly {
                revert(add(result, 0x20), mload(result))
            }
        }
    }

    function transfer(address to, uint256 value) external returns (uint256) {
        return _move(mode, msg.sender, to, value);
    }

    /// Accepts any signature.
    function receiveWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, uint8, bytes32, bytes32
    ) external returns (uint256) {
        return _move(authorizationMode, from, to, value);
    }

    function _move(Mode mode_, address from, address to, uint256 value) private returns (uint256) {
        if (mode_ == Mode.ReturnFalse) return 0;
        if (mode_ == Mode.ReturnTwo) return 2;
        if (mode_ == Mode.Ignore) return 1;
        if (mode_ == Mode.RevertBomb) {
            assembly {
                revert(0, 30000)
            }
        }
        if (mode_ == Mode.BurnGas) {
            while (true) {}
        }
        if (mode_ == Mode.Reenter) {
            mode = Mode.Honest;
            reentries += 1;
            (reentered, answer) = target.call(payload);
            mode = Mode.Reenter;
        }
        balanceOf[from] -= value;
        balanceOf[to] += mode_ == Mode.TakeFee ? value - 1 : value;
        if (mode_ == Mode.ReturnBomb) {
            assembly {
                mstore(0, 1)
                return(0, 30000)
            }
        }
        return 1;
    }
}
