// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceConsumer} from "../../src/interfaces/IInferenceConsumer.sol";

/// @notice A consumer that returns, fails, burns its gas or calls back, as it is told.
contract AnyConsumer is IInferenceConsumer {
    enum Mood {
        RETURNS,
        REVERTS,
        BURNS,
        REENTERS
    }

    error NotNow();

    Mood private mood;
    address private target;
    bytes private data;
    /// @dev Of the calls that returned; the others' are undone with them.
    mapping(uint256 id => uint256) public calls;
    uint256 public reentries;

    function tell(Mood mood_, address target_, bytes calldata data_) external {
        mood = mood_;
        target = target_;
        data = data_;
    }

    function onInference(uint256 id, bytes calldata) external {
        ++calls[id];
        if (mood == Mood.REVERTS) revert NotNow();
        if (mood == Mood.BURNS) {
            assembly ("memory-safe") {
                invalid()
            }
        }
        if (mood == Mood.REENTERS) {
            (bool ok,) = target.call(data);
            if (ok) ++reentries;
        }
    }
}
