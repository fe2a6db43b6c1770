// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature} from "./IInferenceResults.sol";

/// @notice What a worker offers. Its id on chain is the address of the key that signs its results.
struct WorkerInfo {
    address signer;
    /// keccak256 of each model's name
    bytes32[] models;
    /// where the worker listens; empty = in the operator's process
    string endpoint;
    /// how many requests it works on at once
    uint32 slots;
    uint32 memoryMb;
}

/// @notice What storage holds of a worker: one slot, and the hash of the rest.
struct WorkerRecord {
    address owner;
    bool enabled;
    bool staked;
    uint32 slots;
    uint32 memoryMb;
    bytes32 infoHash;
}

/// @title Workers
/// @notice Names who may sign results: registered, enabled by the owner, and staked.
interface IWorkerRegistry {
    event WorkerRegistered(
        address indexed signer, address indexed owner, bytes32[] models, string endpoint, uint32 slots, uint32 memoryMb
    );
    event WorkerUpdated(
        address indexed signer, address indexed owner, bytes32[] models, string endpoint, uint32 slots, uint32 memoryMb
    );
    event WorkerEnabled(address indexed signer, bool enabled);
    event WorkerStaked(address indexed signer, bool staked);

    error AlreadyRegistered(address signer);
    error NotRegistered(address signer);
    error NotOwner(address caller);
    error NotStakeManager(address caller);
    error BadConsent(address signer);
    error NoModels();
    error NoSlots();

    /// @notice Registers a worker owned by the caller.
    /// @param consent the signer's EIP-712 signature over `WorkerConsent(address owner,address signer)`: without it
    /// anyone could register somebody else's key first and be credited for its work
    function register(WorkerInfo calldata info, CompactSignature calldata consent) external;
    /// @notice Replaces what the caller's worker offers.
    function update(WorkerInfo calldata info) external;
    /// @notice Takes the caller's worker out of service or back; results it signed are skipped meanwhile.
    function setEnabled(address signer, bool enabled) external;
    /// @notice Tells whether the stake suffices. Only the stake manager.
    function setStaked(address signer, bool staked) external;

    function stakeManager() external view returns (address);
    function workerOf(address signer) external view returns (WorkerRecord memory);
    /// @notice Who is credited for the signer's results; zero unless it is registered, enabled and staked.
    function activeOwner(address signer) external view returns (address owner);
    function consentDigest(address owner, address signer) external view returns (bytes32);
    function domainSeparator() external view returns (bytes32);
}
