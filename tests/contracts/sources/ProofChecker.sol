// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {DecisionProof} from "./lib/DecisionProof.sol";

contract ProofChecker {
    function leafOf(bytes memory encoding) external pure returns (bytes32) {
        return DecisionProof.leafOf(encoding);
    }

    function verify(bytes32 root, bytes32 leaf, bytes32[] memory proof) external pure returns (bool) {
        return DecisionProof.verify(root, leaf, proof);
    }
}
