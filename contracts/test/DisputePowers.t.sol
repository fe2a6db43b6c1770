// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Hold, HoldStatus, IDisputes} from "../src/interfaces/IDisputes.sol";
import {RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {IModelTerms, ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {IStakeManager} from "../src/interfaces/IStakeManager.sol";
import {DisputesFixture} from "./base/DisputesFixture.sol";

/// @notice Who can do what to a held payment, and for how long.
contract DisputePowersTest is DisputesFixture {
    // The arbiter and the owner

    function test_setArbiter_alsoForOpenDisputes() public {
        Hold memory held = heldResult();
        open(held);
        vm.expectEmit(address(disputes));
        emit IDisputes.ArbiterSet(stranger);
        vm.prank(admin);
        disputes.setArbiter(stranger);
        vm.assertEq(disputes.arbiter(), stranger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotArbiter.selector, arbiter));
        rule(held, true);
        bytes32 paramsHash = hashOf(params());
        vm.prank(stranger);
        disputes.rule(held, true, requester, paramsHash);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function testFuzz_RevertWhen_setArbiter_notTheRequestsOwner(address caller) public {
        vm.assume(caller != admin);
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotContractOwner.selector, caller));
        disputes.setArbiter(caller);
    }

    function test_setArbiter_followsTheOwnership() public {
        vm.prank(admin);
        requests.offerOwnership(stranger);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotContractOwner.selector, stranger));
        disputes.setArbiter(stranger);
        vm.prank(stranger);
        requests.acceptOwnership();
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotContractOwner.selector, admin));
        disputes.setArbiter(admin);
        vm.prank(stranger);
        disputes.setArbiter(stranger);
        vm.assertEq(disputes.arbiter(), stranger);
    }

    /// @notice With nobody to rule, every dispute lapses.
    function test_setArbiter_nobody() public {
        Hold memory held = heldResult();
        open(held);
        vm.prank(admin);
        disputes.setArbiter(address(0));
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotArbiter.selector, arbiter));
        rule(held, true);
        vm.warp(START + RULING_PERIOD + 1);
        disputes.close(held);
        vm.assertEq(requests.credits(owner), PAYMENT);
    }

    /// @notice The owner appoints the arbiter and can do nothing else: not rule, not hurry, not hold up.
    function test_owner_hasNoPowerOverPayments() public {
        Hold memory held = heldResult();
        Hold memory disputed = heldResult();
        open(disputed);
        bytes32 paramsHash = hashOf(params());
        vm.startPrank(admin);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotArbiter.selector, admin));
        disputes.rule(disputed, true, requester, paramsHash);
        vm.assertEq(release(held), 0);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.RulingStillPossible.selector, START + RULING_PERIOD, START));
        disputes.close(disputed);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotDisputes.selector, admin));
        stakes.slashLoser(worker, 1, admin);
        requests.setPaused(true);
        requests.setModelTerms(noTerms());
        vm.stopPrank();
        // Paused, with other terms: payments go on as they were to.
        vm.warp(START + RULING_PERIOD + 1);
        vm.assertEq(release(held), 1);
        disputes.close(disputed);
        vm.assertEq(requests.credits(owner), 2 * PAYMENT);
        vm.assertEq(requests.credits(disputer), BOND);
    }

    // Terms

    function test_hold_keepsTheTermsOfItsSubmission() public {
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        RequestParams memory p = params();
        uint256 first = submit(p);
        uint256 second = submit(p);
        ModelTerms memory terms = windowTerms(2 * WINDOW);
        terms.bondGwei = 2 * BOND_GWEI;
        setTerms(terms);
        Hold memory held = heldResult(first, p, keys, FEE);
        open(held);
        setTerms(noTerms());
        Hold memory later = heldResult(second, p, keys, FEE);
        expectStatus(later, HoldStatus.HELD);
        vm.warp(UNTIL);
        expectWrongBond(later, 2 * BOND);
        open(later);
    }

    function test_hold_windowOpensWithTheResult() public {
        RequestParams memory p = params();
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        uint256 id = submit(p);
        vm.warp(START + 500);
        Hold memory held = heldResult(id, p, keys, FEE);
        vm.warp(START + 500 + WINDOW);
        open(held);
    }

    function test_maxWindow_leavesTheRulingOneSecond() public {
        vm.assertEq(disputes.maxWindow(), UNBONDING_DELAY - RULING_PERIOD - 1);
        vm.assertEq(deployDisputes(arbiter, UNBONDING_DELAY - 2).maxWindow(), 1);
        vm.assertEq(deployDisputes(arbiter, UNBONDING_DELAY - 1).maxWindow(), 0);
        vm.assertEq(deployDisputes(arbiter, UNBONDING_DELAY).maxWindow(), 0);
        vm.assertEq(deployDisputes(arbiter, type(uint40).max).maxWindow(), 0);
        vm.assertEq(deployDisputes(arbiter, 0).maxWindow(), UNBONDING_DELAY - 1);
    }

    function test_RevertWhen_setModelTerms_windowTooLong() public {
        uint32 longest = uint32(disputes.maxWindow());
        setTerms(windowTerms(longest));
        vm.prank(admin);
        vm.expectRevert(
            abi.encodeWithSelector(IModelTerms.WindowTooLong.selector, uint256(longest) + 1, uint256(longest))
        );
        requests.setModelTerms(windowTerms(longest + 1));
    }

    /// @notice The longest window, a dispute in its last second, a ruling in the last second of that: the stake that began
    /// to leave in the block of the result is still there, and could leave one second later.
    function test_maxWindow_rulingStillReachesAStakeThatLeftAtOnce() public {
        uint32 longest = uint32(disputes.maxWindow());
        setTerms(windowTerms(longest));
        Hold memory held = heldAndUnstaked(longest);
        uint256 lastSecond = START + longest + RULING_PERIOD;
        vm.warp(START + longest);
        open(held);
        vm.warp(lastSecond);
        expectBonded(lastSecond + 1, lastSecond);
        rule(held, true);
        vm.assertEq(stakes.stakeOf(worker).unbondingWei, MIN_STAKE - BOND);
        vm.assertEq(requests.credits(disputer), BOND + BOND / 10);
        vm.warp(lastSecond + 1);
        vm.prank(owner);
        vm.assertEq(stakes.withdrawStake(worker, payable(owner)), MIN_STAKE - BOND);
    }

    /// @notice And one second more would be too much.
    function test_maxWindow_isTheLongestThereCanBe() public {
        uint32 longest = uint32(disputes.maxWindow());
        setTerms(windowTerms(longest));
        heldAndUnstaked(longest);
        // Of a window one second longer, this is when the last ruling would come.
        vm.warp(START + longest + 1 + RULING_PERIOD);
        vm.prank(owner);
        vm.assertEq(stakes.withdrawStake(worker, payable(owner)), MIN_STAKE);
    }

    // Several workers

    function testFuzz_quorum_releaseSharesToTheWei(uint256 count, uint256 feeGwei) public {
        (Hold memory held,) = heldQuorum(count, feeGwei);
        vm.warp(UNTIL + 1);
        vm.assertEq(release(held), 1);
        expectShares(held, held.paymentWei);
    }

    function testFuzz_quorum_rejectedSharesToTheWei(uint256 count, uint256 feeGwei) public {
        (Hold memory held,) = heldQuorum(count, feeGwei);
        open(held);
        rule(held, false);
        expectShares(held, held.paymentWei + BOND);
    }

    function testFuzz_quorum_lapsedSharesToTheWei(uint256 count, uint256 feeGwei) public {
        (Hold memory held,) = heldQuorum(count, feeGwei);
        open(held);
        vm.warp(START + RULING_PERIOD + 1);
        disputes.close(held);
        expectShares(held, held.paymentWei);
        vm.assertEq(requests.credits(disputer), BOND);
    }

    function testFuzz_quorum_upheldSlashesEachUpToTheBond(uint256 count, uint256 seed) public {
        (Hold memory held,) = heldQuorum(count, 1e7);
        uint256 expectedWei;
        uint256 reporterWei;
        for (uint256 i; i < held.workers.length; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            // Some have less than the bond left.
            uint256 takenWei = seed % 3 == 0 ? MIN_STAKE - seed % (2 * BOND) : 0;
            vm.prank(address(disputes));
            stakes.slashLoser(held.workers[i], takenWei, stranger);
            uint256 lossWei = MIN_STAKE - takenWei < BOND ? MIN_STAKE - takenWei : BOND;
            expectedWei += lossWei;
            reporterWei += lossWei * REPORTER_BPS / 10_000;
        }
        uint256 treasuryBefore = requests.credits(treasury);
        open(held);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeRuled(held.id, true, disputer, expectedWei);
        rule(held, true);
        vm.assertEq(requests.credits(requester), held.paymentWei + held.posterWei);
        vm.assertEq(requests.credits(disputer), BOND + reporterWei);
        vm.assertEq(requests.credits(treasury) - treasuryBefore, expectedWei - reporterWei);
        vm.assertEq(requests.credits(address(disputes)), 0);
        for (uint256 i; i < held.owners.length; ++i) {
            vm.assertEq(requests.credits(held.owners[i]), 0);
        }
    }

    /// @notice Two workers of one owner are two shares.
    function test_quorum_twoWorkersOfOneOwner() public {
        vm.deal(owner, MIN_STAKE);
        activate(OTHER_KEY, owner);
        uint256[] memory keys = new uint256[](2);
        (keys[0], keys[1]) = worker < otherWorker ? (WORKER_KEY, OTHER_KEY) : (OTHER_KEY, WORKER_KEY);
        Hold memory held = heldResult(keys, FEE);
        open(held);
        rule(held, false);
        vm.assertEq(requests.credits(owner), PAYMENT + BOND);
    }

    function heldQuorum(uint256 count, uint256 feeGwei) private returns (Hold memory held, uint256[] memory keys) {
        count = bound(count, 2, 7);
        feeGwei = bound(feeGwei, 1, 1e9);
        // A poster's share that leaves payments which do not divide.
        deploy(POSTER_BPS + 1);
        setTerms(windowTerms(WINDOW));
        keys = activateMany(count);
        held = heldResult(keys, feeGwei * 1 gwei);
        expectStatus(held, HoldStatus.HELD);
    }

    function heldAndUnstaked(uint32 window) private returns (Hold memory held) {
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        uint256 id = submit();
        held = holdOf(id, params(), keys, FEE);
        held.disputableUntil = uint40(block.timestamp) + window;
        vm.assertEq(postProven(provenGroup(keys, item(id), new bytes[](1))), 1);
        vm.prank(owner);
        stakes.unstake(worker, MIN_STAKE);
    }

    function expectShares(Hold memory held, uint256 amountWei) private view {
        uint256 count = held.owners.length;
        for (uint256 i; i < count; ++i) {
            uint256 shareWei = amountWei / count + (i == 0 ? amountWei % count : 0);
            vm.assertEq(requests.credits(held.owners[i]), shareWei);
        }
        vm.assertEq(requests.credits(poster), held.posterWei);
        vm.assertEq(requests.credits(address(disputes)), 0);
        expectStatus(held, HoldStatus.CLOSED);
    }

    function expectBonded(uint256 withdrawableAt, uint256 timestamp) private {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.StillBonded.selector, withdrawableAt, timestamp));
        stakes.withdrawStake(worker, payable(owner));
    }
}

