// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A replacement for USDT, for sandboxes and tests only
/// @notice Has the behaviour and gas costs of Tether's original token that matter to payments: 6 decimals, transfers
/// and approvals that return nothing, a blacklist that affects only the payer, and fee parameters (zero) that every
/// transfer reads. Not here: upgrades by deprecation, destroying blacklisted funds.
contract TestUSDT {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);
    event AddedBlackList(address account);
    event RemovedBlackList(address account);

    string public constant name = "Tether USD";
    string public constant symbol = "USDT";
    uint8 public constant decimals = 6;

    address public immutable owner;
    bool public paused;
    uint256 public basisPointsRate;
    uint256 public maximumFee;
    uint256 public totalSupply;
    mapping(address account => uint256 balance) public balanceOf;
    mapping(address account => mapping(address spender => uint256 amount)) public allowance;
    mapping(address account => bool listed) public isBlackListed;

    constructor(address owner_) {
        owner = owner_;
    }

    modifier onlyOwner() {
        require(msg.sender == owner);
        _;
    }

    modifier whenNotPaused() {
        require(!paused);
        _;
    }

    function transfer(address to, uint256 value) external whenNotPaused {
        _transfer(msg.sender, to, value);
    }

    function transferFrom(address from, address to, uint256 value) external whenNotPaused {
        uint256 allowed = allowance[from][msg.sender];
        require(value <= allowed);
        if (allowed != type(uint256).max) allowance[from][msg.sender] = allowed - value;
        _transfer(from, to, value);
    }

    /// Like the original: a nonzero allowance must be set to zero before it is changed.
    function approve(address spender, uint256 value) external whenNotPaused {
        require(value == 0 || allowance[msg.sender][spender] == 0);
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
    }

    function mint(address to, uint256 value) external onlyOwner {
        _mint(to, value);
    }

    /// Mints `values[i]` to `to[i]` for every i.
    function mintBatch(address[] calldata to, uint256[] calldata values) external onlyOwner {
        require(to.length == values.length);
        for (uint256 i = 0; i < to.length; ++i) _mint(to[i], values[i]);
    }

    function addBlackList(address account) external onlyOwner {
        isBlackListed[account] = true;
        emit AddedBlackList(account);
    }

    function removeBlackList(address account) external onlyOwner {
        isBlackListed[account] = false;
        emit RemovedBlackList(account);
    }

    function setPaused(bool paused_) external onlyOwner {
        paused = paused_;
    }

    function _mint(address to, uint256 value) private {
        totalSupply += value;
        balanceOf[to] += value;
        emit Transfer(address(0), to, value);
    }

    function _transfer(address from, address to, uint256 value) private {
        require(!isBlackListed[from]);
        uint256 fee = value * basisPointsRate / 10_000;
        if (fee > maximumFee) fee = maximumFee;
        balanceOf[from] -= value;
        balanceOf[to] += value - fee;
        if (fee > 0) {
            balanceOf[owner] += fee;
            emit Transfer(from, owner, fee);
        }
        emit Transfer(from, to, value - fee);
    }
}
