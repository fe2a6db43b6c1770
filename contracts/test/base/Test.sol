// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Vm} from "./Vm.sol";

/// @notice The little that these tests need of a test library. Assertions are native cheatcodes.
abstract contract Test {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    uint256 internal constant SECP256K1_N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    /// @dev Folds `value` into [low, high].
    function bound(uint256 value, uint256 low, uint256 high) internal pure returns (uint256) {
        if (value >= low && value <= high) return value;
        uint256 size = high - low + 1;
        return size == 0 ? value : low + value % size;
    }

    function account(string memory name) internal pure returns (address) {
        return address(uint160(uint256(keccak256(bytes(name)))));
    }
}
