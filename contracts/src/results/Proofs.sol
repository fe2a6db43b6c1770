// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceRequests} from "../interfaces/IInferenceRequests.sol";
import {IInferenceResults} from "../interfaces/IInferenceResults.sol";
import {IModelTerms, ModelTerms} from "../interfaces/IModelTerms.sol";
import {IResultVerifier} from "../interfaces/IResultVerifier.sol";
import {ExactGas} from "../lib/ExactGas.sol";
import {Items} from "../lib/Items.sol";

/// @title Which results of a group their models' verifiers accept
abstract contract Proofs is IInferenceResults {
    /// @dev Enough for the pairings of a succinct proof, and a bound for a verifier that never ends.
    uint256 private constant VERIFIER_GAS = 1_000_000;

    /// @return accepted the items, packed again without those whose proof was refused
    function _accepted(IInferenceRequests requests_, bytes calldata items, bytes[] calldata proofs)
        internal
        returns (bytes memory accepted)
    {
        accepted = items;
        uint256 kept;
        for (uint256 i; i < proofs.length; ++i) {
            if (!_isAccepted(requests_, items, i, proofs[i])) continue;
            // Equivalent to copying item `i` behind the `kept` ones before it. Memory-safe: `accepted` is as long as `items`.
            assembly ("memory-safe") {
                calldatacopy(add(add(accepted, 0x20), mul(kept, 60)), add(items.offset, mul(i, 60)), 60)
            }
            ++kept;
        }
        // Memory-safe: only ever shortened.
        assembly ("memory-safe") {
            mstore(accepted, mul(kept, 60))
        }
    }

    function _isAccepted(IInferenceRequests requests_, bytes calldata items, uint256 index, bytes calldata proof)
        private
        returns (bool)
    {
        (uint256 id, bytes20 commitment, bytes32 digest) = Items.itemAt(items, index);
        ModelTerms memory terms = IModelTerms(address(requests_)).termsOfRequest(id);
        address verifier = address(terms.verifier);
        if (verifier == address(0)) return true;
        if (_isTrue(verifier, abi.encodeCall(IResultVerifier.verify, (id, terms.modelId, commitment, digest, proof)))) {
            return true;
        }
        emit ProofRejected(id, verifier);
        return false;
    }

    /// @dev False also if the verifier reverts, has no code, or returns anything but one true word. Where it cannot be
    /// given its gas the whole post reverts, or an estimate would take the least gas at which every proof is refused.
    function _isTrue(address verifier, bytes memory question) private view returns (bool answer) {
        ExactGas.ensure(VERIFIER_GAS);
        // Memory-safe: scratch space only. Arguments are evaluated from the last to the first: the call precedes its
        // returned size.
        assembly ("memory-safe") {
            mstore(0x00, 0)
            answer := and(
                eq(returndatasize(), 0x20),
                staticcall(VERIFIER_GAS, verifier, add(question, 0x20), mload(question), 0x00, 0x20)
            )
            answer := and(answer, eq(mload(0x00), 1))
        }
    }
}
