// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Test} from "../base/Test.sol";
import {Handler} from "./Handler.sol";

contract InvariantsTest is Test {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    Handler private handler;

    function setUp() public {
        handler = new Handler();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    /// @dev Only the actions; submit, post and wait more often, or most requests would never come to anything.
    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        targets = new FuzzSelector[](1);
        targets[0].addr = address(handler);
        targets[0].selectors = new bytes4[](11);
        targets[0].selectors[0] = handler.submit.selector;
        targets[0].selectors[1] = handler.raiseFee.selector;
        targets[0].selectors[2] = handler.requestCancel.selector;
        targets[0].selectors[3] = handler.refund.selector;
        targets[0].selectors[4] = handler.post.selector;
        targets[0].selectors[5] = handler.withdraw.selector;
        targets[0].selectors[6] = handler.wait.selector;
        targets[0].selectors[7] = handler.setEnabled.selector;
        targets[0].selectors[8] = handler.stake.selector;
        targets[0].selectors[9] = handler.unstake.selector;
        targets[0].selectors[10] = handler.withdrawStake.selector;
    }

    /// @dev One campaign for all of them: each function of this kind would play its own.
    function invariant_booksAgree() public view {
        checkRequestsAreSolvent();
        checkStakesAreSolvent();
        handler.checkBits();
        handler.checkRecords();
        handler.checkCredits();
        handler.checkStakes();
    }

    /// @notice The handler's actions do come to something, on one long walk.
    function test_handler_reachesEverything() public {
        uint256 seed = 1;
        for (uint256 i; i < 400; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 action = seed % 8;
            seed = uint256(keccak256(abi.encode(seed)));
            if (action < 2) handler.submit(seed, seed >> 8, seed >> 16, seed >> 24);
            else if (action < 4) handler.post(seed, seed >> 8, seed % 5 == 0);
            else if (action == 4) handler.refund(seed, seed >> 8);
            else if (action == 5) handler.wait(seed);
            else if (action == 6) handler.stake(seed, seed >> 8);
            else if (seed % 2 == 0) handler.withdraw(seed >> 1);
            else handler.requestCancel(seed, seed >> 8);
            if (i % 40 == 0) invariant_booksAgree();
        }
        invariant_booksAgree();
        vm.assertTrue(handler.fulfilled() > 50, "fulfilled");
        vm.assertTrue(handler.refunded() > 20, "refunded");
        vm.assertTrue(handler.skipped() > 50, "skipped");
        vm.assertTrue(handler.paidOut() > 0, "paid out");
    }

    /// @dev To the wei: what is held is what is escrowed and what is credited, and nobody else was credited.
    function checkRequestsAreSolvent() private view {
        vm.assertEq(handler.requestsBalance(), handler.escrowWei() + handler.creditsWei(), "balance of requests");
        vm.assertEq(handler.feesIn(), handler.requestsBalance() + handler.paidOut(), "fees in");
        vm.assertLe(handler.creditsWei() + handler.paidOut(), handler.feesIn(), "credits");
    }

    /// @dev To the wei: what is held is what is staked and what is on its way out.
    function checkStakesAreSolvent() private view {
        vm.assertEq(handler.stakesBalance(), handler.stakesWei(), "balance of stakes");
    }
}
