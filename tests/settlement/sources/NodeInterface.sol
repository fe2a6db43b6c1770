// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice What an Arbitrum node answers for 0x00000000000000000000000000000000000000C8: the gas that a call's bytes take
///         on the chain below. A byte takes what is settled here; nothing is compressed.
contract NodeInterface {
    uint256 public gasPerByte;

    function set(uint256 gas) external {
        gasPerByte = gas;
    }

    function gasEstimateL1Component(address, bool, bytes calldata data)
        external
        payable
        returns (uint64 gasEstimateForL1, uint256 baseFee, uint256 l1BaseFeeEstimate)
    {
        return (uint64(gasPerByte * data.length), block.basefee, 1 gwei);
    }
}
