// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title One bit per id, 256 ids to a storage word
library Bitmap {
    /// @dev No id leads to this index: a loop that keeps a word at hand starts with it.
    uint256 internal constant NO_INDEX = type(uint256).max;

    function indexOf(uint256 id) internal pure returns (uint256) {
        return id >> 8;
    }

    function maskOf(uint256 id) internal pure returns (uint256) {
        return 1 << (id & 0xff);
    }
}
