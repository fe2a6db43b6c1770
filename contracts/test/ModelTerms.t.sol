// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, RequestParams, SkipReason} from "../src/interfaces/IInferenceRequests.sol";
import {IModelTerms, ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {IOwned} from "../src/interfaces/IOwned.sol";
import {IResultVerifier} from "../src/interfaces/IResultVerifier.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {EchoVerifier} from "./mocks/Verifiers.sol";

/// @notice What models ask for beyond one signature: how terms are set, and which of them a request gets.
contract ModelTermsTest is Fixture {
    bytes32 private constant MODEL = keccak256("smollm2-135m");
    /// @dev Another model in the same place of the filter: the place is the lowest 7 bits.
    bytes32 private constant NEIGHBOUR = MODEL ^ bytes32(uint256(1) << 7);
    /// @dev A day of unbonding less six hours of ruling, less the second in which a withdrawal could come first.
    uint32 private constant MAX_WINDOW = 1 days - 6 hours - 1;

    IResultVerifier private verifier;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        verifier = new EchoVerifier();
    }

    // setModelTerms

    function test_setModelTerms_recordsAndEmits() public {
        ModelTerms memory terms = everything();
        vm.expectEmit(address(requests));
        emit IModelTerms.ModelTermsSet(1, MODEL, address(verifier), 1 hours, 7, 3);
        vm.assertEq(setTerms(terms), 1);
        expectTerms(requests.termsOfModel(MODEL), terms);
        expectNone(requests.termsOfModel(NEIGHBOUR));
    }

    function test_setModelTerms_idsCountUp() public {
        vm.assertEq(setTerms(everything()), 1);
        vm.assertEq(setTerms(everything()), 2);
        ModelTerms memory other = everything();
        other.modelId = NEIGHBOUR;
        vm.assertEq(setTerms(other), 3);
        vm.assertEq(setTerms(noTerms()), 0);
        vm.assertEq(setTerms(everything()), 4);
    }

    function test_setModelTerms_allZeroTakesThemAway() public {
        setTerms(everything());
        vm.expectEmit(address(requests));
        emit IModelTerms.ModelTermsSet(0, MODEL, address(0), 0, 0, 0);
        vm.assertEq(setTerms(noTerms()), 0);
        expectNone(requests.termsOfModel(MODEL));
        submit(asking(1));
        vm.assertFalse(requests.recordOf(1).underTerms);
    }

    function test_setModelTerms_quorumOfOneIsNone() public {
        ModelTerms memory terms = noTerms();
        terms.minQuorum = 1;
        vm.assertEq(setTerms(terms), 0);
        terms.minQuorum = 2;
        vm.assertEq(setTerms(terms), 1);
    }

    function test_setModelTerms_bondWithoutWindowIsNone() public {
        ModelTerms memory terms = noTerms();
        terms.bondGwei = 5;
        vm.assertEq(setTerms(terms), 0);
        expectNone(requests.termsOfModel(MODEL));
    }

    function testFuzz_setModelTerms_anythingInRange(
        bytes32 modelId,
        bool verified,
        uint32 window,
        uint56 bondGwei,
        uint8 minQuorum
    ) public {
        ModelTerms memory terms = ModelTerms({
            modelId: modelId,
            verifier: verified ? verifier : IResultVerifier(address(0)),
            disputeWindow: uint32(bound(window, 0, MAX_WINDOW)),
            bondGwei: uint56(bound(bondGwei, 1, type(uint56).max)),
            minQuorum: uint8(bound(minQuorum, 0, 15))
        });
        bool some = verified || terms.disputeWindow != 0 || terms.minQuorum > 1;
        vm.expectEmit(address(requests));
        emit IModelTerms.ModelTermsSet(
            some ? 1 : 0, modelId, address(terms.verifier), terms.disputeWindow, terms.bondGwei, terms.minQuorum
        );
        vm.assertEq(setTerms(terms), some ? 1 : 0);
        if (some) expectTerms(requests.termsOfModel(modelId), terms);
        else expectNone(requests.termsOfModel(modelId));

        RequestParams memory p = params();
        p.modelId = modelId;
        p.quorum = 15;
        submit(p);
        vm.assertEq(requests.recordOf(1).underTerms, verified || terms.disputeWindow != 0);
        if (requests.recordOf(1).underTerms) expectTerms(requests.termsOfRequest(1), terms);
        else expectNone(requests.termsOfRequest(1));
    }

    function test_setModelTerms_leavesIdsAndPauseAlone() public {
        submit();
        vm.prank(admin);
        requests.setPaused(true);
        setTerms(everything());
        vm.assertTrue(requests.paused());
        vm.assertEq(requests.nextId(), 2);
        vm.prank(admin);
        requests.setPaused(false);
        vm.assertEq(requests.nextId(), 2);
        submit(asking(3));
        vm.assertTrue(requests.recordOf(2).underTerms);
    }

    function testFuzz_RevertWhen_setModelTerms_notOwner(address anyone) public {
        vm.assume(anyone != admin);
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, anyone));
        requests.setModelTerms(everything());
    }

    function testFuzz_RevertWhen_setModelTerms_quorumOutOfRange(uint8 minQuorum) public {
        minQuorum = uint8(bound(minQuorum, 16, 255));
        ModelTerms memory terms = everything();
        terms.minQuorum = minQuorum;
        expectRefused(
            terms,
            abi.encodeWithSelector(IModelTerms.QuorumOutOfRange.selector, uint256(minQuorum), uint256(0), uint256(15))
        );
        terms.minQuorum = 15;
        setTerms(terms);
    }

    function test_RevertWhen_setModelTerms_verifierWithoutCode() public {
        ModelTerms memory terms = everything();
        terms.verifier = IResultVerifier(stranger);
        expectRefused(terms, abi.encodeWithSelector(IModelTerms.VerifierWithoutCode.selector, stranger));
    }

    function test_RevertWhen_setModelTerms_bondZero() public {
        ModelTerms memory terms = everything();
        terms.bondGwei = 0;
        expectRefused(terms, abi.encodeWithSelector(IModelTerms.BondZero.selector));
    }

    function testFuzz_RevertWhen_setModelTerms_windowTooLong(uint32 window) public {
        window = uint32(bound(window, MAX_WINDOW + 1, type(uint32).max));
        ModelTerms memory terms = everything();
        terms.disputeWindow = window;
        expectRefused(
            terms, abi.encodeWithSelector(IModelTerms.WindowTooLong.selector, uint256(window), uint256(MAX_WINDOW))
        );
    }

    function test_setModelTerms_longestWindow() public {
        vm.assertEq(disputes.maxWindow(), MAX_WINDOW);
        ModelTerms memory terms = everything();
        terms.disputeWindow = MAX_WINDOW;
        vm.assertEq(setTerms(terms), 1);
        testFuzz_RevertWhen_setModelTerms_windowTooLong(MAX_WINDOW + 1);
    }

    function test_RevertWhen_setModelTerms_noOwner() public {
        bytes memory arguments =
            abi.encode(address(results), address(disputes), address(0), POSTER_BPS, uint256(CANCEL_DELAY));
        requests = IInferenceRequests(deployCode("InferenceRequests", arguments));
        vm.assertEq(requests.owner(), address(0));
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.setModelTerms(everything());
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.setPaused(true);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.offerOwnership(admin);
    }

    // Which terms a request gets

    function test_submit_underTermsIsInTheRecord() public {
        setTerms(everything());
        RequestParams memory p = asking(3);
        uint256 record = FEE / 1 gwei | uint256(p.deadline) << 48 | uint256(uint160(commitmentFor(1, requester, p)))
            << 88 | uint256(3) << 250 | uint256(1) << 254 | uint256(1) << 255;
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceRequested(1, requester, MODEL, record, 128 | uint256(512) << 32, p.input);
        submit(p);
        vm.assertTrue(requests.recordOf(1).underTerms);
        vm.assertEq(requests.recordOf(1).quorum, 3);
        vm.assertTrue(requests.recordOf(1).batchable);
        expectTerms(requests.termsOfRequest(1), everything());
        expectNone(requests.termsOfRequest(0));
        expectNone(requests.termsOfRequest(2));
        expectNone(requests.termsOfRequest(type(uint256).max));
    }

    function test_submit_verifierOrWindowAloneIsUnderTerms() public {
        ModelTerms memory terms = noTerms();
        terms.verifier = verifier;
        setTerms(terms);
        submit();
        vm.assertTrue(requests.recordOf(1).underTerms);
        terms.verifier = IResultVerifier(address(0));
        terms.disputeWindow = 1;
        terms.bondGwei = 1;
        setTerms(terms);
        submit();
        vm.assertTrue(requests.recordOf(2).underTerms);
        expectTerms(requests.termsOfRequest(2), terms);
    }

    function test_submit_quorumAloneNeedsNoProofLater() public {
        ModelTerms memory terms = noTerms();
        terms.minQuorum = 2;
        setTerms(terms);
        uint256[] memory keys = activateMany(2);
        submit(asking(2));
        vm.assertFalse(requests.recordOf(1).underTerms);
        expectNone(requests.termsOfRequest(1));
        vm.assertEq(post(groups(group(keys, item(1, commitmentFor(1, requester, asking(2)))))), 1);
    }

    function testFuzz_submit_leastQuorum(uint8 minQuorum, uint8 quorum) public {
        minQuorum = uint8(bound(minQuorum, 2, 15));
        quorum = uint8(bound(quorum, 1, 15));
        ModelTerms memory terms = noTerms();
        terms.minQuorum = minQuorum;
        setTerms(terms);
        if (quorum >= minQuorum) {
            vm.assertEq(submit(asking(quorum)), 1);
            vm.assertEq(requests.recordOf(1).quorum, quorum);
        } else {
            expectQuorumRefused(quorum, minQuorum);
        }
    }

    function test_submit_leastQuorumEdges() public {
        testFuzz_submit_leastQuorum(7, 6);
        testFuzz_submit_leastQuorum(7, 7);
    }

    function test_submit_leastQuorumWithAVerifierToo() public {
        setTerms(everything());
        expectQuorumRefused(2, 3);
        submit(asking(4));
        vm.assertTrue(requests.recordOf(1).underTerms);
    }

    function test_RevertWhen_submitMany_leastQuorum() public {
        setTerms(everything());
        RequestParams[] memory list = new RequestParams[](2);
        list[0] = asking(3);
        list[1] = asking(2);
        uint256[] memory fees = new uint256[](2);
        fees[0] = fees[1] = FEE;
        vm.prank(requester);
        vm.expectRevert(
            abi.encodeWithSelector(IModelTerms.QuorumOutOfRange.selector, uint256(2), uint256(3), uint256(15))
        );
        requests.submitMany{value: 2 * FEE}(list, fees);
        list[1] = asking(3);
        vm.prank(requester);
        requests.submitMany{value: 2 * FEE}(list, fees);
        vm.assertTrue(requests.recordOf(1).underTerms);
        vm.assertTrue(requests.recordOf(2).underTerms);
        expectTerms(requests.termsOfRequest(2), everything());
    }

    function test_submit_neighbourInTheFilterHasNoTerms() public {
        setTerms(everything());
        RequestParams memory p = asking(1);
        p.modelId = NEIGHBOUR;
        submit(p);
        vm.assertFalse(requests.recordOf(1).underTerms);
        expectNone(requests.termsOfRequest(1));
        vm.assertEq(post(WORKER_KEY, item(1, commitmentFor(1, requester, p))), 1);
    }

    /// @dev Whatever models have terms: the filter never hides one.
    function testFuzz_submit_filterHidesNoTerms(bytes32 one, bytes32 other, bool removed) public {
        bytes32[2] memory models = [one, other];
        ModelTerms memory terms = everything();
        for (uint256 i; i < 2; ++i) {
            terms.modelId = models[i];
            setTerms(terms);
        }
        if (removed) {
            terms = noTerms();
            terms.modelId = one;
            setTerms(terms);
        }
        for (uint256 i; i < 2; ++i) {
            RequestParams memory p = asking(3);
            p.modelId = models[i];
            uint256 id = submit(p);
            vm.assertEq(requests.recordOf(id).underTerms, !(removed && models[i] == one));
        }
    }

    function test_submit_everyPlaceOfTheFilter() public {
        ModelTerms memory terms = everything();
        for (uint256 place; place < 128; ++place) {
            terms.modelId = bytes32(uint256(keccak256("model")) << 7 | place);
            setTerms(terms);
            RequestParams memory p = asking(3);
            p.modelId = terms.modelId;
            vm.assertTrue(requests.recordOf(submit(p)).underTerms);
            p.modelId = bytes32(uint256(keccak256("another")) << 7 | place);
            vm.assertFalse(requests.recordOf(submit(p)).underTerms);
        }
        vm.assertEq(requests.nextId(), 257);
        vm.assertFalse(requests.paused());
    }

    // Later changes

    function test_setModelTerms_laterOnesTouchNoPendingRequest() public {
        submit(asking(1));
        ModelTerms memory old = everything();
        setTerms(old);
        submit(asking(3));
        ModelTerms memory changed = everything();
        changed.verifier = new EchoVerifier();
        changed.disputeWindow = 2 hours;
        changed.bondGwei = 9;
        changed.minQuorum = 5;
        setTerms(changed);
        submit(asking(5));
        setTerms(noTerms());
        submit(asking(1));

        // From before there were terms, under the first, under the second, and after they were gone.
        vm.assertFalse(requests.recordOf(1).underTerms);
        expectNone(requests.termsOfRequest(1));
        expectTerms(requests.termsOfRequest(2), old);
        expectTerms(requests.termsOfRequest(3), changed);
        expectNone(requests.termsOfRequest(4));
        vm.assertEq(post(WORKER_KEY, item(1, commitmentFor(1, requester, asking(1)))), 1);
        vm.assertEq(post(WORKER_KEY, item(4, commitmentFor(4, requester, asking(1)))), 1);
        uint256[] memory keys = activateMany(3);
        bytes memory items = item(2, commitmentFor(2, requester, asking(3)));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(2, SkipReason.TERMS_APPLY);
        vm.assertEq(post(groups(group(keys, items))), 0);
        bytes[] memory proofs = new bytes[](1);
        proofs[0] = abi.encode(uint256(2), MODEL, commitmentFor(2, requester, asking(3)), digestOf(2));
        vm.assertEq(postProven(provenGroup(keys, items, proofs)), 1);
    }

    function test_raiseAndCancel_keepTheTerms() public {
        setTerms(everything());
        submit(asking(3));
        vm.prank(requester);
        requests.raiseFee{value: 1 gwei}(1);
        vm.prank(requester);
        requests.requestCancel(1, hashOf(asking(3)));
        vm.assertTrue(requests.recordOf(1).underTerms);
        vm.assertEq(requests.recordOf(1).quorum, 3);
        vm.assertEq(requests.recordOf(1).deadline, START + CANCEL_DELAY);
        vm.assertEq(requests.recordOf(1).feeGwei, FEE / 1 gwei + 1);
        expectTerms(requests.termsOfRequest(1), everything());
    }

    function test_refund_underTerms() public {
        setTerms(everything());
        submit(asking(3));
        vm.warp(START + 601);
        vm.assertEq(requests.refund(claim(1, asking(3))), 1);
        vm.assertEq(requests.credits(requester), FEE);
    }

    // helpers

    function asking(uint8 quorum) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.quorum = quorum;
    }

    function everything() private view returns (ModelTerms memory) {
        return ModelTerms({modelId: MODEL, verifier: verifier, disputeWindow: 1 hours, bondGwei: 7, minQuorum: 3});
    }

    function expectTerms(ModelTerms memory terms, ModelTerms memory expected) private pure {
        vm.assertEq(abi.encode(terms), abi.encode(expected));
    }

    function expectNone(ModelTerms memory terms) private pure {
        vm.assertEq(abi.encode(terms), new bytes(160));
    }

    function expectRefused(ModelTerms memory terms, bytes memory reason) private {
        vm.prank(admin);
        vm.expectRevert(reason);
        requests.setModelTerms(terms);
    }

    function expectQuorumRefused(uint8 quorum, uint8 minQuorum) private {
        vm.prank(requester);
        vm.expectRevert(
            abi.encodeWithSelector(
                IModelTerms.QuorumOutOfRange.selector, uint256(quorum), uint256(minQuorum), uint256(15)
            )
        );
        requests.submit{value: FEE}(asking(quorum));
    }
}
