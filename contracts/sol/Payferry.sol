// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vault} from "./Vault.sol";

/// @title Payferry: vaults, settlements and outbound transfers
/// @notice Defines the address of every vault and who may move funds out of it, and ensures that each operation
/// succeeds at most once. Not here: balances and fees (they are in the service's ledger), upgrades, and any way for
/// the settler role to choose a recipient.
///
/// A vault is an address derived from this contract and a salt. Nothing is deployed there until funds must leave.
/// Then a permanent clone is deployed, which late funds and further operations use again. If this contract is
/// deployed through the canonical CREATE2 deployer with the same constructor arguments, it and all its vaults have
/// the same address on every chain.
contract Payferry {
    /// One settlement. The PSP is identified by the salt of its vault, not by an address, so that a stolen settler
    /// key can pay only PSP vaults and the treasury.
    struct SettleItem {
        uint256 number; // operation number; settle and send share the numbers
        bytes32 vaultSalt; // the payment's vault
        address token;
        bytes32 pspSalt; // the PSP's vault
        uint256 pspAmount; // base units
        uint256 treasuryFee; // base units
    }

    /// One outbound transfer: a payout, withdrawal, refund, or recovery.
    struct SendItem {
        uint256 number;
        bytes32 vaultSalt;
        address token;
        address to;
        uint256 amount; // base units
    }

    event Settled(
        uint256 indexed number, bytes32 vaultSalt, bytes32 pspSalt, address token, uint256 pspAmount, uint256 treasuryFee
    );
    event Sent(uint256 indexed number, bytes32 vaultSalt, address token, address to, uint256 amount);
    /// `reason` is an ABI-encoded error from below or from `Vault`. It is empty if the item ran out of gas or could
    /// not be decoded.
    event SettleFailed(uint256 indexed number, bytes reason);
    event SendFailed(uint256 indexed number, bytes reason);

    event AdminProposed(address admin);
    event AdminChanged(address admin);
    event SettlerChanged(address settler);
    event SenderChanged(address sender);
    event TreasuryProposed(address treasury, uint256 effectiveAt);
    event TreasuryChanged(address treasury);
    event PauseChanged(bool settlePaused, bool sendPaused);

    // Errors of the whole transaction.
    error NotAdmin();
    error NotSettler();
    error NotSender();
    error NotSelf();
    error SettlePaused();
    error SendPaused();
    error ZeroAddress();
    error NoTreasuryProposed();
    error TreasuryTooEarly(uint256 effectiveAt);
    /// Too little gas is left for the full gas limit of item `index`. The whole batch is reverted.
    error OutOfGasForItem(uint256 index);

    // Errors of an item, reported in `SettleFailed` and `SendFailed`.
    /// The operation already succeeded; this item moved nothing.
    error AlreadyDone(uint256 number);
    error NothingToMove();
    error VaultNotCreated();

    /// Gas limit of every item: about twice the most expensive regular item (new vault, three new storage slots, a
    /// token behind a proxy).
    uint256 public constant ITEM_GAS = 240_000;
    /// Reserved for making the call (a call silently gets less gas if its limit is not available), for reporting a
    /// failed item, and for ending the batch.
    uint256 private constant ITEM_RESERVE_GAS = 12_000;
    /// A call forwards at most 63/64 of the remaining gas (EIP-150).
    uint256 private constant ITEM_GAS_NEEDED = ITEM_GAS * 64 / 63 + ITEM_RESERVE_GAS;
    uint256 private constant REASON_BYTES_MAX = 288;
    /// Time for the PSPs and the operator to detect and stop an unexpected treasury.
    uint256 public constant TREASURY_DELAY = 2 days;
    /// Call data of `Vault.pay` plus 96 bytes: a clone returns at most as many bytes as it received, and an error is
    /// longer than the call.
    uint256 private constant PAY_CALL_BYTES = 260;

    Vault public immutable vaultImplementation;
    // Creation code of a clone, in two words, and its hash. Immutable, because pushing them is cheaper than
    // building them.
    bytes32 private immutable CLONE_HEAD;
    bytes32 private immutable CLONE_TAIL;
    bytes32 public immutable vaultInitCodeHash;
    uint256 private constant CLONE_INIT_BYTES = 43;

    address public admin;
    address public pendingAdmin;
    address public settler;
    bool public settlePaused;
    address public sender;
    bool public sendPaused;
    address public treasury;
    address public pendingTreasury;
    uint64 public treasuryEffectiveAt;
    /// Operation `n` is bit `n % 256` of word `n / 256`, so the numbers of one batch share a storage slot.
    mapping(uint256 word => uint256 bits) private done;

    constructor(address admin_, address settler_, address sender_, address treasury_) {
        if (admin_ == address(0) || treasury_ == address(0)) revert ZeroAddress();
        admin = admin_;
        settler = settler_;
        sender = sender_;
        treasury = treasury_;
        emit AdminChanged(admin_);
        emit SettlerChanged(settler_);
        emit SenderChanged(sender_);
        emit TreasuryChanged(treasury_);

        vaultImplementation = new Vault();
        // A delegating clone like in EIP-1167, but 11 bytes shorter (each byte costs 200 gas per payment): call data
        // and returned data share the memory, and a revert of the implementation becomes a normal return of its
        // error. Therefore `_pay` checks the returned data, not only the status of the call.
        //   creation  PUSH1 34, 0, DUP2, PUSH1 9, 0, CODECOPY, RETURN
        //   runtime   calldatacopy(0, 0, calldatasize)
        //             delegatecall(gas, implementation, 0, calldatasize, 0, calldatasize)
        //             return(0, returndatasize)
        bytes memory clone =
            abi.encodePacked(hex"60223d8160093d39f3", hex"365f5f37365f365f73", vaultImplementation, hex"5af43d5ff3");
        assert(clone.length == CLONE_INIT_BYTES);
        bytes32 head;
        bytes32 tail;
        assembly ("memory-safe") {
            head := mload(add(clone, 0x20))
            tail := mload(add(clone, 0x40))
        }
        CLONE_HEAD = head;
        CLONE_TAIL = tail;
        vaultInitCodeHash = keccak256(clone);
    }

    // ---------------------------------------------------------------------------------------------- operations

    /// @notice Runs settlements. Each succeeds or fails separately and emits an event.
    function settle(SettleItem[] calldata items) external {
        if (msg.sender != settler) revert NotSettler();
        if (settlePaused) revert SettlePaused();
        for (uint256 i = 0; i < items.length; ++i) {
            SettleItem calldata item = items[i];
            uint256 source;
            assembly ("memory-safe") {
                source := item
            }
            if (!_attempt(i, this.settleItem.selector, source, 192)) emit SettleFailed(item.number, _reason());
        }
    }

    /// @notice Runs outbound transfers. Each succeeds or fails separately and emits an event.
    function send(SendItem[] calldata items) external {
        if (msg.sender != sender) revert NotSender();
        if (sendPaused) revert SendPaused();
        for (uint256 i = 0; i < items.length; ++i) {
            SendItem calldata item = items[i];
            uint256 source;
            assembly ("memory-safe") {
                source := item
            }
            if (!_attempt(i, this.sendItem.selector, source, 160)) emit SendFailed(item.number, _reason());
        }
    }

    /// @notice Runs one settlement atomically. The call that moves the funds also marks the number, so a failure
    /// releases the number, and a token that calls back finds it in use.
    function settleItem(SettleItem calldata item) external {
        if (msg.sender != address(this)) revert NotSelf();
        _markDone(item.number);
        _pay(item.vaultSalt, item.token, vaultAddress(item.pspSalt), item.pspAmount, treasury, item.treasuryFee);
        emit Settled(item.number, item.vaultSalt, item.pspSalt, item.token, item.pspAmount, item.treasuryFee);
    }

    /// @notice Runs one outbound transfer atomically.
    function sendItem(SendItem calldata item) external {
        if (msg.sender != address(this)) revert NotSelf();
        if (item.to == address(0)) revert ZeroAddress();
        _markDone(item.number);
        _pay(item.vaultSalt, item.token, item.to, item.amount, address(0), 0);
        emit Sent(item.number, item.vaultSalt, item.token, item.to, item.amount);
    }

    /// @notice Returns the address of the vault of `salt`, whether it exists yet or not.
    function vaultAddress(bytes32 salt) public view returns (address vault) {
        bytes32 codeHash = vaultInitCodeHash;
        assembly ("memory-safe") {
            // 0xff ++ factory ++ salt ++ hash, 85 bytes, written over the scratch space and the free memory
            // pointer, which is restored.
            let free := mload(0x40)
            mstore(0x00, or(0xff0000000000000000000000000000000000000000, address()))
            mstore(0x20, salt)
            mstore(0x40, codeHash)
            vault := and(keccak256(0x0b, 0x55), 0xffffffffffffffffffffffffffffffffffffffff)
            mstore(0x40, free)
        }
    }

    /// @notice Returns true if operation `number` has succeeded.
    function isDone(uint256 number) external view returns (bool) {
        return done[number >> 8] & (1 << (number & 0xff)) != 0;
    }

    /// Calls `selector` of this contract with item `index` (`size` bytes of call data at `source`) and the full gas
    /// limit of an item. Returned data is not copied.
    function _attempt(uint256 index, bytes4 selector, uint256 source, uint256 size) private returns (bool ok) {
        // Otherwise an item could fail only because other items used up the gas.
        if (gasleft() < ITEM_GAS_NEEDED) revert OutOfGasForItem(index);
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            calldatacopy(add(data, 0x04), source, size)
            ok := call(ITEM_GAS, address(), 0, data, add(size, 0x04), 0, 0)
        }
    }

    /// Returns the data of the last call, cut to a maximum length.
    function _reason() private pure returns (bytes memory reason) {
        assembly ("memory-safe") {
            let size := returndatasize()
            if gt(size, REASON_BYTES_MAX) { size := REASON_BYTES_MAX }
            reason := mload(0x40)
            mstore(reason, size)
            returndatacopy(add(reason, 0x20), 0, size)
            mstore(0x40, add(reason, and(add(size, 0x3f), not(0x1f))))
        }
    }

    function _markDone(uint256 number) private {
        uint256 bit = 1 << (number & 0xff);
        uint256 bits = done[number >> 8];
        if (bits & bit != 0) revert AlreadyDone(number);
        done[number >> 8] = bits | bit;
    }

    /// Pays from the vault of `salt`, and creates its clone if it does not exist yet.
    function _pay(bytes32 salt, address token, address first, uint256 firstAmount, address second, uint256 secondAmount)
        private
    {
        if (firstAmount | secondAmount == 0) revert NothingToMove();
        address vault = vaultAddress(salt);
        if (vault.code.length == 0) {
            bytes32 head = CLONE_HEAD;
            bytes32 tail = CLONE_TAIL;
            address created;
            assembly ("memory-safe") {
                mstore(0x00, head)
                mstore(0x20, tail)
                created := create2(0, 0, CLONE_INIT_BYTES, salt)
            }
            if (created == address(0)) revert VaultNotCreated();
        }
        bytes4 selector = Vault.pay.selector;
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            mstore(add(data, 0x04), token)
            mstore(add(data, 0x24), first)
            mstore(add(data, 0x44), firstAmount)
            mstore(add(data, 0x64), second)
            mstore(add(data, 0x84), secondAmount)
            let called := call(gas(), vault, 0, data, PAY_CALL_BYTES, 0x00, 0x20)
            // Only `pay` itself returns one word with value 1. Every error starts with a selector.
            if iszero(and(called, and(eq(returndatasize(), 0x20), eq(mload(0x00), 1)))) {
                returndatacopy(data, 0, returndatasize())
                revert(data, returndatasize())
            }
        }
    }

    // -------------------------------------------------------------------------------------------------- admin

    modifier onlyAdmin() {
        if (msg.sender != admin) revert NotAdmin();
        _;
    }

    /// @notice First of two steps. Nothing changes until the new admin accepts, so a mistyped address is harmless.
    function proposeAdmin(address admin_) external onlyAdmin {
        pendingAdmin = admin_;
        emit AdminProposed(admin_);
    }

    /// @notice Second step, called by the new admin.
    function acceptAdmin() external {
        if (msg.sender != pendingAdmin) revert NotAdmin();
        admin = msg.sender;
        pendingAdmin = address(0);
        emit AdminChanged(msg.sender);
    }

    /// @notice Effective immediately, because it must be possible to replace a stolen key immediately. The zero
    /// address removes the role.
    function setSettler(address settler_) external onlyAdmin {
        settler = settler_;
        emit SettlerChanged(settler_);
    }

    /// @notice Like `setSettler`, for the sender role.
    function setSender(address sender_) external onlyAdmin {
        sender = sender_;
        emit SenderChanged(sender_);
    }

    /// @notice Proposes a new treasury. A later proposal replaces it; proposing the current treasury withdraws it.
    function proposeTreasury(address treasury_) external onlyAdmin {
        if (treasury_ == address(0)) revert ZeroAddress();
        pendingTreasury = treasury_;
        treasuryEffectiveAt = uint64(block.timestamp + TREASURY_DELAY);
        emit TreasuryProposed(treasury_, treasuryEffectiveAt);
    }

    /// @notice Applies the proposed treasury after its delay.
    function applyTreasury() external onlyAdmin {
        if (pendingTreasury == address(0)) revert NoTreasuryProposed();
        if (block.timestamp < treasuryEffectiveAt) revert TreasuryTooEarly(treasuryEffectiveAt);
        treasury = pendingTreasury;
        pendingTreasury = address(0);
        emit TreasuryChanged(treasury);
    }

    /// @notice Pauses or resumes settlements and outbound transfers separately.
    function setPaused(bool settlePaused_, bool sendPaused_) external onlyAdmin {
        settlePaused = settlePaused_;
        sendPaused = sendPaused_;
        emit PauseChanged(settlePaused_, sendPaused_);
    }
}
