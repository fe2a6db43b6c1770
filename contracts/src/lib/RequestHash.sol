// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RequestParams} from "../interfaces/IInferenceRequests.sol";

/// @title What a request commits to
library RequestHash {
    /// @dev The fields are taken as they stand. Whoever makes a commitment of the hash must have read each in Solidity, which
    /// refuses values out of range; whoever opens one finds that such values do not fit.
    function hashParams(RequestParams calldata params) internal pure returns (bytes32 hash) {
        bytes calldata input = params.input;
        // Equivalent to keccak256(abi.encode(modelId, maxTokens, deadline, memoryMb, callbackGasLimit, quorum, batchable,
        // delivery, inputKind, keccak256(input))): the nine fields stand in calldata as they are encoded, followed by
        // the offset of `input`, in whose place its hash goes. Memory-safe: written behind the free memory pointer.
        assembly ("memory-safe") {
            let m := mload(0x40)
            calldatacopy(m, input.offset, input.length)
            let inputHash := keccak256(m, input.length)
            calldatacopy(m, params, 0x120)
            mstore(add(m, 0x120), inputHash)
            hash := keccak256(m, 0x140)
        }
    }

    /// @param chainId of the chain at deployment: where a fork of the chain changes its id, what was asked before must still
    /// be opened for its refund
    /// @param requests the contract that holds the request
    function commit(uint256 chainId, address requests, uint256 id, address requester, bytes32 paramsHash)
        internal
        pure
        returns (bytes20)
    {
        return bytes20(keccak256(abi.encode(chainId, requests, id, requester, paramsHash)));
    }

    /// @dev What stands for a fulfilled request until its consumer has been called.
    function callbackKey(bytes20 commitment, bytes32 digest) internal pure returns (bytes32) {
        return keccak256(abi.encode(commitment, digest));
    }

    /// @dev The event's `limits`: maxTokens (bits 0-31), memoryMb (32-63), callbackGasLimit (64-95), inputKind (96-103).
    function packLimits(RequestParams calldata params) internal pure returns (uint256) {
        return uint256(params.maxTokens) | uint256(params.memoryMb) << 32 | uint256(params.callbackGasLimit) << 64
            | uint256(params.inputKind) << 96;
    }
}
