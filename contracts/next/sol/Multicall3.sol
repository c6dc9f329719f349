// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Many calls in one, for sandboxes and tests only
/// @notice Has the interface that libraries expect at the address of Multicall3. It holds nothing between calls and has
/// no owner: never leave a balance or an allowance here.
contract Multicall3 {
    /// A call that must succeed, unless the function says otherwise.
    struct Call {
        address target;
        bytes callData;
    }

    /// A call that may fail if `allowFailure` is true.
    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    /// As `Call3`, with coins.
    struct Call3Value {
        address target;
        bool allowFailure;
        uint256 value;
        bytes callData;
    }

    /// Result of a call: what it returned, or the data of its revert.
    struct Result {
        bool success;
        bytes returnData;
    }

    /// Makes calls that must all succeed.
    function aggregate(Call[] calldata calls)
        external
        payable
        returns (uint256 blockNumber, bytes[] memory returnData)
    {
        blockNumber = block.number;
        returnData = new bytes[](calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            returnData[i] = _call(calls[i].target, 0, calls[i].callData, false).returnData;
        }
    }

    /// Makes calls, which must all succeed if `requireSuccess` is true.
    function tryAggregate(bool requireSuccess, Call[] calldata calls)
        external
        payable
        returns (Result[] memory returnData)
    {
        returnData = _each(requireSuccess, calls);
    }

    /// As `tryAggregate`, and returns the block. The hash of the current block is not known yet, so it is zero.
    function tryBlockAndAggregate(bool requireSuccess, Call[] calldata calls)
        external
        payable
        returns (uint256 blockNumber, bytes32 blockHash, Result[] memory returnData)
    {
        (blockNumber, blockHash) = (block.number, blockhash(block.number));
        returnData = _each(requireSuccess, calls);
    }

    /// As `tryBlockAndAggregate`, with calls that must all succeed.
    function blockAndAggregate(Call[] calldata calls)
        external
        payable
        returns (uint256 blockNumber, bytes32 blockHash, Result[] memory returnData)
    {
        (blockNumber, blockHash) = (block.number, blockhash(block.number));
        returnData = _each(true, calls);
    }

    /// Makes calls, each of which says whether it may fail.
    function aggregate3(Call3[] calldata calls) external payable returns (Result[] memory returnData) {
        returnData = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            returnData[i] = _call(calls[i].target, 0, calls[i].callData, calls[i].allowFailure);
        }
    }

    /// As `aggregate3`, with coins. Their sum must be the value of the transaction.
    function aggregate3Value(Call3Value[] calldata calls) external payable returns (Result[] memory returnData) {
        returnData = new Result[](calls.length);
        uint256 total = 0;
        for (uint256 i = 0; i < calls.length; ++i) {
            total += calls[i].value;
            returnData[i] = _call(calls[i].target, calls[i].value, calls[i].callData, calls[i].allowFailure);
        }
        require(msg.value == total, "Multicall3: value mismatch");
    }

    function getBasefee() external view returns (uint256 basefee) {
        basefee = block.basefee;
    }

    function getBlockHash(uint256 blockNumber) external view returns (bytes32 blockHash) {
        blockHash = blockhash(blockNumber);
    }

    function getBlockNumber() external view returns (uint256 blockNumber) {
        blockNumber = block.number;
    }

    function getChainId() external view returns (uint256 chainid) {
        chainid = block.chainid;
    }

    function getCurrentBlockCoinbase() external view returns (address coinbase) {
        coinbase = block.coinbase;
    }

    function getCurrentBlockDifficulty() external view returns (uint256 difficulty) {
        difficulty = block.prevrandao;
    }

    function getCurrentBlockGasLimit() external view returns (uint256 gaslimit) {
        gaslimit = block.gaslimit;
    }

    function getCurrentBlockTimestamp() external view returns (uint256 timestamp) {
        timestamp = block.timestamp;
    }

    function getEthBalance(address addr) external view returns (uint256 balance) {
        balance = addr.balance;
    }

    function getLastBlockHash() external view returns (bytes32 blockHash) {
        blockHash = blockhash(block.number - 1);
    }

    function _each(bool requireSuccess, Call[] calldata calls) private returns (Result[] memory results) {
        results = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            results[i] = _call(calls[i].target, 0, calls[i].callData, !requireSuccess);
        }
    }

    function _call(address target, uint256 value, bytes calldata callData, bool allowFailure)
        private
        returns (Result memory result)
    {
        (result.success, result.returnData) = target.call{value: value}(callData);
        require(result.success || allowFailure, "Multicall3: call failed");
    }
}
