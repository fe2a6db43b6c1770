// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceConsumer} from "../interfaces/IInferenceConsumer.sol";
import {Delivery, IInferenceRequests, InputKind, RequestParams} from "../interfaces/IInferenceRequests.sol";

/// @title The least that a consumer can do
/// @notice Asks to be called back, and emits what it is told. The benchmarks measure callbacks with it.
contract Emitter is IInferenceConsumer {
    uint32 public constant CALLBACK_GAS = 20_000;
    bytes32 public constant MODEL_ID = keccak256("markov");

    IInferenceRequests public immutable REQUESTS;
    address public immutable RESULTS;
    address payable public immutable OWNER;

    event Answered(uint256 indexed id, bytes output);

    error NotOwner(address caller);
    error NotResults(address caller);

    constructor(IInferenceRequests requests) {
        REQUESTS = requests;
        RESULTS = requests.results();
        OWNER = payable(msg.sender);
    }

    /// @notice Asks the same `count` times; each fee is its part of `msg.value`, in whole gwei.
    function ask(uint256 count, uint40 deadline, bytes calldata input) external payable returns (uint256 firstId) {
        RequestParams[] memory params = new RequestParams[](count);
        uint256[] memory feesWei = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            params[i] = RequestParams({
                modelId: MODEL_ID,
                maxTokens: 0,
                deadline: deadline,
                memoryMb: 0,
                callbackGasLimit: CALLBACK_GAS,
                quorum: 1,
                batchable: true,
                delivery: Delivery.CALLBACK,
                inputKind: InputKind.INLINE,
                input: input
            });
            // Shared out: the contract refuses fees that are not the value sent.
            // slither-disable-next-line msg-value-loop
            feesWei[i] = msg.value / count;
        }
        return REQUESTS.submitMany{value: msg.value}(params, feesWei);
    }

    /// @inheritdoc IInferenceConsumer
    function onInference(uint256 id, bytes calldata output) external {
        if (msg.sender != RESULTS) revert NotResults(msg.sender);
        emit Answered(id, output);
    }

    /// @notice Sends the refunds credited to this contract to its owner.
    function takeBack() external returns (uint256 amountWei) {
        if (msg.sender != OWNER) revert NotOwner(msg.sender);
        return REQUESTS.withdrawTo(OWNER);
    }
}
