// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title A contract that asks with delivery CALLBACK
interface IInferenceConsumer {
    /// @notice Receives the output of the caller's own request.
    /// @dev Check that the caller is the results contract, and that you asked for `id`. It gets exactly the gas that the
    /// request named, also where the result can still be disputed. If it reverts, anyone may deliver again; once it has returned, nobody can.
    function onInference(uint256 id, bytes calldata output) external;
}
