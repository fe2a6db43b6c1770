// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature} from "./IInferenceResults.sol";

/// @notice A worker's stake; one slot.
struct StakeRecord {
    uint96 stakedWei;
    /// on its way out, at risk until withdrawn
    uint96 unbondingWei;
    /// block timestamp, in seconds, from which `unbondingWei` can be withdrawn
    uint40 withdrawableAt;
    /// shown to have signed two digests for one request: can never stake again
    bool barred;
}

/// @notice An item of a signed group: what a worker once said about a request.
struct SignedItem {
    bytes items;
    CompactSignature signature;
    /// which of the group's items, from 0
    uint256 index;
}

/// @notice What the deployment fixes. Addresses are those of the other contracts.
struct StakeConfig {
    address registry;
    address requests;
    address results;
    address disputes;
    /// gets what a slash does not give to its reporter
    address treasury;
    uint256 minStakeWei;
    /// at most 365 days
    uint40 unbondingDelay;
    /// the reporter's share of a slash in 1/10,000, at most a half: what to report oneself costs at least
    uint256 reporterBps;
}

/// @title Stakes
/// @notice Holds what workers stand to lose; it leaves only after a delay.
interface IStakeManager {
    event Staked(address indexed signer, address indexed from, uint256 amountWei, uint256 stakedWei);
    event UnstakeStarted(
        address indexed signer, uint256 amountWei, uint256 stakedWei, uint256 unbondingWei, uint40 withdrawableAt
    );
    event StakeWithdrawn(address indexed signer, address indexed to, uint256 amountWei);
    /// @notice `amountWei` was taken, 0 where nothing was left; `stakedWei` and `unbondingWei` are left.
    event Slashed(
        address indexed signer, address indexed reporter, uint256 amountWei, uint256 stakedWei, uint256 unbondingWei
    );
    event Equivocated(address indexed signer, uint256 indexed id, bytes20 commitment, bytes32 digest, bytes32 other);

    error NotOwner(address caller);
    error NotRegistered(address signer);
    error AmountZero();
    error InsufficientStake(uint256 stakedWei, uint256 amountWei);
    error StillBonded(uint256 withdrawableAt, uint256 timestamp);
    /// @notice Staked and unbonding together would not fit 96 bits.
    error StakeTooLarge(uint256 amountWei);
    /// @notice The receiver refused, or is the zero address.
    error TransferFailed(address to, uint256 amountWei);
    error Barred(address signer);
    error NotDisputes(address caller);
    error NoSuchItem(uint256 index);
    error BadSignature();
    error NoEquivocation();
    error InvalidReporterBps(uint256 reporterBps);
    error NoTreasury();
    error UnbondingDelayTooLong(uint256 unbondingDelay);

    /// @notice Adds `msg.value` to a registered worker's stake; anyone may.
    function stake(address signer) external payable;
    /// @notice Starts to take `amountWei` out. A second call before withdrawal restarts the delay for the sum.
    function unstake(address signer, uint256 amountWei) external;
    /// @notice Sends what has finished unbonding to `to`. Only the worker's owner.
    function withdrawStake(address signer, address payable to) external returns (uint256 amountWei);

    /// @notice Shows that one worker signed two digests for one id and commitment: its whole stake is slashed, unbonding
    /// or not, and it can never stake again. Anyone may; once per worker.
    /// @return amountWei what was taken; the caller is credited its share
    function slashEquivocation(SignedItem calldata one, SignedItem calldata other) external returns (uint256 amountWei);
    /// @notice Takes up to `atMostWei` from a worker who lost a dispute: of its stake first, then of what is unbonding. Only
    /// the disputes contract.
    function slashLoser(address signer, uint256 atMostWei, address reporter) external returns (uint256 amountWei);

    function registry() external view returns (address);
    function minStakeWei() external view returns (uint256);
    /// @notice Seconds between `unstake` and `withdrawStake`.
    function unbondingDelay() external view returns (uint40);
    function reporterBps() external view returns (uint256);
    function treasury() external view returns (address);
    function results() external view returns (address);
    function requests() external view returns (address);
    function disputes() external view returns (address);
    function stakeOf(address signer) external view returns (StakeRecord memory);
}
