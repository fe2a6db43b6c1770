// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {HoldStatus, IDisputes} from "../src/interfaces/IDisputes.sol";
import {Delivery, IInferenceRequests, RequestParams, SkipReason} from "../src/interfaces/IInferenceRequests.sol";
import {
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ProvenGroup
} from "../src/interfaces/IInferenceResults.sol";
import {ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {IResultVerifier} from "../src/interfaces/IResultVerifier.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {AnyVerifier, EchoVerifier, EndlessVerifier, GasVerifier, WritingVerifier} from "./mocks/Verifiers.sol";

/// @notice Results under terms: proofs, and payments that are held back.
contract ProvenTest is Fixture {
    bytes32 private constant MODEL = keccak256("smollm2-135m");
    bytes32 private constant PLAIN_MODEL = keccak256("a model without terms");
    uint256 private constant VERIFIER_GAS = 1_000_000;

    uint256[] private keys;
    address private echo;

    function setUp() public override {
        super.setUp();
        keys = activateMany(3);
        echo = address(new EchoVerifier());
        // A contract, so that it can ask with every delivery.
        vm.etch(requester, hex"00");
    }

    // post: not without a proof

    function test_post_skipsUnderTerms() public {
        demand(echo);
        ask(1);
        expectTermsApply(1);
        // Nor where there is a window but nothing to prove.
        demandWindow(1 hours, 5);
        ask(1);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(2, SkipReason.TERMS_APPLY);
        vm.assertEq(post(groups(group(first(1), itemOf(2, 1)))), 0);
    }

    function test_post_skipsUnderTermsSharedToo() public {
        demand(echo);
        ask(2);
        expectTermsApply(2);
    }

    function test_post_quorumMismatchComesBeforeTerms() public {
        demand(echo);
        ask(2);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.QUORUM_MISMATCH);
        vm.assertEq(post(groups(group(first(1), itemOf(1, 2)))), 0);
    }

    function test_post_underTermsHarmsNoOthers() public {
        demand(echo);
        ask(1);
        askPlain(1);
        bytes memory items = bytes.concat(itemOf(1, 1), plainItem(2, 1), itemOf(1, 1));
        vm.assertEq(post(groups(group(first(1), items))), 1);
        vm.assertFalse(isSettled(1));
        vm.assertTrue(isSettled(2));
    }

    // postProven: what verifiers say

    function test_postProven_accepted() public {
        demand(echo);
        ask(1);
        ProvenGroup memory g = provenGroup(first(1), itemOf(1, 1), proofsOf(1, 1));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceFulfilled(1, vm.addr(keys[0]), digestOf(1));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.WorkerPaid(vm.addr(keys[0]), ownerOf(keys[0]), 1, FEE * 9 / 10);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PosterPaid(poster, FEE / 10);
        vm.assertEq(postProven(g), 1);
        vm.assertTrue(isSettled(1));
        vm.assertEq(uint256(disputes.statusOf(1)), uint256(HoldStatus.NONE));
    }

    function testFuzz_postProven_rejectsAnyOtherProof(bytes calldata proof) public {
        vm.assume(keccak256(proof) != keccak256(proofOf(1, 1)));
        demand(echo);
        ask(1);
        expectRejected(echo, proof);
    }

    function test_postProven_rejectsProofOfAnotherResult() public {
        // The verifier is asked about what is signed: id, model, commitment and digest.
        demand(echo);
        ask(1);
        ask(1);
        expectRejected(echo, proofOf(2, 1));
        bytes20 commitment = commitmentFor(1, requester, asking(1));
        expectRejected(echo, abi.encode(uint256(1), PLAIN_MODEL, commitment, digestOf(1)));
        expectRejected(echo, abi.encode(uint256(1), MODEL, commitment, digestOf(2)));
        expectRejected(echo, abi.encode(uint256(1), MODEL, bytes20(uint160(1)), digestOf(1)));
    }

    function test_postProven_rejectsWhateverIsNotTrue() public {
        bytes memory one = abi.encode(true);
        rejectsAnswer("", false);
        rejectsAnswer(new bytes(31), false);
        rejectsAnswer(hex"01", false);
        rejectsAnswer(abi.encode(uint256(0)), false);
        rejectsAnswer(abi.encode(uint256(2)), false);
        rejectsAnswer(abi.encode(type(uint256).max), false);
        rejectsAnswer(abi.encode(uint256(1) << 255), false);
        rejectsAnswer(bytes.concat(one, one), false);
        rejectsAnswer(bytes.concat(one, hex"00"), false);
        rejectsAnswer(new bytes(100_000), false);
        // What looks like yes, in a revert.
        rejectsAnswer(one, true);
        rejectsAnswer("", true);
        // The one answer that counts.
        address accepting = address(new AnyVerifier(one, false));
        demand(accepting);
        uint256 id = ask(1);
        vm.assertEq(postProven(provenGroup(first(1), itemOf(id, 1), new bytes[](1))), 1);
    }

    function test_postProven_rejectsAVerifierThatWrites() public {
        address writing = address(new WritingVerifier());
        demand(writing);
        ask(1);
        expectRejected(writing, "");
    }

    function test_postProven_endlessVerifierHasABound() public {
        address endless = address(new EndlessVerifier());
        demand(endless);
        ask(1);
        uint256 before = gasleft();
        expectRejected(endless, "");
        vm.assertLe(before - gasleft(), VERIFIER_GAS + 150_000, "gas of an endless verifier");
    }

    function test_postProven_verifierWithoutCodeAfterwards() public {
        demand(echo);
        ask(1);
        bytes memory code = echo.code;
        // As after a self-destruction.
        vm.etch(echo, "");
        expectRejected(echo, proofOf(1, 1));
        // The request is not lost: its requester has it back in the end.
        vm.warp(START + 601);
        vm.assertEq(requests.refund(claim(1, asking(1))), 1);
        vm.etch(echo, code);
    }

    // postProven: gas of verifiers

    function test_postProven_verifierHasItsGas() public {
        // Less what it takes from the call to the comparison.
        demand(address(new GasVerifier(VERIFIER_GAS - 300)));
        ask(1);
        vm.assertEq(postProven(provenGroup(first(1), itemOf(1, 1), new bytes[](1))), 1);
        // And no more.
        address greedy = address(new GasVerifier(VERIFIER_GAS));
        demand(greedy);
        ask(1);
        vm.recordLogs();
        vm.assertEq(postProven(provenGroup(first(1), itemOf(2, 1), new bytes[](1))), 0);
        vm.assertEq(vm.getRecordedLogs()[0].topics[0], IInferenceResults.ProofRejected.selector);
    }

    /// @dev Whatever gas the poster gives, an accepted proof is accepted or all of the post reverts.
    function testFuzz_RevertWhen_postProven_verifierIsStarved(uint256 gasLimit) public {
        demand(address(new GasVerifier(VERIFIER_GAS - 300)));
        ask(1);
        bytes memory data =
            abi.encodeCall(results.postProven, (only(provenGroup(first(1), itemOf(1, 1), new bytes[](1))), 0));
        gasLimit = bound(gasLimit, 30_000, 1_300_000);
        vm.prank(poster);
        (bool ok,) = address(results).call{gas: gasLimit}(data);
        vm.assertEq(isSettled(1), ok);
    }

    function test_RevertWhen_postProven_oneGasTooFew() public {
        demand(address(new GasVerifier(VERIFIER_GAS - 300)));
        ask(1);
        bytes memory data =
            abi.encodeCall(results.postProven, (only(provenGroup(first(1), itemOf(1, 1), new bytes[](1))), 0));
        uint256 least = leastGas(data, 3_000_000);
        (bool ok, bytes memory out) = address(results).call{gas: least - 1}(data);
        vm.assertFalse(ok);
        vm.assertEq(bytes32(bytes4(out)), bytes32(IInferenceResults.InsufficientGas.selector));
        vm.assertEq(uint256(wordOf(out, 1)), VERIFIER_GAS + VERIFIER_GAS / 63 + 10_000);
        vm.assertFalse(isSettled(1));
        for (uint256 i; i < 400; ++i) {
            uint256 snapshot = vm.snapshotState();
            (ok,) = address(results).call{gas: least - 200 + i}(data);
            vm.assertEq(ok, i >= 200);
            vm.assertEq(isSettled(1), ok);
            vm.revertToState(snapshot);
        }
    }

    function test_postProven_plainNeedsNoGasForAVerifier() public {
        askPlain(1);
        ProvenGroup[] memory list = only(provenGroup(first(1), plainItem(1, 1), new bytes[](1)));
        vm.assertEq(results.postProven{gas: 300_000}(list, 0), 1);
    }

    // postProven: groups

    function test_postProven_none() public {
        vm.recordLogs();
        vm.assertEq(results.postProven(new ProvenGroup[](0), 0), 0);
        vm.assertEq(vm.getRecordedLogs().length, 0);
    }

    function test_postProven_decisionsRootIsAnchored() public {
        bytes32 root = keccak256("decisions");
        vm.expectEmit(address(results));
        emit IInferenceResults.DecisionsAnchored(root, poster);
        vm.prank(poster);
        results.postProven(new ProvenGroup[](0), root);
    }

    function testFuzz_postProven_skipsBadProofCount(uint256 items, uint256 proofs) public {
        items = bound(items, 1, 5);
        proofs = bound(proofs, 0, 6);
        vm.assume(items != proofs);
        for (uint256 i; i < items; ++i) {
            askPlain(1);
        }
        expectGroupSkipped(
            provenGroup(first(1), plainItems(1, items), new bytes[](proofs)), GroupSkipReason.BAD_PROOF_COUNT
        );
    }

    function testFuzz_postProven_skipsBadLength(uint256 length, uint256 proofs) public {
        length = bound(length, 0, 600);
        vm.assume(length == 0 || length % 60 != 0);
        expectGroupSkipped(
            provenGroup(first(1), new bytes(length), new bytes[](bound(proofs, 0, 11))), GroupSkipReason.BAD_LENGTH
        );
    }

    function test_postProven_skipsBadSigners() public {
        demand(echo);
        ask(1);
        bytes[] memory proofs = proofsOf(1, 1);
        ProvenGroup memory g = provenGroup(first(1), itemOf(1, 1), proofs);
        g.signatures[0] = highS(g.signatures[0]);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNATURE);
        g = provenGroup(first(0), itemOf(1, 1), proofs);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNER_COUNT);
        g.signatures = new CompactSignature[](16);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNER_COUNT);
        uint256[] memory unsorted = new uint256[](2);
        (unsorted[0], unsorted[1]) = (keys[1], keys[0]);
        expectGroupSkipped(provenGroup(unsorted, itemOf(1, 1), proofs), GroupSkipReason.SIGNERS_NOT_ASCENDING);
        unsorted[0] = 0xBAD;
        expectGroupSkipped(provenGroup(unsorted, itemOf(1, 1), proofs), GroupSkipReason.INACTIVE_WORKER);
    }

    function test_postProven_badGroupsHarmNoOthers() public {
        demand(echo);
        ask(1);
        askPlain(2);
        ProvenGroup[] memory list = new ProvenGroup[](5);
        list[0] = provenGroup(first(1), new bytes(61), new bytes[](1));
        list[1] = provenGroup(first(1), itemOf(1, 1), new bytes[](0));
        list[2] = provenGroup(first(1), itemOf(1, 1), proofsOf(1, 1));
        list[3] = provenGroup(first(0), plainItem(2, 2), new bytes[](1));
        list[4] = provenGroup(first(2), plainItem(2, 2), new bytes[](1));
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(0, GroupSkipReason.BAD_LENGTH);
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(1, GroupSkipReason.BAD_PROOF_COUNT);
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(3, GroupSkipReason.BAD_SIGNER_COUNT);
        vm.prank(poster);
        vm.assertEq(results.postProven(list, 0), 2);
    }

    function test_postProven_skipsLikeOthers() public {
        demand(echo);
        ask(1);
        bytes memory items = bytes.concat(item(9, 0), item(1, 0), itemOf(1, 1), itemOf(1, 1));
        bytes[] memory proofs = new bytes[](4);
        // The verifier would agree: what is signed is another commitment.
        proofs[1] = abi.encode(uint256(1), MODEL, bytes20(0), digestOf(1));
        proofs[2] = proofs[3] = proofOf(1, 1);
        ProvenGroup memory g = provenGroup(first(1), items, proofs);
        SkipReason[3] memory reasons =
            [SkipReason.UNKNOWN_ID, SkipReason.COMMITMENT_MISMATCH, SkipReason.ALREADY_SETTLED];
        vm.recordLogs();
        vm.assertEq(postProven(g), 1);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        uint256 skipped;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IInferenceRequests.ResultSkipped.selector) continue;
            vm.assertEq(bytes32(logs[i].data), bytes32(uint256(reasons[skipped++])));
        }
        vm.assertEq(skipped, 3);
    }

    function test_postProven_skipsExpired() public {
        demand(echo);
        ask(1);
        ProvenGroup memory g = provenGroup(first(1), itemOf(1, 1), proofsOf(1, 1));
        vm.warp(START + 601);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.EXPIRED);
        vm.assertEq(postProven(g), 0);
        vm.warp(START + 600);
        vm.assertEq(postProven(g), 1);
    }

    function test_postProven_quorumUnderTerms() public {
        demand(echo);
        ask(3);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.QUORUM_MISMATCH);
        vm.assertEq(postProven(provenGroup(first(2), itemOf(1, 3), proofsOf(1, 3))), 0);
        vm.assertEq(postProven(provenGroup(first(3), itemOf(1, 3), proofsOf(1, 3))), 1);
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(requests.credits(ownerOf(keys[i])), FEE * 3 / 10);
        }
    }

    function test_postProven_deliveriesUnderTerms() public {
        demand(echo);
        RequestParams memory stored = asking(1);
        stored.delivery = Delivery.STORED;
        RequestParams memory called = asking(1);
        called.delivery = Delivery.CALLBACK;
        called.callbackGasLimit = 100_000;
        submit(stored);
        submit(called);
        bytes[] memory proofs = new bytes[](2);
        bytes20 one = commitmentFor(1, requester, stored);
        bytes20 two = commitmentFor(2, requester, called);
        proofs[0] = abi.encode(uint256(1), MODEL, one, digestOf(1));
        proofs[1] = abi.encode(uint256(2), MODEL, two, digestOf(2));
        vm.assertEq(postProven(provenGroup(first(1), bytes.concat(item(1, one), item(2, two)), proofs)), 2);
        (bool found, bytes32 digest) = requests.resultOf(1);
        vm.assertTrue(found);
        vm.assertEq(digest, digestOf(1));
        vm.assertTrue(requests.owesCallback(2, two, digestOf(2)));
    }

    /// @dev In any mixture of good proofs, bad proofs and plain requests, just those with a bad proof are passed over.
    function testFuzz_postProven_eachForItself(uint256 seed, uint256 count) public {
        count = bound(count, 1, 20);
        demand(echo);
        bytes memory items;
        bytes[] memory proofs = new bytes[](count);
        uint256 bits;
        uint256 settled;
        for (uint256 i; i < count; ++i) {
            uint256 kind = uint256(keccak256(abi.encode(seed, i))) % 3;
            uint256 id = kind == 0 ? askPlain(1) : ask(1);
            items = bytes.concat(items, kind == 0 ? plainItem(id, 1) : itemOf(id, 1));
            proofs[i] = kind == 1 ? proofOf(id, 1) : abi.encode(seed);
            if (kind == 2) continue;
            bits |= 1 << id;
            ++settled;
        }
        vm.assertEq(postProven(provenGroup(first(1), items, proofs)), settled);
        vm.assertEq(requests.settledWord(0), bits);
        vm.assertEq(requests.credits(ownerOf(keys[0])), settled * FEE * 9 / 10);
        vm.assertEq(requests.credits(poster), settled * FEE / 10);
    }

    function test_postProven_allRefusedPaysNobody() public {
        demand(echo);
        ask(1);
        ask(1);
        vm.recordLogs();
        vm.assertEq(postProven(provenGroup(first(1), bytes.concat(itemOf(1, 1), itemOf(2, 1)), new bytes[](2))), 0);
        vm.assertEq(vm.getRecordedLogs().length, 2);
        vm.assertEq(requests.credits(poster), 0);
    }

    /// @dev Plain requests end in the same state by either way.
    function testFuzz_postProven_plainAsByPost(uint256 count, uint256 signers, bytes calldata proof) public {
        count = bound(count, 1, 12);
        signers = bound(signers, 1, 3);
        for (uint256 i; i < count; ++i) {
            askPlain(uint8(1 + i % 3));
        }
        bytes memory items;
        bytes[] memory proofs = new bytes[](count);
        for (uint256 i; i < count; ++i) {
            items = bytes.concat(items, plainItem(i + 1, uint8(1 + i % 3)));
            proofs[i] = proof;
        }
        uint256 snapshot = vm.snapshotState();
        uint256 settled = post(groups(group(first(signers), items)));
        bytes32 posted = stateHash();
        vm.revertToState(snapshot);
        vm.assertEq(postProven(provenGroup(first(signers), items, proofs)), settled);
        vm.assertEq(stateHash(), posted);
    }

    // Payments held back

    function test_postProven_holdsThePayment() public {
        demandWindow(1 hours, 5);
        ask(2);
        ProvenGroup memory g = provenGroup(first(2), itemOf(1, 2), new bytes[](1));
        address[] memory workers = new address[](2);
        address[] memory owners = new address[](2);
        for (uint256 i; i < 2; ++i) {
            workers[i] = vm.addr(keys[i]);
            owners[i] = ownerOf(keys[i]);
        }
        bytes20 commitment = commitmentFor(1, requester, asking(2));
        vm.warp(START + 17);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceFulfilled(1, workers[0], digestOf(1));
        vm.expectEmit(address(disputes));
        emit IDisputes.PaymentHeld(
            1,
            commitment,
            digestOf(1),
            workers,
            owners,
            FEE * 9 / 10,
            poster,
            FEE / 10,
            5 gwei,
            uint40(START + 17 + 1 hours)
        );
        vm.recordLogs();
        vm.assertEq(postProven(g), 1);
        // Neither WorkerPaid nor PosterPaid among them.
        vm.assertEq(vm.getRecordedLogs().length, 2);
        vm.assertEq(requests.credits(address(disputes)), FEE);
        vm.assertEq(requests.credits(poster) + requests.credits(owners[0]) + requests.credits(owners[1]), 0);
        vm.assertEq(uint256(disputes.statusOf(1)), uint256(HoldStatus.HELD));
        vm.assertTrue(isSettled(1));
    }

    function test_postProven_paysAtOnceOnlyWhatIsNotHeld() public {
        demandWindow(1 hours, 5);
        ask(2);
        askPlain(2);
        ask(2);
        askPlain(2);
        askPlain(2);
        bytes memory items = bytes.concat(itemOf(1, 2), plainItem(2, 2), itemOf(3, 2), plainItems(4, 2, 2));
        ProvenGroup memory g = provenGroup(first(2), items, new bytes[](5));
        for (uint256 i; i < 2; ++i) {
            vm.expectEmit(address(requests));
            emit IInferenceRequests.WorkerPaid(vm.addr(keys[i]), ownerOf(keys[i]), 3, 3 * FEE * 9 / 20);
        }
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PosterPaid(poster, 3 * FEE / 10);
        vm.assertEq(postProven(g), 5);
        vm.assertEq(requests.credits(address(disputes)), 2 * FEE);
        vm.assertEq(uint256(disputes.statusOf(1)), uint256(HoldStatus.HELD));
        vm.assertEq(uint256(disputes.statusOf(2)), uint256(HoldStatus.NONE));
        vm.assertEq(uint256(disputes.statusOf(3)), uint256(HoldStatus.HELD));
    }

    function test_postProven_windowAndVerifierTogether() public {
        ModelTerms memory terms = noTerms();
        terms.verifier = IResultVerifier(echo);
        terms.disputeWindow = 1 hours;
        terms.bondGwei = 5;
        setTerms(terms);
        ask(1);
        expectRejected(echo, "");
        vm.assertEq(uint256(disputes.statusOf(1)), uint256(HoldStatus.NONE));
        vm.assertEq(postProven(provenGroup(first(1), itemOf(1, 1), proofsOf(1, 1))), 1);
        vm.assertEq(uint256(disputes.statusOf(1)), uint256(HoldStatus.HELD));
        vm.assertEq(requests.credits(address(disputes)), FEE);
    }

    function testFuzz_postProven_heldAsUnderItsTerms(uint256 feeGwei, uint256 bps, uint32 window, uint56 bondGwei)
        public
    {
        feeGwei = bound(feeGwei, 1, (1 << 48) - 1);
        bps = bound(bps, 0, 10_000);
        window = uint32(bound(window, 1, 1 days - 6 hours - 1));
        bondGwei = uint56(bound(bondGwei, 1, type(uint56).max));
        deploy(bps);
        keys = activateMany(1);
        demandWindow(window, bondGwei);
        vm.prank(requester);
        requests.submit{value: feeGwei * 1 gwei}(asking(1));
        // Later terms are for later requests.
        demandWindow(7, 7);
        ProvenGroup memory g = provenGroup(first(1), itemOf(1, 1), new bytes[](1));
        address[] memory workers = new address[](1);
        address[] memory owners = new address[](1);
        (workers[0], owners[0]) = (vm.addr(keys[0]), ownerOf(keys[0]));
        uint256 posterWei = feeGwei * 1 gwei * bps / 10_000;
        vm.expectEmit(address(disputes));
        emit IDisputes.PaymentHeld(
            1,
            commitmentFor(1, requester, asking(1)),
            digestOf(1),
            workers,
            owners,
            feeGwei * 1 gwei - posterWei,
            poster,
            posterWei,
            uint256(bondGwei) * 1 gwei,
            uint40(START + window)
        );
        vm.assertEq(postProven(g), 1);
        vm.assertEq(requests.credits(poster), 0);
        vm.assertEq(requests.credits(address(disputes)), feeGwei * 1 gwei);
    }

    function test_postProven_heldOnce() public {
        demandWindow(1 hours, 5);
        ask(1);
        ask(1);
        bytes memory items = bytes.concat(itemOf(1, 1), itemOf(1, 1));
        vm.assertEq(postProven(provenGroup(first(1), items, new bytes[](2))), 1);
        vm.assertEq(postProven(provenGroup(first(1), items, new bytes[](2))), 0);
        vm.assertEq(requests.credits(address(disputes)), FEE);
    }

    // settleJoint

    function testFuzz_RevertWhen_settleJoint_notResults(address anyone, bool proven) public {
        vm.assume(anyone != address(results));
        ask(1);
        bytes memory items = itemOf(1, 1);
        address[] memory list = new address[](1);
        list[0] = anyone;
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotResults.selector, anyone));
        requests.settleJoint(items, list, list, anyone, proven);
    }

    // helpers

    function demand(address verifier) private {
        ModelTerms memory terms = noTerms();
        terms.verifier = IResultVerifier(verifier);
        setTerms(terms);
    }

    function demandWindow(uint32 window, uint56 bondGwei) private {
        ModelTerms memory terms = noTerms();
        terms.disputeWindow = window;
        terms.bondGwei = bondGwei;
        setTerms(terms);
    }

    function asking(uint256 quorum) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.quorum = uint8(quorum);
    }

    function plain(uint256 quorum) private pure returns (RequestParams memory p) {
        p = asking(quorum);
        p.modelId = PLAIN_MODEL;
    }

    function ask(uint256 quorum) private returns (uint256 id) {
        return submit(asking(quorum));
    }

    function askPlain(uint256 quorum) private returns (uint256 id) {
        return submit(plain(quorum));
    }

    function itemOf(uint256 id, uint256 quorum) private view returns (bytes memory) {
        return item(id, commitmentFor(id, requester, asking(quorum)));
    }

    function plainItem(uint256 id, uint256 quorum) private view returns (bytes memory) {
        return item(id, commitmentFor(id, requester, plain(quorum)));
    }

    function plainItems(uint256 firstId, uint256 count) private view returns (bytes memory) {
        return plainItems(firstId, count, 1);
    }

    function plainItems(uint256 firstId, uint256 count, uint256 quorum) private view returns (bytes memory items) {
        for (uint256 i; i < count; ++i) {
            items = bytes.concat(items, plainItem(firstId + i, quorum));
        }
    }

    function proofOf(uint256 id, uint256 quorum) private view returns (bytes memory) {
        return abi.encode(id, MODEL, commitmentFor(id, requester, asking(quorum)), digestOf(id));
    }

    function proofsOf(uint256 id, uint256 quorum) private view returns (bytes[] memory proofs) {
        proofs = new bytes[](1);
        proofs[0] = proofOf(id, quorum);
    }

    function first(uint256 count) private view returns (uint256[] memory signing) {
        signing = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            signing[i] = keys[i];
        }
    }

    function only(ProvenGroup memory g) private pure returns (ProvenGroup[] memory list) {
        list = new ProvenGroup[](1);
        list[0] = g;
    }

    function stateHash() private view returns (bytes32) {
        return keccak256(
            abi.encode(
                requests.settledWord(0),
                requests.credits(ownerOf(keys[0])),
                requests.credits(ownerOf(keys[1])),
                requests.credits(ownerOf(keys[2])),
                requests.credits(poster),
                requests.credits(address(disputes))
            )
        );
    }

    function rejectsAnswer(bytes memory answer, bool reverts) private {
        address verifier = address(new AnyVerifier(answer, reverts));
        demand(verifier);
        uint256 id = ask(1);
        vm.recordLogs();
        vm.assertEq(postProven(provenGroup(first(1), itemOf(id, 1), new bytes[](1))), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IInferenceResults.ProofRejected.selector);
        vm.assertFalse(isSettled(id));
    }

    /// @dev For request 1, of one signer.
    function expectRejected(address verifier, bytes memory proof) private {
        bytes32 before = stateHash();
        bytes[] memory proofs = new bytes[](1);
        proofs[0] = proof;
        ProvenGroup memory g = provenGroup(first(1), itemOf(1, 1), proofs);
        vm.recordLogs();
        vm.assertEq(postProven(g), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, address(results));
        vm.assertEq(logs[0].topics[0], IInferenceResults.ProofRejected.selector);
        vm.assertEq(logs[0].topics[1], bytes32(uint256(1)));
        vm.assertEq(logs[0].topics[2], bytes32(uint256(uint160(verifier))));
        vm.assertEq(stateHash(), before);
        vm.assertFalse(isSettled(1));
    }

    function expectTermsApply(uint256 quorum) private {
        bytes32 before = stateHash();
        vm.recordLogs();
        vm.assertEq(post(groups(group(first(quorum), itemOf(1, quorum)))), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IInferenceRequests.ResultSkipped.selector);
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(SkipReason.TERMS_APPLY)));
        vm.assertEq(stateHash(), before);
    }

    function expectGroupSkipped(ProvenGroup memory g, GroupSkipReason reason) private {
        bytes32 before = stateHash();
        vm.recordLogs();
        vm.assertEq(postProven(g), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, address(results));
        vm.assertEq(logs[0].topics[0], IInferenceResults.GroupSkipped.selector);
        vm.assertEq(logs[0].topics[1], bytes32(0));
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
        vm.assertEq(stateHash(), before);
    }
}
