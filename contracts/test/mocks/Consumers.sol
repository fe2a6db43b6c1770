// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceConsumer} from "../../src/interfaces/IInferenceConsumer.sol";

/// @notice Writes down what it is called with, and refuses while it is told to.
contract Recorder is IInferenceConsumer {
    uint256 public calls;
    uint256 public lastId;
    bytes32 public lastHash;
    uint256 public lastLength;
    address public lastCaller;
    bytes private refusal;
    bool private refuses;

    function onInference(uint256 id, bytes calldata output) external {
        if (refuses) {
            bytes memory data = refusal;
            assembly ("memory-safe") {
                revert(add(data, 0x20), mload(data))
            }
        }
        ++calls;
        lastId = id;
        lastHash = keccak256(output);
        lastLength = output.length;
        lastCaller = msg.sender;
    }

    function refuse(bool refuses_, bytes calldata with_) external {
        refuses = refuses_;
        refusal = with_;
    }
}

/// @notice Calls others while it is called, as it was told to; whatever comes of that, it returns.
contract Busybody is IInferenceConsumer {
    struct Errand {
        address target;
        uint256 valueWei;
        bytes data;
    }

    Errand[] private errands;
    uint256 public calls;
    bool[] public succeeded;
    bytes[] public returned;

    receive() external payable {}

    function onInference(uint256, bytes calldata) external {
        ++calls;
        for (uint256 i; i < errands.length; ++i) {
            Errand storage errand = errands[i];
            (bool ok, bytes memory out) = errand.target.call{value: errand.valueWei}(errand.data);
            succeeded.push(ok);
            returned.push(out);
        }
    }

    function send(address target, uint256 valueWei, bytes calldata data) external {
        errands.push(Errand({target: target, valueWei: valueWei, data: data}));
    }
}

/// @notice Asks from its constructor, when it has no code yet.
contract Unborn {
    constructor(address target, bytes memory data) payable {
        (bool ok, bytes memory out) = target.call{value: msg.value}(data);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(out, 0x20), mload(out))
            }
        }
    }
}

/// @notice Consumers of a few bytes, to be put at an address: no compiler between the call and what is measured.
library Bytecode {
    /// @dev Stores the gas it has, after the 2 that asking costs. Needs 22,106 gas the first time.
    bytes internal constant GAS_METER = hex"5a5f5500";
    /// @dev Never ends.
    bytes internal constant BURNER = hex"5b5f56";
    /// @dev Reverts with, or returns, 1 MB of zeros.
    bytes internal constant REVERT_BOMB = hex"620fffff5ffd";
    bytes internal constant RETURN_BOMB = hex"620fffff5ff3";
    bytes internal constant INVALID = hex"fe";
}
