// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IResultVerifier} from "../../src/interfaces/IResultVerifier.sol";

/// @notice Accepts a proof that repeats all that it is asked about.
contract EchoVerifier is IResultVerifier {
    function verify(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest, bytes calldata proof)
        external
        pure
        returns (bool)
    {
        return keccak256(proof) == keccak256(abi.encode(id, modelId, commitment, digest));
    }
}

/// @notice Answers whatever it was told to, as a return or as a revert.
contract AnyVerifier {
    bytes private answer;
    bool private reverts;

    constructor(bytes memory answer_, bool reverts_) {
        answer = answer_;
        reverts = reverts_;
    }

    fallback() external {
        bytes memory out = answer;
        if (reverts) {
            assembly ("memory-safe") {
                revert(add(out, 0x20), mload(out))
            }
        }
        assembly ("memory-safe") {
            return(add(out, 0x20), mload(out))
        }
    }
}

/// @notice Accepts, but only with at least as much gas as a verifier is promised, less what comes before.
contract GasVerifier {
    uint256 private immutable LEAST_GAS;

    constructor(uint256 leastGas) {
        LEAST_GAS = leastGas;
    }

    fallback() external {
        uint256 answer = gasleft() >= LEAST_GAS ? 1 : 0;
        assembly ("memory-safe") {
            mstore(0, answer)
            return(0, 0x20)
        }
    }
}

/// @notice Accepts, and writes: a verifier may only look.
contract WritingVerifier {
    uint256 private count;

    fallback() external {
        ++count;
        assembly ("memory-safe") {
            mstore(0, 1)
            return(0, 0x20)
        }
    }
}

/// @notice Never ends.
contract EndlessVerifier {
    fallback() external {
        while (true) {}
    }
}
