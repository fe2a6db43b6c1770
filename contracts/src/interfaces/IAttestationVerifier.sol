// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IResultVerifier} from "./IResultVerifier.sol";

/// @title Results attested by enclaves
/// @notice Accepts a result that a trusted enclave of its model has signed. A proof is the 64 bytes of an EIP-2098
/// signature over `Attestation(uint256 id,bytes32 modelId,bytes20 commitment,bytes32 digest)`.
interface IAttestationVerifier is IResultVerifier {
    event EnclaveSet(bytes32 indexed modelId, address indexed key, bool trusted);

    error ZeroKey();

    /// @notice Trusts an enclave's key for one model, or no longer. Only the owner.
    function setEnclave(bytes32 modelId, address key, bool trusted) external;
    function isEnclave(bytes32 modelId, address key) external view returns (bool);
    /// @notice The EIP-712 digest an enclave signs.
    function attestationDigest(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest)
        external
        view
        returns (bytes32);
    function domainSeparator() external view returns (bytes32);
}
