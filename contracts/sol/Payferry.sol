// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vault} from "./Vault.sol";

/// @title Payferry: vaults, settlement and sending
/// @notice Owns: the address of every vault, who may move money out of it, and that an operation happens once.
/// Absent: balances and fees (the service's ledger has them), upgrades, any way for the settling role to choose a
/// receiver.
///
/// A vault is an address derived from this contract and a salt. Nothing is deployed there until money has to leave;
/// then a permanent clone is, so late money and a second operation find it again. Deployed through the canonical
/// CREATE2 deployer with the same constructor arguments, this contract and all its vaults have the same address on
/// every chain.
contract Payferry {
    /// One settlement. The PSP is named by its vault's salt, not by an address, so that a stolen settling key can
    /// pay nobody but PSP vaults and the treasury.
    struct SettleItem {
        uint256 number; // operation number; one number space for settle and send
        bytes32 vaultSalt; // the payment's vault
        address token;
        bytes32 pspSalt; // the PSP's vault
        uint256 pspAmount; // base units
        uint256 treasuryFee; // base units
    }

    /// One sending: payout, withdrawal, refund or recovery.
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
    /// `reason` is one of the errors below or of `Vault`, ABI-encoded; empty when the item ran out of its own gas
    /// or did not decode.
    event SettleFailed(uint256 indexed number, bytes reason);
    event SendFailed(uint256 indexed number, bytes reason);

    event AdminProposed(address admin);
    event AdminChanged(address admin);
    event SettlerChanged(address settler);
    event SenderChanged(address sender);
    event TreasuryProposed(address treasury, uint256 effectiveAt);
    event TreasuryChanged(address treasury);
    event PauseChanged(bool settlePaused, bool sendPaused);

    // Whole-transaction errors.
    error NotAdmin();
    error NotSettler();
    error NotSender();
    error NotSelf();
    error SettlePaused();
    error SendPaused();
    error ZeroAddress();
    error NoTreasuryProposed();
    error TreasuryTooEarly(uint256 effectiveAt);
    /// Too little gas is left to give item `index` its full allowance; nothing of the batch has happened.
    error OutOfGasForItem(uint256 index);

    // Item errors: found in `SettleFailed` and `SendFailed`.
    /// The number has succeeded before; nothing moved now.
    error AlreadyDone(uint256 number);
    error NothingToMove();
    error VaultNotCreated();

    /// Gas that every item is given, and can't exceed: about twice the dearest honest item (new vault, three new
    /// storage slots, a token behind a proxy).
    uint256 public constant ITEM_GAS = 240_000;
    /// Kept back for making the call (a call that can't have its gas silently gets less), for reporting a failed
    /// item and for ending the batch.
    uint256 private constant ITEM_RESERVE_GAS = 12_000;
    /// A call passes on at most 63/64 of what is left (EIP-150).
    uint256 private constant ITEM_GAS_NEEDED = ITEM_GAS * 64 / 63 + ITEM_RESERVE_GAS;
    uint256 private constant REASON_BYTES_MAX = 288;
    /// Time for the PSPs and the operator to see, and stop, a treasury they did not expect.
    uint256 public constant TREASURY_DELAY = 2 days;
    /// Call data of `Vault.pay` and 96 bytes more: a clone answers with at most as many bytes as it was sent, and a
    /// refusal is longer than the call.
    uint256 private constant PAY_CALL_BYTES = 260;

    Vault public immutable vaultImplementation;
    // The clone's creation code, in two words, and its hash. Immutable: pushing them is cheaper than building them.
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
    /// Operation `n` is bit `n % 256` of word `n / 256`: the numbers of one batch share a storage slot.
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
        // A delegating clone after EIP-1167, 11 bytes shorter (each costs 200 gas per payment): the call data's
        // memory is also the answer's, and a revert of the implementation becomes an ordinary return of its error.
        // `_pay` therefore never reads the call's status, only its answer.
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

    /// @notice Run settlements; each succeeds or fails on its own and says so in an event.
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

    /// @notice Run sendings; each succeeds or fails on its own and says so in an event.
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

    /// @notice One settlement, all or nothing: the number is marked in the same call that moves the money, so a
    /// failure gives it back, and a token that calls back finds it taken.
    function settleItem(SettleItem calldata item) external {
        if (msg.sender != address(this)) revert NotSelf();
        _markDone(item.number);
        _pay(item.vaultSalt, item.token, vaultAddress(item.pspSalt), item.pspAmount, treasury, item.treasuryFee);
        emit Settled(item.number, item.vaultSalt, item.pspSalt, item.token, item.pspAmount, item.treasuryFee);
    }

    /// @notice One sending, all or nothing.
    function sendItem(SendItem calldata item) external {
        if (msg.sender != address(this)) revert NotSelf();
        if (item.to == address(0)) revert ZeroAddress();
        _markDone(item.number);
        _pay(item.vaultSalt, item.token, item.to, item.amount, address(0), 0);
        emit Sent(item.number, item.vaultSalt, item.token, item.to, item.amount);
    }

    /// @notice Where the vault of `salt` is, or will be.
    function vaultAddress(bytes32 salt) public view returns (address vault) {
        bytes32 codeHash = vaultInitCodeHash;
        assembly ("memory-safe") {
            // 0xff ++ factory ++ salt ++ hash, 85 bytes, over the scratch space and the free memory pointer,
            // which is put back.
            let free := mload(0x40)
            mstore(0x00, or(0xff0000000000000000000000000000000000000000, address()))
            mstore(0x20, salt)
            mstore(0x40, codeHash)
            vault := and(keccak256(0x0b, 0x55), 0xffffffffffffffffffffffffffffffffffffffff)
            mstore(0x40, free)
        }
    }

    /// @notice Whether operation `number` has succeeded.
    function isDone(uint256 number) external view returns (bool) {
        return done[number >> 8] & (1 << (number & 0xff)) != 0;
    }

    /// Give item `index` (`size` bytes of call data at `source`) to `selector` of this contract with its full gas
    /// allowance. Nothing the item returns is copied here.
    function _attempt(uint256 index, bytes4 selector, uint256 source, uint256 size) private returns (bool ok) {
        // Without this, an item could fail merely because its neighbours used up the gas.
        if (gasleft() < ITEM_GAS_NEEDED) revert OutOfGasForItem(index);
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            calldatacopy(add(data, 0x04), source, size)
            ok := call(ITEM_GAS, address(), 0, data, add(size, 0x04), 0, 0)
        }
    }

    /// What the call just made returned, cut to a bounded length.
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

    /// Pay out of the vault of `salt`, creating its clone if this is the first time.
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
            // Only `pay` itself answers one word holding 1; every error begins with a selector.
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

    /// @notice First of two steps: nothing changes until the new admin accepts, so a mistyped address is harmless.
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

    /// @notice Effective at once: a stolen key must be replaceable at once. The zero address takes the role away.
    function setSettler(address settler_) external onlyAdmin {
        settler = settler_;
        emit SettlerChanged(settler_);
    }

    /// @notice As `setSettler`, for sending.
    function setSender(address sender_) external onlyAdmin {
        sender = sender_;
        emit SenderChanged(sender_);
    }

    /// @notice Announce a new treasury; a later proposal replaces it, proposing the current one withdraws it.
    function proposeTreasury(address treasury_) external onlyAdmin {
        if (treasury_ == address(0)) revert ZeroAddress();
        pendingTreasury = treasury_;
        treasuryEffectiveAt = uint64(block.timestamp + TREASURY_DELAY);
        emit TreasuryProposed(treasury_, treasuryEffectiveAt);
    }

    /// @notice Put the announced treasury into force once its delay is over.
    function applyTreasury() external onlyAdmin {
        if (pendingTreasury == address(0)) revert NoTreasuryProposed();
        if (block.timestamp < treasuryEffectiveAt) revert TreasuryTooEarly(treasuryEffectiveAt);
        treasury = pendingTreasury;
        pendingTreasury = address(0);
        emit TreasuryChanged(treasury);
    }

    /// @notice Stop or resume settling and sending, separately.
    function setPaused(bool settlePaused_, bool sendPaused_) external onlyAdmin {
        settlePaused = settlePaused_;
        sendPaused = sendPaused_;
        emit PauseChanged(settlePaused_, sendPaused_);
    }
}
