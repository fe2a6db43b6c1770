// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IStakeManager, StakeRecord} from "./interfaces/IStakeManager.sol";
import {IWorkerRegistry, WorkerRecord} from "./interfaces/IWorkerRegistry.sol";

/// @title Stakes
/// @dev There is no receive function: ether that belongs to no stake is refused.
contract StakeManager is IStakeManager {
    IWorkerRegistry private immutable REGISTRY;
    uint256 private immutable MIN_STAKE_WEI;
    uint40 private immutable UNBONDING_DELAY;

    mapping(address signer => StakeRecord) private _stakes;

    /// @param minStakeWei_ what makes a worker count as staked; with 0, one stake of any amount does for ever
    constructor(address registry_, uint256 minStakeWei_, uint40 unbondingDelay_) {
        REGISTRY = IWorkerRegistry(registry_);
        MIN_STAKE_WEI = minStakeWei_;
        UNBONDING_DELAY = unbondingDelay_;
    }

    /// @inheritdoc IStakeManager
    function stake(address signer) external payable {
        if (msg.value == 0) revert AmountZero();
        WorkerRecord memory worker = REGISTRY.workerOf(signer);
        if (worker.owner == address(0)) revert NotRegistered(signer);

        StakeRecord memory record = _stakes[signer];
        uint256 stakedWei = record.stakedWei + msg.value;
        // Together they must fit, so that no later `unstake` can overflow the unbonding part.
        if (stakedWei + record.unbondingWei > type(uint96).max) revert StakeTooLarge(msg.value);
        // Checked above.
        // forge-lint: disable-next-line(unsafe-typecast)
        _stakes[signer].stakedWei = uint96(stakedWei);
        emit Staked(signer, msg.sender, msg.value, stakedWei);
        _syncStaked(signer, worker.staked, stakedWei);
    }

    /// @inheritdoc IStakeManager
    function unstake(address signer, uint256 amountWei) external {
        if (amountWei == 0) revert AmountZero();
        WorkerRecord memory worker = _ownWorker(signer);

        StakeRecord memory record = _stakes[signer];
        if (amountWei > record.stakedWei) revert InsufficientStake(record.stakedWei, amountWei);
        // `amountWei` is at most `stakedWei`, a uint96.
        // forge-lint: disable-next-line(unsafe-typecast)
        record.stakedWei -= uint96(amountWei);
        // forge-lint: disable-next-line(unsafe-typecast)
        record.unbondingWei += uint96(amountWei);
        // forge-lint: disable-next-line(unsafe-typecast)
        record.withdrawableAt = uint40(block.timestamp) + UNBONDING_DELAY;
        _stakes[signer] = record;
        emit UnstakeStarted(signer, amountWei, record.stakedWei, record.unbondingWei, record.withdrawableAt);
        _syncStaked(signer, worker.staked, record.stakedWei);
    }

    /// @inheritdoc IStakeManager
    function withdrawStake(address signer, address payable to) external returns (uint256 amountWei) {
        _ownWorker(signer);

        StakeRecord memory record = _stakes[signer];
        amountWei = record.unbondingWei;
        if (amountWei == 0) revert AmountZero();
        if (block.timestamp < record.withdrawableAt) revert StillBonded(record.withdrawableAt, block.timestamp);
        // Cleared before the transfer: a re-entering `to` finds nothing left.
        record.unbondingWei = 0;
        record.withdrawableAt = 0;
        _stakes[signer] = record;
        emit StakeWithdrawn(signer, to, amountWei);

        // The zero address would take the money and nobody would ever see it again.
        if (to == address(0)) revert TransferFailed(to, amountWei);
        (bool ok,) = to.call{value: amountWei}("");
        if (!ok) revert TransferFailed(to, amountWei);
    }

    /// @inheritdoc IStakeManager
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IStakeManager
    function minStakeWei() external view returns (uint256) {
        return MIN_STAKE_WEI;
    }

    /// @inheritdoc IStakeManager
    function unbondingDelay() external view returns (uint40) {
        return UNBONDING_DELAY;
    }

    /// @inheritdoc IStakeManager
    function stakeOf(address signer) external view returns (StakeRecord memory) {
        return _stakes[signer];
    }

    /// @dev Tells the registry only when the stake crosses the minimum.
    function _syncStaked(address signer, bool wasStaked, uint256 stakedWei) private {
        bool isStaked = stakedWei >= MIN_STAKE_WEI;
        if (isStaked != wasStaked) REGISTRY.setStaked(signer, isStaked);
    }

    function _ownWorker(address signer) private view returns (WorkerRecord memory worker) {
        worker = REGISTRY.workerOf(signer);
        if (worker.owner == address(0)) revert NotRegistered(signer);
        if (worker.owner != msg.sender) revert NotOwner(msg.sender);
    }
}
