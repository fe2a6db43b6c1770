// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Test} from "../base/Test.sol";
import {Books} from "./Books.sol";
import {Handler} from "./Handler.sol";

abstract contract Campaign is Test {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    Handler internal handler;

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0].addr = address(handler);
        targets[0].selectors = new bytes4[](1);
        targets[0].selectors[0] = handler.act.selector;
    }

    /// @dev One campaign for all of them: each function of this kind would play its own.
    function invariant_booksAgree() public view {
        handler.checkRequestsAreSolvent();
        handler.checkStakesAreSolvent();
        handler.checkOthersHoldNothing();
        handler.checkCredits();
        handler.checkBits();
        handler.checkRecords();
        handler.checkCallbacks();
        handler.checkHolds();
        handler.checkStakes();
    }
}

/// @notice A poster's share that leaves payments which do not divide.
contract InvariantsTest is Campaign {
    function setUp() public {
        handler = new Handler(1_001, 1);
    }

    /// @notice The handler's actions do come to something, each of them, on one long walk.
    function test_handler_reachesEverything() public {
        for (uint256 i; i < 3_000; ++i) {
            handler.act(i);
            if (i % 100 == 0) invariant_booksAgree();
        }
        invariant_booksAgree();
        for (uint256 thing; thing <= uint256(type(Books.Seen).max); ++thing) {
            uint256 times = handler.seen(Books.Seen(thing));
            vm.assertTrue(
                times > 4,
                string(
                    abi.encodePacked(
                        "hardly seen: thing ", bytes1(uint8(48 + thing / 10)), bytes1(uint8(48 + thing % 10))
                    )
                )
            );
        }
    }
}

/// @notice All of the fee for the workers. Two campaigns, so that two processors have something to do.
contract InvariantsWithoutPosterTest is Campaign {
    function setUp() public {
        handler = new Handler(0, 2);
    }
}
