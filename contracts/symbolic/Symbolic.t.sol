// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Access} from "../sol/Access.sol";
import {Payferry} from "../sol/Payferry.sol";
import {PAYFERRY_CODE} from "./Code.sol";

interface Vm {
    function assume(bool) external pure;
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

    /// Accepts every signature: the payer agrees.
    function receiveWithAuthorization(
        address from, address to, uint256 value, uint256, uint256, bytes32, uint8, bytes32, bytes32
    ) external {
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
        payferry.settle(items, ITEM_GAS);
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
        payferry.settle(items, ITEM_GAS);
        uint256 moved = token.balanceOf(payferry.vaultAddress(payferry.pspSalt(PSP)));
        assert(moved == first || (first == 0 && moved == second));
    }

    /// `collect` passes on what the payer paid and keeps the contract's own balance, or nothing happens.
    function check_collect_keeps_its_own_balance(uint96 own, uint96 value, uint96 fee, uint96 loss, bool fails) public {
        SymbolicToken token = new SymbolicToken(loss, fails);
        token.mint(address(payferry), own);
        token.mint(PAYEE, value);
        Payferry.CollectGroup[] memory groups = new Payferry.CollectGroup[](1);
        groups[0].pspId = PSP;
        groups[0].token = address(token);
        groups[0].items = new Payferry.CollectItem[](1);
        groups[0].items[0].paymentId = PAYMENT;
        groups[0].items[0].maxFeeBps = BPS;
        groups[0].items[0].fee = fee;
        groups[0].items[0].authorization.from = PAYEE;
        groups[0].items[0].authorization.value = value;
        payferry.collect(groups, new Payferry.DepositItem[](0), ITEM_GAS);
        uint256 paid = value - token.balanceOf(PAYEE);
        uint256 share = token.balanceOf(payferry.vaultAddress(payferry.pspSalt(PSP)));
        uint256 taken = token.balanceOf(TREASURY);
        assert(token.balanceOf(address(payferry)) == own);
        assert(share + taken == paid);
        assert(taken * 10_000 <= paid * BPS);
        assert(paid == 0 || (paid == value && taken == fee && loss == 0 && !fails));
    }

    /// Two outbound transfers at any times within 24 hours, the first from a full bucket, move at most the limit. (Longer
    /// sequences are in the tests on revm: `a_stolen_sender_key_moves_at_most_the_limit_in_any_24_hours`.)
    function check_send_stays_within_the_limit(uint32 first, uint32 second, uint32 seconds_) public {
        vm.assume(first <= LIMIT && second <= LIMIT && seconds_ <= 1 days);
        SymbolicToken token = new SymbolicToken(0, false);
        token.mint(address(payferry), type(uint96).max);
        payferry.setLimit(address(token), LIMIT);
        _send(token, 1, first);
        vm.warp(START + seconds_);
        _send(token, 2, second);
        assert(token.balanceOf(PAYEE) <= LIMIT);
    }

    /// One outbound transfer moves exactly its amount within the capacity, or nothing.
    function check_send_moves_its_amount_or_nothing(uint8 kind, uint128 amount, bool fails) public {
        SymbolicToken token = new SymbolicToken(0, fails);
        token.mint(address(payferry), type(uint96).max);
        payferry.setLimit(address(token), LIMIT);
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = Payferry.SendItem(kind, 7, 0, address(token), PAYEE, amount);
        payferry.send(items, ITEM_GAS);
        uint256 moved = token.balanceOf(PAYEE);
        assert(moved == 0 || (moved == amount && moved <= LIMIT / 2 && kind != 0 && !fails));
        assert(moved + token.balanceOf(address(payferry)) == type(uint96).max);
        assert((payferry.doneAt(kind, 7) != 0) == (moved != 0));
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
        else data = abi.encodeCall(payferry.sweepNative, (0));
        vm.prank(caller);
        (bool ok,) = address(payferry).call(data);
        assert(!ok);
        assert(token.balanceOf(address(payferry)) == 1_000);
        assert(payferry.hasRole(Access.Role.Sender, address(this)) && payferry.treasury() == TREASURY);
    }

    function _send(SymbolicToken token, uint128 id, uint128 amount) private {
        Payferry.SendItem[] memory items = new Payferry.SendItem[](1);
        items[0] = Payferry.SendItem(1, id, 0, address(token), PAYEE, amount);
        payferry.send(items, ITEM_GAS);
    }
}
