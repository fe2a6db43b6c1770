// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, InputKind, RequestParams} from "../interfaces/IInferenceRequests.sol";

/// @title A contract that asks
/// @notice Pays for inferences with the ether it is sent, and hands back what nobody answered in time.
/// @dev The answer's keccak256 is in the event `InferenceFulfilled(id, worker, digest)`.
contract Asker {
    IInferenceRequests public immutable REQUESTS;
    address payable public immutable OWNER;

    error NotOwner(address caller);

    constructor(IInferenceRequests requests) {
        REQUESTS = requests;
        OWNER = payable(msg.sender);
    }

    /// @notice Asks SmolLM2; `msg.value` is the fee, in whole gwei.
    function ask(bytes calldata prompt) external payable returns (uint256 id) {
        return REQUESTS.submit{value: msg.value}(
            RequestParams({
                modelId: keccak256("smollm2-135m"),
                maxTokens: 64,
                deadline: uint40(block.timestamp + 10 minutes),
                memoryMb: 0,
                callbackGasLimit: 0,
                quorum: 1,
                batchable: true,
                delivery: Delivery.EVENT,
                inputKind: InputKind.INLINE,
                input: prompt
            })
        );
    }

    /// @notice Sends the refunds credited to this contract to its owner.
    function takeBack() external returns (uint256 amountWei) {
        if (msg.sender != OWNER) revert NotOwner(msg.sender);
        return REQUESTS.withdrawTo(OWNER);
    }
}
