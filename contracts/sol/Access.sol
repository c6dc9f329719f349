// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Roles, delayed changes, pauses and limits
/// @notice Owns the keys of each role, the treasury, the limit of each token, and the rule that a change takes effect
/// immediately only if it gives no more power than before. Not here: operations and vaults (see `Payferry`).
///
/// A change that widens power waits for `delay` and is visible during that time (`proposals`). The first grant of each
/// role, the first treasury and the first limit of each token are exceptions, because there is no power to protect yet.
/// "First" is a stored flag and not the value zero, so that revoking every key does not open the exception again.
abstract contract Access {
    enum Role {
        Settler, // calls `settle` and `collect`
        Sender, // calls `send`
        Guardian // pauses, and revokes settlers and senders
    }

    /// The roles come first and in the order of `Role`.
    enum Setting {
        Settler,
        Sender,
        Guardian,
        Limit,
        Treasury,
        Admin,
        Delay
    }

    /// A change that waits. `subject` is the key, token, treasury or admin (zero for the delay), `value` the limit in
    /// base units or the delay in seconds (otherwise 1).
    struct Proposal {
        Setting setting;
        address subject;
        uint256 value;
        uint256 effectiveAt; // seconds of chain time
    }

    /// A leaky bucket. Its capacity is half of the limit, and it refills half of the limit in 24 hours. Any 24 hours
    /// therefore begin with at most half of the limit and add at most half, so no window exceeds the limit. (A counter
    /// that is reset every 24 hours would allow twice the limit around the reset.)
    struct Bucket {
        uint104 limit; // base units in 24 hours; 20 trillion tokens with 18 decimals
        uint104 available; // at `updatedAt`; never above half of the limit
        uint48 updatedAt;
    }

    event Proposed(Setting indexed setting, address indexed subject, uint256 value, uint256 effectiveAt);
    event ProposalDropped(Setting indexed setting, address indexed subject, uint256 value);
    /// A change took effect. `value` as in `Proposal`; 0 if a key was revoked.
    event Changed(Setting indexed setting, address indexed subject, uint256 value);
    event PauseChanged(bool settlePaused, bool sendPaused);

    error NotAdmin();
    error NotGuardian();
    error NotSettler();
    error NotSender();
    error InvalidAddress();
    error InvalidValue();
    error AlreadySet();
    error TooManyKeys();
    error TooManyProposals();
    error NotProposed();
    error TooEarly(uint256 effectiveAt);
    /// The amount is larger than what the token's limit leaves now.
    error LimitExceeded(uint256 available);

    uint256 public constant DELAY_MIN = 1 days;
    uint256 public constant DELAY_MAX = 30 days;
    /// Bound the loops of `revoke`, so that an admin cannot make it run out of gas for the guardian.
    uint256 private constant KEYS_MAX = 8;
    uint256 private constant PROPOSALS_MAX = 32;

    address public admin;
    uint256 public delay = 2 days;
    address public treasury;
    bool public settlePaused;
    bool public sendPaused;
    mapping(Role role => address[] keys) private keys;
    mapping(address token => Bucket) private buckets;
    mapping(Setting setting => mapping(address token => bool)) private everSet;
    Proposal[] private pending;

    constructor(address admin_) {
        if (admin_ == address(0)) revert InvalidAddress();
        admin = admin_;
        everSet[Setting.Admin][address(0)] = true;
        everSet[Setting.Delay][address(0)] = true;
        emit Changed(Setting.Admin, admin_, 1);
    }

    modifier onlyAdmin() {
        if (msg.sender != admin) revert NotAdmin();
        _;
    }

    // ---------------------------------------------------------------------------------------------------- views

    function keysOf(Role role) external view returns (address[] memory) {
        return keys[role];
    }

    /// @notice Returns the changes that wait for their delay, or have passed it and wait for `enact`.
    function proposals() external view returns (Proposal[] memory) {
        return pending;
    }

    function hasRole(Role role, address key) public view returns (bool) {
        address[] storage all = keys[role];
        for (uint256 i = 0; i < all.length; ++i) {
            if (all[i] == key) return true;
        }
        return false;
    }

    /// @notice Returns the limit of a token in 24 hours and what can be sent now, both in base units. The refill is
    /// rounded down, so a send loses less than one base unit.
    function limitOf(address token) public view returns (uint256 limit, uint256 available) {
        Bucket storage bucket = buckets[token];
        limit = bucket.limit;
        available = bucket.available + (limit / 2) * (block.timestamp - bucket.updatedAt) / 1 days;
        if (available > limit / 2) available = limit / 2;
    }

    // -------------------------------------------------------------------------------------------------- changes

    /// @notice Grants a role to a key: immediately if the role was never granted, otherwise after the delay.
    function grant(Role role, address key) external onlyAdmin {
        if (key == address(0)) revert InvalidAddress();
        if (hasRole(role, key)) revert AlreadySet();
        _change(_setting(role), key, 1, true);
    }

    /// @notice Revokes a role and withdraws a pending grant of it, immediately. The guardian may do so for settlers and
    /// senders. Revoking what was not granted is no error, so that nothing can get in the way of it.
    function revoke(Role role, address key) external {
        if (msg.sender != admin && (role == Role.Guardian || !hasRole(Role.Guardian, msg.sender))) {
            revert NotGuardian();
        }
        _drop(_setting(role), key);
        address[] storage all = keys[role];
        for (uint256 i = 0; i < all.length; ++i) {
            if (all[i] != key) continue;
            all[i] = all[all.length - 1];
            all.pop();
            emit Changed(_setting(role), key, 0);
            return;
        }
    }

    /// @notice Sets the recipient of fees: the first immediately, another one after the delay. It may not be this
    /// contract, whose own tokens nothing may change except `send`.
    function setTreasury(address treasury_) external onlyAdmin {
        if (treasury_ == address(0) || treasury_ == address(this)) revert InvalidAddress();
        if (treasury_ == treasury) revert AlreadySet();
        _change(Setting.Treasury, treasury_, 1, true);
    }

    /// @notice Sets how much of a token `send` may move in 24 hours, in base units. The first limit and a lower one take
    /// effect immediately, a higher one after the delay. A single send can be at most half of it.
    function setLimit(address token, uint256 limit) external onlyAdmin {
        if (limit > type(uint104).max) revert InvalidValue();
        _change(Setting.Limit, token, limit, limit > buckets[token].limit);
    }

    /// @notice First of two steps. The second is `enact` by the new admin after the delay, so a mistyped address is
    /// harmless.
    function proposeAdmin(address admin_) external onlyAdmin {
        if (admin_ == address(0)) revert InvalidAddress();
        _change(Setting.Admin, admin_, 1, true);
    }

    /// @notice Sets the delay of later proposals, in seconds. A longer one takes effect immediately.
    function setDelay(uint256 delay_) external onlyAdmin {
        if (delay_ < DELAY_MIN || delay_ > DELAY_MAX) revert InvalidValue();
        _change(Setting.Delay, address(0), delay_, delay_ < delay);
    }

    /// @notice Makes a proposed change effective after its delay. Called by the admin; for a new admin, by the new one.
    function enact(Setting setting, address subject) external {
        if (msg.sender != (setting == Setting.Admin ? subject : admin)) revert NotAdmin();
        uint256 i = _indexOf(setting, subject);
        if (i == pending.length || pending[i].subject != subject) revert NotProposed();
        Proposal memory proposal = pending[i];
        if (block.timestamp < proposal.effectiveAt) revert TooEarly(proposal.effectiveAt);
        _remove(i);
        _apply(setting, subject, proposal.value);
    }

    /// @notice Withdraws a proposed change.
    function cancel(Setting setting, address subject) external onlyAdmin {
        uint256 i = _indexOf(setting, subject);
        if (i == pending.length || pending[i].subject != subject) revert NotProposed();
        _drop(setting, subject);
    }

    /// @notice Pauses `settle` and `collect`, or `send`, or both. Nothing is resumed by `false`.
    function pause(bool settle_, bool send_) external {
        if (msg.sender != admin && !hasRole(Role.Guardian, msg.sender)) revert NotGuardian();
        _setPaused(settlePaused || settle_, sendPaused || send_);
    }

    /// @notice Resumes `settle` and `collect`, or `send`, or both. Nothing is paused by `false`.
    function unpause(bool settle_, bool send_) external onlyAdmin {
        _setPaused(settlePaused && !settle_, sendPaused && !send_);
    }

    // ------------------------------------------------------------------------------------------------- internal

    /// Takes `amount` from the token's bucket. A failed item gives it back, because its whole call reverts.
    function _useLimit(address token, uint256 amount) internal {
        (, uint256 available) = limitOf(token);
        if (amount > available) revert LimitExceeded(available);
        Bucket storage bucket = buckets[token];
        bucket.available = uint104(available - amount);
        bucket.updatedAt = uint48(block.timestamp);
    }

    /// Replaces what was proposed for the same subject, and applies the change or proposes it.
    function _change(Setting setting, address subject, uint256 value, bool widens) private {
        _drop(setting, subject);
        if (!widens || !everSet[setting][setting == Setting.Limit ? subject : address(0)]) {
            _apply(setting, subject, value);
            return;
        }
        if (pending.length == PROPOSALS_MAX) revert TooManyProposals();
        uint256 effectiveAt = block.timestamp + delay;
        pending.push(Proposal(setting, subject, value, effectiveAt));
        emit Proposed(setting, subject, value, effectiveAt);
    }

    function _apply(Setting setting, address subject, uint256 value) private {
        if (setting == Setting.Limit) {
            Bucket storage bucket = buckets[subject];
            // The first bucket is full. A raised limit does not refill it, a lowered one spills what is above it.
            (, uint256 available) = limitOf(subject);
            if (!everSet[setting][subject] || available > value / 2) available = value / 2;
            (bucket.limit, bucket.available) = (uint104(value), uint104(available));
            bucket.updatedAt = uint48(block.timestamp);
        } else if (setting == Setting.Treasury) {
            treasury = subject;
        } else if (setting == Setting.Admin) {
            admin = subject;
        } else if (setting == Setting.Delay) {
            delay = value;
        } else {
            address[] storage all = keys[Role(uint8(setting))];
            if (all.length == KEYS_MAX) revert TooManyKeys();
            all.push(subject);
        }
        everSet[setting][setting == Setting.Limit ? subject : address(0)] = true;
        emit Changed(setting, subject, value);
    }

    /// Returns the index of the proposal that a change of `setting` and `subject` replaces, or the length. Keys and
    /// limits have one for each subject, the other settings have one each.
    function _indexOf(Setting setting, address subject) private view returns (uint256 i) {
        bool each = setting <= Setting.Limit;
        for (; i < pending.length; ++i) {
            if (pending[i].setting == setting && (!each || pending[i].subject == subject)) break;
        }
    }

    function _drop(Setting setting, address subject) private {
        uint256 i = _indexOf(setting, subject);
        if (i == pending.length) return;
        emit ProposalDropped(setting, pending[i].subject, pending[i].value);
        _remove(i);
    }

    function _remove(uint256 i) private {
        pending[i] = pending[pending.length - 1];
        pending.pop();
    }

    function _setPaused(bool settlePaused_, bool sendPaused_) private {
        (settlePaused, sendPaused) = (settlePaused_, sendPaused_);
        emit PauseChanged(settlePaused_, sendPaused_);
    }

    function _setting(Role role) private pure returns (Setting) {
        return Setting(uint8(role));
    }
}
