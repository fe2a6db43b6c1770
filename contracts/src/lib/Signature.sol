// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature} from "../interfaces/IInferenceResults.sol";

/// @title Recovery of EIP-2098 signatures
library Signature {
    /// @return signer zero if the signature is not valid, or not in its one accepted form
    function recover(bytes32 digest, CompactSignature calldata signature) internal view returns (address signer) {
        // Equivalent to `s > MAX_S ? address(0) : ecrecover(digest, 27 + (vs >> 255), r, s)` with s = the low 255 bits
        // of vs and MAX_S = half the order of secp256k1: the same signature with s in the upper half is refused
        // (EIP-2). The precompile returns nothing, and leaves the word at 0 as it was, when the signature is invalid.
        // Memory-safe: what is written lies behind the free memory pointer or in the scratch space.
        assembly ("memory-safe") {
            let vs := calldataload(add(signature, 0x20))
            let s := shr(1, shl(1, vs))
            if iszero(gt(s, 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0)) {
                let m := mload(0x40)
                mstore(m, digest)
                mstore(add(m, 0x20), add(27, shr(255, vs)))
                mstore(add(m, 0x40), calldataload(signature))
                mstore(add(m, 0x60), s)
                mstore(0x00, 0)
                pop(staticcall(gas(), 1, m, 0x80, 0x00, 0x20))
                signer := mload(0x00)
            }
        }
    }
}
