// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, RequestParams, SkipReason} from "../src/interfaces/IInferenceRequests.sol";
import {
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ResultGroup
} from "../src/interfaces/IInferenceResults.sol";
import {ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";

/// @notice Requests that several workers must answer alike.
contract QuorumTest is Fixture {
    uint256 private constant MAX_QUORUM = 15;
    bytes32 private constant HELD_MODEL = keccak256("a model with a dispute window");

    uint256[] private keys;

    function setUp() public override {
        super.setUp();
        keys = activateMany(MAX_QUORUM + 1);
        // A contract, so that it can ask with every delivery.
        vm.etch(requester, hex"00");
    }

    // Who must have signed

    function test_post_everyQuorum() public {
        for (uint256 quorum = 1; quorum <= MAX_QUORUM; ++quorum) {
            uint256 id = ask(quorum, FEE);
            ResultGroup memory g = group(first(quorum), itemOf(id, quorum));
            vm.expectEmit(address(requests));
            emit IInferenceRequests.InferenceFulfilled(id, vm.addr(keys[0]), digestOf(id));
            vm.assertEq(post(groups(g)), 1);
            vm.assertTrue(isSettled(id));
        }
    }

    function testFuzz_post_onlyAsManyAsAsked(uint256 quorum, uint256 signers) public {
        quorum = bound(quorum, 1, MAX_QUORUM);
        signers = bound(signers, 1, MAX_QUORUM);
        ask(quorum, FEE);
        bytes memory items = itemOf(1, quorum);
        if (signers == quorum) vm.assertEq(post(groups(group(first(signers), items))), 1);
        else expectItemSkipped(group(first(signers), items), SkipReason.QUORUM_MISMATCH);
    }

    function test_post_skipsOneTooFewAndOneTooMany() public {
        for (uint256 quorum = 1; quorum <= MAX_QUORUM; ++quorum) {
            uint256 id = ask(quorum, FEE);
            bytes memory items = itemOf(id, quorum);
            if (quorum > 1) expectItemSkipped(group(first(quorum - 1), items), SkipReason.QUORUM_MISMATCH);
            if (quorum < MAX_QUORUM) expectItemSkipped(group(first(quorum + 1), items), SkipReason.QUORUM_MISMATCH);
            vm.assertFalse(isSettled(id));
        }
    }

    function test_post_skipsNoSignersAndMoreThan15() public {
        ask(15, FEE);
        expectGroupSkipped(group(first(0), itemOf(1, 15)), GroupSkipReason.BAD_SIGNER_COUNT);
        expectGroupSkipped(group(first(16), itemOf(1, 15)), GroupSkipReason.BAD_SIGNER_COUNT);
    }

    function testFuzz_post_skipsRepeated(uint256 quorum, uint256 place) public {
        quorum = bound(quorum, 2, MAX_QUORUM);
        place = bound(place, 1, quorum - 1);
        ask(quorum, FEE);
        uint256[] memory signing = first(quorum);
        signing[place] = signing[place - 1];
        expectGroupSkipped(group(signing, itemOf(1, quorum)), GroupSkipReason.SIGNERS_NOT_ASCENDING);
    }

    function testFuzz_post_skipsUnsorted(uint256 quorum, uint256 left, uint256 right) public {
        quorum = bound(quorum, 2, MAX_QUORUM);
        left = bound(left, 0, quorum - 1);
        right = bound(right, 0, quorum - 1);
        vm.assume(left != right);
        ask(quorum, FEE);
        uint256[] memory signing = first(quorum);
        (signing[left], signing[right]) = (signing[right], signing[left]);
        expectGroupSkipped(group(signing, itemOf(1, quorum)), GroupSkipReason.SIGNERS_NOT_ASCENDING);
    }

    function test_post_skipsOneSignerForAll() public {
        // One worker's signature over and over is one signature.
        ask(3, FEE);
        uint256[] memory signing = new uint256[](3);
        signing[0] = signing[1] = signing[2] = keys[0];
        expectGroupSkipped(group(signing, itemOf(1, 3)), GroupSkipReason.SIGNERS_NOT_ASCENDING);
    }

    function testFuzz_post_skipsOneInactive(uint256 quorum, uint256 place, bool unstaked) public {
        quorum = bound(quorum, 2, MAX_QUORUM);
        place = bound(place, 0, quorum - 1);
        ask(quorum, FEE);
        ResultGroup memory g = group(first(quorum), itemOf(1, quorum));
        uint256 key = keys[place];
        vm.prank(ownerOf(key));
        if (unstaked) stakes.unstake(vm.addr(key), 1);
        else registry.setEnabled(vm.addr(key), false);
        expectGroupSkipped(g, GroupSkipReason.INACTIVE_WORKER);
    }

    function testFuzz_post_skipsOneBadSignature(uint256 quorum, uint256 place) public {
        quorum = bound(quorum, 2, MAX_QUORUM);
        place = bound(place, 0, quorum - 1);
        ask(quorum, FEE);
        ResultGroup memory g = group(first(quorum), itemOf(1, quorum));
        CompactSignature memory good = g.signatures[place];
        g.signatures[place] = highS(good);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNATURE);
        g.signatures[place] = CompactSignature({r: 0, vs: 0});
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNATURE);
        g.signatures[place] = good;
        vm.assertEq(post(groups(g)), 1);
    }

    function test_post_skipsASignatureOfAnotherGroup() public {
        ask(2, FEE);
        ask(2, FEE);
        ResultGroup memory g = group(first(2), itemOf(1, 2));
        g.signatures[1] = group(first(2), itemOf(2, 2)).signatures[1];
        vm.assertEq(post(groups(g)), 0);
        vm.assertFalse(isSettled(1));
    }

    function test_post_anyOfTheWorkersWillDo() public {
        ask(2, FEE);
        uint256[] memory signing = new uint256[](2);
        signing[0] = keys[7];
        signing[1] = keys[12];
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceFulfilled(1, vm.addr(keys[7]), digestOf(1));
        vm.assertEq(post(groups(group(signing, itemOf(1, 2)))), 1);
        vm.assertEq(requests.credits(ownerOf(keys[7])), FEE * 9 / 20);
        vm.assertEq(requests.credits(ownerOf(keys[12])), FEE * 9 / 20);
        vm.assertEq(requests.credits(ownerOf(keys[0])), 0);
    }

    function test_post_mixedQuorumsInOneGroup() public {
        uint256[5] memory quorums = [uint256(2), 1, 2, 3, 2];
        bytes memory items;
        for (uint256 i; i < 5; ++i) {
            ask(quorums[i], FEE);
            items = bytes.concat(items, itemOf(i + 1, quorums[i]));
        }
        vm.assertEq(post(groups(group(first(2), items))), 3);
        vm.assertEq(requests.settledWord(0), uint256(1) << 1 | 1 << 3 | 1 << 5);
        vm.assertEq(post(groups(group(first(1), items))), 1);
        vm.assertEq(post(groups(group(first(3), items))), 1);
        vm.assertEq(requests.settledWord(0), 0x3e);
        vm.assertEq(total(), 5 * FEE);
    }

    // What is skipped for other reasons

    function test_post_sharedSkipsLikeOthers() public {
        ask(2, FEE);
        expectItemSkipped(group(first(2), item(9, 0)), SkipReason.UNKNOWN_ID);
        expectItemSkipped(group(first(2), item(0, 0)), SkipReason.UNKNOWN_ID);
        expectItemSkipped(group(first(2), item(type(uint64).max, 0)), SkipReason.UNKNOWN_ID);
        expectItemSkipped(group(first(2), item(1, bytes20(uint160(1)))), SkipReason.COMMITMENT_MISMATCH);
        // Before the quorum: whoever signs it, it is another request.
        expectItemSkipped(group(first(3), item(1, bytes20(uint160(1)))), SkipReason.COMMITMENT_MISMATCH);
        ResultGroup memory g = group(first(2), itemOf(1, 2));
        vm.warp(START + 601);
        expectItemSkipped(g, SkipReason.EXPIRED);
        vm.warp(START + 600);
        vm.assertEq(post(groups(g)), 1);
        expectItemSkipped(g, SkipReason.ALREADY_SETTLED);
        expectItemSkipped(group(first(3), itemOf(1, 2)), SkipReason.ALREADY_SETTLED);
    }

    function test_post_sharedSkipsRefunded() public {
        ask(2, FEE);
        ask(2, FEE);
        vm.warp(START + 601);
        // The second word stays.
        requests.refund(claim(1, asking(2, Delivery.EVENT)));
        requests.refund(claim(2, asking(2, Delivery.EVENT)));
        vm.warp(START);
        expectItemSkipped(group(first(2), itemOf(1, 2)), SkipReason.ALREADY_SETTLED);
        expectItemSkipped(group(first(2), itemOf(2, 2)), SkipReason.ALREADY_SETTLED);
    }

    function test_post_sharedDuplicatePaysOnce() public {
        ask(2, FEE);
        ask(2, FEE);
        bytes memory items = bytes.concat(itemOf(1, 2), itemOf(1, 2), itemOf(2, 2), itemOf(1, 2));
        vm.assertEq(post(groups(group(first(2), items))), 2);
        vm.assertEq(total(), 2 * FEE);
    }

    function test_post_sharedOnBothSidesOfAWordsEdge() public {
        startAt(254);
        bytes memory items;
        for (uint256 id = 254; id < 258; ++id) {
            ask(2, FEE);
            items = bytes.concat(itemOf(id, 2), items);
        }
        vm.assertEq(post(groups(group(first(2), items))), 4);
        vm.assertEq(requests.settledWord(0), uint256(3) << 254);
        vm.assertEq(requests.settledWord(1), 3);
    }

    function test_post_sharedDeliveries() public {
        RequestParams memory stored = asking(2, Delivery.STORED);
        RequestParams memory called = asking(2, Delivery.CALLBACK);
        submit(stored);
        submit(called);
        bytes memory items =
            bytes.concat(item(1, commitmentFor(1, requester, stored)), item(2, commitmentFor(2, requester, called)));
        vm.assertEq(post(groups(group(first(2), items))), 2);
        (bool found, bytes32 digest) = requests.resultOf(1);
        vm.assertTrue(found);
        vm.assertEq(digest, digestOf(1));
        vm.assertTrue(requests.owesCallback(2, commitmentFor(2, requester, called), digestOf(2)));
        (found,) = requests.resultOf(2);
        vm.assertFalse(found);
    }

    // Who is paid what

    function test_post_equalSharesAndEvents() public {
        ask(3, FEE);
        ask(3, 2 * FEE);
        ResultGroup memory g = group(first(3), bytes.concat(itemOf(1, 3), itemOf(2, 3)));
        for (uint256 i; i < 3; ++i) {
            vm.expectEmit(address(requests));
            emit IInferenceRequests.WorkerPaid(vm.addr(keys[i]), ownerOf(keys[i]), 2, 3 * FEE * 3 / 10);
        }
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PosterPaid(poster, 3 * FEE / 10);
        vm.assertEq(post(groups(g)), 2);
    }

    function test_post_remainderGoesToTheFirst() public {
        // 0.9 gwei among 7: 4 wei are left, of each of the two results.
        ask(7, 1 gwei);
        ask(7, 1 gwei);
        vm.assertEq(post(groups(group(first(7), bytes.concat(itemOf(1, 7), itemOf(2, 7))))), 2);
        uint256 share = uint256(0.9 gwei) / 7;
        vm.assertEq(uint256(0.9 gwei) - 7 * share, 4);
        vm.assertEq(requests.credits(ownerOf(keys[0])), 2 * (share + 4));
        for (uint256 i = 1; i < 7; ++i) {
            vm.assertEq(requests.credits(ownerOf(keys[i])), 2 * share);
        }
        vm.assertEq(requests.credits(poster), 2 * 0.1 gwei);
    }

    function testFuzz_post_sharesAddUp(uint256 quorum, uint256 feeGwei, uint256 bps) public {
        quorum = bound(quorum, 1, MAX_QUORUM);
        feeGwei = bound(feeGwei, 1, (1 << 48) - 1);
        bps = bound(bps, 0, 10_000);
        deploy(bps);
        keys = activateMany(quorum);
        ask(quorum, feeGwei * 1 gwei);
        vm.assertEq(post(groups(group(first(quorum), itemOf(1, quorum)))), 1);
        uint256 posterWei = feeGwei * 1 gwei * bps / 10_000;
        uint256 paymentWei = feeGwei * 1 gwei - posterWei;
        vm.assertEq(requests.credits(poster), posterWei);
        vm.assertEq(requests.credits(ownerOf(keys[0])), paymentWei / quorum + paymentWei % quorum);
        for (uint256 i = 1; i < quorum; ++i) {
            vm.assertEq(requests.credits(ownerOf(keys[i])), paymentWei / quorum);
        }
        vm.assertEq(total(), feeGwei * 1 gwei);
    }

    function test_post_ownerOfSeveralSignersGetsEachShare() public {
        register(0xAA, ownerOf(keys[0]));
        vm.deal(ownerOf(keys[0]), MIN_STAKE);
        vm.prank(ownerOf(keys[0]));
        stakes.stake{value: MIN_STAKE}(vm.addr(0xAA));
        uint256[] memory signing = new uint256[](2);
        bool before = vm.addr(0xAA) < vm.addr(keys[0]);
        (signing[0], signing[1]) = before ? (uint256(0xAA), keys[0]) : (keys[0], uint256(0xAA));
        ask(2, FEE);
        vm.assertEq(post(groups(group(signing, itemOf(1, 2)))), 1);
        vm.assertEq(requests.credits(ownerOf(keys[0])), FEE * 9 / 10);
    }

    function test_post_posterIsOneOfTheOwners() public {
        ask(2, FEE);
        ResultGroup[] memory list = groups(group(first(2), itemOf(1, 2)));
        vm.prank(ownerOf(keys[1]));
        results.post(list, 0);
        vm.assertEq(requests.credits(ownerOf(keys[1])), FEE * 9 / 20 + FEE / 10);
    }

    function test_post_sharedNothingSettledPaysNobody() public {
        vm.recordLogs();
        vm.assertEq(post(groups(group(first(2), item(1, 0)))), 0);
        vm.assertEq(vm.getRecordedLogs().length, 1);
        vm.assertEq(total(), 0);
    }

    function test_post_sharedNothingOrAllForThePoster() public {
        deploy(0);
        keys = activateMany(2);
        ask(2, FEE);
        vm.recordLogs();
        post(groups(group(first(2), itemOf(1, 2))));
        // One for the result and one for each worker, none for the poster.
        vm.assertEq(vm.getRecordedLogs().length, 3);
        vm.assertEq(requests.credits(poster), 0);
        deploy(10_000);
        keys = activateMany(2);
        ask(2, FEE);
        post(groups(group(first(2), itemOf(1, 2))));
        vm.assertEq(requests.credits(poster), FEE);
        vm.assertEq(total(), FEE);
    }

    // However results are split

    /// @dev The same results, in any order, in any groups, in one transaction or many: the same state, the same pay.
    /// Quorums of 1 to 4, odd fees, all deliveries, and a model whose payments are held.
    function testFuzz_post_anySplitEndsTheSame(uint256 seed, uint256 count) public {
        count = bound(count, 1, 14);
        holdPaymentsOfHeldModel();
        startAt(250);
        for (uint256 i; i < count; ++i) {
            (RequestParams memory p, uint256 feeWei) = drawn(seed, i);
            vm.prank(requester);
            requests.submit{value: feeWei}(p);
        }
        uint256 snapshot = vm.snapshotState();
        for (uint256 i; i < count; ++i) {
            uint256[] memory alone = new uint256[](1);
            alone[0] = i;
            settleTogether(seed, alone, 1);
        }
        bytes32 apart = stateHash(seed, count);
        vm.assertEq(address(requests).balance, total());
        vm.revertToState(snapshot);

        uint256[] memory order = shuffled(seed, count);
        for (uint256 from; from < count;) {
            uint256 size = 1 + uint256(keccak256(abi.encode("size", seed, from))) % 6;
            if (from + size > count) size = count - from;
            uint256[] memory together = new uint256[](size);
            for (uint256 i; i < size; ++i) {
                together[i] = order[from + i];
            }
            settleTogether(seed, together, size);
            from += size;
        }
        vm.assertEq(stateHash(seed, count), apart);
    }

    /// @dev Settles requests of any quorum: each number of signers signs all of them, and settles its own.
    function settleTogether(uint256 seed, uint256[] memory which, uint256 expected) private {
        bytes memory items;
        bool[5] memory asked;
        for (uint256 i; i < which.length; ++i) {
            (RequestParams memory p,) = drawn(seed, which[i]);
            uint256 id = 250 + which[i];
            items = bytes.concat(items, item(id, commitmentFor(id, requester, p)));
            asked[p.quorum] = true;
        }
        uint256 settled;
        for (uint256 quorum = 1; quorum <= 4; ++quorum) {
            if (!asked[quorum]) continue;
            // Plain ones are settled either way.
            if (quorum != seed % 5) settled += post(groups(group(first(quorum), items)));
            settled += postProven(provenGroup(first(quorum), items, new bytes[](which.length)));
        }
        vm.assertEq(settled, expected);
    }

    function drawn(uint256 seed, uint256 i) private pure returns (RequestParams memory p, uint256 feeWei) {
        uint256 random = uint256(keccak256(abi.encode(seed, i)));
        p = asking(1 + random % 4, Delivery((random >> 8) % 3));
        if (random >> 16 & 3 == 0) p.modelId = HELD_MODEL;
        feeWei = (1 + (random >> 32) % 1_000_003) * 1 gwei;
    }

    function shuffled(uint256 seed, uint256 count) private pure returns (uint256[] memory order) {
        order = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            order[i] = i;
        }
        for (uint256 i = count; i > 1; --i) {
            uint256 j = uint256(keccak256(abi.encode("order", seed, i))) % i;
            (order[i - 1], order[j]) = (order[j], order[i - 1]);
        }
    }

    function stateHash(uint256 seed, uint256 count) private view returns (bytes32 hash) {
        hash = keccak256(
            abi.encode(requests.settledWord(0), requests.settledWord(1), requests.credits(address(disputes)))
        );
        for (uint256 i; i < count; ++i) {
            uint256 id = 250 + i;
            (RequestParams memory p,) = drawn(seed, i);
            (bool found, bytes32 digest) = requests.resultOf(id);
            bool owes = requests.owesCallback(id, commitmentFor(id, requester, p), digestOf(id));
            hash = keccak256(abi.encode(hash, found, digest, owes, disputes.statusOf(id)));
        }
        for (uint256 i; i < 4; ++i) {
            hash = keccak256(abi.encode(hash, requests.credits(ownerOf(keys[i]))));
        }
        hash = keccak256(abi.encode(hash, requests.credits(poster)));
    }

    function holdPaymentsOfHeldModel() private {
        ModelTerms memory terms = noTerms();
        terms.modelId = HELD_MODEL;
        terms.disputeWindow = 1 hours;
        terms.bondGwei = 1;
        setTerms(terms);
    }

    // helpers

    function asking(uint256 quorum, Delivery delivery) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.quorum = uint8(quorum);
        p.delivery = delivery;
        if (delivery == Delivery.CALLBACK) p.callbackGasLimit = 100_000;
    }

    function ask(uint256 quorum, uint256 feeWei) private returns (uint256 id) {
        vm.prank(requester);
        return requests.submit{value: feeWei}(asking(quorum, Delivery.EVENT));
    }

    function itemOf(uint256 id, uint256 quorum) private view returns (bytes memory) {
        return item(id, commitmentFor(id, requester, asking(quorum, Delivery.EVENT)));
    }

    function first(uint256 count) private view returns (uint256[] memory signing) {
        signing = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            signing[i] = keys[i];
        }
    }

    function total() private view returns (uint256 sumWei) {
        sumWei = requests.credits(poster) + requests.credits(address(disputes));
        for (uint256 i; i < keys.length; ++i) {
            sumWei += requests.credits(ownerOf(keys[i]));
        }
    }

    function expectGroupSkipped(ResultGroup memory g, GroupSkipReason reason) private {
        expectOnly(g, address(results), IInferenceResults.GroupSkipped.selector, uint256(reason));
    }

    function expectItemSkipped(ResultGroup memory g, SkipReason reason) private {
        expectOnly(g, address(requests), IInferenceRequests.ResultSkipped.selector, uint256(reason));
    }

    function expectOnly(ResultGroup memory g, address emitter, bytes32 topic, uint256 reason) private {
        uint256 before = total();
        uint256 bits = requests.settledWord(0);
        vm.recordLogs();
        vm.assertEq(post(groups(g)), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, emitter);
        vm.assertEq(logs[0].topics[0], topic);
        vm.assertEq(bytes32(logs[0].data), bytes32(reason));
        vm.assertEq(total(), before);
        vm.assertEq(requests.settledWord(0), bits);
    }
}
