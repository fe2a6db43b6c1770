// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {Hold, HoldSkipReason, HoldStatus, IDisputes} from "../src/interfaces/IDisputes.sol";
import {RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {IStakeManager, SignedItem} from "../src/interfaces/IStakeManager.sol";
import {DisputesFixture} from "./base/DisputesFixture.sol";
import {Vm} from "./base/Vm.sol";

contract DisputesTest is DisputesFixture {
    function test_constructor_wires() public {
        vm.assertEq(disputes.arbiter(), arbiter);
        vm.assertEq(disputes.requests(), address(requests));
        vm.assertEq(disputes.stakes(), address(stakes));
        vm.assertEq(disputes.rulingPeriod(), RULING_PERIOD);
        vm.expectEmit(vm.computeCreateAddress(address(this), vm.getNonce(address(this))));
        emit IDisputes.ArbiterSet(stranger);
        deployDisputes(stranger, RULING_PERIOD);
    }

    // Holding

    function test_hold_keepsThePaymentBack() public {
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        uint256 id = submit();
        Hold memory held = holdOf(id, params(), keys, FEE);
        expectStatus(held, HoldStatus.NONE);
        vm.expectEmit(address(disputes));
        emit IDisputes.PaymentHeld(
            id,
            held.commitment,
            held.digest,
            held.workers,
            held.owners,
            PAYMENT,
            poster,
            FEE - PAYMENT,
            BOND,
            uint40(UNTIL)
        );
        heldResult(id, params(), keys, FEE);

        expectStatus(held, HoldStatus.HELD);
        vm.assertTrue(isSettled(id));
        vm.assertEq(requests.credits(address(disputes)), FEE);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), 0);
        vm.assertEq(address(disputes).balance, 0);
    }

    function testFuzz_RevertWhen_hold_notRequests(address caller) public {
        vm.assume(caller != address(requests));
        Hold memory held = heldResult();
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotRequests.selector, caller));
        disputes.hold(held);
    }

    function test_RevertWhen_etherIsSent() public {
        vm.deal(address(this), 1);
        (bool ok,) = address(disputes).call{value: 1}("");
        vm.assertFalse(ok);
    }

    // Releasing

    function test_release_afterTheWindow() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL + 1);
        vm.expectEmit(address(disputes));
        emit IDisputes.PaymentReleased(held.id);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), owner, PAYMENT);
        vm.prank(stranger);
        vm.assertEq(release(held), 1);
        vm.assertEq(requests.credits(owner), PAYMENT);
        vm.assertEq(requests.credits(poster), FEE - PAYMENT);
        vm.assertEq(requests.credits(address(disputes)), 0);
        expectStatus(held, HoldStatus.CLOSED);
    }

    function test_release_notInTheLastSecond() public {
        Hold memory held = heldResult();
        expectSkipped(held, HoldSkipReason.STILL_DISPUTABLE);
        vm.warp(UNTIL);
        expectSkipped(held, HoldSkipReason.STILL_DISPUTABLE);
        expectStatus(held, HoldStatus.HELD);
        vm.assertEq(requests.credits(owner), 0);
    }

    function test_release_onlyOnce() public {
        Hold memory held = heldResult();
        heldResult();
        vm.warp(UNTIL + 1);
        vm.assertEq(release(held), 1);
        expectSkipped(held, HoldSkipReason.NOT_HELD);
        vm.assertEq(requests.credits(owner), PAYMENT);
        // What is left belongs to the other.
        vm.assertEq(requests.credits(address(disputes)), FEE);
    }

    function test_release_twiceInOneCall() public {
        Hold memory held = heldResult();
        heldResult();
        vm.warp(UNTIL + 1);
        Hold[] memory list = new Hold[](2);
        list[0] = held;
        list[1] = held;
        vm.assertEq(disputes.release(list), 1);
        vm.assertEq(requests.credits(owner), PAYMENT);
    }

    function test_release_disputed() public {
        Hold memory held = heldResult();
        open(held);
        vm.warp(UNTIL + 10 * uint256(RULING_PERIOD));
        expectSkipped(held, HoldSkipReason.NOT_HELD);
        vm.assertEq(requests.credits(address(disputes)), FEE + BOND);
    }

    function test_release_oneBadAmongGoodOnes() public {
        Hold[] memory list = new Hold[](6);
        list[0] = heldResult();
        list[1] = heldResult();
        open(list[1]);
        list[2] = copyOf(list[0]);
        list[2].id = 99;
        list[3] = altered(list[0], 4, 3);
        vm.warp(START + 1);
        // Held one second later: still disputable when the others are not.
        RequestParams memory p = params();
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        list[4] = heldResult(submit(p), p, keys, FEE);
        vm.warp(START);
        list[5] = heldResult();
        vm.warp(UNTIL + 1);
        vm.recordLogs();
        vm.assertEq(disputes.release(list), 2);
        expectSkips(vm.getRecordedLogs(), list);
        expectStatus(list[0], HoldStatus.CLOSED);
        expectStatus(list[1], HoldStatus.DISPUTED);
        expectStatus(list[2], HoldStatus.NONE);
        expectStatus(list[4], HoldStatus.HELD);
        expectStatus(list[5], HoldStatus.CLOSED);
        vm.assertEq(requests.credits(owner), 2 * PAYMENT);
        vm.assertEq(requests.credits(address(disputes)), 2 * FEE + BOND);
    }

    function test_release_nothing() public {
        vm.assertEq(disputes.release(new Hold[](0)), 0);
    }

    // Opening

    function test_open_takesTheBond() public {
        Hold memory held = heldResult();
        vm.warp(START + 5);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeOpened(held.id, disputer, uint40(START) + 5 + RULING_PERIOD);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(address(disputes), address(disputes), BOND);
        open(held);
        vm.assertEq(requests.credits(address(disputes)), FEE + BOND);
        vm.assertEq(address(disputes).balance, 0);
        vm.assertEq(disputer.balance, 100 ether - BOND);
        expectStatus(held, HoldStatus.DISPUTED);
    }

    function test_open_inTheLastSecond() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL);
        open(held);
        expectStatus(held, HoldStatus.DISPUTED);
    }

    function test_RevertWhen_open_afterTheLastSecond() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WindowClosed.selector, UNTIL, UNTIL + 1));
        open(held);
    }

    function test_open_byAnybody() public {
        address[4] memory callers = [requester, owner, poster, admin];
        for (uint256 i; i < callers.length; ++i) {
            Hold memory held = heldResult();
            vm.deal(callers[i], 1 ether);
            vm.prank(callers[i]);
            disputes.open{value: BOND}(held);
            expectStatus(held, HoldStatus.DISPUTED);
        }
    }

    function testFuzz_RevertWhen_open_notExactlyTheBond(uint256 valueWei) public {
        valueWei = bound(valueWei, 0, 2 * BOND);
        vm.assume(valueWei != BOND);
        expectWrongBond(heldResult(), valueWei);
    }

    function test_RevertWhen_open_aWeiOff() public {
        Hold memory held = heldResult();
        expectWrongBond(held, BOND - 1);
        expectWrongBond(held, BOND + 1);
        expectWrongBond(held, 0);
    }

    function test_RevertWhen_open_twice() public {
        Hold memory held = heldResult();
        open(held);
        expectRevert(IDisputes.NotHeld.selector, held.id);
        open(held);
        vm.deal(stranger, BOND);
        vm.prank(stranger);
        expectRevert(IDisputes.NotHeld.selector, held.id);
        disputes.open{value: BOND}(held);
    }

    function test_RevertWhen_open_releasedOrEnded() public {
        Hold memory held = heldResult();
        Hold memory ended = heldResult();
        open(ended);
        rule(ended, false);
        expectRevert(IDisputes.NotHeld.selector, ended.id);
        open(ended);
        vm.warp(UNTIL + 1);
        release(held);
        expectRevert(IDisputes.NotHeld.selector, held.id);
        open(held);
    }

    function test_RevertWhen_open_neverHeld() public {
        Hold memory held = heldResult();
        held.id = 99;
        expectRevert(IDisputes.NotHeld.selector, 99);
        open(held);
    }

    /// @notice A request without a window leaves nothing to dispute.
    function test_RevertWhen_open_paidAtOnce() public {
        setTerms(noTerms());
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        Hold memory held = heldResult();
        vm.assertEq(requests.credits(owner), PAYMENT);
        expectRevert(IDisputes.NotHeld.selector, held.id);
        open(held);
    }

    // Ruling

    function test_rule_upheld() public {
        Hold memory held = heldResult();
        open(held);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), requester, FEE);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), disputer, BOND);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Slashed(worker, disputer, BOND, MIN_STAKE - BOND, 0);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeRuled(held.id, true, disputer, BOND);
        rule(held, true);

        vm.assertEq(requests.credits(requester), FEE);
        vm.assertEq(requests.credits(disputer), BOND + BOND / 10);
        vm.assertEq(requests.credits(treasury), BOND - BOND / 10);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), 0);
        vm.assertEq(requests.credits(address(disputes)), 0);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, MIN_STAKE - BOND);
        // Below the minimum: out of service, but not for ever.
        vm.assertEq(registry.activeOwner(worker), address(0));
        vm.assertFalse(stakes.stakeOf(worker).barred);
        expectStatus(held, HoldStatus.CLOSED);
    }

    function test_rule_rejected() public {
        Hold memory held = heldResult();
        open(held);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), owner, PAYMENT + BOND);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeRuled(held.id, false, disputer, 0);
        rule(held, false);
        vm.assertEq(requests.credits(owner), PAYMENT + BOND);
        vm.assertEq(requests.credits(poster), FEE - PAYMENT);
        vm.assertEq(requests.credits(requester) + requests.credits(disputer) + requests.credits(treasury), 0);
        vm.assertEq(requests.credits(address(disputes)), 0);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, MIN_STAKE);
        expectStatus(held, HoldStatus.CLOSED);
    }

    /// @notice Who does not get it back need not be named.
    function testFuzz_rule_rejectedLooksAtNoOpening(address anybody, bytes32 anything) public {
        Hold memory held = heldResult();
        open(held);
        vm.prank(arbiter);
        disputes.rule(held, false, anybody, anything);
        vm.assertEq(requests.credits(owner), PAYMENT + BOND);
    }

    function test_rule_inTheLastSecond() public {
        Hold memory held = heldResult();
        open(held);
        vm.warp(START + RULING_PERIOD);
        rule(held, true);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_RevertWhen_rule_afterTheLastSecond() public {
        Hold memory held = heldResult();
        open(held);
        vm.warp(START + RULING_PERIOD + 1);
        bytes memory tooLate =
            abi.encodeWithSelector(IDisputes.RulingTooLate.selector, START + RULING_PERIOD, START + RULING_PERIOD + 1);
        vm.expectRevert(tooLate);
        rule(held, true);
        vm.expectRevert(tooLate);
        rule(held, false);
    }

    /// @notice The ruling's time runs from the opening, not from the result.
    function test_rule_inTheLastSecondOfTheLatestDispute() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL);
        open(held);
        vm.warp(UNTIL + RULING_PERIOD);
        rule(held, true);
        vm.assertEq(requests.credits(disputer), BOND + BOND / 10);
    }

    function test_rule_slashesWhatIsUnbonding() public {
        Hold memory held = heldResult();
        vm.prank(owner);
        stakes.unstake(worker, MIN_STAKE - 0.1 ether);
        open(held);
        rule(held, true);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, 0);
        vm.assertEq(stakes.stakeOf(worker).unbondingWei, MIN_STAKE - BOND);
    }

    function test_rule_slashesAtMostWhatThereIs() public {
        Hold memory held = heldResult();
        Hold[] memory more = new Hold[](4);
        for (uint256 i; i < 4; ++i) {
            more[i] = heldResult();
            open(more[i]);
        }
        open(held);
        for (uint256 i; i < 3; ++i) {
            rule(more[i], true);
        }
        vm.assertEq(stakes.stakeOf(worker).stakedWei, MIN_STAKE - 3 * BOND);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeRuled(more[3].id, true, disputer, MIN_STAKE - 3 * BOND);
        rule(more[3], true);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, 0);
        // And with nothing left, payment and bond still go where they belong.
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeRuled(held.id, true, disputer, 0);
        rule(held, true);
        vm.assertEq(requests.credits(requester), 5 * FEE);
        vm.assertEq(requests.credits(disputer), 5 * BOND + MIN_STAKE / 10);
        vm.assertEq(requests.credits(address(disputes)), 0);
        vm.assertEq(address(stakes).balance, 0);
    }

    function test_rule_afterTheWorkerWasBarred() public {
        Hold memory held = heldResult();
        SignedItem memory one = said(item(held.id, held.commitment));
        SignedItem memory other = said(item(held.id, held.commitment, keccak256("another")));
        stakes.slashEquivocation(one, other);
        open(held);
        rule(held, true);
        vm.assertEq(requests.credits(requester), FEE);
        vm.assertEq(requests.credits(disputer), BOND);
    }

    function testFuzz_RevertWhen_rule_notArbiter(address caller, bool upheld) public {
        vm.assume(caller != arbiter);
        Hold memory held = heldResult();
        open(held);
        bytes32 paramsHash = hashOf(params());
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.NotArbiter.selector, caller));
        disputes.rule(held, upheld, requester, paramsHash);
    }

    function test_RevertWhen_rule_openingDoesNotFit() public {
        Hold memory held = heldResult();
        open(held);
        bytes32 paramsHash = hashOf(params());
        vm.prank(arbiter);
        expectRevert(IDisputes.CommitmentMismatch.selector, held.id);
        disputes.rule(held, true, requester, paramsHash ^ bytes32(uint256(1)));
        // An arbiter cannot pay itself, nor anybody whose request it was not.
        vm.prank(arbiter);
        expectRevert(IDisputes.CommitmentMismatch.selector, held.id);
        disputes.rule(held, true, arbiter, paramsHash);
        // Nothing came of it, and there is still time.
        expectStatus(held, HoldStatus.DISPUTED);
        rule(held, true);
    }

    /// @notice What was asked before a fork of the chain is opened as it was committed to.
    function test_rule_afterAForkOfTheChain() public {
        Hold memory held = heldResult();
        open(held);
        vm.chainId(CHAIN_ID + 1);
        rule(held, true);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_RevertWhen_rule_notDisputed() public {
        Hold memory held = heldResult();
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        rule(held, true);
        vm.warp(UNTIL + 1);
        release(held);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        rule(held, true);
    }

    function test_RevertWhen_rule_twice() public {
        Hold memory held = heldResult();
        heldResult();
        open(held);
        rule(held, true);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        rule(held, false);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        rule(held, true);
        vm.assertEq(requests.credits(address(disputes)), FEE);
    }

    // Lapsing

    function test_close_afterTheRulingPeriod() public {
        Hold memory held = heldResult();
        open(held);
        vm.warp(START + RULING_PERIOD + 1);
        vm.expectEmit(address(disputes));
        emit IDisputes.DisputeLapsed(held.id);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), disputer, BOND);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(address(disputes), owner, PAYMENT);
        vm.prank(stranger);
        disputes.close(held);
        vm.assertEq(requests.credits(disputer), BOND);
        vm.assertEq(requests.credits(owner), PAYMENT);
        vm.assertEq(requests.credits(address(disputes)), 0);
        vm.assertEq(stakes.stakeOf(worker).stakedWei, MIN_STAKE);
        expectStatus(held, HoldStatus.CLOSED);
    }

    function test_RevertWhen_close_inTheLastSecond() public {
        Hold memory held = heldResult();
        open(held);
        vm.warp(START + RULING_PERIOD);
        vm.expectRevert(
            abi.encodeWithSelector(IDisputes.RulingStillPossible.selector, START + RULING_PERIOD, START + RULING_PERIOD)
        );
        disputes.close(held);
    }

    function test_RevertWhen_close_notDisputed() public {
        Hold memory held = heldResult();
        vm.warp(UNTIL + RULING_PERIOD + 1);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        disputes.close(held);
    }

    function test_RevertWhen_close_ended() public {
        Hold memory held = heldResult();
        Hold memory ruled = heldResult();
        heldResult();
        open(held);
        open(ruled);
        rule(ruled, true);
        vm.warp(START + RULING_PERIOD + 1);
        disputes.close(held);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        disputes.close(held);
        expectRevert(IDisputes.NotDisputed.selector, ruled.id);
        disputes.close(ruled);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        rule(held, true);
        vm.assertEq(requests.credits(address(disputes)), FEE);
    }

    // Who brings along what was not held

    function testFuzz_RevertWhen_contentsAreForged(uint256 part, uint256 by) public {
        part = bound(part, 0, 10);
        Hold memory held = heldResult();
        Hold memory forged = altered(held, part, by);
        expectNoDoorTakes(forged, IDisputes.NotHeld.selector);
        open(held);
        expectNoDoorTakes(forged, IDisputes.NotHeld.selector);
        vm.prank(arbiter);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        disputes.rule(forged, true, requester, hashOf(params()));
        vm.warp(UNTIL + RULING_PERIOD + 1);
        expectRevert(IDisputes.NotDisputed.selector, held.id);
        disputes.close(forged);
        expectStatus(held, HoldStatus.DISPUTED);
    }

    /// @notice What was held for one request does not serve for another.
    function test_RevertWhen_contentsAreAnothers() public {
        Hold memory held = heldResult();
        Hold memory other = heldResult();
        other.id = held.id;
        expectNoDoorTakes(other, IDisputes.NotHeld.selector);
    }

    function said(bytes memory items) private view returns (SignedItem memory) {
        return SignedItem({items: items, signature: sign(WORKER_KEY, results.groupDigest(items)), index: 0});
    }

    function expectSkipped(Hold memory held, HoldSkipReason reason) private {
        vm.expectEmit(address(disputes));
        emit IDisputes.ReleaseSkipped(held.id, reason);
        vm.assertEq(release(held), 0);
    }

    /// @dev Of the six holds above, four are skipped, in their order.
    function expectSkips(Vm.Log[] memory logs, Hold[] memory list) private pure {
        uint256 skips;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IDisputes.ReleaseSkipped.selector) continue;
            ++skips;
            vm.assertEq(logs[i].topics[1], bytes32(list[skips].id));
            HoldSkipReason reason = skips == 4 ? HoldSkipReason.STILL_DISPUTABLE : HoldSkipReason.NOT_HELD;
            vm.assertEq(logs[i].data, abi.encode(reason));
        }
        vm.assertEq(skips, 4);
    }

    function expectNoDoorTakes(Hold memory forged, bytes4 selector) private {
        vm.deal(stranger, BOND);
        vm.prank(stranger);
        expectRevert(selector, forged.id);
        disputes.open{value: BOND}(forged);
        vm.warp(UNTIL + 1);
        expectSkipped(forged, HoldSkipReason.NOT_HELD);
        vm.warp(START);
    }
}
