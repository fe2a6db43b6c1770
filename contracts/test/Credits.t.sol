// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RefundClaim, RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {Reenterer, Refuser} from "./mocks/Reenterer.sol";

/// @notice The one purse: what is credited, moved and fetched.
contract CreditsTest is Fixture {
    address payable private to = payable(account("to"));

    // credit

    function test_credit_addsAndEmits() public {
        vm.deal(stranger, 3 ether);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(owner, stranger, 1 ether);
        vm.prank(stranger);
        requests.credit{value: 1 ether}(owner);
        vm.prank(stranger);
        requests.credit{value: 2 ether}(owner);
        vm.assertEq(requests.credits(owner), 3 ether);
        vm.assertEq(requests.credits(stranger), 0);
        vm.assertEq(address(requests).balance, 3 ether);
    }

    function test_credit_nothing() public {
        requests.credit(owner);
        vm.assertEq(requests.credits(owner), 0);
    }

    function testFuzz_credit_anyAmount(address account_, uint96 amountWei, uint96 more) public {
        vm.assume(account_ != address(0));
        vm.deal(stranger, uint256(amountWei) + more);
        vm.prank(stranger);
        requests.credit{value: amountWei}(account_);
        vm.prank(stranger);
        requests.credit{value: more}(account_);
        vm.assertEq(requests.credits(account_), uint256(amountWei) + more);
        vm.assertEq(address(requests).balance, uint256(amountWei) + more);
    }

    function test_RevertWhen_credit_toNobody() public {
        vm.prank(owner);
        vm.expectRevert(ICredits.CreditToNobody.selector);
        requests.credit{value: 1}(address(0));
    }

    // transferCredit

    function test_transferCredit_movesAndEmits() public {
        give(owner, 5);
        vm.expectEmit(address(requests));
        emit ICredits.CreditTransferred(owner, otherOwner, 2);
        vm.prank(owner);
        requests.transferCredit(otherOwner, 2);
        vm.assertEq(requests.credits(owner), 3);
        vm.assertEq(requests.credits(otherOwner), 2);
    }

    function testFuzz_transferCredit_keepsTheSum(address from, address other, uint96 hasWei, uint256 amountWei) public {
        vm.assume(from != address(0) && other != address(0));
        amountWei = bound(amountWei, 0, hasWei);
        give(from, hasWei);
        uint256 before = requests.credits(other);
        vm.prank(from);
        requests.transferCredit(other, amountWei);
        if (from == other) {
            vm.assertEq(requests.credits(from), hasWei);
        } else {
            vm.assertEq(requests.credits(from), hasWei - amountWei);
            vm.assertEq(requests.credits(other), before + amountWei);
        }
        vm.assertEq(address(requests).balance, hasWei);
    }

    function test_transferCredit_toOneself() public {
        give(owner, 5);
        vm.prank(owner);
        requests.transferCredit(owner, 5);
        vm.assertEq(requests.credits(owner), 5);
        vm.prank(owner);
        requests.transferCredit(owner, 2);
        vm.assertEq(requests.credits(owner), 5);
    }

    function test_transferCredit_nothing() public {
        vm.prank(stranger);
        requests.transferCredit(owner, 0);
        vm.assertEq(requests.credits(stranger) + requests.credits(owner), 0);
    }

    function test_RevertWhen_transferCredit_toNobody() public {
        give(owner, 5);
        vm.prank(owner);
        vm.expectRevert(ICredits.CreditToNobody.selector);
        requests.transferCredit(address(0), 1);
        vm.prank(owner);
        vm.expectRevert(ICredits.CreditToNobody.selector);
        requests.transferCredit(address(0), 0);
    }

    function testFuzz_RevertWhen_transferCredit_tooMuch(uint96 hasWei, uint256 amountWei, bool toOneself) public {
        amountWei = bound(amountWei, uint256(hasWei) + 1, type(uint256).max);
        give(owner, hasWei);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ICredits.InsufficientCredit.selector, uint256(hasWei), amountWei));
        requests.transferCredit(toOneself ? owner : otherOwner, amountWei);
        vm.assertEq(requests.credits(owner), hasWei);
    }

    function test_RevertWhen_transferCredit_oneWeiTooMuch() public {
        testFuzz_RevertWhen_transferCredit_tooMuch(0, 1, true);
        testFuzz_RevertWhen_transferCredit_tooMuch(5, 6, false);
    }

    // withdraw, withdrawTo

    function test_withdraw_toTheCaller() public {
        give(stranger, 7);
        vm.expectEmit(address(requests));
        emit ICredits.Withdrawn(stranger, stranger, 7);
        vm.prank(stranger);
        vm.assertEq(requests.withdraw(), 7);
        vm.assertEq(stranger.balance, 7);
        vm.assertEq(requests.credits(stranger), 0);
    }

    function test_withdrawTo_another() public {
        give(stranger, 7);
        vm.expectEmit(address(requests));
        emit ICredits.Withdrawn(stranger, to, 7);
        vm.prank(stranger);
        vm.assertEq(requests.withdrawTo(to), 7);
        vm.assertEq(to.balance, 7);
        vm.assertEq(stranger.balance, 0);
    }

    function testFuzz_withdraw_onlyOnesOwn(uint96 ownWei, uint96 othersWei, bool named) public {
        vm.assume(ownWei != 0);
        give(stranger, ownWei);
        give(otherOwner, othersWei);
        vm.prank(stranger);
        vm.assertEq(named ? requests.withdrawTo(to) : requests.withdraw(), ownWei);
        vm.assertEq(named ? to.balance : stranger.balance, ownWei);
        vm.assertEq(requests.credits(stranger), 0);
        vm.assertEq(requests.credits(otherOwner), othersWei);
        vm.assertEq(address(requests).balance, othersWei);
        expectNothing(stranger);
    }

    function test_RevertWhen_withdraw_nothing() public {
        give(owner, 7);
        expectNothing(stranger);
        vm.prank(owner);
        requests.transferCredit(stranger, 7);
        expectNothing(owner);
    }

    function test_RevertWhen_withdraw_refused() public {
        Refuser refuser = new Refuser();
        give(address(refuser), 7);
        vm.prank(address(refuser));
        vm.expectRevert(abi.encodeWithSelector(ICredits.TransferFailed.selector, address(refuser), uint256(7)));
        requests.withdraw();
        vm.assertEq(requests.credits(address(refuser)), 7);
        vm.prank(address(refuser));
        vm.assertEq(requests.withdrawTo(to), 7);
    }

    function test_RevertWhen_withdrawTo_nobodyOrAContractThatRefuses() public {
        give(owner, 7);
        address[6] memory places =
            [address(0), address(requests), address(results), address(registry), address(stakes), address(disputes)];
        for (uint256 i; i < 6; ++i) {
            vm.prank(owner);
            vm.expectRevert(abi.encodeWithSelector(ICredits.TransferFailed.selector, places[i], uint256(7)));
            requests.withdrawTo(payable(places[i]));
            vm.assertEq(requests.credits(owner), 7);
        }
    }

    function test_withdraw_reentrantMoves() public {
        // While it is paid, the receiver tries to move or fetch again what it just got.
        Reenterer attacker = new Reenterer();
        give(address(attacker), 7);
        give(owner, 1 ether);
        bytes[3] memory again = [
            abi.encodeCall(requests.withdraw, ()),
            abi.encodeCall(requests.withdrawTo, (to)),
            abi.encodeCall(requests.transferCredit, (owner, uint256(1)))
        ];
        for (uint256 i; i < 3; ++i) {
            attacker.arm(address(requests), again[i]);
            attacker.forward(address(requests), 0, abi.encodeCall(requests.withdraw, ()));
            vm.assertEq(attacker.attempts(), i + 1);
            vm.assertEq(attacker.successes(), 0);
            vm.assertEq(address(attacker).balance, 7 * (i + 1));
            vm.assertEq(address(requests).balance, 1 ether);
            give(address(attacker), 7);
        }
    }

    function test_withdraw_receiverMayAskAgain() public {
        // With what it got: the purse is in order by then.
        Reenterer asker = new Reenterer();
        give(address(asker), 7);
        vm.deal(address(asker), 0);
        asker.arm(address(requests), abi.encodeCall(requests.credit, (owner)));
        asker.forward(address(requests), 0, abi.encodeCall(requests.withdraw, ()));
        vm.assertEq(asker.successes(), 1);
        vm.assertEq(address(asker).balance, 7);
        vm.assertEq(requests.credits(address(asker)), 0);
    }

    // ether by mistake

    function testFuzz_RevertWhen_etherIsSentByMistake(uint96 valueWei, bytes4 selector) public {
        vm.deal(stranger, valueWei);
        address[5] memory all =
            [address(requests), address(results), address(registry), address(stakes), address(disputes)];
        for (uint256 i; i < 5; ++i) {
            vm.prank(stranger);
            (bool ok,) = all[i].call{value: valueWei}("");
            vm.assertFalse(ok);
            vm.prank(stranger);
            (ok,) = all[i].call{value: valueWei}(abi.encodePacked(selector));
            // No selector takes it without arguments, whatever else it may do.
            if (ok) vm.assertEq(all[i].balance, 0);
        }
    }

    function test_RevertWhen_etherWithACallThatTakesNone() public {
        give(owner, 7);
        bytes[6] memory calls = [
            abi.encodeCall(requests.withdraw, ()),
            abi.encodeCall(requests.transferCredit, (to, uint256(1))),
            abi.encodeCall(requests.refund, (new RefundClaim[](0))),
            abi.encodeCall(requests.requestCancel, (1, bytes32(0))),
            abi.encodeCall(requests.withdrawTo, (to)),
            abi.encodeCall(requests.setPaused, (true))
        ];
        vm.deal(admin, 1 ether);
        for (uint256 i; i < 6; ++i) {
            vm.prank(i == 5 ? admin : owner);
            (bool ok,) = address(requests).call{value: 1}(calls[i]);
            vm.assertFalse(ok);
        }
    }

    function testFuzz_forcedEtherBelongsToNobody(uint96 forcedWei) public {
        give(owner, 7);
        RequestParams memory p = params();
        submit(p);
        vm.deal(address(requests), address(requests).balance + forcedWei);
        vm.prank(owner);
        vm.assertEq(requests.withdrawTo(to), 7);
        expectNothing(owner);
        vm.warp(START + 601);
        requests.refund(claim(1, p));
        vm.prank(requester);
        vm.assertEq(requests.withdrawTo(to), FEE);
        vm.assertEq(to.balance, FEE + 7);
        vm.assertEq(address(requests).balance, forcedWei);
    }

    // helpers

    function give(address account_, uint256 amountWei) private {
        vm.deal(address(this), amountWei);
        requests.credit{value: amountWei}(account_);
    }

    function expectNothing(address account_) private {
        vm.prank(account_);
        vm.expectRevert(abi.encodeWithSelector(ICredits.NothingToWithdraw.selector, account_));
        requests.withdraw();
        vm.prank(account_);
        vm.expectRevert(abi.encodeWithSelector(ICredits.NothingToWithdraw.selector, account_));
        requests.withdrawTo(to);
    }
}
