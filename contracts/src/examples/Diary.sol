// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceConsumer} from "../interfaces/IInferenceConsumer.sol";
import {Delivery, IInferenceRequests, InputKind, RequestParams} from "../interfaces/IInferenceRequests.sol";

/// @title A contract that asks and is called back
/// @notice Keeps what it asked and what it was answered, for anybody to read.
contract Diary is IInferenceConsumer {
    /// @dev A slot holds 32 bytes and costs 22,100 gas: enough for an answer of some 600 bytes.
    uint32 private constant CALLBACK_GAS = 600_000;

    IInferenceRequests public immutable REQUESTS;
    address public immutable OWNER;

    mapping(uint256 id => bytes) private _answers;
    mapping(uint256 id => bool) private _asked;

    event Asked(uint256 indexed id);
    event Answered(uint256 indexed id, bytes answer);

    error NotOwner(address caller);
    error NotResults(address caller);
    error NotAsked(uint256 id);

    constructor(IInferenceRequests requests) {
        REQUESTS = requests;
        OWNER = msg.sender;
    }

    /// @notice Asks a model; `msg.value` is the fee, in whole gwei.
    /// @param modelId keccak256 of the model's name
    /// @param maxTokens upper bound of generated tokens
    /// @param seconds_ how long the answer may take
    function ask(bytes32 modelId, bytes calldata prompt, uint32 maxTokens, uint40 seconds_)
        external
        payable
        returns (uint256 id)
    {
        id = REQUESTS.submit{value: msg.value}(
            RequestParams({
                modelId: modelId,
                maxTokens: maxTokens,
                deadline: uint40(block.timestamp) + seconds_,
                memoryMb: 0,
                callbackGasLimit: CALLBACK_GAS,
                quorum: 1,
                batchable: true,
                delivery: Delivery.CALLBACK,
                inputKind: InputKind.INLINE,
                input: prompt
            })
        );
        _asked[id] = true;
        emit Asked(id);
    }

    /// @inheritdoc IInferenceConsumer
    /// @dev The results contract answers for the output; anybody else could write anything.
    function onInference(uint256 id, bytes calldata output) external {
        if (msg.sender != REQUESTS.results()) revert NotResults(msg.sender);
        if (!_asked[id]) revert NotAsked(id);
        _answers[id] = output;
        emit Answered(id, output);
    }

    /// @notice Sends the refunds credited to this contract to its owner.
    function takeBack() external returns (uint256 amountWei) {
        if (msg.sender != OWNER) revert NotOwner(msg.sender);
        return REQUESTS.withdrawTo(payable(OWNER));
    }

    /// @notice What was answered; empty while nothing was.
    function answerOf(uint256 id) external view returns (bytes memory) {
        return _answers[id];
    }
}
