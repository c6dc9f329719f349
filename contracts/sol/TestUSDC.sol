// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Erc3009} from "./Erc3009.sol";

/// @title A replacement for USDC, for sandboxes and tests only
/// @notice Has the behaviour and gas costs of Circle's FiatToken 2.2 that matter to payments: 6 decimals, transfers
/// that return true, a pause flag that every transfer reads, the blacklist flag in the top bit of the balance slot, and
/// transfers by signature. Not here: permit, minters, the upgrade proxy.
contract TestUSDC is Erc3009 {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);
    event Blacklisted(address indexed account);
    event UnBlacklisted(address indexed account);

    string public constant symbol = "USDC";
    uint8 public constant decimals = 6;
    uint256 private constant BLACKLISTED = 1 << 255;

    address public immutable owner;
    bool public paused;
    uint256 public totalSupply;
    mapping(address account => uint256 balanceAndMark) private balances;
    mapping(address account => mapping(address spender => uint256 amount)) public allowance;

    constructor(address owner_) {
        owner = owner_;
    }

    function name() public pure override returns (string memory) {
        return "USD Coin";
    }

    function version() public pure override returns (string memory) {
        return "2";
    }

    modifier onlyOwner() {
        require(msg.sender == owner, "Ownable: caller is not the owner");
        _;
    }

    modifier whenNotPaused() {
        require(!paused, "Pausable: paused");
        _;
    }

    function balanceOf(address account) external view returns (uint256) {
        return balances[account] & ~BLACKLISTED;
    }

    function isBlacklisted(address account) external view returns (bool) {
        return balances[account] & BLACKLISTED != 0;
    }

    function transfer(address to, uint256 value) external whenNotPaused returns (bool) {
        _transfer(msg.sender, to, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external whenNotPaused returns (bool) {
        uint256 allowed = allowance[from][msg.sender];
        require(value <= allowed, "ERC20: transfer amount exceeds allowance");
        allowance[from][msg.sender] = allowed - value;
        _transfer(from, to, value);
        return true;
    }

    function approve(address spender, uint256 value) external whenNotPaused returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }

    function mint(address to, uint256 value) external onlyOwner {
        _mint(to, value);
    }

    /// Mints `values[i]` to `to[i]` for every i.
    function mintBatch(address[] calldata to, uint256[] calldata values) external onlyOwner {
        require(to.length == values.length, "TestUSDC: lengths differ");
        for (uint256 i = 0; i < to.length; ++i) _mint(to[i], values[i]);
    }

    function blacklist(address account) external onlyOwner {
        balances[account] |= BLACKLISTED;
        emit Blacklisted(account);
    }

    function unBlacklist(address account) external onlyOwner {
        balances[account] &= ~BLACKLISTED;
        emit UnBlacklisted(account);
    }

    function setPaused(bool paused_) external onlyOwner {
        paused = paused_;
    }

    function _transferAuthorized(address from, address to, uint256 value) internal override whenNotPaused {
        _transfer(from, to, value);
    }

    function _mint(address to, uint256 value) private {
        uint256 held = balances[to];
        require(held & BLACKLISTED == 0, "Blacklistable: account is blacklisted");
        require(totalSupply + value < BLACKLISTED, "TestUSDC: supply too large");
        totalSupply += value;
        balances[to] = held + value;
        emit Transfer(address(0), to, value);
    }

    function _transfer(address from, address to, uint256 value) private {
        require(to != address(0), "ERC20: transfer to the zero address");
        uint256 held = balances[from];
        require(held & BLACKLISTED == 0 && balances[to] & BLACKLISTED == 0, "Blacklistable: account is blacklisted");
        require(value <= held, "ERC20: transfer amount exceeds balance");
        balances[from] = held - value;
        balances[to] += value;
        emit Transfer(from, to, value);
    }
}
