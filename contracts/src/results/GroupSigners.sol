// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature, GroupSkipReason, IInferenceResults} from "../interfaces/IInferenceResults.sol";
import {IWorkerRegistry} from "../interfaces/IWorkerRegistry.sol";
import {RequestWordLib} from "../lib/RequestWord.sol";
import {Signature} from "../lib/Signature.sol";
import {TypedData} from "../lib/TypedData.sol";

/// @title Who signed a group
abstract contract GroupSigners is IInferenceResults, TypedData {
    bytes32 private constant GROUP_TYPEHASH = keccak256("ResultGroup(bytes items)");

    IWorkerRegistry internal immutable REGISTRY;

    constructor(address registry_) {
        REGISTRY = IWorkerRegistry(registry_);
    }

    /// @inheritdoc IInferenceResults
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IInferenceResults
    function groupDigest(bytes calldata items) external view returns (bytes32) {
        return _groupDigest(keccak256(items));
    }

    /// @inheritdoc IInferenceResults
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparator();
    }

    /// @return worker who signed
    /// @return owner who is credited for the worker; zero if it is not an active one. A failed recovery gives the zero
    /// address, which is never registered: one test finds both faults.
    function _signer(bytes32 itemsHash, CompactSignature calldata signature)
        internal
        view
        returns (address worker, address owner)
    {
        worker = Signature.recover(_groupDigest(itemsHash), signature);
        owner = _activeOwner(worker);
    }

    /// @param worker what `_signer` gave, without an owner
    function _skipSigner(uint256 index, address worker) internal {
        emit GroupSkipped(index, worker == address(0) ? GroupSkipReason.BAD_SIGNATURE : GroupSkipReason.INACTIVE_WORKER);
    }

    /// @dev Ascending, so that nobody counts twice.
    /// @return workers who signed, all active; empty if the group was skipped
    /// @return owners who is credited for each
    function _signers(uint256 index, bytes calldata items, CompactSignature[] calldata signatures)
        internal
        returns (address[] memory workers, address[] memory owners)
    {
        uint256 count = signatures.length;
        if (count == 0 || count > RequestWordLib.MAX_QUORUM) {
            emit GroupSkipped(index, GroupSkipReason.BAD_SIGNER_COUNT);
            return (workers, owners);
        }
        bytes32 itemsHash = keccak256(items);
        address[] memory found = new address[](count);
        address[] memory paid = new address[](count);
        for (uint256 i; i < count; ++i) {
            (found[i], paid[i]) = _signer(itemsHash, signatures[i]);
            if (paid[i] == address(0)) {
                _skipSigner(index, found[i]);
                return (workers, owners);
            }
            if (i != 0 && found[i] <= found[i - 1]) {
                emit GroupSkipped(index, GroupSkipReason.SIGNERS_NOT_ASCENDING);
                return (workers, owners);
            }
        }
        return (found, paid);
    }

    /// @dev Equivalent to `REGISTRY.activeOwner(worker)`, save that what our own contract returns is taken for an address;
    /// with the checks here and in `InferenceResults._settle`, a single result would cost 500 gas more. That something is
    /// returned is checked, or a registry without code would let everybody in. Memory-safe: scratch space only.
    function _activeOwner(address worker) private view returns (address owner) {
        IWorkerRegistry target = REGISTRY;
        bytes4 selector = IWorkerRegistry.activeOwner.selector;
        assembly ("memory-safe") {
            mstore(0x00, selector)
            mstore(0x04, worker)
            // Arguments are evaluated from the last to the first: the call precedes its returned size.
            if iszero(and(eq(returndatasize(), 0x20), staticcall(gas(), target, 0x00, 0x24, 0x00, 0x20))) {
                revert(0x00, 0x00)
            }
            owner := mload(0x00)
        }
    }

    function _groupDigest(bytes32 itemsHash) private view returns (bytes32) {
        bytes32 typehash = GROUP_TYPEHASH;
        bytes32 structHash;
        // Equivalent to keccak256(abi.encode(typehash, itemsHash)). Memory-safe: scratch space only.
        assembly ("memory-safe") {
            mstore(0x00, typehash)
            mstore(0x20, itemsHash)
            structHash := keccak256(0x00, 0x40)
        }
        return _typedDigest(structHash);
    }
}
