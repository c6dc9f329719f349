// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Access} from "../sol/Access.sol";
import {Payferry} from "../sol/Payferry.sol";
import {Vault} from "../sol/Vault.sol";
import {PAYFERRY_CODE} from "./Code.sol";

interface Vm {
    function assume(bool) external pure;
    function deal(address, uint256) external;
    function prank(address) external;
    function warp(uint256) external;
}

/// A token whose honesty is symbolic: it may move less than it reports, or report a failure.
contract SymbolicToken {
    mapping(address account => uint256) public balanceOf;
    uint256 private loss;
    bool private fails;

    constructor(uint256 loss_, bool fails_) {
        (loss, fails) = (loss_, fails_);
    }

    function mint(address to, uint256 value) external {
        balanceOf[to] += value;
    }

    function transfer(address to, uint256 value) external returns (bool) {
        balanceOf[msg.sender] -= value;
        balanceOf[to] += value;
        return !fails;
    }

    // Accepts every signature, in both forms: the payer agrees.

    function receiveWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, uint8, bytes32, bytes32
    ) external {
        _authorized(from, to, value);
    }

    function receiveWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, bytes calldata
    ) external {
        _authorized(from, to, value);
    }

    function transferWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, uint8, bytes32, bytes32
    ) external {
        _authorized(from, to, value);
    }

    function transferWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, bytes calldata
    ) external {
        _authorized(from, to, value);
    }

    function _authorized(address from, address to, uint256 value) private {
        balanceOf[from] -= value;
        balanceOf[to] += value - loss;
    }
}

