// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title Checks that a result is right, beyond who signed it
/// @notice Set per model by `IModelTerms.setModelTerms`. The built-in alternative that needs no verifier is a quorum.
interface IResultVerifier {
    /// @dev Called with `VERIFIER_GAS`; a revert, a lack of gas and any answer but true all mean no.
    /// @param commitment the first 20 bytes of the hash that binds id, requester and parameters
    /// @param digest keccak256 of the output
    function verify(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest, bytes calldata proof)
        external
        view
        returns (bool);
}
