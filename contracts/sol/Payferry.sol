// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Access} from "./Access.sol";
import {returnedData, tokenBalance, transferToken} from "./SafeToken.sol";
import {Vault} from "./Vault.sol";

/// @title Payferry: vaults, settlements, payments by signature, and outbound transfers
/// @notice Defines the address of every vault and how funds may leave it, and ensures that each operation succeeds at
/// most once. Not here: roles, limits and delays (see `Access`), balances (the service's ledger), upgrades, and any way
/// for the settler to choose a recipient.
///
/// A vault is an address derived from this contract and a salt. Nothing is deployed there until funds must leave. Then a
/// permanent clone is deployed, which late funds and further operations use again. If this contract is deployed through
/// the canonical CREATE2 deployer with the same admin, it and all its vaults have the same address on every chain.
///
/// Why a stolen settler key cannot redirect funds: both addresses of a settlement follow from ids. The payment's salt
/// commits to the PSP and the maximum fee, so another PSP or a larger fee gives the address of another, empty vault. For
/// a payment by signature, the payer's nonce commits to the same. The token is the settler's choice, but every call to
/// it is one of `transfer`, `balanceOf`, `receiveWithAuthorization` and `transferWithAuthorization`, whose selectors
/// neither this contract nor a vault has.
///
/// Why re-entering is harmless: the only callers that these functions accept are role holders and this contract. An
/// operation is marked, and the limit used, before the first call to a token. `collectGroup` compares balances at its
/// end. No state is read before such a call and written after it.
contract Payferry is Access {
    /// One settlement. Everything that determines the two vaults is in it, and nothing that could change them.
    struct SettleItem {
        uint128 id; // ULID of the settlement
        uint128 paymentId; // ULID
        uint128 pspId; // ULID
        uint16 maxFeeBps; // of the payment's salt, in basis points
        address token;
        uint128 amount; // base units that leave the payment's vault, including the fee
        uint128 fee; // base units for the treasury
    }

    /// One outbound transfer.
    struct SendItem {
        uint8 kind; // refund, payout, withdrawal, recovery; not `SETTLEMENT`
        uint128 id; // ULID of the operation
        bytes32 vaultSalt; // zero for this contract's own tokens
        address token;
        address to;
        uint128 amount; // base units
    }

    /// Terms that the payer signed (EIP-3009), except the recipient, the nonce and the token.
    struct Authorization {
        address from;
        uint128 value; // base units
        uint256 validAfter; // seconds, exclusive
        uint256 validBefore; // seconds, exclusive
        uint8 v;
        bytes32 r;
        bytes32 s;
    }

    /// One payment by signature. The nonce is `collectNonce` of these ids, so the signature pays this payment only.
    struct CollectItem {
        uint128 paymentId;
        uint16 maxFeeBps;
        uint16 attempt; // so that the payer can sign again after a failure
        uint128 fee; // base units for the treasury
        Authorization authorization;
        bytes signature; // of a contract wallet (ERC-1271), instead of v, r and s; otherwise empty
    }

    /// Payments of one PSP in one token. Their amounts are passed on together, or not at all.
    struct CollectGroup {
        uint128 pspId;
        address token;
        CollectItem[] items;
    }

    /// An authorization to pay into a payment's vault, with a nonce of the payer's choice.
    struct DepositItem {
        uint128 paymentId;
        uint128 pspId;
        uint16 maxFeeBps;
        address token;
        bytes32 nonce;
        Authorization authorization;
        bytes signature; // as in `CollectItem`
    }

    event Settled(
        uint128 indexed id, address vault, address pspVault, address token, uint256 pspAmount, uint256 treasuryFee
    );
    /// The nonce commits to the PSP's vault.
    event Collected(
        uint128 indexed paymentId,
        bytes32 nonce,
        address payer,
        address token,
        uint256 pspAmount,
        uint256 treasuryFee
    );
    event Sent(uint128 indexed id, uint8 kind, address vault, address token, address to, uint256 amount);
    /// `reason` is an ABI-encoded error from below, from `Access` or from `Vault`; in `CollectFailed`, also what the token
    /// itself returned. It is empty if the item ran out of gas or could not be decoded.
    event SettleFailed(uint128 indexed id, bytes reason);
    event CollectFailed(uint128 indexed paymentId, bytes32 nonce, bytes reason);
    event SendFailed(uint128 indexed id, uint8 kind, bytes reason);

    // Errors of the whole transaction.
    error NotSelf();
    error SettlePaused();
    error SendPaused();
    /// A fee is due and no treasury is set.
    error NoTreasury();
    error TooManyItems();
    error ItemGasTooLow();
    /// Too little gas is left for the full gas limit of item `index`. The whole batch is reverted.
    error OutOfGasForItem(uint256 index);

    // Errors of an item, reported in `SettleFailed`, `CollectFailed` and `SendFailed`.
    /// The operation already succeeded; this item moved nothing.
    error AlreadyDone(uint8 kind, uint128 id);
    /// The fee exceeds the maximum that the payment's address or the payer's nonce commits to.
    error FeeTooHigh();
    error InvalidKind();
    error NothingToMove();
    error SignatureTooLong();
    error VaultNotCreated();
    /// The token did not deliver what it reported, so passing it on would use this contract's own tokens.
    error BalanceChanged();

    uint256 public constant VERSION = 2;
    uint8 public constant SETTLEMENT = 0;
    uint256 public constant ITEMS_MAX = 50;
    /// Lowest gas limit of an item: more than the most expensive regular item needs under Osaka rules (new vault, four
    /// new storage slots, a token behind a proxy). Callers pass more after a repricing.
    uint256 public constant ITEM_GAS_MIN = 200_000;
    /// Reserved for making the call of an item (a call silently gets less gas if its limit is not available), for
    /// reporting its failure, and for ending the batch.
    uint256 private constant ITEM_RESERVE_GAS = 15_000;
    uint256 private constant REASON_BYTES_MAX = 288;
    uint256 private constant SIGNATURE_BYTES_MAX = 4096;
    /// A balance that was not read yet.
    uint256 private constant UNKNOWN = type(uint256).max;
    /// Call data of `Vault.pay` plus 96 bytes: a clone returns at most as many bytes as it received, and an error is
    /// longer than the call.
    uint256 private constant VAULT_CALL_BYTES = 260;

    // Selectors of EIP-3009 with v, r and s, and of its overloads with a signature of any length, for contract wallets.
    bytes4 private constant RECEIVE = 0xef55bec6;
    bytes4 private constant RECEIVE_SIGNED = 0x88b7ab63;
    bytes4 private constant TRANSFER = 0xe3ee160e;
    bytes4 private constant TRANSFER_SIGNED = 0xcf092995;

    Vault public immutable vaultImplementation;
    // Creation code of a clone, in two words, and its hash. Immutable, because pushing them is cheaper than
    // building them.
    bytes32 private immutable CLONE_HEAD;
    bytes32 private immutable CLONE_TAIL;
    bytes32 public immutable vaultInitCodeHash;
    uint256 private constant CLONE_INIT_BYTES = 49;

    /// Block time at which an operation succeeded, or 0. Settlements and each kind of outbound transfer have ids of their
    /// own (the storage key is the hash of both), so that no settlement can use up the id of a payout.
    mapping(uint8 kind => mapping(uint128 id => uint256 time)) public doneAt;

    constructor(address admin_) Access(admin_) {
        vaultImplementation = new Vault();
        // A delegating clone like in EIP-1167, but 5 bytes shorter (each byte costs 200 gas per payment), because call
        // data and returned data share the memory. A revert stays a revert, so a clone refuses what `Vault` refuses.
        //   creation  PUSH1 40, RETURNDATASIZE, DUP2, PUSH1 9, RETURNDATASIZE, CODECOPY, RETURN
        //   runtime   calldatacopy(0, 0, calldatasize)
        //             delegatecall(gas, implementation, 0, calldatasize, 0, calldatasize)
        //             if the call succeeded, return(0, returndatasize); otherwise revert(0, returndatasize)
        bytes memory clone = abi.encodePacked(
            hex"60283d8160093d39f3", hex"365f5f37365f365f73", vaultImplementation, hex"5af45f3d91602657fd5bf3"
        );
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

    // ---------------------------------------------------------------------------------------------- addresses

    /// @notice Returns the salt of a payment's vault: keccak256("payment" ++ paymentId ++ pspId ++ maxFeeBps), 41 bytes. The
    /// lengths of the fields are fixed and the domains differ, so no two payments or PSPs share a salt.
    function paymentSalt(uint128 paymentId, uint128 pspId, uint16 maxFeeBps) public pure returns (bytes32 salt) {
        uint256 head = uint256(bytes32("payment")) | uint256(paymentId) << 72 | uint256(pspId) >> 56;
        uint256 tail = uint256(pspId) << 200 | uint256(maxFeeBps) << 184;
        assembly ("memory-safe") {
            mstore(0x00, head)
            mstore(0x20, tail)
            salt := keccak256(0x00, 41)
        }
    }

    /// @notice Returns the salt of a PSP's vault: keccak256("psp" ++ pspId), 19 bytes.
    function pspSalt(uint128 pspId) public pure returns (bytes32 salt) {
        uint256 head = uint256(bytes32("psp")) | uint256(pspId) << 104;
        assembly ("memory-safe") {
            mstore(0x00, head)
            salt := keccak256(0x00, 19)
        }
    }

    /// @notice Returns the nonce that the payer signs. It commits to everything that determines where the money goes.
    function collectNonce(uint128 paymentId, address pspVault, uint16 maxFeeBps, uint16 attempt)
        public
        view
        returns (bytes32 nonce)
    {
        (uint256 payment, uint256 vault) = (paymentId, uint160(pspVault));
        (uint256 fee, uint256 attempt_) = (maxFeeBps, attempt);
        // keccak256(abi.encode(chain, contract, payment, vault, fee, attempt))
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, chainid())
            mstore(add(data, 0x20), address())
            mstore(add(data, 0x40), payment)
            mstore(add(data, 0x60), vault)
            mstore(add(data, 0x80), fee)
            mstore(add(data, 0xa0), attempt_)
            nonce := keccak256(data, 0xc0)
        }
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

    // ---------------------------------------------------------------------------------------------- operations

    /// @notice Runs settlements. Each succeeds or fails separately and emits an event. `itemGas` limits each of them.
    function settle(SettleItem[] calldata items, uint64 itemGas) external {
        _requireSettler(items.length, itemGas);
        bool isTreasurySet = treasury != address(0);
        uint256 neededGas = _neededGas(itemGas);
        for (uint256 i = 0; i < items.length; ++i) {
            SettleItem calldata item = items[i];
            if (item.fee != 0 && !isTreasurySet) revert NoTreasury();
            uint256 source;
            assembly ("memory-safe") {
                source := item
            }
            if (!_attempt(i, itemGas, neededGas, this.settleItem.selector, source, 224)) {
                emit SettleFailed(item.id, returnedData(REASON_BYTES_MAX));
            }
        }
    }

    /// @notice Runs outbound transfers. Each succeeds or fails separately and emits an event. `itemGas` limits each of
    /// them.
    function send(SendItem[] calldata items, uint64 itemGas) external {
        if (!hasRole(Role.Sender, msg.sender)) revert NotSender();
        if (sendPaused) revert SendPaused();
        _requireBatch(items.length, itemGas);
        uint256 neededGas = _neededGas(itemGas);
        for (uint256 i = 0; i < items.length; ++i) {
            SendItem calldata item = items[i];
            uint256 source;
            assembly ("memory-safe") {
                source := item
            }
            if (!_attempt(i, itemGas, neededGas, this.sendItem.selector, source, 192)) {
                emit SendFailed(item.id, item.kind, returnedData(REASON_BYTES_MAX));
            }
        }
    }

    /// @notice Runs payments by signature. `groups` are paid to PSPs and the treasury at once; an item whose
    /// authorization the token refuses fails alone, a group that cannot be passed on fails as a whole and leaves its
    /// authorizations unused. `deposits` are only submitted to their token, which pays the payment's vault. `itemGas`
    /// limits each authorization, and passing on each group.
    function collect(CollectGroup[] calldata groups, DepositItem[] calldata deposits, uint64 itemGas) external {
        _requireSettler(deposits.length, itemGas);
        if (treasury == address(0)) _requireNoFees(groups);
        uint256 index;
        address token;
        uint256 held = UNKNOWN;
        for (uint256 i = 0; i < groups.length; ++i) {
            CollectGroup calldata group = groups[i];
            address groupToken = group.token;
            if (groupToken != token) (token, held) = (groupToken, UNKNOWN);
            (uint256 data, uint256 size) =
                _groupCall(group, groups[i + 1 < groups.length ? i + 1 : i], itemGas, held);
            // One more for passing on. While an item is running, that one is still there, so that each call gets its
            // full limit (EIP-150). The reserve of an item is for the work around its call and, after it, for the report
            // of a failure.
            uint256 count = group.items.length;
            if (index + count + deposits.length > ITEMS_MAX) revert TooManyItems();
            uint256 groupGas;
            uint256 neededGas;
            // Products of 64-bit numbers, and of a count that was just checked.
            unchecked {
                groupGas = (count + 1) * (uint256(itemGas) + ITEM_RESERVE_GAS);
                neededGas = groupGas * 64 / 63 + (count + 1) * ITEM_RESERVE_GAS;
            }
            if (gasleft() < neededGas) revert OutOfGasForItem(index);
            bool ok;
            assembly ("memory-safe") {
                ok := call(groupGas, address(), 0, data, size, 0x00, 0x20)
                if ok { held := mload(0x00) }
            }
            if (!ok) _reportGroup(group, returnedData(REASON_BYTES_MAX));
            index += count;
        }
        uint256 depositGas = _neededGas(itemGas);
        for (uint256 i = 0; i < deposits.length; ++i) {
            DepositItem calldata item = deposits[i];
            if (gasleft() < depositGas) revert OutOfGasForItem(index + i);
            address vault = vaultAddress(paymentSalt(item.paymentId, item.pspId, item.maxFeeBps));
            bool ok = _submit(
                TRANSFER, TRANSFER_SIGNED, item.token, vault, item.nonce, item.authorization, item.signature, itemGas
            );
            // A group notices by its balance that a token has no code.
            if (!ok || item.token.code.length == 0) {
                emit CollectFailed(item.paymentId, item.nonce, returnedData(REASON_BYTES_MAX));
            }
        }
    }

    /// @notice Runs one settlement atomically. The call that moves the funds also marks the id, so a failure releases the
    /// id, and a token that calls back finds it in use.
    function settleItem(SettleItem calldata item) external onlySelf {
        _markDone(SETTLEMENT, item.id);
        if (!_isFeeAllowed(item.amount, item.fee, item.maxFeeBps)) revert FeeTooHigh();
        address pspVault = vaultAddress(pspSalt(item.pspId));
        bytes32 salt = paymentSalt(item.paymentId, item.pspId, item.maxFeeBps);
        uint256 pspAmount = item.amount - item.fee;
        address vault = _pay(salt, item.token, pspVault, pspAmount, treasury, item.fee);
        emit Settled(item.id, vault, pspVault, item.token, pspAmount, item.fee);
    }

    /// @notice Runs one outbound transfer atomically.
    function sendItem(SendItem calldata item) external onlySelf {
        if (item.kind == SETTLEMENT) revert InvalidKind();
        if (item.to == address(0)) revert InvalidAddress();
        _markDone(item.kind, item.id);
        _useLimit(item.token, item.amount);
        address vault = address(this);
        if (item.vaultSalt != 0) {
            vault = _pay(item.vaultSalt, item.token, item.to, item.amount, address(0), 0);
        } else {
            if (item.amount == 0) revert NothingToMove();
            transferToken(item.token, item.to, item.amount);
        }
        emit Sent(item.id, item.kind, vault, item.token, item.to, item.amount);
    }

    /// @notice Receives the payments of one group and passes them on. Everything is undone if this contract does not end
    /// with the balance it began with: a token that takes a fee, or that accepts any call, must not pass on tokens that
    /// were sent here by mistake.
    /// @param held The balance that the previous group ended with, or `UNKNOWN`.
    /// @return The balance now, which is the same.
    function collectGroup(CollectGroup calldata group, uint64 itemGas, uint256 held)
        external
        onlySelf
        returns (uint256)
    {
        address token = group.token;
        address pspVault = vaultAddress(pspSalt(group.pspId));
        if (held == UNKNOWN) held = tokenBalance(token, address(this));
        uint256 total;
        uint256 fees;
        CollectItem[] calldata items = group.items;
        for (uint256 i = 0; i < items.length; ++i) {
            CollectItem calldata item = items[i];
            Authorization calldata authorization = item.authorization;
            bytes32 nonce = collectNonce(item.paymentId, pspVault, item.maxFeeBps, item.attempt);
            if (!_isFeeAllowed(authorization.value, item.fee, item.maxFeeBps)) {
                emit CollectFailed(item.paymentId, nonce, abi.encodePacked(FeeTooHigh.selector));
                continue;
            }
            bool ok = _submit(
                RECEIVE, RECEIVE_SIGNED, token, address(this), nonce, authorization, item.signature, itemGas
            );
            if (ok) {
                // Sums of numbers with 128 bits, and the fee is at most the value.
                unchecked {
                    total += authorization.value;
                    fees += item.fee;
                }
                emit Collected(
                    item.paymentId,
                    nonce,
                    authorization.from,
                    token,
                    authorization.value - item.fee,
                    item.fee
                );
            } else {
                emit CollectFailed(item.paymentId, nonce, returnedData(REASON_BYTES_MAX));
            }
        }
        if (total == 0) return held;
        if (total != fees) transferToken(token, pspVault, total - fees);
        if (fees != 0) transferToken(token, treasury, fees);
        if (tokenBalance(token, address(this)) != held) revert BalanceChanged();
        return held;
    }

    /// @notice Sends native coin that was forced into a vault to the treasury, and deploys the vault if necessary. The
    /// salt zero stands for this contract.
    function sweepNative(bytes32 vaultSalt) external onlyAdmin {
        if (treasury == address(0)) revert NoTreasury();
        if (vaultSalt == 0) {
            (bool accepted,) = treasury.call{value: address(this).balance}("");
            if (!accepted) revert Vault.SweepRefused();
        } else {
            Vault(_vault(vaultSalt)).sweep(payable(treasury));
        }
    }

    // ------------------------------------------------------------------------------------------------- internal

    modifier onlySelf() {
        if (msg.sender != address(this)) revert NotSelf();
        _;
    }

    function _requireSettler(uint256 items, uint64 itemGas) private view {
        if (!hasRole(Role.Settler, msg.sender)) revert NotSettler();
        if (settlePaused) revert SettlePaused();
        _requireBatch(items, itemGas);
    }

    function _requireBatch(uint256 items, uint64 itemGas) private pure {
        if (items > ITEMS_MAX) revert TooManyItems();
        if (itemGas < ITEM_GAS_MIN) revert ItemGasTooLow();
    }

    function _requireNoFees(CollectGroup[] calldata groups) private pure {
        for (uint256 i = 0; i < groups.length; ++i) {
            for (uint256 j = 0; j < groups[i].items.length; ++j) {
                if (groups[i].items[j].fee != 0) revert NoTreasury();
            }
        }
    }

    /// Returns true if `fee <= floor(amount * maxFeeBps / 10000)` and `fee <= amount`. The second condition matters in a
    /// group: a maximum above 100 % must not take the shares of other payments. Amounts have 128 bits, so the products do
    /// not overflow.
    function _isFeeAllowed(uint256 amount, uint256 fee, uint256 maxFeeBps) private pure returns (bool) {
        unchecked {
            return fee <= amount && fee * 10_000 <= amount * maxFeeBps;
        }
    }

    function _markDone(uint8 kind, uint128 id) private {
        mapping(uint128 id => uint256 time) storage done = doneAt[kind];
        if (done[id] != 0) revert AlreadyDone(kind, id);
        done[id] = block.timestamp;
    }

    /// Gas that must be left for an item to get its full limit. A call forwards at most 63/64 of what is left (EIP-150).
    function _neededGas(uint64 itemGas) private pure returns (uint256) {
        return uint256(itemGas) * 64 / 63 + ITEM_RESERVE_GAS;
    }

    /// Calls `selector` of this contract with item `index` (`size` bytes of call data at `source`) and the full gas
    /// limit of an item. Returned data is not copied.
    function _attempt(
        uint256 index,
        uint64 itemGas,
        uint256 neededGas,
        bytes4 selector,
        uint256 source,
        uint256 size
    ) private returns (bool ok) {
        // Otherwise an item could fail only because other items used up the gas.
        if (gasleft() < neededGas) revert OutOfGasForItem(index);
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            calldatacopy(add(data, 0x04), source, size)
            ok := call(itemGas, address(), 0, data, add(size, 0x04), 0, 0)
        }
    }

    /// Writes the call of `collectGroup`, and returns where it is and its size. The group is copied as it stands, up to the
    /// next one (the last group is its own), because encoding it again would cost 2,000 gas for each item. This is valid for every
    /// encoder that writes one group after the other; in another order, `collectGroup` cannot decode it and fails.
    function _groupCall(CollectGroup calldata group, CollectGroup calldata next, uint64 itemGas, uint256 held)
        private
        pure
        returns (uint256 data, uint256 size)
    {
        bytes4 selector = this.collectGroup.selector;
        assembly ("memory-safe") {
            let end := calldatasize()
            if gt(next, group) { end := next }
            data := mload(0x40)
            mstore(data, selector)
            mstore(add(data, 0x04), 0x60)
            mstore(add(data, 0x24), itemGas)
            mstore(add(data, 0x44), held)
            calldatacopy(add(data, 0x64), group, sub(end, group))
            size := add(0x64, sub(end, group))
            mstore(0x40, and(add(add(data, size), 0x1f), not(0x1f)))
        }
    }

    /// Submits an authorization to its token, in the form with `v`, `r` and `s` or with a signature of any length. Returned
    /// data is not copied.
    function _submit(
        bytes4 plain,
        bytes4 signed,
        address token,
        address to,
        bytes32 nonce,
        Authorization calldata authorization,
        bytes calldata signature,
        uint64 itemGas
    ) private returns (bool ok) {
        // Copying a longer one could use up the gas of other items. The caller checks the length before.
        if (signature.length > SIGNATURE_BYTES_MAX) revert SignatureTooLong();
        assembly ("memory-safe") {
            // from, to, value, validAfter, validBefore, nonce; then v, r, s, or the offset, length and bytes of the
            // signature. The order in `Authorization` is the same.
            let data := mload(0x40)
            switch signature.length
            case 0 { mstore(data, plain) }
            default { mstore(data, signed) }
            calldatacopy(add(data, 0x04), authorization, 0x20)
            mstore(add(data, 0x24), to)
            calldatacopy(add(data, 0x44), add(authorization, 0x20), 0x60)
            mstore(add(data, 0xa4), nonce)
            let size := 0x124
            switch signature.length
            case 0 { calldatacopy(add(data, 0xc4), add(authorization, 0x80), 0x60) }
            default {
                mstore(add(data, 0xc4), 0xe0)
                mstore(add(data, 0xe4), signature.length)
                calldatacopy(add(data, 0x104), signature.offset, signature.length)
                // Padding: whatever is there, so it must be zeros.
                mstore(add(add(data, 0x104), signature.length), 0)
                size := add(0x104, and(add(signature.length, 0x1f), not(0x1f)))
            }
            ok := call(itemGas, token, 0, data, size, 0, 0)
        }
    }

    /// Reports each item of a group that was undone.
    function _reportGroup(CollectGroup calldata group, bytes memory reason) private {
        address pspVault = vaultAddress(pspSalt(group.pspId));
        for (uint256 i = 0; i < group.items.length; ++i) {
            CollectItem calldata item = group.items[i];
            bytes32 nonce = collectNonce(item.paymentId, pspVault, item.maxFeeBps, item.attempt);
            emit CollectFailed(item.paymentId, nonce, reason);
        }
    }

    /// Returns the vault of `salt`, and creates its clone if it does not exist yet.
    function _vault(bytes32 salt) private returns (address vault) {
        vault = vaultAddress(salt);
        if (vault.code.length != 0) return vault;
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

    /// Pays from the vault of `salt`, which is returned.
    function _pay(bytes32 salt, address token, address first, uint256 firstAmount, address second, uint256 secondAmount)
        private
        returns (address vault)
    {
        if (firstAmount | secondAmount == 0) revert NothingToMove();
        vault = _vault(salt);
        bytes4 selector = Vault.pay.selector;
        assembly ("memory-safe") {
            let data := mload(0x40)
            mstore(data, selector)
            mstore(add(data, 0x04), token)
            mstore(add(data, 0x24), first)
            mstore(add(data, 0x44), firstAmount)
            mstore(add(data, 0x64), second)
            mstore(add(data, 0x84), secondAmount)
            if iszero(call(gas(), vault, 0, data, VAULT_CALL_BYTES, 0, 0)) {
                returndatacopy(data, 0, returndatasize())
                revert(data, returndatasize())
            }
        }
    }
}
