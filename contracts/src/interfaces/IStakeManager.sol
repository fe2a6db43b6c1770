// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice A worker's stake; one slot.
struct StakeRecord {
    uint96 stakedWei;
    /// on its way out, at risk until withdrawn
    uint96 unbondingWei;
    /// block timestamp, in seconds, from which `unbondingWei` can be withdrawn
    uint40 withdrawableAt;
}

/// @title Stakes
/// @notice Holds what workers stand to lose; it leaves only after a delay.
interface IStakeManager {
    event Staked(address indexed signer, address indexed from, uint256 amountWei, uint256 stakedWei);
    event UnstakeStarted(
        address indexed signer, uint256 amountWei, uint256 stakedWei, uint256 unbondingWei, uint40 withdrawableAt
    );
    event StakeWithdrawn(address indexed signer, address indexed to, uint256 amountWei);

    error NotOwner(address caller);
    error NotRegistered(address signer);
    error AmountZero();
    error InsufficientStake(uint256 stakedWei, uint256 amountWei);
    error StillBonded(uint256 withdrawableAt, uint256 timestamp);
    error StakeTooLarge(uint256 amountWei);
    error TransferFailed(address to, uint256 amountWei);

    /// @notice Adds `msg.value` to a registered worker's stake; anyone may.
    function stake(address signer) external payable;
    /// @notice Starts to take `amountWei` out. A second call before withdrawal restarts the delay for the sum.
    function unstake(address signer, uint256 amountWei) external;
    /// @notice Sends what has finished unbonding to `to`. Only the worker's owner.
    function withdrawStake(address signer, address payable to) external returns (uint256 amountWei);

    function registry() external view returns (address);
    function minStakeWei() external view returns (uint256);
    /// @notice Seconds between `unstake` and `withdrawStake`.
    function unbondingDelay() external view returns (uint40);
    function stakeOf(address signer) external view returns (StakeRecord memory);
}
