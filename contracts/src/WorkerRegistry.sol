// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature} from "./interfaces/IInferenceResults.sol";
import {IWorkerRegistry, WorkerInfo, WorkerRecord} from "./interfaces/IWorkerRegistry.sol";
import {Signature} from "./lib/Signature.sol";
import {TypedData} from "./lib/TypedData.sol";

/// @title Workers
/// @dev A signer's owner never changes: who is credited for a key's work is fixed by the one consent that it signed.
contract WorkerRegistry is IWorkerRegistry, TypedData {
    bytes32 private constant CONSENT_TYPEHASH = keccak256("WorkerConsent(address owner,address signer)");

    address private immutable STAKE_MANAGER;

    /// @dev All but `infoHash` is one slot, the only one that `activeOwner` reads.
    mapping(address signer => WorkerRecord) private _workers;

    constructor(address stakeManager_) {
        STAKE_MANAGER = stakeManager_;
    }

    /// @inheritdoc IWorkerRegistry
    function register(WorkerInfo calldata info, CompactSignature calldata consent) external {
        address signer = info.signer;
        WorkerRecord storage worker = _workers[signer];
        if (worker.owner != address(0)) revert AlreadyRegistered(signer);

        address recovered = Signature.recover(_consentDigest(msg.sender, signer), consent);
        // A failed recovery is the zero address, which `info.signer` may name as well.
        if (recovered == address(0) || recovered != signer) revert BadConsent(signer);

        worker.owner = msg.sender;
        worker.enabled = true;
        _setInfo(worker, info);
        emit WorkerRegistered(signer, msg.sender, info.models, info.endpoint, info.slots, info.memoryMb);
    }

    /// @inheritdoc IWorkerRegistry
    function update(WorkerInfo calldata info) external {
        _setInfo(_ownWorker(info.signer), info);
        emit WorkerUpdated(info.signer, msg.sender, info.models, info.endpoint, info.slots, info.memoryMb);
    }

    /// @inheritdoc IWorkerRegistry
    function setEnabled(address signer, bool enabled) external {
        _ownWorker(signer).enabled = enabled;
        emit WorkerEnabled(signer, enabled);
    }

    /// @inheritdoc IWorkerRegistry
    function setStaked(address signer, bool staked) external {
        if (msg.sender != STAKE_MANAGER) revert NotStakeManager(msg.sender);
        WorkerRecord storage worker = _workers[signer];
        if (worker.owner == address(0)) revert NotRegistered(signer);
        worker.staked = staked;
        emit WorkerStaked(signer, staked);
    }

    /// @inheritdoc IWorkerRegistry
    function stakeManager() external view returns (address) {
        return STAKE_MANAGER;
    }

    /// @inheritdoc IWorkerRegistry
    function workerOf(address signer) external view returns (WorkerRecord memory) {
        return _workers[signer];
    }

    /// @inheritdoc IWorkerRegistry
    function activeOwner(address signer) external view returns (address owner) {
        WorkerRecord storage worker = _workers[signer];
        // Equivalent to `owner = worker.enabled && worker.staked ? worker.owner : address(0)`: the flags are the two bytes
        // above the owner.
        assembly ("memory-safe") {
            let record := sload(worker.slot)
            owner := mul(
                and(record, 0xffffffffffffffffffffffffffffffffffffffff),
                eq(and(shr(160, record), 0xffff), 0x0101)
            )
        }
    }

    /// @inheritdoc IWorkerRegistry
    function consentDigest(address owner, address signer) external view returns (bytes32) {
        return _consentDigest(owner, signer);
    }

    /// @inheritdoc IWorkerRegistry
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparator();
    }

    /// @dev `infoHash` is keccak256(abi.encode(models, endpoint)): what the slot has no room for.
    function _setInfo(WorkerRecord storage worker, WorkerInfo calldata info) private {
        if (info.models.length == 0) revert NoModels();
        if (info.slots == 0) revert NoSlots();
        worker.slots = info.slots;
        worker.memoryMb = info.memoryMb;
        worker.infoHash = keccak256(abi.encode(info.models, info.endpoint));
    }

    function _ownWorker(address signer) private view returns (WorkerRecord storage worker) {
        worker = _workers[signer];
        if (worker.owner == address(0)) revert NotRegistered(signer);
        if (worker.owner != msg.sender) revert NotOwner(msg.sender);
    }

    function _consentDigest(address owner, address signer) private view returns (bytes32) {
        return _typedDigest(keccak256(abi.encode(CONSENT_TYPEHASH, owner, signer)));
    }
}
