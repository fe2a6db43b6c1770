// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceRequests} from "./interfaces/IInferenceRequests.sol";
import {CompactSignature, GroupSkipReason, IInferenceResults, ResultGroup} from "./interfaces/IInferenceResults.sol";
import {IWorkerRegistry} from "./interfaces/IWorkerRegistry.sol";
import {Signature} from "./lib/Signature.sol";
import {TypedData} from "./lib/TypedData.sol";

/// @title Signed results
/// @dev Holds no state and no money. It calls only the two contracts named at deployment, neither of which calls
/// anybody else while it settles, so nothing can re-enter.
contract InferenceResults is IInferenceResults, TypedData {
    bytes32 private constant GROUP_TYPEHASH = keccak256("ResultGroup(bytes items)");
    /// @dev id (8 bytes), commitment (20), digest (32)
    uint256 private constant ITEM_BYTES = 60;

    IInferenceRequests private immutable REQUESTS;
    IWorkerRegistry private immutable REGISTRY;

    constructor(address requests_, address registry_) {
        REQUESTS = IInferenceRequests(requests_);
        REGISTRY = IWorkerRegistry(registry_);
    }

    /// @inheritdoc IInferenceResults
    function post(ResultGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled) {
        // Unchecked: neither count can exceed the length of calldata.
        unchecked {
            for (uint256 i; i < groups.length; ++i) {
                settled += _settleGroup(groups, i);
            }
        }
        if (decisionsRoot != 0) emit DecisionsAnchored(decisionsRoot, msg.sender);
    }

    /// @inheritdoc IInferenceResults
    function requests() external view returns (address) {
        return address(REQUESTS);
    }

    /// @inheritdoc IInferenceResults
    function registry() external view returns (address) {
        return address(REGISTRY);
    }

    /// @inheritdoc IInferenceResults
    function groupDigest(bytes calldata items) external view returns (bytes32) {
        return _groupDigest(items);
    }

    /// @inheritdoc IInferenceResults
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparator();
    }

    function _settleGroup(ResultGroup[] calldata groups, uint256 index) private returns (uint256 settled) {
        (bytes calldata items, CompactSignature[] calldata signatures) = _group(groups, index);
        bool wholeItems;
        // Unchecked: without items, 2^256 - 1 leaves another remainder, so one test finds both faults.
        unchecked {
            wholeItems = (items.length - 1) % ITEM_BYTES == ITEM_BYTES - 1;
        }
        if (!wholeItems) return _skip(index, GroupSkipReason.BAD_LENGTH);
        if (signatures.length != 1) return _skip(index, GroupSkipReason.BAD_SIGNER_COUNT);

        address worker = Signature.recover(_groupDigest(items), _first(signatures));
        if (worker == address(0)) return _skip(index, GroupSkipReason.BAD_SIGNATURE);

        address owner = _activeOwner(worker);
        if (owner == address(0)) return _skip(index, GroupSkipReason.INACTIVE_WORKER);

        return _settle(items, worker, owner);
    }

    /// @dev Equivalent to `(groups[index].items, groups[index].signatures)` for the index of a group, save that offsets
    /// and lengths are not checked against the end of calldata. What is read behind it is zero, in the hash that the
    /// signature is checked against as in what is settled; a length without end runs out of gas. Either hurts only
    /// the caller, and the checks would cost a single result 400 gas.
    function _group(ResultGroup[] calldata groups, uint256 index)
        private
        pure
        returns (bytes calldata items, CompactSignature[] calldata signatures)
    {
        assembly ("memory-safe") {
            let group := add(groups.offset, calldataload(add(groups.offset, shl(5, index))))
            let tail := add(group, calldataload(group))
            items.offset := add(tail, 0x20)
            items.length := calldataload(tail)
            tail := add(group, calldataload(add(group, 0x20)))
            signatures.offset := add(tail, 0x20)
            signatures.length := calldataload(tail)
        }
    }

    /// @dev Equivalent to `signatures[0]` where there is one.
    function _first(CompactSignature[] calldata signatures) private pure returns (CompactSignature calldata first) {
        assembly ("memory-safe") {
            first := signatures.offset
        }
    }

    /// @dev Equivalent to `REGISTRY.activeOwner(worker)`, save that what our own contract returns is taken for an address;
    /// with the checks here and in `_settle`, a single result would cost 500 gas more. That something is returned is
    /// checked, or a registry without code would let everybody in. Memory-safe: scratch space only.
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

    /// @dev Equivalent to `REQUESTS.settle(items, worker, owner, msg.sender)`. A failure, which only a lack of gas can
    /// cause, must undo the whole post. Memory-safe: written behind the free memory pointer.
    function _settle(bytes calldata items, address worker, address owner) private returns (uint256 settled) {
        IInferenceRequests target = REQUESTS;
        bytes4 selector = IInferenceRequests.settle.selector;
        assembly ("memory-safe") {
            let m := mload(0x40)
            mstore(m, selector)
            mstore(add(m, 0x04), 0x80)
            mstore(add(m, 0x24), worker)
            mstore(add(m, 0x44), owner)
            mstore(add(m, 0x64), caller())
            mstore(add(m, 0x84), items.length)
            calldatacopy(add(m, 0xa4), items.offset, items.length)
            if iszero(call(gas(), target, 0, m, add(0xa4, items.length), 0x00, 0x20)) {
                returndatacopy(m, 0, returndatasize())
                revert(m, returndatasize())
            }
            settled := mload(0x00)
        }
    }

    function _skip(uint256 index, GroupSkipReason reason) private returns (uint256) {
        emit GroupSkipped(index, reason);
        return 0;
    }

    function _groupDigest(bytes calldata items) private view returns (bytes32) {
        bytes32 typehash = GROUP_TYPEHASH;
        bytes32 structHash;
        // Equivalent to keccak256(abi.encode(typehash, keccak256(items))). Memory-safe: written behind the free memory
        // pointer and in the scratch space.
        assembly ("memory-safe") {
            let m := mload(0x40)
            calldatacopy(m, items.offset, items.length)
            mstore(0x00, typehash)
            mstore(0x20, keccak256(m, items.length))
            structHash := keccak256(0x00, 0x40)
        }
        return _typedDigest(structHash);
    }
}
