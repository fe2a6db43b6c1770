// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RequestParams} from "../interfaces/IInferenceRequests.sol";

/// @title What a request commits to
library RequestHash {
    /// @dev The caller must have read each field of `params` in Solidity, which refuses values out of range: here they are
    /// taken as they stand.
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

    function commit(uint256 id, address requester, bytes32 paramsHash) internal view returns (bytes20) {
        return bytes20(keccak256(abi.encode(block.chainid, address(this), id, requester, paramsHash)));
    }

    /// @dev The event's `limits`: maxTokens (bits 0-31), memoryMb (32-63), callbackGasLimit (64-95), inputKind (96-103).
    function packLimits(RequestParams calldata params) internal pure returns (uint256) {
        return uint256(params.maxTokens) | uint256(params.memoryMb) << 32 | uint256(params.callbackGasLimit) << 64
            | uint256(params.inputKind) << 96;
    }
}
