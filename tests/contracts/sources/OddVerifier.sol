// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice Answers as the proof's first byte says.
contract OddVerifier {
    function verify(uint256, bytes32, bytes20, bytes32, bytes calldata proof) external pure returns (bool) {
        uint256 answer = proof.length == 0 ? 0 : uint8(proof[0]);
        assembly ("memory-safe") {
            mstore(0, 1)
            if eq(answer, 1) { return(0, 32) }
            if eq(answer, 2) { revert(0, 32) }
            if eq(answer, 3) { invalid() }
            if eq(answer, 4) { return(0, 0) }
            if eq(answer, 5) { return(1, 31) }
            if eq(answer, 7) { return(0, 64) }
            mstore(0, 2)
            if eq(answer, 6) { return(0, 32) }
            mstore(0, 0)
            return(0, 32)
        }
    }
}
