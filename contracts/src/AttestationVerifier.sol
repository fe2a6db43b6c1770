// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IAttestationVerifier} from "./interfaces/IAttestationVerifier.sol";
import {CompactSignature} from "./interfaces/IInferenceResults.sol";
import {IResultVerifier} from "./interfaces/IResultVerifier.sol";
import {Owned} from "./lib/Owned.sol";
import {Signature} from "./lib/Signature.sol";
import {TypedData} from "./lib/TypedData.sol";

/// @title Results attested by enclaves
/// @dev What an enclave's remote attestation shows is checked by the owner, off chain, before its key is added.
contract AttestationVerifier is IAttestationVerifier, Owned, TypedData {
    bytes32 private constant ATTESTATION_TYPEHASH =
        keccak256("Attestation(uint256 id,bytes32 modelId,bytes20 commitment,bytes32 digest)");
    uint256 private constant PROOF_BYTES = 64;

    mapping(bytes32 modelId => mapping(address key => bool)) private _enclaves;

    constructor(address owner_) Owned(owner_) {}

    /// @inheritdoc IAttestationVerifier
    function setEnclave(bytes32 modelId, address key, bool trusted) external onlyOwner {
        // A failed recovery is the zero address.
        if (key == address(0)) revert ZeroKey();
        _enclaves[modelId][key] = trusted;
        emit EnclaveSet(modelId, key, trusted);
    }

    /// @inheritdoc IResultVerifier
    function verify(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest, bytes calldata proof)
        external
        view
        returns (bool)
    {
        if (proof.length != PROOF_BYTES) return false;
        CompactSignature calldata signature;
        // Equivalent to `abi.decode(proof, (CompactSignature))`, of which there are just these two words.
        assembly ("memory-safe") {
            signature := proof.offset
        }
        return _enclaves[modelId][Signature.recover(_attestationDigest(id, modelId, commitment, digest), signature)];
    }

    /// @inheritdoc IAttestationVerifier
    function isEnclave(bytes32 modelId, address key) external view returns (bool) {
        return _enclaves[modelId][key];
    }

    /// @inheritdoc IAttestationVerifier
    function attestationDigest(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest)
        external
        view
        returns (bytes32)
    {
        return _attestationDigest(id, modelId, commitment, digest);
    }

    /// @inheritdoc IAttestationVerifier
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparator();
    }

    function _attestationDigest(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest)
        private
        view
        returns (bytes32)
    {
        return _typedDigest(keccak256(abi.encode(ATTESTATION_TYPEHASH, id, modelId, commitment, digest)));
    }
}
