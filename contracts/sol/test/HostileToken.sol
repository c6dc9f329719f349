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
        Reenter
    }

    Mode public mode;
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
        if (mode == Mode.ReturnFalse) return 0;
        if (mode == Mode.ReturnTwo) return 2;
        if (mode == Mode.ReturnBomb) {
            balanceOf[msg.sender] -= value;
            balanceOf[to] += value;
            assembly {
                mstore(0, 1)
                return(0, 30000)
            }
        }
        if (mode == Mode.RevertBomb) {
            assembly {
                revert(0, 30000)
            }
        }
        if (mode == Mode.BurnGas) {
            while (true) {}
        }
        if (mode == Mode.Reenter) {
            mode = Mode.Honest;
            reentries += 1;
            (reentered, answer) = target.call(payload);
            mode = Mode.Reenter;
        }
        balanceOf[msg.sender] -= value;
        balanceOf[to] += value;
        return 1;
    }
}
