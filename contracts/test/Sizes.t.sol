// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Fixture} from "./base/Fixture.sol";

/// @notice EIP-170: no chain takes a contract with more code.
contract SizesTest is Fixture {
    uint256 private constant MAX_CODE_BYTES = 24_576;

    function test_sizes_fitEip170() public {
        address attestation = deployCode("AttestationVerifier", abi.encode(admin));
        address[6] memory all =
            [address(requests), address(results), address(registry), address(stakes), address(disputes), attestation];
        for (uint256 i; i < all.length; ++i) {
            vm.assertTrue(all[i].code.length != 0);
            vm.assertLe(all[i].code.length, MAX_CODE_BYTES, "code size");
        }
    }
}
