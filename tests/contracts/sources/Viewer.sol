// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice Many views in one call. In: address (20), length (2) and calldata, repeated. Out: length (4) and what was
/// returned, repeated; a length of 2^32 - 1 stands for a revert.
contract Viewer {
    fallback() external {
        assembly ("memory-safe") {
            let scratch := mload(0x40)
            let out := add(scratch, 0x10000)
            let end := out
            for { let at } lt(at, calldatasize()) {} {
                let target := shr(96, calldataload(at))
                let length := shr(240, calldataload(add(at, 20)))
                calldatacopy(scratch, add(at, 22), length)
                at := add(add(at, 22), length)
                switch staticcall(gas(), target, scratch, length, 0, 0)
                case 0 {
                    mstore(end, not(0))
                    end := add(end, 4)
                }
                default {
                    mstore(end, shl(224, returndatasize()))
                    end := add(end, 4)
                    returndatacopy(end, 0, returndatasize())
                    end := add(end, returndatasize())
                }
            }
            return(out, sub(end, out))
        }
    }
}