contract DisputeAttacksTest is DisputesFixture {
    /// @notice A dispute without grounds and an arbiter that never rules delay a payment, once and by no more than the ruling
    /// period, and take nothing from it.
    function test_attack_disputeGriefing_silentArbiter() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL);
        open(held);
        vm.warp(UNTIL + RULING_PERIOD + 1);
        // Nobody can dispute it again, before or after.
        expectRevert(IDisputes.NotHeld.selector, held.id);
        open(held);
        vm.prank(owner);
        disputes.close(held);
        expectRevert(IDisputes.NotHeld.selector, held.id);
        open(held);
        vm.prank(owner);
        vm.assertEq(requests.withdraw(), PAYMENT);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, MIN_STAKE);
        vm.assertEq(registry.activeOwner(worker), owner);
    }

    /// @notice A worker that posts its own lie loses the poster's share with the rest, however small the bond.
    function test_attack_workerPostsItsOwnLie() public {
        ModelTerms memory terms = windowTerms(WINDOW);
        terms.bondGwei = 1;
        setTerms(terms);
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        uint256 id = submit();
        Hold memory held = holdOf(id, params(), keys, FEE);
        (held.bondWei, held.poster) = (1 gwei, owner);
        vm.assertEq(postProven(owner, provenGroup(keys, item(id), new bytes[](1))), 1);
        vm.assertEq(requests.credits(owner), 0);
        open(held);
        rule(held, true);
        vm.assertEq(requests.credits(requester), FEE);
        vm.assertEq(requests.credits(owner), 0);
    }

    /// @notice A worker who disputes its own result, so that no other can, loses to a ruling all the same.
    function test_attack_workerDisputesItself() public {
        Hold memory held = heldResult();
        uint256 before = owner.balance + MIN_STAKE;
        vm.startPrank(owner);
        stakes.unstake(worker, MIN_STAKE);
        disputes.open{value: BOND}(held);
        vm.stopPrank();
        rule(held, true);
        vm.warp(START + UNBONDING_DELAY);
        vm.startPrank(owner);
        stakes.withdrawStake(worker, payable(owner));
        requests.withdraw();
        vm.stopPrank();
        vm.assertEq(before - owner.balance, BOND - BOND / 10);
        vm.assertEq(requests.credits(requester), FEE);
    }

    /// @notice Nor does unstaking when the dispute shows up: the delay outlasts the ruling.
    function test_attack_unstakingWhenDisputed() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL);
        vm.prank(owner);
        stakes.unstake(worker, MIN_STAKE);
        open(held);
        vm.warp(UNTIL + RULING_PERIOD);
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(IStakeManager.StillBonded.selector, UNTIL + UNBONDING_DELAY, UNTIL + RULING_PERIOD)
        );
        stakes.withdrawStake(worker, payable(owner));
        rule(held, true);
        vm.assertEq(stakes.stakeOf(worker).unbondingWei, MIN_STAKE - BOND);
    }

    /// @notice The bond of one dispute never pays for another: they end in any order, and nothing is left.
    function testFuzz_attack_disputesPaidFromEachOther(uint256 seed) public {
        Hold[] memory list = new Hold[](6);
        vm.deal(owner, 10 ether);
        vm.prank(owner);
        stakes.stake{value: 10 ether}(worker);
        for (uint256 i; i < list.length; ++i) {
            list[i] = heldResult();
            if (seed >> i & 1 == 1) open(list[i]);
        }
        uint256 paymentsHeld = list.length * PAYMENT;
        for (uint256 i; i < list.length; ++i) {
            if (seed >> i & 1 == 1 && seed >> (8 + i) & 1 == 1) {
                rule(list[i], seed >> (16 + i) & 1 == 1);
                paymentsHeld -= PAYMENT;
            }
        }
        vm.warp(UNTIL + RULING_PERIOD + 1);
        for (uint256 k; k < list.length; ++k) {
            Hold memory held = list[(k + (seed >> 24)) % list.length];
            HoldStatus status = disputes.statusOf(held.id);
            if (status == HoldStatus.DISPUTED) disputes.close(held);
            if (status == HoldStatus.HELD) vm.assertEq(release(held), 1);
            if (status != HoldStatus.CLOSED) paymentsHeld -= PAYMENT;
        }
        vm.assertEq(paymentsHeld, 0);
        vm.assertEq(requests.credits(address(disputes)), 0);
    }

    /// @notice An owner who appoints itself can rule wrongly; the money still goes to the parties and to nobody else.
    function test_attack_ownerAsArbiterCannotTakeAnything() public {
        Hold memory held = heldResult();
        open(held);
        vm.startPrank(admin);
        disputes.setArbiter(admin);
        expectRevert(IDisputes.CommitmentMismatch.selector, held.id);
        disputes.rule(held, true, admin, hashOf(params(uint40(START + 600))));
        disputes.rule(held, false, admin, 0);
        vm.stopPrank();
        vm.assertEq(requests.credits(admin), 0);
        vm.assertEq(requests.credits(owner), PAYMENT + BOND);
    }
}
