// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    RefundClaim,
    RequestParams,
    SkipReason
} from "../src/interfaces/IInferenceRequests.sol";
import {
    CallbackClaim,
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ResultGroup
} from "../src/interfaces/IInferenceResults.sol";
import {ICredits} from "../src/interfaces/ICredits.sol";
import {IResultVerifier} from "../src/interfaces/IResultVerifier.sol";
import {ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {Bytecode, Recorder} from "./mocks/Consumers.sol";
import {EndlessVerifier} from "./mocks/Verifiers.sol";
import {Reenterer} from "./mocks/Reenterer.sol";

/// @notice What somebody might try, by its name.
contract AttacksTest is Fixture {
    uint32 private constant GAS_LIMIT = 500_000;
    bytes private constant OUTPUT = "Paris";
    /// @dev Per item that cannot be settled, in a post or in a refund.
    uint256 private constant DEAD_ITEM_GAS = 7_000;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        activate(OTHER_KEY, otherOwner);
    }

    // Against workers and posters

    function test_attack_frontRunByCopyingCalldata() public {
        submitMany(3);
        bytes memory pending =
            abi.encodeCall(results.post, (groups(group(WORKER_KEY, itemsFrom(1, 3))), keccak256("decisions")));
        vm.prank(stranger);
        (bool ok,) = address(results).call(pending);
        vm.assertTrue(ok);
        // The worker is paid all the same; the copier gets what the transaction was worth.
        vm.assertEq(requests.credits(owner), 3 * FEE * 9 / 10);
        vm.assertEq(requests.credits(stranger), 3 * FEE / 10);
        // The copied transaction fails nobody: it passes all over.
        vm.prank(poster);
        (ok,) = address(results).call(pending);
        vm.assertTrue(ok);
        vm.assertEq(requests.credits(owner), 3 * FEE * 9 / 10);
        vm.assertEq(requests.credits(poster), 0);
    }

    function test_attack_frontRunOfAPartOfABatch() public {
        // One result, taken from a batch by its single signature: the rest of the batch is settled.
        submitMany(4);
        ResultGroup[] memory copied = groups(group(WORKER_KEY, item(2)));
        vm.prank(stranger);
        results.post(copied, 0);
        vm.assertEq(post(WORKER_KEY, itemsFrom(1, 4)), 3);
        vm.assertEq(requests.credits(owner), 4 * FEE * 9 / 10);
    }

    function test_attack_frontRunBySigningTheCopiedResult() public {
        // Another active worker signs what it saw in the pool. It is paid: what is checked is who signs, and a copier
        // stakes on a digest that it cannot vouch for. Nobody is paid twice.
        submit();
        ResultGroup[] memory copied = groups(group(OTHER_KEY, item(1)));
        vm.prank(stranger);
        results.post(copied, 0);
        vm.assertEq(post(WORKER_KEY, item(1)), 0);
        vm.assertEq(requests.credits(otherOwner), FEE * 9 / 10);
        vm.assertEq(requests.credits(owner), 0);
        vm.assertEq(requests.credits(otherOwner) + requests.credits(stranger), FEE);
    }

    function test_attack_replayOnAnotherChain() public {
        submit();
        ResultGroup memory g = group(WORKER_KEY, item(1));
        vm.chainId(CHAIN_ID + 1);
        expectSkipped(g, GroupSkipReason.INACTIVE_WORKER);
        vm.chainId(CHAIN_ID);
        vm.assertEq(post(groups(g)), 1);
    }

    function test_attack_replayOnAnotherContract() public {
        submit();
        ResultGroup memory g = group(WORKER_KEY, item(1));
        bytes20 before = commitmentFor(1, requester, params());
        address old = address(results);
        // A second deployment with the same workers and a request of the same id.
        deploy(POSTER_BPS);
        activate(WORKER_KEY, owner);
        submit();
        vm.assertTrue(address(results) != old && commitmentFor(1, requester, params()) != before);
        expectSkipped(g, GroupSkipReason.INACTIVE_WORKER);
        // Signed anew, the old items name another request.
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.COMMITMENT_MISMATCH);
        vm.assertEq(post(WORKER_KEY, g.items), 0);
    }

    function test_attack_replayForAnotherGroup() public {
        submitMany(2);
        ResultGroup memory one = group(WORKER_KEY, item(1));
        ResultGroup memory two = group(WORKER_KEY, item(2));
        (one.signatures, two.signatures) = (two.signatures, one.signatures);
        expectSkipped(one, GroupSkipReason.INACTIVE_WORKER);
        expectSkipped(two, GroupSkipReason.INACTIVE_WORKER);
        // Nor does a signature of the whole cover a part.
        ResultGroup memory whole = group(WORKER_KEY, itemsFrom(1, 2));
        whole.items = item(1);
        expectSkipped(whole, GroupSkipReason.INACTIVE_WORKER);
    }

    function test_attack_replayOfTheSameGroup() public {
        submitMany(2);
        ResultGroup[] memory list = new ResultGroup[](3);
        list[0] = list[1] = list[2] = group(WORKER_KEY, itemsFrom(1, 2));
        vm.assertEq(post(list), 2);
        vm.assertEq(post(list), 0);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), 2 * FEE);
    }

    function test_attack_replayOfAConsentAsAResult() public {
        // What a key signed for the registry says nothing to the results contract, though both use one domain's name.
        submit();
        ResultGroup memory g = group(WORKER_KEY, item(1));
        g.signatures[0] = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        expectSkipped(g, GroupSkipReason.INACTIVE_WORKER);
    }

    function test_attack_malleableSignature() public {
        submit();
        ResultGroup memory g = group(WORKER_KEY, item(1));
        bytes32 r = g.signatures[0].r;
        uint256 s = uint256(g.signatures[0].vs) << 1 >> 1;
        // The mirror image, where it can be written down at all, and the other recovery bit.
        uint256 mirrored = SECP256K1_N - s;
        g.signatures[0].vs = bytes32(mirrored);
        vm.assertEq(post(groups(g)), 0);
        g.signatures[0].vs = bytes32(mirrored << 1 >> 1 | 1 << 255);
        vm.assertEq(post(groups(g)), 0);
        g = group(WORKER_KEY, item(1));
        g.signatures[0] = CompactSignature({r: r, vs: g.signatures[0].vs ^ bytes32(uint256(1) << 255)});
        vm.assertEq(post(groups(g)), 0);
        vm.assertFalse(isSettled(1));
        vm.assertEq(post(WORKER_KEY, item(1)), 1);
    }

    function test_attack_zeroSigner() public {
        submit();
        ResultGroup memory g = group(WORKER_KEY, item(1));
        g.signatures[0] = CompactSignature({r: 0, vs: 0});
        expectSkipped(g, GroupSkipReason.BAD_SIGNATURE);
        g.signatures[0] = CompactSignature({r: bytes32(SECP256K1_N), vs: bytes32(uint256(1))});
        expectSkipped(g, GroupSkipReason.BAD_SIGNATURE);
        g.signatures = new CompactSignature[](2);
        expectSkipped(g, GroupSkipReason.BAD_SIGNATURE);
    }

    function test_attack_crossGroupDuplicate() public {
        submitMany(2);
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(WORKER_KEY, bytes.concat(item(1), item(2), item(1)));
        list[1] = group(OTHER_KEY, bytes.concat(item(2), item(1)));
        vm.assertEq(post(list), 2);
        vm.assertEq(requests.credits(owner), 2 * FEE * 9 / 10);
        vm.assertEq(requests.credits(otherOwner), 0);
        vm.assertEq(requests.credits(poster), 2 * FEE / 10);
    }

    function test_attack_quorumByOneWorkerTwice() public {
        RequestParams memory p = params();
        p.quorum = 2;
        submit(p);
        ResultGroup memory g = group(WORKER_KEY, item(1, commitmentFor(1, requester, p)));
        CompactSignature[] memory twice = new CompactSignature[](2);
        twice[0] = twice[1] = g.signatures[0];
        g.signatures = twice;
        expectSkipped(g, GroupSkipReason.SIGNERS_NOT_ASCENDING);
    }

    function test_attack_reorgedIdWithOtherCommitment() public {
        uint256 snapshot = vm.snapshotState();
        submit();
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(1)));
        vm.revertToState(snapshot);
        // After the reorganisation somebody else's dear request has the id.
        RequestParams memory p = params();
        vm.deal(stranger, 1 ether);
        vm.prank(stranger);
        requests.submit{value: 1 ether}(p);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.COMMITMENT_MISMATCH);
        vm.assertEq(post(list), 0);
        vm.assertEq(requests.recordOf(1).feeGwei, 1e9);
    }

    function test_attack_cancelRaceAgainstAPendingResult() public {
        // The requester reads the result in the pool and cancels in front of it, as often as it likes.
        RequestParams memory p = params();
        submit(p);
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(1)));
        for (uint256 i; i < 3; ++i) {
            vm.prank(requester);
            requests.requestCancel(1, hashOf(p));
            vm.assertEq(requests.refund(claim(1, p)), 0);
            vm.warp(block.timestamp + CANCEL_DELAY / 4);
        }
        vm.warp(START + CANCEL_DELAY);
        vm.assertEq(requests.refund(claim(1, p)), 0);
        vm.assertEq(post(list), 1);
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
        vm.warp(START + CANCEL_DELAY + 1);
        vm.assertEq(requests.refund(claim(1, p)), 0);
        vm.assertEq(requests.credits(requester), 0);
    }

    function test_attack_refundAndResultAtTheBoundary() public {
        // At the deadline only the result counts, a second later only the refund: never both, never neither.
        RequestParams memory p = params();
        submit(p);
        submit(p);
        ResultGroup[] memory first = groups(group(WORKER_KEY, item(1)));
        ResultGroup[] memory second = groups(group(WORKER_KEY, item(2)));
        vm.warp(START + 600);
        vm.assertEq(requests.refund(claim(1, p)), 0);
        vm.assertEq(post(first), 1);
        vm.warp(START + 601);
        vm.assertEq(post(second), 0);
        vm.assertEq(requests.refund(claim(2, p)), 1);
        vm.assertEq(requests.refund(claim(1, p)), 0);
        vm.assertEq(post(second), 0);
        vm.assertEq(requests.credits(requester), FEE);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), FEE);
    }

    // Griefing

    function test_attack_griefing256DeadItems() public {
        submit();
        expectDeadItems(deadItems(256));
    }

    function test_attack_griefing256SettledItems() public {
        submitMany(257);
        post(WORKER_KEY, itemsFrom(2, 256));
        expectDeadItems(itemsFrom(2, 256));
    }

    function test_attack_griefing256ItemsOfDifferentWords() public {
        // Each in another word of the bitmap, so that each is read and written back.
        submit();
        bytes memory dead;
        for (uint256 i; i < 256; ++i) {
            dead = bytes.concat(dead, item(10_000 + 256 * i, 0));
        }
        expectDeadItems(dead);
    }

    function test_attack_griefing256DeadClaims() public {
        RequestParams memory p = params();
        submit(p);
        vm.warp(START + 601);
        RefundClaim[] memory claims = new RefundClaim[](257);
        for (uint256 i; i < 256; ++i) {
            claims[i] = claim(10_000 + 256 * i, p)[0];
        }
        claims[256] = claim(1, p)[0];
        uint256 before = gasleft();
        vm.assertEq(requests.refund(claims), 1);
        vm.assertLe(before - gasleft(), 256 * DEAD_ITEM_GAS + 100_000, "gas of 256 dead claims");
        vm.assertEq(requests.credits(requester), FEE);
    }

    function test_attack_griefingByEndlessVerifiers() public {
        // Each proof can burn what verifiers are given and no more; those who need none are settled.
        ModelTerms memory terms = noTerms();
        terms.modelId = keccak256("griefer's");
        terms.verifier = IResultVerifier(address(new EndlessVerifier()));
        setTerms(terms);
        RequestParams memory p = params();
        p.modelId = terms.modelId;
        bytes memory items;
        for (uint256 id = 1; id <= 4; ++id) {
            submit(p);
            items = bytes.concat(items, item(id, commitmentFor(id, requester, p)));
        }
        submit();
        items = bytes.concat(items, item(5));
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        uint256 before = gasleft();
        vm.assertEq(postProven(provenGroup(keys, items, new bytes[](5))), 1);
        vm.assertLe(before - gasleft(), 4 * 1_050_000 + 250_000, "gas of endless verifiers");
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
    }

    // Against the purse

    function test_attack_reentrantWithdraw() public {
        Reenterer attacker = new Reenterer();
        requests.credit{value: 1 ether}(address(attacker));
        requests.credit{value: 9 ether}(owner);
        bytes memory again = abi.encodeCall(requests.withdraw, ());
        attacker.arm(address(requests), again);
        attacker.forward(address(requests), 0, again);
        vm.assertEq(attacker.attempts(), 1);
        vm.assertEq(attacker.successes(), 0);
        vm.assertEq(address(attacker).balance, 1 ether);
        vm.assertEq(requests.credits(owner), 9 ether);
        vm.assertEq(address(requests).balance, 9 ether);
    }

    function test_attack_forcedEther() public {
        // Ether that got in by force changes no answer and belongs to nobody.
        submit();
        address[5] memory all =
            [address(requests), address(results), address(registry), address(stakes), address(disputes)];
        for (uint256 i; i < 5; ++i) {
            vm.deal(all[i], all[i].balance + 1 ether);
        }
        vm.assertEq(post(WORKER_KEY, item(1)), 1);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), FEE);
        vm.prank(owner);
        requests.withdraw();
        vm.prank(poster);
        requests.withdraw();
        vm.assertEq(address(requests).balance, 1 ether);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ICredits.NothingToWithdraw.selector, stranger));
        requests.withdraw();
    }

    // Against callbacks

    function test_attack_returnBomb() public {
        // 1 MB of revert data: the consumer pays for making it, nobody for copying it.
        address bomb = account("bomb");
        vm.etch(bomb, Bytecode.REVERT_BOMB);
        uint32 gasLimit = 3_000_000;
        CallbackClaim[] memory list = new CallbackClaim[](2);
        list[0] = fulfilled(bomb, gasLimit);
        Recorder recorder = new Recorder();
        list[1] = fulfilled(address(recorder), GAS_LIMIT);
        vm.expectEmit(address(results));
        emit IInferenceResults.CallbackFailed(1, bomb, new bytes(128));
        uint256 before = gasleft();
        vm.assertEq(results.deliver(list), 1);
        vm.assertLe(before - gasleft(), gasLimit + GAS_LIMIT, "gas of a return bomb");
        vm.assertEq(recorder.calls(), 1);
    }

    /// @dev No gas limit makes the consumer run with less than it asked for, and be told to have failed.
    function test_attack_starvedCallback() public {
        address meter = account("meter");
        vm.etch(meter, Bytecode.GAS_METER);
        CallbackClaim[] memory list = new CallbackClaim[](1);
        list[0] = fulfilled(meter, GAS_LIMIT);
        bytes memory data = abi.encodeCall(results.deliver, (list));
        // Coarsely over all, then every single limit around the one from which it goes.
        uint256 least;
        for (uint256 gasLimit = 20_000; gasLimit < 700_000; gasLimit += 1_777) {
            if (delivers(data, gasLimit, meter) && least == 0) least = gasLimit;
        }
        vm.assertTrue(least != 0);
        uint256 edge;
        for (uint256 gasLimit = least - 1_800; gasLimit < least + 300; ++gasLimit) {
            bool ok = delivers(data, gasLimit, meter);
            if (ok && edge == 0) edge = gasLimit;
            // Once it goes, it goes with any more.
            vm.assertEq(ok, edge != 0);
        }
        vm.assertTrue(edge != 0 && edge <= least);
    }

    function testFuzz_attack_starvedCallback(uint256 gasLimit, uint32 callbackGas) public {
        callbackGas = uint32(bound(callbackGas, 22_110, 8_000_000));
        address meter = account("meter");
        vm.etch(meter, Bytecode.GAS_METER);
        CallbackClaim[] memory list = new CallbackClaim[](1);
        list[0] = fulfilled(meter, callbackGas);
        // From where nothing goes to where all does.
        gasLimit = bound(gasLimit, uint256(callbackGas) - 10_000, uint256(callbackGas) * 64 / 63 + 120_000);
        (bool ok,) = address(results).call{gas: gasLimit}(abi.encodeCall(results.deliver, (list)));
        if (ok) vm.assertEq(uint256(vm.load(meter, 0)), callbackGas - 2);
        else expectUntouched(list[0], meter);
    }

    function test_attack_starvedSecondCallback() public {
        // The first consumer's burning must not leave the second too little.
        address burner = account("burner");
        vm.etch(burner, Bytecode.BURNER);
        address meter = account("meter");
        vm.etch(meter, Bytecode.GAS_METER);
        CallbackClaim[] memory list = new CallbackClaim[](2);
        list[0] = fulfilled(burner, GAS_LIMIT);
        list[1] = fulfilled(meter, GAS_LIMIT);
        bytes memory data = abi.encodeCall(results.deliver, (list));
        for (uint256 gasLimit = 400_000; gasLimit < 1_200_000; gasLimit += 1_999) {
            uint256 snapshot = vm.snapshotState();
            (bool ok,) = address(results).call{gas: gasLimit}(data);
            if (ok) vm.assertEq(uint256(vm.load(meter, 0)), GAS_LIMIT - 2);
            else expectUntouched(list[1], meter);
            vm.revertToState(snapshot);
        }
    }

    function test_attack_selfDeliveryOfAForgedOutput() public {
        // The requester cannot be handed what no worker signed, whoever brings it.
        Recorder recorder = new Recorder();
        CallbackClaim[] memory list = new CallbackClaim[](1);
        list[0] = fulfilled(address(recorder), GAS_LIMIT);
        list[0].output = "forged";
        vm.prank(stranger);
        vm.assertEq(results.deliver(list), 0);
        vm.assertEq(recorder.calls(), 0);
    }

    // Against settlement

    function testFuzz_attack_settleWithoutSignatures(address anyone) public {
        vm.assume(anyone != address(results));
        submit();
        bytes memory items = item(1);
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotResults.selector, anyone));
        requests.settle(bytes.concat(abi.encode(worker, anyone, items.length), items), anyone);
    }

    /// @dev A fork of the chain that changes its id strands nobody's fee.
    function test_attack_chainIdChanges() public {
        RequestParams memory p = params();
        uint256 id = submit(p);
        uint256 cancelled = submit(p);
        vm.chainId(CHAIN_ID + 1);
        vm.prank(requester);
        requests.requestCancel(cancelled, hashOf(p));
        vm.warp(START + 601);
        vm.assertEq(requests.refund(claim(id, p)), 1);
        vm.assertEq(requests.refund(claim(cancelled, p)), 1);
        vm.assertEq(requests.credits(requester), 2 * FEE);
    }

    // helpers

    function callbackParams(uint32 gasLimit) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.delivery = Delivery.CALLBACK;
        p.callbackGasLimit = gasLimit;
    }

    function fulfilled(address consumer, uint32 gasLimit) private returns (CallbackClaim memory owed) {
        RequestParams memory p = callbackParams(gasLimit);
        vm.deal(consumer, FEE);
        vm.prank(consumer);
        uint256 id = requests.submit{value: FEE}(p);
        vm.assertEq(post(WORKER_KEY, item(id, commitmentFor(id, consumer, p), keccak256(OUTPUT))), 1);
        return CallbackClaim({id: id, requester: consumer, params: p, output: OUTPUT});
    }

    /// @dev With all of its gas, or not at all; leaves no trace.
    function delivers(bytes memory data, uint256 gasLimit, address meter) private returns (bool ok) {
        uint256 snapshot = vm.snapshotState();
        bytes memory out;
        (ok, out) = address(results).call{gas: gasLimit}(data);
        if (ok) {
            vm.assertEq(abi.decode(out, (uint256)), 1);
            vm.assertEq(uint256(vm.load(meter, 0)), GAS_LIMIT - 2);
        } else {
            vm.assertEq(uint256(vm.load(meter, 0)), 0);
        }
        vm.revertToState(snapshot);
    }

    function expectUntouched(CallbackClaim memory owed, address meter) private view {
        vm.assertEq(uint256(vm.load(meter, 0)), 0);
        bytes20 commitment = commitmentFor(owed.id, owed.requester, owed.params);
        vm.assertTrue(requests.owesCallback(owed.id, commitment, keccak256(OUTPUT)));
    }

    function deadItems(uint256 count) private pure returns (bytes memory dead) {
        for (uint256 i; i < count; ++i) {
            dead = bytes.concat(dead, item(10_000 + i, 0));
        }
    }

    /// @dev Before a group with request 1, which is settled all the same.
    function expectDeadItems(bytes memory dead) private {
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(OTHER_KEY, dead);
        list[1] = group(WORKER_KEY, item(1));
        uint256 before = requests.credits(owner);
        uint256 gasBefore = gasleft();
        vm.assertEq(post(list), 1);
        vm.assertLe(gasBefore - gasleft(), 256 * DEAD_ITEM_GAS + 150_000, "gas of 256 dead items");
        vm.assertEq(requests.credits(owner) - before, FEE * 9 / 10);
        vm.assertEq(requests.credits(otherOwner), 0);
    }

    function expectSkipped(ResultGroup memory g, GroupSkipReason reason) private {
        uint256 bits = requests.settledWord(0);
        vm.recordLogs();
        vm.assertEq(post(groups(g)), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IInferenceResults.GroupSkipped.selector);
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
        vm.assertEq(requests.settledWord(0), bits);
    }
}
