// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IInferenceResults} from "../interfaces/IInferenceResults.sol";

/// @title Gas for a call that is given just so much
library ExactGas {
    /// @dev Covers what is done between the check and the call.
    uint256 private constant CALL_OVERHEAD_GAS = 10_000;

    /// @dev Reverts where a call could not be given `gasLimit`. A call gets at most 63/64 of the gas that is left (EIP-150):
    /// less than its limit, without any sign of it.
    function ensure(uint256 gasLimit) internal view {
        uint256 gasNeeded = gasLimit + gasLimit / 63 + CALL_OVERHEAD_GAS;
        if (gasleft() < gasNeeded) revert IInferenceResults.InsufficientGas(gasleft(), gasNeeded);
    }
}