/// @title Symbolic checks of the functions that move value, run by halmos (tests/symbolic)
/// @notice Ids are concrete, because addresses of vaults are hashes of them; amounts, fees, times, callers and the token's
/// behaviour are symbolic. A check that fails for any value is reported with that value.
contract PayferrySymbolic {
    Vm private constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));
    address private constant TREASURY = address(0x7e);
    address private constant PAYEE = address(0x9a);
    uint128 private constant PAYMENT = 1;
    uint128 private constant PSP = 2;
    uint128 private constant OTHER_PAYMENT = 3;
    uint128 private constant OTHER_PSP = 4;
    uint16 private constant BPS = 100;
    uint256 private constant LIMIT = 1_000_000;
    uint64 private constant ITEM_GAS = 240_000;
    uint256 private constant START = 1_800_000_000;

    Payferry private payferry;

    function setUp() public {
        vm.warp(START);
        bytes memory code = abi.encodePacked(PAYFERRY_CODE, abi.encode(address(this)));
        address created;
        assembly {
            created := create(0, add(code, 0x20), mload(code))
        }
        payferry = Payferry(created);
        payferry.grant(Access.Role.Settler, address(this));
        payferry.grant(Access.Role.Sender, address(this));
        payferry.setTreasury(TREASURY);
    }

    /// `settle` moves the whole amount or nothing: to the PSP's vault and the treasury, with at most 1 % for it.
    function check_settle_pays_psp_and_treasury_or_nothing(uint128 held, uint128 amount, uint128 fee, bool fails) public {
        SymbolicToken token = new SymbolicToken(0, fails);
        address vault = payferry.vaultAddress(payferry.paymentSalt(PAYMENT, PSP, BPS));
        address pspVault = payferry.vaultAddress(payferry.pspSalt(PSP));
        token.mint(vault, held);
        Payferry.SettleItem[] memory items = new Payferry.SettleItem[](1);
        items[0] = Payferry.SettleItem(7, PAYMENT, PSP, BPS, address(token), amount, fee);
        _call(abi.encodeCall(payferry.settle, (items, ITEM_GAS)));
        uint256 moved = held - token.balanceOf(vault);
        uint256 taken = token.balanceOf(TREASURY);
        uint256 share = token.balanceOf(pspVault);
        assert(moved == 0 ? share == 0 && taken == 0 : share == amount - fee && taken == fee && moved == amount);
        assert(moved == 0 || (uint256(fee) * 10_000 <= uint256(amount) * BPS && !fails));
        assert((payferry.doneAt(0, 7) == START) == (moved != 0));
    }

    /// The same id a second time moves nothing, whatever the amounts are.
    function check_settle_is_done_once(uint128 first, uint128 second) public {
        SymbolicToken token = new SymbolicToken(0, false);
        address vault = payferry.vaultAddress(payferry.paymentSalt(PAYMENT, PSP, BPS));
        token.mint(vault, uint256(first) + second);
        Payferry.SettleItem[] memory items = new Payferry.SettleItem[](2);
        items[0] = Payferry.SettleItem(7, PAYMENT, PSP, BPS, address(token), first, 0);
        items[1] = Payferry.SettleItem(7, PAYMENT, PSP, BPS, address(token), second, 0);
        _call(abi.encodeCall(payferry.settle, (items, ITEM_GAS)));
        uint256 moved = token.balanceOf(payferry.vaultAddress(payferry.pspSalt(PSP)));
        assert(moved == first || (first == 0 && moved == second));
    }

    /// Each settlement of a batch succeeds or fails by itself, and moves money of its own payment only.
    function check_settlements_of_a_batch_are_independent(uint96 held, uint96 amount, uint96 others, uint96 other) public {
        vm.assume(amount != 0 && other != 0);
        SymbolicToken token = new SymbolicToken(0, false);
        address vault = payferry.vaultAddress(payferry.paymentSalt(PAYMENT, PSP, BPS));
        address otherVault = payferry.vaultAddress(payferry.paymentSalt(OTHER_PAYMENT, OTHER_PSP, BPS));
        token.mint(vault, held);
        token.mint(otherVault, others);
        Payferry.SettleItem[] memory items = new Payferry.SettleItem[](2);
        items[0] = Payferry.SettleItem(7, PAYMENT, PSP, BPS, address(token), amount, 0);
        items[1] = Payferry.SettleItem(8, OTHER_PAYMENT, OTHER_PSP, BPS, address(token), other, 0);
        _call(abi.encodeCall(payferry.settle, (items, ITEM_GAS)));
        assert(token.balanceOf(vault) == (amount <= held ? held - amount : held));
        assert(token.balanceOf(otherVault) == (other <= others ? others - other : others));
        assert(_pspBalance(token, PSP) == held - token.balanceOf(vault));
        assert(_pspBalance(token, OTHER_PSP) == others - token.balanceOf(otherVault));
    }

    /// `collect` passes on what the payer paid and keeps the contract's own balance, or nothing happens.
    function check_collect_keeps_its_own_balance(
        uint96 own, uint96 value, uint96 fee, uint96 loss, bool fails, bool isSigned
    ) public {
        SymbolicToken token = new SymbolicToken(loss, fails);
        token.mint(address(payferry), own);
        token.mint(PAYEE, value);
        Payferry.CollectGroup[] memory groups = new Payferry.CollectGroup[](1);
        groups[0] = _group(token, PAYMENT, PSP, value, fee);
        if (isSigned) groups[0].items[0].signature = new bytes(65);
        _call(abi.encodeCall(payferry.collect, (groups, new Payferry.DepositItem[](0), ITEM_GAS)));
        uint256 paid = value - token.balanceOf(PAYEE);
        uint256 share = _pspBalance(token, PSP);
        uint256 taken = token.balanceOf(TREASURY);
        assert(token.balanceOf(address(payferry)) == own);
        assert(share + taken == paid);
        assert(taken * 10_000 <= paid * BPS);
        assert(paid == 0 || (paid == value && taken == fee && loss == 0 && !fails));
    }

    /// Two groups of one token: each PSP gets what its own payer paid, and the contract keeps its own balance. A group whose
    /// fee is too high does not affect the other.
    function check_collect_keeps_groups_apart(uint96 own, uint96 value, uint96 fee, uint96 other) public {
        SymbolicToken token = new SymbolicToken(0, false);
        token.mint(address(payferry), own);
        token.mint(PAYEE, uint256(value) + other);
        Payferry.CollectGroup[] memory groups = new Payferry.CollectGroup[](2);
        groups[0] = _group(token, PAYMENT, PSP, value, fee);
        groups[1] = _group(token, OTHER_PAYMENT, OTHER_PSP, other, 0);
        _call(abi.encodeCall(payferry.collect, (groups, new Payferry.DepositItem[](0), ITEM_GAS)));
        bool isAllowed = uint256(fee) * 10_000 <= uint256(value) * BPS;
        assert(token.balanceOf(address(payferry)) == own);
        assert(_pspBalance(token, PSP) == (isAllowed ? value - fee : 0));
        assert(_pspBalance(token, OTHER_PSP) == other);
        assert(token.balanceOf(TREASURY) == (isAllowed ? fee : 0));
        assert(token.balanceOf(PAYEE) == (isAllowed ? 0 : value));
    }

    /// A deposit goes from the payer to the payment's vault, whatever the token loses, and nowhere else.
    function check_deposit_pays_the_vault_of_its_payment(uint96 own, uint96 held, uint96 value, uint96 loss, bool isSigned)
        public
    {
        SymbolicToken token = new SymbolicToken(loss, false);
        address vault = payferry.vaultAddress(payferry.paymentSalt(PAYMENT, PSP, BPS));
        token.mint(address(payferry), own);
        token.mint(PAYEE, held);
        Payferry.DepositItem[] memory deposits = new Payferry.DepositItem[](1);
        deposits[0].paymentId = PAYMENT;
        deposits[0].pspId = PSP;
        deposits[0].maxFeeBps = BPS;
        deposits[0].token = address(token);
        deposits[0].authorization.from = PAYEE;
        deposits[0].authorization.value = value;
        if (isSigned) deposits[0].signature = new bytes(65);
        _call(abi.encodeCall(payferry.collect, (new Payferry.CollectGroup[](0), deposits, ITEM_GAS)));
        bool isPaid = value <= held && loss <= value;
        assert(token.balanceOf(PAYEE) == (isPaid ? held - value : held));
        assert(token.balanceOf(vault) == (isPaid ? value - loss : 0));
        assert(token.balanceOf(address(payferry)) == own);
    }

    /// Two outbound transfers at any times within 24 hours, the first from a full bucket, move at most the limit, whether
    /// from this contract or from a vault. (Longer sequences are in the tests on revm:
    /// `a_stolen_sender_key_moves_at_most_the_limit_in_any_24_hours`.)
    function check_send_stays_within_the_limit(uint32 first, uint32 second, uint32 seconds_, bool isOfVault) public {
        vm.assume(first <= LIMIT && second <= LIMIT && seconds_ <= 1 days);
        SymbolicToken token = new SymbolicToken(0, false);
        bytes32 salt = isOfVault ? payferry.pspSalt(PSP) : bytes32(0);
        token.mint(address(payferry), type(uint96).max);
        token.mint(payferry.vaultAddress(payferry.pspSalt(PSP)), type(uint96).max);
        payferry.setLimit(address(token), LIMIT);
        _send(token, 1, bytes32(0), first);
        vm.warp(START + seconds_);
        _send(token, 2, salt, second);
        assert(token.balanceOf(PAYEE) <= LIMIT);
    }

    /// One outbound transfer from a vault moves exactly its amount within the capacity, or nothing, and no other money.
    function check_send_from_a_vault_moves_its_amount_or_nothing(
        uint8 kind, uint96 own, uint128 held, uint128 amount, bool fails
    ) public {
        SymbolicToken token = new SymbolicToken(0, fails);
        bytes32 salt = payferry.paymentSalt(PAYMENT, PSP, BPS);
        token.mint(address(payferry), own);
        token.mint(payferry.vaultAddress(salt), held);
        payferry.setLimit(address(token), LIMIT);
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = Payferry.SendItem(kind, 7, salt, address(token), PAYEE, amount);
        _call(abi.encodeCall(payferry.send, (items, ITEM_GAS)));
        uint256 moved = token.balanceOf(PAYEE);
        (, uint256 available) = payferry.limitOf(address(token));
        bool isPossible = amount != 0 && amount <= held && amount <= LIMIT / 2 && kind != 0 && !fails;
        assert(moved == (isPossible ? amount : 0));
        assert(token.balanceOf(payferry.vaultAddress(salt)) == held - moved);
        assert(token.balanceOf(address(payferry)) == own);
        assert(available == LIMIT / 2 - moved);
        assert((payferry.doneAt(kind, 7) != 0) == isPossible);
    }

    /// The same outbound transfer a second time moves nothing, whatever its amounts and sources are.
    function check_send_is_done_once(uint8 kind, uint32 first, uint32 second, bool isOfVault) public {
        vm.assume(first != 0 && first <= LIMIT / 4 && second <= LIMIT / 4 && kind != 0);
        SymbolicToken token = new SymbolicToken(0, false);
        token.mint(address(payferry), LIMIT);
        token.mint(payferry.vaultAddress(payferry.pspSalt(PSP)), LIMIT);
        payferry.setLimit(address(token), LIMIT);
        Payferry.SendItem[] memory items = new Payferry.SendItem[](2);
        items[0] = Payferry.SendItem(kind, 7, 0, address(token), PAYEE, first);
        items[1] = Payferry.SendItem(
            kind, 7, isOfVault ? payferry.pspSalt(PSP) : bytes32(0), address(token), PAYEE, second
        );
        _call(abi.encodeCall(payferry.send, (items, ITEM_GAS)));
        assert(token.balanceOf(PAYEE) == first);
    }

    /// The admin sweeps native coin of this contract or of a vault to the treasury: all of it, and nothing else.
    function check_sweep_sends_all_to_the_treasury(uint96 own, uint96 forced, uint96 tokens, bool isOfVault) public {
        SymbolicToken token = new SymbolicToken(0, false);
        bytes32 salt = payferry.pspSalt(PSP);
        address vault = payferry.vaultAddress(salt);
        token.mint(vault, tokens);
        vm.deal(address(payferry), own);
        vm.deal(vault, forced);
        uint256 before = TREASURY.balance;
        _call(abi.encodeCall(payferry.sweepNative, (isOfVault ? salt : bytes32(0))));
        assert(TREASURY.balance - before == (isOfVault ? forced : own));
        assert(address(payferry).balance == (isOfVault ? own : 0) && vault.balance == (isOfVault ? 0 : forced));
        assert(token.balanceOf(vault) == tokens);
    }

    /// One outbound transfer moves exactly its amount within the capacity, or nothing.
    function check_send_moves_its_amount_or_nothing(uint8 kind, uint128 amount, bool fails) public {
        SymbolicToken token = new SymbolicToken(0, fails);
        token.mint(address(payferry), type(uint96).max);
        payferry.setLimit(address(token), LIMIT);
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = Payferry.SendItem(kind, 7, 0, address(token), PAYEE, amount);
        _call(abi.encodeCall(payferry.send, (items, ITEM_GAS)));
        uint256 moved = token.balanceOf(PAYEE);
        assert(moved == 0 || (moved == amount && moved <= LIMIT / 2 && kind != 0 && !fails));
        assert(moved + token.balanceOf(address(payferry)) == type(uint96).max);
        assert((payferry.doneAt(kind, 7) != 0) == (moved != 0));
    }

    /// A vault that exists obeys only the contract.
    function check_a_vault_refuses_strangers(address caller, address to, uint128 amount, bool isSweep) public {
        vm.assume(caller != address(payferry));
        SymbolicToken token = new SymbolicToken(0, false);
        bytes32 salt = payferry.pspSalt(PSP);
        address vault = payferry.vaultAddress(salt);
        payferry.sweepNative(salt);
        assert(vault.code.length != 0);
        token.mint(vault, 1_000);
        vm.deal(vault, 1_000);
        bytes memory data = isSweep
            ? abi.encodeCall(Vault.sweep, (payable(to)))
            : abi.encodeCall(Vault.pay, (address(token), to, amount, address(0), 0));
        vm.prank(caller);
        (bool ok,) = vault.call(data);
        assert(!ok);
        assert(token.balanceOf(vault) == 1_000 && vault.balance == 1_000);
    }

    /// The key of one role cannot use the functions of the other.
    function check_roles_do_not_overlap(address key, bool isSettler, bool isCollect) public {
        vm.assume(key != address(0) && key != address(this) && key != address(payferry));
        payferry.revoke(Access.Role.Settler, address(this));
        payferry.revoke(Access.Role.Sender, address(this));
        Access.Role role = isSettler ? Access.Role.Settler : Access.Role.Sender;
        payferry.grant(role, key);
        vm.warp(START + 30 days);
        payferry.enact(Access.Setting(uint8(role)), key);
        Payferry.CollectGroup[] memory groups;
        Payferry.DepositItem[] memory deposits;
        bytes memory data;
        if (isSettler) data = abi.encodeCall(payferry.send, (new Payferry.SendItem[](0), ITEM_GAS));
        else if (isCollect) data = abi.encodeCall(payferry.collect, (groups, deposits, ITEM_GAS));
        else data = abi.encodeCall(payferry.settle, (new Payferry.SettleItem[](0), ITEM_GAS));
        vm.prank(key);
        (bool ok,) = address(payferry).call(data);
        assert(!ok);
    }

    /// No caller without a role moves anything or changes a setting.
    function check_a_stranger_does_nothing(address caller, uint8 function_, address other) public {
        vm.assume(caller != address(this) && caller != address(payferry));
        SymbolicToken token = new SymbolicToken(0, false);
        token.mint(address(payferry), 1_000);
        payferry.setLimit(address(token), LIMIT);
        Payferry.SendItem memory item = Payferry.SendItem(1, 7, 0, address(token), other, 1_000);
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = item;
        token.mint(payferry.vaultAddress(payferry.paymentSalt(PAYMENT, PSP, BPS)), 1_000);
        token.mint(PAYEE, 1_000);
        Payferry.SettleItem[] memory settlements = new Payferry.SettleItem[](1);
        settlements[0] = Payferry.SettleItem(7, PAYMENT, PSP, BPS, address(token), 1_000, 0);
        Payferry.CollectGroup[] memory groups = new Payferry.CollectGroup[](1);
        groups[0] = _group(token, PAYMENT, PSP, 1_000, 0);
        bytes memory data;
        if (function_ == 0) data = abi.encodeCall(payferry.send, (items, ITEM_GAS));
        else if (function_ == 1) data = abi.encodeCall(payferry.sendItem, (item));
        else if (function_ == 2) data = abi.encodeCall(payferry.grant, (Access.Role.Sender, other));
        else if (function_ == 3) data = abi.encodeCall(payferry.revoke, (Access.Role.Sender, address(this)));
        else if (function_ == 4) data = abi.encodeCall(payferry.setTreasury, (other));
        else if (function_ == 5) data = abi.encodeCall(payferry.setLimit, (address(token), 2 * LIMIT));
        else if (function_ == 6) data = abi.encodeCall(payferry.proposeAdmin, (other));
        else if (function_ == 7) data = abi.encodeCall(payferry.enact, (Access.Setting.Admin, caller));
        else if (function_ == 8) data = abi.encodeCall(payferry.pause, (true, true));
        else if (function_ == 9) data = abi.encodeCall(payferry.setDelay, (30 days));
        else if (function_ == 10) data = abi.encodeCall(payferry.settle, (settlements, ITEM_GAS));
        else if (function_ == 11) data = abi.encodeCall(payferry.settleItem, (settlements[0]));
        else if (function_ == 12) data = abi.encodeCall(payferry.collect, (groups, new Payferry.DepositItem[](0), ITEM_GAS));
        else if (function_ == 13) data = abi.encodeCall(payferry.collectGroup, (groups[0], ITEM_GAS, type(uint256).max));
        else if (function_ == 14) data = abi.encodeCall(payferry.unpause, (true, true));
        else if (function_ == 15) data = abi.encodeCall(payferry.cancel, (Access.Setting.Limit, other));
        else data = abi.encodeCall(payferry.sweepNative, (0));
        vm.prank(caller);
        (bool ok,) = address(payferry).call(data);
        assert(!ok);
        assert(token.balanceOf(address(payferry)) == 1_000 && token.balanceOf(PAYEE) == 1_000);
        assert(_pspBalance(token, PSP) == 0);
        assert(payferry.hasRole(Access.Role.Sender, address(this)) && payferry.treasury() == TREASURY);
    }

    function _send(SymbolicToken token, uint128 id, bytes32 vaultSalt, uint128 amount) private {
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = Payferry.SendItem(1, id, vaultSalt, address(token), PAYEE, amount);
        _call(abi.encodeCall(payferry.send, (items, ITEM_GAS)));
    }

    /// Calls the contract, which must not fail as a whole (halmos ignores values with which a check itself reverts), except
    /// for a lack of gas: the gas that is left is symbolic, too.
    function _call(bytes memory data) private {
        (bool ok, bytes memory reason) = address(payferry).call(data);
        assert(ok || bytes4(reason) == Payferry.OutOfGasForItem.selector);
        vm.assume(ok);
    }

    /// A group of one payment that `PAYEE` pays.
    function _group(SymbolicToken token, uint128 paymentId, uint128 pspId, uint128 value, uint128 fee)
        private
        pure
        returns (Payferry.CollectGroup memory group)
    {
        group.pspId = pspId;
        group.token = address(token);
        group.items = new Payferry.CollectItem[](1);
        group.items[0].paymentId = paymentId;
        group.items[0].maxFeeBps = BPS;
        group.items[0].fee = fee;
        group.items[0].authorization.from = PAYEE;
        group.items[0].authorization.value = value;
    }

    function _pspBalance(SymbolicToken token, uint128 pspId) private view returns (uint256) {
        return token.balanceOf(payferry.vaultAddress(payferry.pspSalt(pspId)));
    }
}
