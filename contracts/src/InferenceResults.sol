// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceRequests} from "./interfaces/IInferenceRequests.sol";
import {
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ProvenGroup,
    ResultGroup
} from "./interfaces/IInferenceResults.sol";
import {Items} from "./lib/Items.sol";
import {Callbacks} from "./results/Callbacks.sol";
import {GroupSigners} from "./results/GroupSigners.sol";
import {Proofs} from "./results/Proofs.sol";

/// @title Signed results
/// @dev Holds no state and no money. Posting calls only the contracts named at deployment and, read-only, the verifiers
/// that the owner has set, so nothing can re-enter it.
contract InferenceResults is GroupSigners, Callbacks, Proofs {
    constructor(address requests_, address registry_) GroupSigners(registry_) Callbacks(requests_) {}

    /// @inheritdoc IInferenceResults
    function post(ResultGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled) {
        uint256 start = _start();
        uint256 tail = start;
        // Unchecked: neither count can exceed the length of calldata.
        unchecked {
            for (uint256 i; i < groups.length; ++i) {
                (bytes calldata items, CompactSignature[] calldata signatures) = _group(groups, i);
                if (!Items.areWhole(items)) {
                    _skip(i, GroupSkipReason.BAD_LENGTH);
                } else if (signatures.length == 1) {
                    tail = _append(tail, i, items, _first(signatures));
                } else {
                    if (tail != start) settled += _settle(start, tail);
                    settled += _settleJoint(i, items, signatures);
                    start = _start();
                    tail = start;
                }
            }
            if (tail != start) settled += _settle(start, tail);
        }
        _anchor(decisionsRoot);
    }

    /// @inheritdoc IInferenceResults
    function postProven(ProvenGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled) {
        for (uint256 i; i < groups.length; ++i) {
            settled += _settleProven(groups[i], i);
        }
        _anchor(decisionsRoot);
    }

    /// @dev Where groups for `IInferenceRequests.settle` can be put: behind the free memory pointer and the call's head.
    function _start() private pure returns (uint256 start) {
        assembly ("memory-safe") {
            start := add(mload(0x40), 0x64)
        }
    }

    /// @dev Puts a group behind the others, if its signer is active.
    /// @return end where the next one goes
    function _append(uint256 tail, uint256 index, bytes calldata items, CompactSignature calldata signature)
        private
        returns (uint256 end)
    {
        bytes32 itemsHash;
        // Copied once, for the hash and for the call. Memory-safe: allocated, save that a skipped group's place is the next
        // one's as well.
        assembly ("memory-safe") {
            end := add(tail, 0x60)
            calldatacopy(end, items.offset, items.length)
            itemsHash := keccak256(end, items.length)
            end := add(end, items.length)
            mstore(0x40, end)
        }
        (address worker, address owner) = _signer(itemsHash, signature);
        if (owner == address(0)) {
            _skipSigner(index, worker);
            return tail;
        }
        // Memory-safe: within what was allocated.
        assembly ("memory-safe") {
            mstore(tail, worker)
            mstore(add(tail, 0x20), owner)
            mstore(add(tail, 0x40), items.length)
        }
    }

    function _settleJoint(uint256 index, bytes calldata items, CompactSignature[] calldata signatures)
        private
        returns (uint256)
    {
        (address[] memory workers, address[] memory owners) = _signers(index, items, signatures);
        return workers.length == 0 ? 0 : REQUESTS.settleJoint(items, workers, owners, msg.sender, false);
    }

    function _settleProven(ProvenGroup calldata group, uint256 index) private returns (uint256) {
        if (!Items.areWhole(group.items)) return _skip(index, GroupSkipReason.BAD_LENGTH);
        if (group.proofs.length != group.items.length / Items.BYTES) {
            return _skip(index, GroupSkipReason.BAD_PROOF_COUNT);
        }
        (address[] memory workers, address[] memory owners) = _signers(index, group.items, group.signatures);
        if (workers.length == 0) return 0;
        bytes memory accepted = _accepted(REQUESTS, group.items, group.proofs);
        return REQUESTS.settleJoint(accepted, workers, owners, msg.sender, true);
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
            // Offset and length are two things, whatever the detector takes them for.
            // slither-disable-next-line write-after-write
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

    /// @dev Equivalent to `REQUESTS.settle(groups, msg.sender)` with the groups between `start` and `tail`. A failure, which
    /// only a lack of gas can cause, must undo the whole post. Memory-safe: the head's place is before the groups.
    function _settle(uint256 start, uint256 tail) private returns (uint256 settled) {
        IInferenceRequests target = REQUESTS;
        bytes4 selector = IInferenceRequests.settle.selector;
        assembly ("memory-safe") {
            let m := sub(start, 0x64)
            mstore(m, selector)
            mstore(add(m, 0x04), 0x40)
            mstore(add(m, 0x24), caller())
            mstore(add(m, 0x44), sub(tail, start))
            if iszero(call(gas(), target, 0, m, sub(tail, m), 0x00, 0x20)) {
                returndatacopy(m, 0, returndatasize())
                revert(m, returndatasize())
            }
            settled := mload(0x00)
        }
    }

    function _anchor(bytes32 decisionsRoot) private {
        if (decisionsRoot != 0) emit DecisionsAnchored(decisionsRoot, msg.sender);
    }

    function _skip(uint256 index, GroupSkipReason reason) private returns (uint256) {
        emit GroupSkipped(index, reason);
        return 0;
    }
}
