// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceConsumer} from "../interfaces/IInferenceConsumer.sol";
import {Delivery, IInferenceRequests} from "../interfaces/IInferenceRequests.sol";
import {CallbackClaim, CallbackSkipReason, IInferenceResults} from "../interfaces/IInferenceResults.sol";
import {ExactGas} from "../lib/ExactGas.sol";
import {RequestHash} from "../lib/RequestHash.sol";

/// @title From an output to the contract that asked for it
/// @dev The consumer is a stranger. It is called with nothing at stake: this contract holds no money, the right to be
/// called was taken before, and what it returns is cut off.
abstract contract Callbacks is IInferenceResults {
    uint256 private constant MAX_REASON_BYTES = 128;

    IInferenceRequests internal immutable REQUESTS;
    uint256 private immutable CHAIN_ID = block.chainid;

    constructor(address requests_) {
        REQUESTS = IInferenceRequests(requests_);
    }

    /// @inheritdoc IInferenceResults
    function requests() external view returns (address) {
        return address(REQUESTS);
    }

    /// @inheritdoc IInferenceResults
    function deliver(CallbackClaim[] calldata claims) external returns (uint256 delivered) {
        for (uint256 i; i < claims.length; ++i) {
            if (_deliver(claims[i])) ++delivered;
        }
    }

    function _deliver(CallbackClaim calldata claim) private returns (bool delivered) {
        uint256 id = claim.id;
        if (claim.params.delivery != Delivery.CALLBACK) {
            emit CallbackSkipped(id, CallbackSkipReason.NOT_CALLBACK);
            return false;
        }
        bytes20 commitment =
            RequestHash.commit(CHAIN_ID, address(REQUESTS), id, claim.requester, RequestHash.hashParams(claim.params));
        bytes32 digest = keccak256(claim.output);
        if (!REQUESTS.takeCallback(id, commitment, digest)) {
            emit CallbackSkipped(id, CallbackSkipReason.NOT_OWED);
            return false;
        }
        bytes memory reason;
        (delivered, reason) = _call(claim.requester, claim.params.callbackGasLimit, id, claim.output);
        if (delivered) {
            emit CallbackDelivered(id, claim.requester);
        } else {
            REQUESTS.returnCallback(id, commitment, digest);
            emit CallbackFailed(id, claim.requester, reason);
        }
    }

    /// @dev A consumer without code has failed: a call to it would succeed and do nothing.
    function _call(address consumer, uint256 gasLimit, uint256 id, bytes calldata output)
        private
        returns (bool ok, bytes memory reason)
    {
        if (consumer.code.length == 0) return (false, "");
        bytes memory data = abi.encodeCall(IInferenceConsumer.onInference, (id, output));
        ExactGas.ensure(gasLimit);
        // Equivalent to `(ok, reason) = consumer.call{gas: gasLimit}(data)`, save that at most MAX_REASON_BYTES of what it
        // returns are copied. Memory-safe: `reason` is allocated at the free memory pointer.
        assembly ("memory-safe") {
            ok := call(gasLimit, consumer, 0, add(data, 0x20), mload(data), 0, 0)
            if iszero(ok) {
                let size := returndatasize()
                if gt(size, MAX_REASON_BYTES) { size := MAX_REASON_BYTES }
                reason := mload(0x40)
                mstore(reason, size)
                returndatacopy(add(reason, 0x20), 0, size)
                mstore(0x40, add(reason, 0xa0))
            }
        }
    }
}
