// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    InputKind,
    RefundClaim,
    RequestParams,
    RequestRecord,
    RequestStatus,
    SkipReason
} from "../src/interfaces/IInferenceRequests.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {Hold} from "../src/interfaces/IDisputes.sol";
import {CallbackClaim, ProvenGroup} from "../src/interfaces/IInferenceResults.sol";
import {IModelTerms, ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {IOwned} from "../src/interfaces/IOwned.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {Recorder} from "./mocks/Consumers.sol";

contract InferenceRequestsTest is Fixture {
    address payable private to = payable(account("to"));

    uint256 private constant MAX_FEE_WEI = ((1 << 48) - 1) * 1 gwei;

    // constructor

    function test_constructor_wires() public view {
        vm.assertEq(requests.results(), address(results));
        vm.assertEq(requests.disputes(), address(disputes));
        vm.assertEq(requests.owner(), admin);
        vm.assertFalse(requests.paused());
        vm.assertEq(requests.posterBps(), POSTER_BPS);
        vm.assertEq(requests.cancelDelay(), CANCEL_DELAY);
        vm.assertEq(requests.nextId(), 1);
    }

    function test_RevertWhen_constructor_noCancelDelay() public {
        vm.expectRevert(IInferenceRequests.CancelDelayZero.selector);
        this.deployWithDelay(0);
    }

    function test_RevertWhen_constructor_moreThanAllToThePoster() public {
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.InvalidPosterBps.selector, uint256(10_001)));
        this.deployWith(10_001);
    }

    function test_constructor_allToThePoster() public {
        vm.assertEq(this.deployWith(10_000).posterBps(), 10_000);
    }

    function deployWithDelay(uint40 cancelDelay) external {
        deployRequests(address(results), address(disputes), POSTER_BPS, cancelDelay);
    }

    function deployWith(uint256 posterBps) external returns (IInferenceRequests) {
        return deployRequests(address(results), address(disputes), posterBps, CANCEL_DELAY);
    }

    // submit

    function test_submit_recordsAndEmits() public {
        RequestParams memory p = params();
        p.callbackGasLimit = 0;
        p.inputKind = InputKind.URI;
        bytes20 commitment = commitmentFor(1, requester, p);
        uint256 record = FEE / 1 gwei | uint256(p.deadline) << 48 | uint256(uint160(commitment)) << 88 | uint256(1)
            << 250 | uint256(1) << 254;
        uint256 limits = 128 | uint256(512) << 32 | uint256(1) << 96;
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceRequested(1, requester, p.modelId, record, limits, p.input);
        vm.assertEq(submit(p), 1);

        expectRecord(1, FEE, p.deadline, commitment);
        vm.assertTrue(requests.recordOf(1).batchable);
        vm.assertEq(requests.nextId(), 2);
        vm.assertEq(address(requests).balance, FEE);
        expectStatus(1, RequestStatus.PENDING);
        vm.assertEq(bytes32(requests.commitmentOf(1, requester, hashOf(p))), bytes32(commitment));
    }

    function test_submit_idsCountUp() public {
        vm.assertEq(submit(), 1);
        vm.assertEq(submit(), 2);
        vm.assertEq(requests.nextId(), 3);
    }

    function test_submit_deadlineOneSecondAway() public {
        vm.assertEq(submit(params(uint40(START + 1))), 1);
    }

    /// @dev What a fuzzer may choose; it would put numbers into enums that they do not have.
    struct Choice {
        bytes32 modelId;
        uint32 maxTokens;
        uint40 deadline;
        uint32 memoryMb;
        bool batchable;
        bool isUri;
        bytes input;
    }

    function testFuzz_submit_anything(Choice memory choice, uint256 feeGwei, address anyone) public {
        RequestParams memory p = params(uint40(bound(choice.deadline, START + 1, type(uint40).max)));
        p.modelId = choice.modelId;
        p.maxTokens = choice.maxTokens;
        p.memoryMb = choice.memoryMb;
        p.batchable = choice.batchable;
        p.inputKind = choice.isUri ? InputKind.URI : InputKind.INLINE;
        p.input = choice.input;
        feeGwei = bound(feeGwei, 1, (1 << 48) - 1);
        vm.deal(anyone, MAX_FEE_WEI);
        bytes20 commitment = commitmentFor(1, anyone, p);
        uint256 record = feeGwei | uint256(p.deadline) << 48 | uint256(uint160(commitment)) << 88 | uint256(1) << 250
            | uint256(p.batchable ? 1 : 0) << 254;
        uint256 limits = p.maxTokens | uint256(p.memoryMb) << 32 | uint256(p.inputKind) << 96;
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceRequested(1, anyone, p.modelId, record, limits, p.input);
        vm.prank(anyone);
        uint256 id = requests.submit{value: feeGwei * 1 gwei}(p);
        expectRecord(id, feeGwei * 1 gwei, p.deadline, commitment);
        vm.assertEq(requests.recordOf(id).batchable, p.batchable);
    }

    function testFuzz_submit_anyQuorumAndDelivery(uint8 quorum, uint8 delivery, uint32 gasLimit, bool batchable)
        public
    {
        RequestParams memory p = params();
        p.quorum = uint8(bound(quorum, 1, 15));
        p.delivery = Delivery(delivery % 3);
        p.batchable = batchable;
        p.callbackGasLimit = p.delivery == Delivery.CALLBACK ? uint32(bound(gasLimit, 1, 8_000_000)) : 0;
        vm.etch(requester, hex"00");
        bytes20 commitment = commitmentFor(1, requester, p);
        uint256 record = FEE / 1 gwei | uint256(p.deadline) << 48 | uint256(uint160(commitment)) << 88
            | uint256(p.delivery) << 248 | uint256(p.quorum) << 250 | uint256(batchable ? 1 : 0) << 254;
        uint256 limits = 128 | uint256(512) << 32 | uint256(p.callbackGasLimit) << 64;
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceRequested(1, requester, p.modelId, record, limits, p.input);
        submit(p);
        RequestRecord memory stored = requests.recordOf(1);
        vm.assertEq(uint256(stored.feeGwei) * 1 gwei, FEE);
        vm.assertEq(stored.deadline, p.deadline);
        vm.assertEq(bytes32(stored.commitment), bytes32(commitment));
        vm.assertEq(uint256(stored.delivery), uint256(p.delivery));
        vm.assertEq(stored.quorum, p.quorum);
        vm.assertEq(stored.batchable, batchable);
        vm.assertFalse(stored.underTerms);
    }

    function test_submit_inputOfNothingAndOf64Kib() public {
        RequestParams memory p = params();
        p.input = "";
        submit(p);
        expectRecord(1, FEE, p.deadline, commitmentFor(1, requester, p));
        p.input = new bytes(65_536);
        submit(p);
        expectRecord(2, FEE, p.deadline, commitmentFor(2, requester, p));
    }

    function test_submit_largestFee() public {
        vm.prank(requester);
        requests.submit{value: MAX_FEE_WEI}(params());
        expectRecord(1, MAX_FEE_WEI, params().deadline, commitmentFor(1, requester, params()));
    }

    function test_RevertWhen_submit_feeTooLarge() public {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeTooLarge.selector, MAX_FEE_WEI + 1 gwei));
        requests.submit{value: MAX_FEE_WEI + 1 gwei}(params());
    }

    function test_RevertWhen_submit_feeZero() public {
        vm.prank(requester);
        vm.expectRevert(IInferenceRequests.FeeZero.selector);
        requests.submit(params());
    }

    function testFuzz_RevertWhen_submit_feeNotWholeGwei(uint256 fee) public {
        fee = bound(fee, 1, MAX_FEE_WEI);
        vm.assume(fee % 1 gwei != 0);
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeNotWholeGwei.selector, fee));
        requests.submit{value: fee}(params());
    }

    function test_RevertWhen_submit_deadlineNow() public {
        expectSubmitReverts(
            params(uint40(START)), abi.encodeWithSelector(IInferenceRequests.DeadlineNotInFuture.selector, START, START)
        );
    }

    function testFuzz_RevertWhen_submit_quorumOutOfRange(uint8 quorum) public {
        vm.assume(quorum == 0 || quorum > 15);
        RequestParams memory p = params();
        p.quorum = quorum;
        expectSubmitReverts(
            p, abi.encodeWithSelector(IModelTerms.QuorumOutOfRange.selector, uint256(quorum), uint256(1), uint256(15))
        );
    }

    function testFuzz_RevertWhen_submit_gasWithoutCallback(uint32 gasLimit, bool stored) public {
        vm.assume(gasLimit != 0);
        RequestParams memory p = params();
        p.delivery = stored ? Delivery.STORED : Delivery.EVENT;
        p.callbackGasLimit = gasLimit;
        expectSubmitReverts(
            p, abi.encodeWithSelector(IInferenceRequests.CallbackGasOutOfRange.selector, uint256(gasLimit), uint256(0))
        );
    }

    /// @dev The hash takes the parameters as they stand in calldata, so each must be refused out of its range.
    function testFuzz_RevertWhen_submit_fieldOutOfRange(uint256 field, uint256 bit) public {
        // Words after the selector and the offset of the struct; how many bits each field has.
        uint8[8] memory bits = [32, 40, 32, 32, 8, 1, 2, 1];
        field = bound(field, 0, 7);
        bytes memory data = abi.encodeCall(requests.submit, (params()));
        bit = bound(bit, bits[field], 255);
        uint256 place = 0x20 + 4 + 0x20 + 0x20 * (field + 1);
        assembly ("memory-safe") {
            let pointer := add(data, place)
            mstore(pointer, or(mload(pointer), shl(bit, 1)))
        }
        vm.prank(requester);
        (bool ok,) = address(requests).call{value: FEE}(data);
        vm.assertFalse(ok);
        vm.assertEq(requests.nextId(), 1);
    }

    function test_RevertWhen_etherIsSent() public {
        vm.prank(requester);
        (bool ok,) = address(requests).call{value: 1}("");
        vm.assertFalse(ok);
    }

    // submitMany

    function test_submitMany_idsAreConsecutive() public {
        (RequestParams[] memory list, uint256[] memory fees) = three();
        vm.prank(requester);
        vm.assertEq(requests.submitMany{value: 6 gwei}(list, fees), 1);
        vm.assertEq(requests.nextId(), 4);
        for (uint256 i; i < 3; ++i) {
            expectRecord(i + 1, (i + 1) * 1 gwei, list[i].deadline, commitmentFor(i + 1, requester, list[i]));
        }
        vm.assertEq(submit(), 4);
    }

    function testFuzz_submitMany_anyList(uint256 seed, uint256 count, uint256 firstId) public {
        count = bound(count, 0, 12);
        firstId = bound(firstId, 1, 1_000);
        startAt(firstId);
        RequestParams[] memory list = new RequestParams[](count);
        uint256[] memory fees = new uint256[](count);
        uint256 sumWei;
        for (uint256 i; i < count; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            list[i] = params(uint40(START + 1 + random % 1_000));
            list[i].input = abi.encodePacked(random);
            fees[i] = (1 + (random >> 32) % 1e9) * 1 gwei;
            sumWei += fees[i];
        }
        vm.prank(requester);
        vm.assertEq(requests.submitMany{value: sumWei}(list, fees), firstId);
        vm.assertEq(requests.nextId(), firstId + count);
        vm.assertEq(address(requests).balance, sumWei);
        for (uint256 i; i < count; ++i) {
            uint256 id = firstId + i;
            expectRecord(id, fees[i], list[i].deadline, commitmentFor(id, requester, list[i]));
        }
        expectNoRecord(firstId + count);
    }

    function test_submitMany_none() public {
        vm.assertEq(requests.submitMany(new RequestParams[](0), new uint256[](0)), 1);
        vm.assertEq(requests.nextId(), 1);
    }

    function test_RevertWhen_submitMany_noneWithValue() public {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeSumMismatch.selector, uint256(1), uint256(0)));
        requests.submitMany{value: 1}(new RequestParams[](0), new uint256[](0));
    }

    function testFuzz_RevertWhen_submitMany_sumMismatch(uint256 valueWei) public {
        valueWei = bound(valueWei, 0, 100 ether);
        vm.assume(valueWei != 6 gwei);
        (RequestParams[] memory list, uint256[] memory fees) = three();
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeSumMismatch.selector, valueWei, 6 gwei));
        requests.submitMany{value: valueWei}(list, fees);
    }

    function test_RevertWhen_submitMany_lengthMismatch() public {
        (RequestParams[] memory list,) = three();
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.LengthMismatch.selector, uint256(3), uint256(2)));
        requests.submitMany{value: 6 gwei}(list, new uint256[](2));
    }

    function test_RevertWhen_submitMany_oneIsBad() public {
        (RequestParams[] memory list, uint256[] memory fees) = three();
        list[2].quorum = 0;
        vm.prank(requester);
        vm.expectRevert(
            abi.encodeWithSelector(IModelTerms.QuorumOutOfRange.selector, uint256(0), uint256(1), uint256(15))
        );
        requests.submitMany{value: 6 gwei}(list, fees);
        vm.assertEq(requests.nextId(), 1);
    }

    // raiseFee

    function test_raiseFee_byAnyone() public {
        RequestParams memory p = params();
        submit(p);
        vm.deal(stranger, 5 gwei);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.FeeRaised(1, FEE + 5 gwei);
        vm.prank(stranger);
        requests.raiseFee{value: 5 gwei}(1);
        expectRecord(1, FEE + 5 gwei, p.deadline, commitmentFor(1, requester, p));
        vm.assertTrue(requests.recordOf(1).batchable);
    }

    function testFuzz_raiseFee_addsUp(uint256 feeGwei, uint256 firstGwei, uint256 secondGwei) public {
        feeGwei = bound(feeGwei, 1, (1 << 48) - 3);
        firstGwei = bound(firstGwei, 1, (1 << 48) - 2 - feeGwei);
        secondGwei = bound(secondGwei, 1, (1 << 48) - 1 - feeGwei - firstGwei);
        vm.prank(requester);
        requests.submit{value: feeGwei * 1 gwei}(params());
        raise(1, firstGwei * 1 gwei);
        raise(1, secondGwei * 1 gwei);
        uint256 sumWei = (feeGwei + firstGwei + secondGwei) * 1 gwei;
        expectRecord(1, sumWei, params().deadline, commitmentFor(1, requester, params()));
        vm.assertEq(address(requests).balance, sumWei);
    }

    function testFuzz_RevertWhen_raiseFee_anyUnknownId(uint256 id) public {
        vm.assume(id != 1);
        submit();
        expectRaiseReverts(id);
    }

    function test_raiseFee_atTheDeadline() public {
        submit();
        vm.warp(START + 600);
        raise(1, 1 gwei);
        vm.assertEq(requests.recordOf(1).feeGwei, FEE / 1 gwei + 1);
    }

    function test_raiseFee_toTheLargest() public {
        submit();
        raise(1, MAX_FEE_WEI - FEE);
        vm.assertEq(requests.recordOf(1).feeGwei, (1 << 48) - 1);
        expectRecord(1, MAX_FEE_WEI, params().deadline, commitmentFor(1, requester, params()));
    }

    function test_RevertWhen_raiseFee_tooLarge() public {
        submit();
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeTooLarge.selector, MAX_FEE_WEI + 1 gwei));
        requests.raiseFee{value: MAX_FEE_WEI - FEE + 1 gwei}(1);
    }

    function test_RevertWhen_raiseFee_zero() public {
        submit();
        vm.expectRevert(IInferenceRequests.FeeZero.selector);
        requests.raiseFee(1);
    }

    function test_RevertWhen_raiseFee_notWholeGwei() public {
        submit();
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.FeeNotWholeGwei.selector, uint256(1)));
        requests.raiseFee{value: 1}(1);
    }

    function test_RevertWhen_raiseFee_expired() public {
        submit();
        vm.warp(START + 601);
        expectRaiseReverts(1);
    }

    function test_RevertWhen_raiseFee_settled() public {
        settleFirst();
        expectRaiseReverts(1);
    }

    function test_RevertWhen_raiseFee_unknown() public {
        expectRaiseReverts(0);
        expectRaiseReverts(1);
        expectRaiseReverts(type(uint64).max);
        expectRaiseReverts(uint256(type(uint64).max) + 1);
        expectRaiseReverts(type(uint256).max);
    }

    // requestCancel

    function test_requestCancel_shortensTheDeadline() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 10);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.CancelRequested(1, uint40(START + 10 + CANCEL_DELAY));
        cancel(1, p);
        // The commitment stays: it binds the deadline as submitted.
        expectRecord(1, FEE, START + 10 + CANCEL_DELAY, commitmentFor(1, requester, p));
        vm.assertTrue(requests.recordOf(1).batchable);
    }

    /// @dev However often and whenever it is asked: the deadline is the earliest of the submitted one and all that were set.
    function testFuzz_requestCancel_onlyEverEarlier(uint256 life, uint256[4] calldata waits) public {
        life = bound(life, 1, 400);
        RequestParams memory p = params(uint40(START + life));
        submit(p);
        uint256 time = START;
        uint256 deadline = START + life;
        for (uint256 i; i < 4; ++i) {
            time += bound(waits[i], 0, 100);
            if (time > deadline) break;
            vm.warp(time);
            if (time + CANCEL_DELAY < deadline) deadline = time + CANCEL_DELAY;
            vm.expectEmit(address(requests));
            emit IInferenceRequests.CancelRequested(1, uint40(deadline));
            cancel(1, p);
            expectRecord(1, FEE, deadline, commitmentFor(1, requester, p));
        }
    }

    function testFuzz_RevertWhen_requestCancel_notRequester(address anyone) public {
        vm.assume(anyone != requester);
        RequestParams memory p = params();
        submit(p);
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CommitmentMismatch.selector, uint256(1)));
        requests.requestCancel(1, hashOf(p));
        vm.assertEq(requests.recordOf(1).deadline, p.deadline);
    }

    function test_requestCancel_againGivesNoTimeBack() public {
        RequestParams memory p = params();
        submit(p);
        cancel(1, p);
        vm.warp(START + 30);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.CancelRequested(1, uint40(START + CANCEL_DELAY));
        cancel(1, p);
        vm.assertEq(requests.recordOf(1).deadline, START + CANCEL_DELAY);
    }

    function test_requestCancel_nearerDeadlineStays() public {
        RequestParams memory p = params(uint40(START + 5));
        submit(p);
        cancel(1, p);
        vm.assertEq(requests.recordOf(1).deadline, START + 5);
    }

    function test_requestCancel_pendingResultStillLands() public {
        activate(WORKER_KEY, owner);
        RequestParams memory p = params();
        submit(p);
        bytes memory items = item(1);
        cancel(1, p);
        vm.warp(START + CANCEL_DELAY);
        vm.assertEq(post(WORKER_KEY, items), 1);
    }

    function test_requestCancel_thenRefund() public {
        RequestParams memory p = params();
        submit(p);
        cancel(1, p);
        vm.warp(START + CANCEL_DELAY + 1);
        vm.assertEq(requests.refund(claim(1, p)), 1);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_RevertWhen_requestCancel_notRequester() public {
        RequestParams memory p = params();
        submit(p);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CommitmentMismatch.selector, uint256(1)));
        requests.requestCancel(1, hashOf(p));
    }

    function testFuzz_RevertWhen_requestCancel_otherParams(bytes32 paramsHash) public {
        RequestParams memory p = params();
        vm.assume(paramsHash != hashOf(p));
        submit(p);
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CommitmentMismatch.selector, uint256(1)));
        requests.requestCancel(1, paramsHash);
    }

    function test_RevertWhen_requestCancel_expired() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        expectCancelReverts(1, p);
    }

    function test_RevertWhen_requestCancel_settled() public {
        RequestParams memory p = params();
        settleFirst();
        expectCancelReverts(1, p);
    }

    function test_RevertWhen_requestCancel_unknown() public {
        expectCancelReverts(1, params());
        expectCancelReverts(type(uint256).max, params());
    }

    // refund

    function test_refund_oneSecondAfterTheDeadline() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        expectStatus(1, RequestStatus.EXPIRED);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.RequestRefunded(1, requester, FEE);
        vm.prank(stranger);
        vm.assertEq(requests.refund(claim(1, p)), 1);
        vm.assertEq(requests.credits(requester), FEE);
        vm.assertTrue(isSettled(1));
        expectStatus(1, RequestStatus.SETTLED);
    }

    function test_refund_skipsAtTheDeadline() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 600);
        expectStatus(1, RequestStatus.PENDING);
        expectRefundSkipped(claim(1, p), 1, SkipReason.NOT_EXPIRED);
    }

    function test_refund_skipsSettled() public {
        RequestParams memory p = params();
        settleFirst();
        vm.warp(START + 601);
        expectRefundSkipped(claim(1, p), 1, SkipReason.ALREADY_SETTLED);
    }

    function test_refund_skipsSecond() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        requests.refund(claim(1, p));
        expectRefundSkipped(claim(1, p), 1, SkipReason.ALREADY_SETTLED);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_refund_skipsDuplicateInOneCall() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        RefundClaim[] memory claims = new RefundClaim[](2);
        claims[0] = claim(1, p)[0];
        claims[1] = claims[0];
        vm.assertEq(requests.refund(claims), 1);
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_refund_skipsUnknown() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        expectRefundSkipped(claim(0, p), 0, SkipReason.UNKNOWN_ID);
        expectRefundSkipped(claim(2, p), 2, SkipReason.UNKNOWN_ID);
        expectRefundSkipped(claim(type(uint64).max, p), type(uint64).max, SkipReason.UNKNOWN_ID);
        // Same low 64 bits as a request that is there.
        expectRefundSkipped(claim((1 << 64) + 1, p), (1 << 64) + 1, SkipReason.UNKNOWN_ID);
        expectRefundSkipped(claim(type(uint256).max, p), type(uint256).max, SkipReason.UNKNOWN_ID);
    }

    function test_refund_skipsOtherRequester() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        RefundClaim[] memory claims = claim(1, p);
        claims[0].requester = stranger;
        expectRefundSkipped(claims, 1, SkipReason.COMMITMENT_MISMATCH);
        vm.assertEq(requests.credits(stranger), 0);
    }

    function test_refund_skipsOtherParams() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        RefundClaim[] memory claims = claim(1, p);
        claims[0].paramsHash = 0;
        expectRefundSkipped(claims, 1, SkipReason.COMMITMENT_MISMATCH);
    }

    function test_refund_manyAcrossWordsAndBadOnes() public {
        submitMany(260);
        vm.warp(START + 601);
        RequestParams memory p = params(uint40(START + 600));
        // Ids on both sides of the words' edge, in turns, with a stranger's claim and an unknown id between.
        uint64[8] memory ids = [uint64(255), 256, 254, 257, 255, 9_999, 1, 256];
        RefundClaim[] memory claims = new RefundClaim[](8);
        for (uint256 i; i < 8; ++i) {
            claims[i] = claim(ids[i], p)[0];
        }
        claims[2].requester = stranger;
        vm.assertEq(requests.refund(claims), 4);
        vm.assertEq(requests.credits(requester), 4 * FEE);
        vm.assertEq(requests.settledWord(0), uint256(1) << 255 | 2);
        vm.assertEq(requests.settledWord(1), 3);
    }

    /// @dev Any mixture of claims, in any order: just the right ones are paid, once each.
    function testFuzz_refund_anyClaims(uint256 seed, uint256 count) public {
        count = bound(count, 1, 24);
        startAt(250);
        RequestParams memory late = params(uint40(START + 1_000));
        RequestParams memory p = params();
        for (uint256 i; i < 12; ++i) {
            submit(i % 4 == 3 ? late : p);
        }
        vm.warp(START + 601);
        RefundClaim[] memory claims = new RefundClaim[](count);
        bool[12] memory paid;
        uint256 expected;
        for (uint256 i; i < count; ++i) {
            uint256 random = uint256(keccak256(abi.encode(seed, i)));
            uint256 which = random % 14;
            claims[i] = claim(250 + which, which % 4 == 3 ? late : p)[0];
            if (random >> 16 & 7 == 0) claims[i].requester = stranger;
            else if (random >> 24 & 7 == 0) claims[i].paramsHash = bytes32(random);
            else if (random >> 32 & 7 == 0) claims[i].id += 1 << 64;
            else if (which < 12 && which % 4 != 3 && !paid[which]) (paid[which], expected) = (true, expected + 1);
        }
        vm.recordLogs();
        vm.assertEq(requests.refund(claims), expected);
        vm.assertEq(vm.getRecordedLogs().length, count);
        vm.assertEq(requests.credits(requester), expected * FEE);
        vm.assertEq(requests.credits(stranger), 0);
        for (uint256 i; i < 12; ++i) {
            vm.assertEq(isSettled(250 + i), paid[i]);
            if (paid[i]) expectNoRecord(250 + i);
            else vm.assertEq(requests.recordOf(250 + i).feeGwei, FEE / 1 gwei);
        }
        vm.assertEq(requests.refund(claims), 0);
    }

    function testFuzz_refund_boundary(uint256 life, uint256 wait) public {
        life = bound(life, 1, 1_000);
        wait = bound(wait, 0, 2_000);
        RequestParams memory p = params(uint40(START + life));
        submit(p);
        vm.warp(START + wait);
        vm.assertEq(requests.refund(claim(1, p)), wait > life ? 1 : 0);
        vm.assertEq(requests.credits(requester), wait > life ? FEE : 0);
    }

    function test_refund_none() public {
        vm.assertEq(requests.refund(new RefundClaim[](0)), 0);
    }

    function test_refund_includesRaises() public {
        RequestParams memory p = params();
        submit(p);
        raise(1, 7 gwei);
        vm.warp(START + 601);
        requests.refund(claim(1, p));
        vm.assertEq(requests.credits(requester), FEE + 7 gwei);
    }

    // settle

    function test_RevertWhen_settle_notResults() public {
        submit();
        bytes memory items = item(1);
        // Not even the owner.
        address[5] memory others = [stranger, admin, address(disputes), address(requests), address(0)];
        for (uint256 i; i < 5; ++i) {
            vm.prank(others[i]);
            vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotResults.selector, others[i]));
            requests.settle(bytes.concat(abi.encode(worker, stranger, items.length), items), stranger);
        }
    }

    // setPaused

    function test_setPaused_emitsAndShows() public {
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PausedSet(true);
        pause(true);
        vm.assertTrue(requests.paused());
        vm.assertEq(requests.nextId(), 1);
        // Again changes nothing.
        pause(true);
        vm.assertTrue(requests.paused());
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PausedSet(false);
        pause(false);
        vm.assertFalse(requests.paused());
        pause(false);
        vm.assertFalse(requests.paused());
        vm.assertEq(submit(), 1);
    }

    function testFuzz_setPaused_keepsTheId(uint64 id, bool to_) public {
        id = uint64(bound(id, 1, 2 ** 63 - 1));
        startAt(id);
        pause(to_);
        vm.assertEq(requests.nextId(), id);
        pause(false);
        vm.assertEq(submit(), id);
    }

    function testFuzz_RevertWhen_setPaused_notOwner(address anyone, bool to_) public {
        vm.assume(anyone != admin);
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, anyone));
        requests.setPaused(to_);
    }

    function test_setPaused_followsTheOwner() public {
        vm.prank(admin);
        requests.offerOwnership(stranger);
        vm.prank(stranger);
        requests.acceptOwnership();
        vm.prank(stranger);
        requests.setPaused(true);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.setPaused(false);
    }

    function test_RevertWhen_submit_paused() public {
        pause(true);
        expectSubmitReverts(params(), abi.encodeWithSelector(IInferenceRequests.RequestsPaused.selector));
        (RequestParams[] memory list, uint256[] memory fees) = three();
        vm.prank(requester);
        vm.expectRevert(IInferenceRequests.RequestsPaused.selector);
        requests.submitMany{value: 6 gwei}(list, fees);
        vm.expectRevert(IInferenceRequests.RequestsPaused.selector);
        requests.submitMany(new RequestParams[](0), new uint256[](0));
        pause(false);
        vm.prank(requester);
        vm.assertEq(requests.submitMany{value: 6 gwei}(list, fees), 1);
    }

    /// @dev Whoever has money or a right in the contracts can get it out while they are paused.
    function test_setPaused_everythingElseGoesOn() public {
        activate(WORKER_KEY, owner);
        Recorder consumer = new Recorder();
        RequestParams memory p = params();
        RequestParams memory called = params();
        called.delivery = Delivery.CALLBACK;
        called.callbackGasLimit = 200_000;
        submit(p);
        submit(p);
        vm.deal(address(consumer), FEE);
        vm.prank(address(consumer));
        requests.submit{value: FEE}(called);
        pause(true);

        raise(1, 1 gwei);
        vm.assertEq(requests.recordOf(1).feeGwei, FEE / 1 gwei + 1);
        vm.assertEq(post(WORKER_KEY, bytes.concat(item(1), item(3, commitmentFor(3, address(consumer), called)))), 2);
        cancel(2, p);
        vm.warp(START + CANCEL_DELAY + 1);
        vm.assertEq(requests.refund(claim(2, p)), 1);
        deliverTo(consumer, called);

        vm.prank(owner);
        requests.transferCredit(stranger, 1);
        requests.credit{value: 1}(stranger);
        vm.prank(stranger);
        vm.assertEq(requests.withdraw(), 2);
        vm.prank(requester);
        vm.assertEq(requests.withdrawTo(to), FEE);
        vm.prank(poster);
        vm.assertEq(requests.withdraw(), 2 * FEE / 10 + 0.1 gwei);
        vm.prank(owner);
        stakes.unstake(worker, MIN_STAKE);
        vm.warp(block.timestamp + UNBONDING_DELAY);
        vm.prank(owner);
        vm.assertEq(stakes.withdrawStake(worker, to), MIN_STAKE);
        vm.assertTrue(requests.paused());
    }

    function test_setPaused_heldPaymentsAreReleased() public {
        uint256[] memory keys = activateMany(1);
        ModelTerms memory terms = noTerms();
        (terms.disputeWindow, terms.bondGwei) = (60, 1);
        setTerms(terms);
        submit();
        ProvenGroup memory g = provenGroup(keys, item(1), new bytes[](1));
        pause(true);
        vm.assertEq(postProven(g), 1);
        Hold[] memory holds = new Hold[](1);
        (address[] memory workers, address[] memory owners) = (new address[](1), new address[](1));
        (workers[0], owners[0]) = (vm.addr(keys[0]), ownerOf(keys[0]));
        bytes20 commitment = commitmentFor(1, requester, params());
        holds[0] = Hold(
            1, commitment, digestOf(1), workers, owners, FEE * 9 / 10, poster, FEE / 10, 1 gwei, uint40(START + 60)
        );
        vm.warp(START + 61);
        vm.assertEq(disputes.release(holds), 1);
        vm.assertEq(requests.credits(owners[0]), FEE * 9 / 10);
    }

    // withdraw

    function test_withdraw_sendsTheWholeCredit() public {
        refundFirst();
        vm.expectEmit(address(requests));
        emit ICredits.Withdrawn(requester, to, FEE);
        vm.prank(requester);
        vm.assertEq(requests.withdrawTo(to), FEE);
        vm.assertEq(to.balance, FEE);
        vm.assertEq(requests.credits(requester), 0);
        vm.assertEq(address(requests).balance, 0);
    }

    function test_RevertWhen_withdraw_twice() public {
        refundFirst();
        submit();
        vm.prank(requester);
        requests.withdrawTo(to);
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(ICredits.NothingToWithdraw.selector, requester));
        requests.withdrawTo(to);
    }

    // views

    function test_statusOf_eachStage() public {
        activate(WORKER_KEY, owner);
        expectStatus(0, RequestStatus.UNKNOWN);
        expectStatus(1, RequestStatus.UNKNOWN);
        expectStatus(type(uint64).max, RequestStatus.UNKNOWN);
        expectStatus(type(uint256).max, RequestStatus.UNKNOWN);
        submit();
        expectStatus(1, RequestStatus.PENDING);
        vm.warp(START + 600);
        expectStatus(1, RequestStatus.PENDING);
        vm.warp(START + 601);
        expectStatus(1, RequestStatus.EXPIRED);
        vm.warp(START + 600);
        post(WORKER_KEY, item(1, commitmentFor(1, requester, params(uint40(START + 600)))));
        expectStatus(1, RequestStatus.SETTLED);
    }

    function test_recordOf_zeroWhenUnknownOrSettled() public {
        settleFirst();
        expectNoRecord(0);
        expectNoRecord(1);
        expectNoRecord(2);
        expectNoRecord(type(uint64).max);
        expectNoRecord(type(uint256).max);
    }

    function test_settledWord_zeroBeyondTheIds() public view {
        vm.assertEq(requests.settledWord(2 ** 56 - 1), 0);
        vm.assertEq(requests.settledWord(2 ** 56), 0);
        vm.assertEq(requests.settledWord(type(uint256).max), 0);
    }

    function testFuzz_commitmentOf_bindsAll(uint256 id, address anyone, bytes32 paramsHash) public {
        bytes20 here = requests.commitmentOf(id, anyone, paramsHash);
        vm.assertEq(
            bytes32(here), bytes32(bytes20(keccak256(abi.encode(CHAIN_ID, address(requests), id, anyone, paramsHash))))
        );
        // The chain id of deployment: what was asked before a fork must be opened after it.
        vm.chainId(CHAIN_ID + 1);
        vm.assertEq(bytes32(requests.commitmentOf(id, anyone, paramsHash)), bytes32(here));
    }

    function testFuzz_statusOf_anyTime(uint256 id, uint256 wait) public {
        submit();
        wait = bound(wait, 0, 10_000);
        vm.warp(START + wait);
        expectStatus(1, wait > 600 ? RequestStatus.EXPIRED : RequestStatus.PENDING);
        if (id != 1) expectStatus(id, RequestStatus.UNKNOWN);
    }

    function testFuzz_settledWord_oneBitPerId(uint256 id) public {
        id = bound(id, 1, 2 ** 63 - 1);
        startAt(id);
        settleNext(id);
        vm.assertEq(requests.settledWord(id >> 8), uint256(1) << (id & 255));
        vm.assertEq(requests.settledWord((id >> 8) + 1), 0);
        if (id > 255) vm.assertEq(requests.settledWord((id >> 8) - 1), 0);
        expectStatus(id, RequestStatus.SETTLED);
        expectNoRecord(id);
    }

    function testFuzz_views_emptyForAnyUnknownId(uint256 id) public view {
        expectNoRecord(id);
        expectStatus(id, RequestStatus.UNKNOWN);
        (bool found, bytes32 digest) = requests.resultOf(id);
        vm.assertFalse(found);
        vm.assertEq(digest, bytes32(0));
        vm.assertEq(requests.settledWord(id), 0);
    }

    // helpers

    function pause(bool paused) private {
        vm.prank(admin);
        requests.setPaused(paused);
    }

    function settleNext(uint256 id) private {
        activate(WORKER_KEY, owner);
        vm.assertEq(submit(), id);
        vm.assertEq(post(WORKER_KEY, item(id)), 1);
    }

    /// @dev Request 3.
    function deliverTo(Recorder consumer, RequestParams memory called) private {
        CallbackClaim[] memory claims = new CallbackClaim[](1);
        claims[0] = CallbackClaim(3, address(consumer), called, abi.encode("output", uint256(3)));
        vm.assertEq(results.deliver(claims), 1);
        vm.assertEq(consumer.calls(), 1);
    }

    function three() private pure returns (RequestParams[] memory list, uint256[] memory fees) {
        list = new RequestParams[](3);
        fees = new uint256[](3);
        for (uint256 i; i < 3; ++i) {
            list[i] = params(uint40(START + 100 + i));
            fees[i] = (i + 1) * 1 gwei;
        }
    }

    function raise(uint256 id, uint256 valueWei) private {
        vm.prank(requester);
        requests.raiseFee{value: valueWei}(id);
    }

    function cancel(uint256 id, RequestParams memory p) private {
        vm.prank(requester);
        requests.requestCancel(id, hashOf(p));
    }

    function settleFirst() private {
        activate(WORKER_KEY, owner);
        submit();
        vm.assertEq(post(WORKER_KEY, item(1)), 1);
    }

    function refundFirst() private {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        requests.refund(claim(1, p));
        vm.warp(START);
    }

    function expectSubmitReverts(RequestParams memory p, bytes memory reason) private {
        vm.prank(requester);
        vm.expectRevert(reason);
        requests.submit{value: FEE}(p);
    }

    function expectRaiseReverts(uint256 id) private {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotPending.selector, id));
        requests.raiseFee{value: 1 gwei}(id);
    }

    function expectCancelReverts(uint256 id, RequestParams memory p) private {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotPending.selector, id));
        requests.requestCancel(id, hashOf(p));
    }

    function expectRefundSkipped(RefundClaim[] memory claims, uint256 id, SkipReason reason) private {
        vm.recordLogs();
        vm.assertEq(requests.refund(claims), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IInferenceRequests.RefundSkipped.selector);
        vm.assertEq(logs[0].topics[1], bytes32(id));
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
    }

    function expectStatus(uint256 id, RequestStatus status) private view {
        vm.assertEq(uint256(requests.statusOf(id)), uint256(status));
    }

    function expectRecord(uint256 id, uint256 feeWei, uint256 deadline, bytes20 commitment) private view {
        RequestRecord memory record = requests.recordOf(id);
        vm.assertEq(uint256(record.feeGwei) * 1 gwei, feeWei);
        vm.assertEq(record.deadline, deadline);
        vm.assertEq(bytes32(record.commitment), bytes32(commitment));
        vm.assertEq(uint256(record.delivery), uint256(Delivery.EVENT));
        vm.assertEq(record.quorum, 1);
    }

    function expectNoRecord(uint256 id) private view {
        RequestRecord memory record = requests.recordOf(id);
        vm.assertEq(keccak256(abi.encode(record)), keccak256(new bytes(224)));
    }
}
