// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {ResultGroup} from "../src/interfaces/IInferenceResults.sol";
import {Fixture} from "./base/Fixture.sol";

/// @notice The gas budget, whole transactions in steady state: every slot that a transaction writes is non-zero before.
/// @dev Isolated, each outer call is a transaction of its own, with its base cost, calldata, cold slots and refunds.
/// forge-config: default.isolate = true
contract GasTest is Fixture {
    uint256 private constant FOURTH_KEY = 0xD0;

    function setUp() public override {
        super.setUp();
        uint256[4] memory all = keys();
        for (uint256 i; i < 4; ++i) {
            address owner_ = account(string(abi.encode("owner", i)));
            vm.deal(owner_, MIN_STAKE);
            activate(all[i], owner_);
        }
        submitMany(250);
        // A credit for each worker's owner and for the poster, and a bit in the word.
        for (uint256 i; i < 4; ++i) {
            post(all[i], item(1 + i));
        }
    }

    function test_gas_request32Bytes() public {
        RequestParams memory p = params();
        p.input = abi.encode(keccak256("input"));
        submit(p);
        expectGas(1, 58_000, "request with 32 bytes of input");
    }

    function test_gas_singleResult() public {
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(5)));
        vm.prank(poster);
        results.post(list, keccak256("decisions"));
        expectGas(1, 60_000, "single result");
    }

    function test_gas_hundredResultsOfFourWorkers() public {
        uint256[4] memory all = keys();
        ResultGroup[] memory list = new ResultGroup[](4);
        for (uint256 i; i < 4; ++i) {
            list[i] = group(all[i], itemsFrom(10 + 25 * i, 25));
        }
        vm.prank(poster);
        vm.assertEq(results.post(list, keccak256("decisions")), 100);
        expectGas(100, 6_000, "100 results of 4 workers, each");
    }

    function expectGas(uint256 count, uint256 budget, string memory what) private view {
        uint256 used = vm.lastCallGas().gasTotalUsed;
        // Base cost and calldata are in it, or it measures nothing.
        vm.assertTrue(used > 42_000, what);
        vm.assertLe(used / count, budget, what);
    }

    function keys() private pure returns (uint256[4] memory) {
        return [WORKER_KEY, OTHER_KEY, uint256(0xCA), FOURTH_KEY];
    }
}
