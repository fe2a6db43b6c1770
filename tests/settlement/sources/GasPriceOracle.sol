// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice What an OP-stack chain has at 0x420000000000000000000000000000000000000F, with the functions, the formula of
///         Fjord and the operator's fee of Isthmus; but nothing is compressed, so a transaction's size counts as it is.
contract GasPriceOracle {
    uint256 public l1BaseFee;
    uint256 public operatorFeeScalar;
    uint256 public operatorFeeConstant;
    bool public isIsthmus;

    function set(uint256 baseFee, uint256 scalar, uint256 constantFee, bool isthmus) external {
        (l1BaseFee, operatorFeeScalar, operatorFeeConstant) = (baseFee, scalar, constantFee);
        isIsthmus = isthmus;
    }

    function getL1Fee(bytes calldata transaction) external view returns (uint256) {
        uint256 size = transaction.length + 68; // the signature is not in it
        uint256 scaled = size * 836_500;
        scaled = scaled > 42_585_600 ? scaled - 42_585_600 : 0;
        if (scaled < 100_000_000) scaled = 100_000_000;
        return scaled * 16 * 5_227 * l1BaseFee / 1e12;
    }

    function getOperatorFee(uint256 gasUsed) external view returns (uint256) {
        require(isIsthmus);
        return gasUsed * operatorFeeScalar / 1e6 + operatorFeeConstant;
    }
}
