// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A token that does what no token should
/// @notice For the tests of `Payferry`: what a transfer does is set beforehand. It counts balances honestly in the
/// modes that move money, so that a double payment would show.
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
    /// What the last re-entrant call answered.
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

    /// During the next transfer, call `target_` with `payload_`.
    function setReenter(address target_, bytes calldata payload_) external {
        mode = Mode.Reenter;
        target = target_;
        payload = payload_;
    }

    /// Call anything as this token, which may hold a role.
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
