// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title Proofs that a decision is under an anchored root
/// @notice For contracts that want to see a scheduler's decision: roots are in the event `DecisionsAnchored`.
library DecisionProof {
    /// @notice The leaf of a decision's canonical encoding.
    /// @dev Hashed twice, so that no inner node, the hash of 64 bytes, can pass for a leaf.
    function leafOf(bytes memory encoding) internal pure returns (bytes32) {
        return keccak256(bytes.concat(keccak256(encoding)));
    }

    /// @notice Whether `leaf` is under `root`.
    /// @param proof the sibling on each level, from the leaf up; a level without one is left out. Pairs are hashed with the
    /// smaller first.
    function verify(bytes32 root, bytes32 leaf, bytes32[] memory proof) internal pure returns (bool) {
        bytes32 node = leaf;
        for (uint256 i; i < proof.length; ++i) {
            bytes32 sibling = proof[i];
            node = node < sibling ? keccak256(abi.encode(node, sibling)) : keccak256(abi.encode(sibling, node));
        }
        return node == root;
    }
}
