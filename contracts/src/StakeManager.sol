// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "./interfaces/ICredits.sol";
import {IInferenceResults} from "./interfaces/IInferenceResults.sol";
import {IStakeManager, SignedItem, StakeConfig, StakeRecord} from "./interfaces/IStakeManager.sol";
import {IWorkerRegistry, WorkerRecord} from "./interfaces/IWorkerRegistry.sol";
import {Items} from "./lib/Items.sol";
import {Signature} from "./lib/Signature.sol";

/// @title Stakes
/// @dev Solvency: the balance is the sum of what is staked and what is unbonding. There is no receive function: ether that
/// belongs to no stake is refused. What a slash takes becomes credit in the one purse, so slashing calls no stranger.
contract StakeManager is IStakeManager {
    uint256 private constant MAX_BPS = 10_000;
    uint40 private constant MAX_UNBONDING_DELAY = 365 days;

    IWorkerRegistry private immutable REGISTRY;
    ICredits private immutable CREDITS;
    IInferenceResults private immutable RESULTS;
    address private immutable DISPUTES;
    address private immutable TREASURY;
    uint256 private immutable MIN_STAKE_WEI;
    uint40 private immutable UNBONDING_DELAY;
    uint256 private immutable REPORTER_BPS;

    mapping(address signer => StakeRecord) private _stakes;

    /// @dev `minStakeWei` is what makes a worker count as staked; with 0, one stake of any amount does for ever.
    constructor(StakeConfig memory config) {
        if (config.reporterBps > MAX_BPS / 2) revert InvalidReporterBps(config.reporterBps);
        if (config.treasury == address(0)) revert NoTreasury();
        // A delay that no timestamp can hold would keep every stake for ever.
        if (config.unbondingDelay > MAX_UNBONDING_DELAY) revert UnbondingDelayTooLong(config.unbondingDelay);
        REGISTRY = IWorkerRegistry(config.registry);
        CREDITS = ICredits(config.requests);
        RESULTS = IInferenceResults(config.results);
        DISPUTES = config.disputes;
        TREASURY = config.treasury;
        MIN_STAKE_WEI = config.minStakeWei;
        UNBONDING_DELAY = config.unbondingDelay;
        REPORTER_BPS = config.reporterBps;
    }

    /// @inheritdoc IStakeManager
    function stake(address signer) external payable {
        if (msg.value == 0) revert AmountZero();
        WorkerRecord memory worker = REGISTRY.workerOf(signer);
        if (worker.owner == address(0)) revert NotRegistered(signer);

        StakeRecord memory record = _stakes[signer];
        if (record.barred) revert Barred(signer);
        uint256 stakedWei = record.stakedWei + msg.value;
        // Together they must fit, so that no later `unstake` can overflow the unbonding part.
        if (stakedWei + record.unbondingWei > type(uint96).max) revert StakeTooLarge(msg.value);
        // Checked above.
        // forge-lint: disable-next-line(unsafe-typecast)
        record.stakedWei = uint96(stakedWei);
        _stakes[signer] = record;
        emit Staked(signer, msg.sender, msg.value, stakedWei);
        _syncStaked(signer, worker.staked, record);
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
        _syncStaked(signer, worker.staked, record);
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
    function slashEquivocation(SignedItem calldata one, SignedItem calldata other)
        external
        returns (uint256 amountWei)
    {
        address signer = _signerOf(one);
        if (signer != _signerOf(other)) revert NoEquivocation();
        (uint256 id, bytes20 commitment, bytes32 digest) = Items.itemAt(one.items, one.index);
        (uint256 otherId, bytes20 otherCommitment, bytes32 otherDigest) = Items.itemAt(other.items, other.index);
        if (id != otherId || commitment != otherCommitment || digest == otherDigest) revert NoEquivocation();

        if (REGISTRY.workerOf(signer).owner == address(0)) revert NotRegistered(signer);
        // Barred before anything is paid: the same proof must not take twice.
        if (_stakes[signer].barred) revert Barred(signer);
        _stakes[signer].barred = true;
        emit Equivocated(signer, id, commitment, digest, otherDigest);
        return _slash(signer, type(uint256).max, msg.sender);
    }

    /// @inheritdoc IStakeManager
    function slashLoser(address signer, uint256 atMostWei, address reporter) external returns (uint256 amountWei) {
        if (msg.sender != DISPUTES) revert NotDisputes(msg.sender);
        return _slash(signer, atMostWei, reporter);
    }

    /// @inheritdoc IStakeManager
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IStakeManager
    function requests() external view returns (address) {
        return address(CREDITS);
    }

    /// @inheritdoc IStakeManager
    function results() external view returns (address) {
        return address(RESULTS);
    }

    /// @inheritdoc IStakeManager
    function disputes() external view returns (address) {
        return DISPUTES;
    }

    /// @inheritdoc IStakeManager
    function treasury() external view returns (address) {
        return TREASURY;
    }

    /// @inheritdoc IStakeManager
    function reporterBps() external view returns (uint256) {
        return REPORTER_BPS;
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

    /// @dev From the stake first, so that who is slashed below the minimum is out of service; then from what is leaving.
    function _slash(address signer, uint256 atMostWei, address reporter) private returns (uint256 amountWei) {
        StakeRecord memory record = _stakes[signer];
        uint256 fromStakedWei = _min(atMostWei, record.stakedWei);
        uint256 fromUnbondingWei = _min(atMostWei - fromStakedWei, record.unbondingWei);
        // Each is at most the uint96 that it is taken from.
        // forge-lint: disable-next-line(unsafe-typecast)
        record.stakedWei -= uint96(fromStakedWei);
        // forge-lint: disable-next-line(unsafe-typecast)
        record.unbondingWei -= uint96(fromUnbondingWei);
        _stakes[signer] = record;
        amountWei = fromStakedWei + fromUnbondingWei;
        emit Slashed(signer, reporter, amountWei, record.stakedWei, record.unbondingWei);
        _syncStaked(signer, REGISTRY.workerOf(signer).staked, record);

        // What does not divide goes to the treasury.
        uint256 reporterWei = amountWei * REPORTER_BPS / MAX_BPS;
        if (reporterWei != 0) CREDITS.credit{value: reporterWei}(reporter);
        if (amountWei != reporterWei) CREDITS.credit{value: amountWei - reporterWei}(TREASURY);
    }

    function _signerOf(SignedItem calldata said) private view returns (address signer) {
        if (!Items.areWhole(said.items) || said.index >= said.items.length / Items.BYTES) {
            revert NoSuchItem(said.index);
        }
        signer = Signature.recover(RESULTS.groupDigest(said.items), said.signature);
        if (signer == address(0)) revert BadSignature();
    }

    /// @dev Tells the registry only when the stake crosses the minimum. Who is barred has no stake that counts, even where
    /// none is asked for.
    function _syncStaked(address signer, bool wasStaked, StakeRecord memory record) private {
        bool isStaked = record.stakedWei >= MIN_STAKE_WEI && !record.barred;
        if (isStaked != wasStaked) REGISTRY.setStaked(signer, isStaked);
    }

    function _ownWorker(address signer) private view returns (WorkerRecord memory worker) {
        worker = REGISTRY.workerOf(signer);
        if (worker.owner == address(0)) revert NotRegistered(signer);
        if (worker.owner != msg.sender) revert NotOwner(msg.sender);
    }

    function _min(uint256 one, uint256 other) private pure returns (uint256) {
        return one < other ? one : other;
    }
}
