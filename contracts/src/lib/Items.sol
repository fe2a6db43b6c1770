// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title Results as they are signed and posted: id (8 bytes), commitment (20), digest (32), packed
library Items {
    uint256 internal constant BYTES = 60;

    /// @param index an item of `items`, or the call reverts
    function itemAt(bytes calldata items, uint256 index)
        internal
        pure
        returns (uint256 id, bytes20 commitment, bytes32 digest)
    {
        bytes calldata item = items[index * BYTES:(index + 1) * BYTES];
        // The id is the first 8 bytes.
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint64(bytes8(item)), bytes20(item[8:]), bytes32(item[28:]));
    }

    /// @dev Whether there is at least one item and no part of one.
    function areWhole(bytes calldata items) internal pure returns (bool) {
        // Unchecked: without items, 2^256 - 1 leaves another remainder, so one test finds both faults.
        unchecked {
            return (items.length - 1) % BYTES == BYTES - 1;
        }
    }
}
