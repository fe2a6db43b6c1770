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
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ResultGroup
} from "../src/interfaces/IInferenceResults.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";

contract InferenceResultsTest is Fixture {
    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        activate(OTHER_KEY, otherOwner);
    }

    function test_constructor_wires() public view {
        vm.assertEq(results.requests(), address(requests));
        vm.assertEq(results.registry(), address(registry));
    }

    // EIP-712

    function test_domainSeparator_isEip712() public view {
        vm.assertEq(results.domainSeparator(), separator(CHAIN_ID, address(results)));
    }

    function test_domainSeparator_followsChainId() public {
        vm.chainId(CHAIN_ID + 1);
        vm.assertEq(results.domainSeparator(), separator(CHAIN_ID + 1, address(results)));
        vm.chainId(CHAIN_ID);
        vm.assertEq(results.domainSeparator(), separator(CHAIN_ID, address(results)));
    }

    function testFuzz_groupDigest_isEip712(bytes calldata items) public view {
        vm.assertEq(results.groupDigest(items), digestIn(CHAIN_ID, address(results), items));
    }

    // post: what is settled

    function test_post_one() public {
        submit();
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceFulfilled(1, worker, digestOf(1));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.WorkerPaid(worker, owner, 1, FEE * 9 / 10);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.PosterPaid(poster, FEE / 10);
        vm.assertEq(post(WORKER_KEY, item(1)), 1);
        vm.assertTrue(isSettled(1));
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
        vm.assertEq(requests.credits(poster), FEE / 10);
        vm.assertEq(requests.credits(worker), 0);
    }

    function test_post_atTheDeadline() public {
        bytes memory items = submitted();
        vm.warp(START + 600);
        vm.assertEq(post(WORKER_KEY, items), 1);
    }

    function test_post_skipsOneSecondAfterTheDeadline() public {
        bytes memory items = submitted();
        vm.warp(START + 601);
        expectItemSkipped(items, 1, SkipReason.EXPIRED);
    }

    function test_post_skipsUnknown() public {
        expectItemSkipped(item(1), 1, SkipReason.UNKNOWN_ID);
        expectItemSkipped(item(0, 0), 0, SkipReason.UNKNOWN_ID);
        expectItemSkipped(item(type(uint64).max, 0), type(uint64).max, SkipReason.UNKNOWN_ID);
        expectItemSkipped(item(2 ** 63, 0), 2 ** 63, SkipReason.UNKNOWN_ID);
    }

    function test_post_skipsReorgedIdWithOtherCommitment() public {
        // The worker answered a request which a reorganisation then put under another id, or another under its id.
        uint256 snapshot = vm.snapshotState();
        RequestParams memory first = params();
        first.input = "before the reorganisation";
        submit(first);
        bytes memory items = item(1, commitmentFor(1, requester, first));
        vm.revertToState(snapshot);
        submit();
        expectItemSkipped(items, 1, SkipReason.COMMITMENT_MISMATCH);
    }

    function test_post_skipsSettled() public {
        bytes memory items = submitted();
        post(WORKER_KEY, items);
        expectItemSkipped(items, 1, SkipReason.ALREADY_SETTLED);
    }

    function test_post_skipsRefunded() public {
        RequestParams memory p = params();
        bytes memory items = submitted();
        vm.warp(START + 601);
        requests.refund(claim(1, p));
        expectItemSkipped(items, 1, SkipReason.ALREADY_SETTLED);
        vm.warp(START);
        expectItemSkipped(items, 1, SkipReason.ALREADY_SETTLED);
    }

    function test_post_twiceChangesNothing() public {
        submitMany(5);
        ResultGroup[] memory list = groups(group(WORKER_KEY, itemsFrom(1, 5)));
        vm.assertEq(post(list), 5);
        bytes32 before = stateHash();
        vm.assertEq(post(list), 0);
        vm.assertEq(stateHash(), before);
    }

    function test_post_duplicateInABatchPaysOnce() public {
        submitMany(2);
        bytes memory items = bytes.concat(item(1), item(1), item(2), item(1));
        vm.assertEq(post(WORKER_KEY, items), 2);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), 2 * FEE);
    }

    function test_post_duplicateAcrossGroupsPaysTheFirst() public {
        submitMany(2);
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(WORKER_KEY, item(1));
        list[1] = group(OTHER_KEY, itemsFrom(1, 2));
        vm.assertEq(post(list), 2);
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
        vm.assertEq(requests.credits(otherOwner), FEE * 9 / 10);
        vm.assertEq(requests.credits(poster), FEE * 2 / 10);
    }

    function test_post_idsOnBothSidesOfAWordsEdge() public {
        submitMany(260);
        // 255 and 256 in turns and repeated, so that a kept word must be written before the next is read.
        bytes memory items = bytes.concat(item(255), item(256), item(254), item(256), item(255), item(257));
        vm.assertEq(post(WORKER_KEY, items), 4);
        vm.assertEq(requests.settledWord(0), uint256(3) << 254);
        vm.assertEq(requests.settledWord(1), 3);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), 4 * FEE);
    }

    function test_post_badItemsHarmNoOthers() public {
        submitMany(3);
        bytes memory items = bytes.concat(item(9_999), item(1), item(2, bytes20(uint160(1))), item(3), item(3));
        vm.assertEq(post(WORKER_KEY, items), 2);
        vm.assertTrue(isSettled(1));
        vm.assertFalse(isSettled(2));
        vm.assertTrue(isSettled(3));
        vm.assertEq(requests.credits(owner), 2 * FEE * 9 / 10);
    }

    function test_post_griefing256DeadItems() public {
        submit();
        bytes memory dead;
        for (uint256 i; i < 256; ++i) {
            dead = bytes.concat(dead, item(10_000 + i, 0));
        }
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(OTHER_KEY, dead);
        list[1] = group(WORKER_KEY, item(1));
        uint256 gasBefore = gasleft();
        vm.assertEq(post(list), 1);
        vm.assertLe(gasBefore - gasleft(), 2_000_000, "gas of 256 dead items");
        vm.assertEq(requests.credits(otherOwner), 0);
    }

    function test_post_nothingSettledPaysNobody() public {
        vm.recordLogs();
        vm.assertEq(post(WORKER_KEY, bytes.concat(item(1), item(2))), 0);
        // Two skipped items, and no payment.
        vm.assertEq(vm.getRecordedLogs().length, 2);
        vm.assertEq(requests.credits(poster), 0);
    }

    function test_post_anyoneIsPaidForTheTransactionOnly() public {
        // A copy of somebody's pending calldata: the worker's owner is paid as signed.
        submit();
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(1)));
        vm.prank(stranger);
        vm.assertEq(results.post(list, 0), 1);
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
        vm.assertEq(requests.credits(stranger), FEE / 10);
        vm.assertEq(post(list), 0);
        vm.assertEq(requests.credits(poster), 0);
    }

    function test_post_posterIsTheOwner() public {
        submit();
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(1)));
        vm.prank(owner);
        results.post(list, 0);
        vm.assertEq(requests.credits(owner), FEE);
    }

    function test_post_paysRaisedFee() public {
        submit();
        vm.prank(requester);
        requests.raiseFee{value: 90 gwei}(1);
        post(WORKER_KEY, item(1));
        vm.assertEq(requests.credits(owner) + requests.credits(poster), FEE + 90 gwei);
    }

    function test_post_nothingForThePoster() public {
        deploy(0);
        activate(WORKER_KEY, owner);
        submit();
        vm.recordLogs();
        vm.assertEq(post(WORKER_KEY, item(1)), 1);
        vm.assertEq(vm.getRecordedLogs().length, 2);
        vm.assertEq(requests.credits(owner), FEE);
        vm.assertEq(requests.credits(poster), 0);
    }

    function test_post_allForThePoster() public {
        deploy(10_000);
        activate(WORKER_KEY, owner);
        submit();
        post(WORKER_KEY, item(1));
        vm.assertEq(requests.credits(owner), 0);
        vm.assertEq(requests.credits(poster), FEE);
    }

    function testFuzz_post_sharesAddUp(uint256 feeGwei, uint256 bps) public {
        feeGwei = bound(feeGwei, 1, (1 << 48) - 1);
        bps = bound(bps, 0, 10_000);
        deploy(bps);
        activate(WORKER_KEY, owner);
        vm.prank(requester);
        requests.submit{value: feeGwei * 1 gwei}(params());
        post(WORKER_KEY, item(1));
        // Exact: a gwei divides by 10,000.
        vm.assertEq(requests.credits(poster), feeGwei * 1 gwei * bps / 10_000);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), feeGwei * 1 gwei);
    }

    /// @dev Any split of the same items into posts, in any order and with any repetition, ends in the same state.
    function testFuzz_post_anySplitEndsTheSame(uint256 seed, uint256 count) public {
        count = bound(count, 1, 24);
        // Around the edge of a word.
        submitMany(300);
        uint256 snapshot = vm.snapshotState();
        post(WORKER_KEY, itemsFrom(245, count));
        bytes32 whole = stateHash();
        vm.revertToState(snapshot);

        bool[] memory done = new bool[](count);
        uint256 left = count;
        while (left > 0) {
            bytes memory items;
            uint256 size = 1 + seed % 5;
            for (uint256 i; i < size; ++i) {
                seed = uint256(keccak256(abi.encode(seed)));
                uint256 index = seed % count;
                // Random picks alone could take long to find the last one.
                if (i == 0) while (done[index]) index = (index + 1) % count;
                items = bytes.concat(items, item(245 + index));
                if (!done[index]) {
                    done[index] = true;
                    --left;
                }
            }
            post(WORKER_KEY, items);
        }
        vm.assertEq(stateHash(), whole);
    }

    function test_post_clearsOnlyWhatIsSettled() public {
        // Every fourth settled item's word is cleared; the bit, not the word, must keep it from being paid again.
        submitMany(9);
        post(WORKER_KEY, itemsFrom(1, 8));
        vm.assertEq(post(OTHER_KEY, itemsFrom(1, 8)), 0);
        vm.assertEq(requests.recordOf(9).feeGwei, FEE / 1 gwei);
        vm.assertEq(post(OTHER_KEY, item(9)), 1);
    }

    /// @dev Of each group's settled words a quarter is cleared, for what a transaction gets back; no more, no less.
    function test_post_clearsAQuarterOfTheWords() public {
        submitMany(12);
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(WORKER_KEY, bytes.concat(itemsFrom(1, 3), item(1), itemsFrom(4, 3)));
        list[1] = group(OTHER_KEY, itemsFrom(7, 5));
        vm.assertEq(post(list), 11);
        for (uint256 id = 1; id <= 12; ++id) {
            bool cleared = id == 1 || id == 5 || id == 7 || id == 11;
            vm.assertEq(wordOf(id) == 0, cleared);
        }
        vm.warp(START + 601);
        RefundClaim[] memory claims = new RefundClaim[](1);
        claims[0] = claim(12, params(uint40(START + 600)))[0];
        vm.assertEq(requests.refund(claims), 1);
        vm.assertEq(wordOf(12), bytes32(0));
    }

    // post: groups

    function test_post_none() public {
        vm.assertEq(post(new ResultGroup[](0)), 0);
    }

    function test_post_decisionsRootIsAnchored() public {
        bytes32 root = keccak256("decisions");
        vm.expectEmit(address(results));
        emit IInferenceResults.DecisionsAnchored(root, poster);
        vm.prank(poster);
        results.post(new ResultGroup[](0), root);
    }

    /// @dev Any list of good and bad groups of good and bad items, by one signer or two, of all deliveries and around a
    /// word's edge: in one post or one post each, what is settled, paid, kept and told is the same.
    function testFuzz_post_manyGroupsAsOneByOne(uint256 seed, uint256 count) public {
        count = bound(count, 1, 12);
        prepareMix(seed);
        ResultGroup[] memory list = new ResultGroup[](count);
        for (uint256 i; i < count; ++i) {
            list[i] = drawnGroup(seed, i);
        }
        uint256 snapshot = vm.snapshotState();
        vm.recordLogs();
        uint256 settled;
        for (uint256 i; i < count; ++i) {
            settled += post(groups(list[i]));
        }
        bytes32 told = logsHash();
        bytes32 apart = mixHash(seed);
        vm.revertToState(snapshot);
        vm.recordLogs();
        vm.assertEq(post(list), settled);
        vm.assertEq(logsHash(), told);
        vm.assertEq(mixHash(seed), apart);
        vm.assertEq(post(list), 0);
        vm.assertEq(mixHash(seed), apart);
    }

    /// @dev The same against what the words say: an item is settled by the first group that is valid and fits it.
    function testFuzz_post_manyGroupsAsTheySay(uint256 seed, uint256 count) public {
        count = bound(count, 1, 12);
        prepareMix(seed);
        ResultGroup[] memory list = new ResultGroup[](count);
        uint256 expected;
        uint256 bits;
        uint256[2] memory halves;
        for (uint256 i; i < count; ++i) {
            list[i] = drawnGroup(seed, i);
            uint256 kind = groupKind(seed, i);
            if (kind < 3) continue;
            for (uint256 j; j < itemCount(seed, i); ++j) {
                (uint256 which, bool right) = drawnItem(seed, i, j);
                uint256 signers = kind == 7 ? 2 : 1;
                if (!right || which == MIX || bits >> which & 1 == 1 || mixed(seed, which).quorum != signers) continue;
                bits |= 1 << which;
                ++expected;
                if (kind == 7) (halves[0], halves[1]) = (halves[0] + 1, halves[1] + 1);
                else halves[kind & 1] += 2;
            }
        }
        vm.assertEq(post(list), expected);
        for (uint256 which; which < MIX; ++which) {
            uint256 id = FIRST + which;
            RequestParams memory p = mixed(seed, which);
            bool done = bits >> which & 1 == 1;
            vm.assertEq(isSettled(id), done);
            (bool found, bytes32 digest) = requests.resultOf(id);
            vm.assertEq(found, done && p.delivery == Delivery.STORED);
            vm.assertEq(digest, found ? digestOf(id) : bytes32(0));
            vm.assertEq(
                requests.owesCallback(id, commitmentFor(id, requester, p), digestOf(id)),
                done && p.delivery == Delivery.CALLBACK
            );
            vm.assertEq(requests.recordOf(id).feeGwei, done ? 0 : FEE / 1 gwei);
        }
        // Halves of what is left to workers.
        vm.assertEq(requests.credits(owner), halves[0] * FEE * 9 / 20);
        vm.assertEq(requests.credits(otherOwner), halves[1] * FEE * 9 / 20);
        vm.assertEq(requests.credits(poster), expected * FEE / 10);
    }

    function test_post_jointBetweenSingles() public {
        // What waits to be settled together must be settled before the group with two signers, whose items it shares.
        vm.etch(requester, hex"00");
        RequestParams memory joint = params();
        joint.quorum = 2;
        submitMany(3);
        submit(joint);
        uint256[] memory both = bothKeys();
        ResultGroup[] memory list = new ResultGroup[](5);
        list[0] = group(WORKER_KEY, item(1));
        list[1] = group(both, bytes.concat(item(1), item(4, commitmentFor(4, requester, joint)), item(2)));
        list[2] = group(OTHER_KEY, bytes.concat(item(2), item(1)));
        list[3] = group(both, item(3));
        list[4] = group(WORKER_KEY, bytes.concat(item(4, commitmentFor(4, requester, joint)), item(3)));
        vm.recordLogs();
        vm.assertEq(post(list), 4);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        SkipReason[5] memory reasons = [
            SkipReason.ALREADY_SETTLED,
            SkipReason.QUORUM_MISMATCH,
            SkipReason.ALREADY_SETTLED,
            SkipReason.QUORUM_MISMATCH,
            SkipReason.ALREADY_SETTLED
        ];
        uint256 skipped;
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != IInferenceRequests.ResultSkipped.selector) continue;
            vm.assertEq(bytes32(logs[i].data), bytes32(uint256(reasons[skipped++])));
        }
        vm.assertEq(skipped, 5);
        vm.assertEq(requests.credits(owner), 2 * FEE * 9 / 10 + FEE * 9 / 20);
        vm.assertEq(requests.credits(otherOwner), FEE * 9 / 10 + FEE * 9 / 20);
        vm.assertEq(requests.credits(poster), 4 * FEE / 10);
    }

    /// @dev An id's bit in its word can be any, also one that means something in a request's word: its fee, deadline,
    /// commitment, delivery (248, 249), quorum (250 to 253), terms (255).
    function test_post_twiceForEveryBit() public {
        startAt(256);
        submitMany(512);
        for (uint256 id = 256; id < 512; ++id) {
            // The second of a group, whose word is not cleared: only the bit keeps it from being settled again, alone, in
            // a group, and twice in one.
            vm.assertEq(post(WORKER_KEY, bytes.concat(item(id + 256), item(id))), 2);
            vm.assertEq(post(OTHER_KEY, item(id)), 0);
            vm.assertEq(post(OTHER_KEY, bytes.concat(item(id), item(id + 256), item(id))), 0);
            (bool found,) = requests.resultOf(id);
            vm.assertFalse(found);
        }
        vm.assertEq(requests.credits(otherOwner), 0);
        vm.assertEq(requests.credits(owner), 512 * FEE * 9 / 10);
    }

    function test_post_storedTwiceForEveryBit() public {
        RequestParams memory p = params();
        p.delivery = Delivery.STORED;
        for (uint256 id = 1; id < 257; ++id) {
            submit(p);
        }
        for (uint256 id = 1; id < 257; ++id) {
            bytes20 commitment = commitmentFor(id, requester, p);
            // A digest that, as a word, would fit the request once more.
            bytes32 digest = bytes32(
                uint256(type(uint40).max) << 48 | uint256(uint160(commitment)) << 88 | uint256(1) << 248 | uint256(1)
                    << 250
            );
            vm.assertEq(post(WORKER_KEY, item(id, commitment, digest)), 1);
            vm.assertEq(post(OTHER_KEY, item(id, commitment, digestOf(id))), 0);
            (bool found, bytes32 kept) = requests.resultOf(id);
            vm.assertTrue(found);
            vm.assertEq(kept, digest);
        }
        vm.assertEq(requests.credits(otherOwner), 0);
    }

    function test_post_largeSkippedGroupBeforeSmallOnes() public {
        submitMany(3);
        ResultGroup[] memory list = new ResultGroup[](5);
        list[0] = group(0xC0FFEE, itemsFrom(1, 3));
        list[1] = group(WORKER_KEY, item(1));
        list[2] = group(0xC0FFEE, bytes.concat(itemsFrom(1, 3), itemsFrom(1, 3)));
        list[3] = group(OTHER_KEY, item(2));
        list[4] = group(WORKER_KEY, new bytes(7));
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(0, GroupSkipReason.INACTIVE_WORKER);
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(2, GroupSkipReason.INACTIVE_WORKER);
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(4, GroupSkipReason.BAD_LENGTH);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.WorkerPaid(worker, owner, 1, FEE * 9 / 10);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.WorkerPaid(otherWorker, otherOwner, 1, FEE * 9 / 10);
        vm.assertEq(post(list), 2);
    }

    function test_post_zeroRootIsNotAnchored() public {
        vm.recordLogs();
        post(new ResultGroup[](0));
        vm.assertEq(vm.getRecordedLogs().length, 0);
    }

    function testFuzz_post_skipsBadLength(uint256 length) public {
        length = bound(length, 0, 600);
        vm.assume(length == 0 || length % 60 != 0);
        expectGroupSkipped(group(WORKER_KEY, new bytes(length)), GroupSkipReason.BAD_LENGTH);
    }

    function test_post_skipsNoSigner() public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        g.signatures = new CompactSignature[](0);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNER_COUNT);
    }

    function test_post_skipsTwoSignersWhereOneIsAsked() public {
        submit();
        ResultGroup[] memory list = groups(group(bothKeys(), item(1)));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.QUORUM_MISMATCH);
        vm.assertEq(post(list), 0);
        vm.assertFalse(isSettled(1));
    }

    function test_post_skipsSixteenSigners() public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        g.signatures = new CompactSignature[](16);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNER_COUNT);
    }

    function test_post_skipsHighS() public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        g.signatures[0] = highS(g.signatures[0]);
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNATURE);
    }

    function test_post_skipsZeroSignature() public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        g.signatures[0] = CompactSignature({r: 0, vs: 0});
        expectGroupSkipped(g, GroupSkipReason.BAD_SIGNATURE);
    }

    function testFuzz_post_skipsAnyOtherSignature(bytes32 r, bytes32 vs) public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        vm.assume(r != g.signatures[0].r);
        g.signatures[0] = CompactSignature({r: r, vs: vs});
        vm.assertEq(post(groups(g)), 0);
        vm.assertFalse(isSettled(1));
    }

    function testFuzz_post_skipsChangedItems(uint256 place, uint8 flip) public {
        vm.assume(flip != 0);
        ResultGroup memory g = group(WORKER_KEY, submitted());
        place = bound(place, 0, g.items.length - 1);
        g.items[place] ^= bytes1(flip);
        vm.assertEq(post(groups(g)), 0);
        vm.assertFalse(isSettled(1));
    }

    function test_post_skipsOtherChainsSignature() public {
        bytes memory items = submitted();
        expectForeignSkipped(items, digestIn(CHAIN_ID + 1, address(results), items));
    }

    function test_post_skipsOtherContractsSignature() public {
        bytes memory items = submitted();
        expectForeignSkipped(items, digestIn(CHAIN_ID, address(registry), items));
    }

    function test_post_skipsAfterTheChainIdChanged() public {
        ResultGroup memory g = group(WORKER_KEY, submitted());
        vm.chainId(CHAIN_ID + 1);
        expectGroupSkipped(g, GroupSkipReason.INACTIVE_WORKER);
        // Signed for the new id, the group is accepted: the request's commitment is stored, so it stays as it was.
        g.signatures[0] = sign(WORKER_KEY, digestIn(CHAIN_ID + 1, address(results), g.items));
        vm.assertEq(post(groups(g)), 1);
    }

    function test_post_skipsSignatureOfAnotherGroup() public {
        submitMany(2);
        ResultGroup memory g = group(WORKER_KEY, item(1));
        g.items = item(2);
        expectGroupSkipped(g, GroupSkipReason.INACTIVE_WORKER);
    }

    function test_post_skipsUnregisteredWorker() public {
        expectGroupSkipped(group(0xC0FFEE, submitted()), GroupSkipReason.INACTIVE_WORKER);
    }

    function test_post_skipsDisabledWorker() public {
        vm.prank(owner);
        registry.setEnabled(worker, false);
        expectGroupSkipped(group(WORKER_KEY, submitted()), GroupSkipReason.INACTIVE_WORKER);
    }

    function test_post_skipsUnstakedWorker() public {
        vm.prank(owner);
        stakes.unstake(worker, 1);
        expectGroupSkipped(group(WORKER_KEY, submitted()), GroupSkipReason.INACTIVE_WORKER);
    }

    function test_post_badGroupsHarmNoOthers() public {
        submitMany(3);
        ResultGroup[] memory list = new ResultGroup[](5);
        list[0] = group(WORKER_KEY, new bytes(59));
        list[1] = group(WORKER_KEY, item(1));
        list[2] = group(0xC0FFEE, item(2));
        list[3] = group(OTHER_KEY, item(3));
        list[3].signatures = new CompactSignature[](0);
        list[4] = group(OTHER_KEY, itemsFrom(2, 2));
        vm.assertEq(post(list), 3);
        vm.assertEq(requests.credits(owner), FEE * 9 / 10);
        vm.assertEq(requests.credits(otherOwner), FEE * 18 / 10);
    }

    function test_post_skippedGroupNamesItsIndex() public {
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(WORKER_KEY, submitted());
        list[1] = group(WORKER_KEY, "");
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(1, GroupSkipReason.BAD_LENGTH);
        vm.assertEq(post(list), 1);
    }

    /// @dev Offsets are not checked against the end of calldata: whatever they are, nothing unsigned is settled.
    function testFuzz_post_malformedCalldata(uint256 word, uint256 value) public {
        submit();
        bytes memory data = abi.encodeCall(results.post, (groups(group(WORKER_KEY, item(1))), bytes32(0)));
        uint256 place = 0x20 + 4 + 0x20 * bound(word, 0, (data.length - 4) / 32 - 1);
        assembly ("memory-safe") {
            mstore(add(data, place), value)
        }
        vm.prank(poster);
        (bool ok,) = address(results).call{gas: 3_000_000}(data);
        // Settled only by what was signed: either it failed, or all was skipped, or what counts is unchanged.
        if (ok && isSettled(1)) {
            vm.assertEq(requests.credits(owner), FEE * 9 / 10);
            vm.assertEq(requests.credits(poster), FEE / 10);
        } else {
            vm.assertEq(requests.credits(owner) + requests.credits(poster), 0);
        }
    }

    function test_RevertWhen_post_tooLittleGasChangesNothing() public {
        submitMany(50);
        ResultGroup[] memory list = new ResultGroup[](2);
        list[0] = group(WORKER_KEY, itemsFrom(1, 25));
        list[1] = group(OTHER_KEY, itemsFrom(26, 25));
        bytes32 before = stateHash();
        for (uint256 gasLimit = 30_000; gasLimit < 230_000; gasLimit += 10_000) {
            vm.prank(poster);
            (bool ok,) = address(results).call{gas: gasLimit}(abi.encodeCall(results.post, (list, bytes32(0))));
            if (ok) break;
            vm.assertEq(stateHash(), before);
        }
    }

    function test_RevertWhen_post_registryHasNoCode() public {
        address requestsAt = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + 1);
        results = IInferenceResults(deployCode("InferenceResults", abi.encode(requestsAt, account("nobody"))));
        requests = deployRequests(address(results), address(disputes), POSTER_BPS, CANCEL_DELAY);
        submit();
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(1)));
        vm.expectRevert();
        results.post(list, 0);
    }

    function test_RevertWhen_etherIsSent() public {
        vm.prank(owner);
        (bool ok,) = address(results).call{value: 1}("");
        vm.assertFalse(ok);
    }

    // helpers

    /// @dev The request's word as it lies in storage: behind 7 slots and two bitmaps of 2^56.
    function wordOf(uint256 id) private view returns (bytes32) {
        return vm.load(address(requests), bytes32(7 + 2 ** 57 + id));
    }

    /// @dev A mixture of requests around a word's edge, for the tests with many groups.
    uint256 private constant MIX = 20;
    uint256 private constant FIRST = 244;

    function prepareMix(uint256 seed) private {
        vm.etch(requester, hex"00");
        startAt(FIRST);
        for (uint256 which; which < MIX; ++which) {
            submit(mixed(seed, which));
        }
    }

    function mixed(uint256 seed, uint256 which) private pure returns (RequestParams memory p) {
        uint256 random = uint256(keccak256(abi.encode("request", seed, which)));
        p = params(uint40(START + 600));
        p.quorum = random & 3 == 0 ? 2 : 1;
        // Mostly EVENT, as in life.
        p.delivery = Delivery(random >> 8 & 1 == 0 ? 0 : (random >> 16) % 3);
        if (p.delivery == Delivery.CALLBACK) p.callbackGasLimit = 100_000;
    }

    /// @dev 0: bad length, 1: bad signature, 2: no worker; 3 to 6: one signer; 7: two.
    function groupKind(uint256 seed, uint256 i) private pure returns (uint256) {
        return uint256(keccak256(abi.encode("kind", seed, i))) % 8;
    }

    function itemCount(uint256 seed, uint256 i) private pure returns (uint256) {
        return 1 + uint256(keccak256(abi.encode("count", seed, i))) % 8;
    }

    /// @return which of the requests; `MIX` is one that is not there
    /// @return right whether it names the request's commitment
    function drawnItem(uint256 seed, uint256 i, uint256 j) private pure returns (uint256 which, bool right) {
        uint256 random = uint256(keccak256(abi.encode("item", seed, i, j)));
        return (random % (MIX + 1), random >> 128 & 7 != 0);
    }

    function drawnGroup(uint256 seed, uint256 i) private view returns (ResultGroup memory g) {
        bytes memory items;
        for (uint256 j; j < itemCount(seed, i); ++j) {
            (uint256 which, bool right) = drawnItem(seed, i, j);
            uint256 id = FIRST + which;
            bytes20 commitment = commitmentFor(id, right ? requester : stranger, mixed(seed, which));
            items = bytes.concat(items, item(id, commitment));
        }
        uint256 kind = groupKind(seed, i);
        if (kind == 0) items = bytes.concat(items, hex"00");
        if (kind == 7) return group(bothKeys(), items);
        g = group(kind == 2 ? 0xC0FFEE : kind & 1 == 0 ? WORKER_KEY : OTHER_KEY, items);
        if (kind == 1) g.signatures[0] = highS(g.signatures[0]);
    }

    function bothKeys() private view returns (uint256[] memory keys) {
        keys = new uint256[](2);
        (keys[0], keys[1]) = worker < otherWorker ? (WORKER_KEY, OTHER_KEY) : (OTHER_KEY, WORKER_KEY);
    }

    function mixHash(uint256 seed) private view returns (bytes32 hash) {
        hash = stateHash();
        for (uint256 which; which < MIX; ++which) {
            uint256 id = FIRST + which;
            (bool found, bytes32 digest) = requests.resultOf(id);
            bool owes = requests.owesCallback(id, commitmentFor(id, requester, mixed(seed, which)), digestOf(id));
            hash = keccak256(abi.encode(hash, found, digest, owes, requests.recordOf(id)));
        }
    }

    /// @dev All that was told, save the number of a skipped group and what the poster got in how many parts.
    function logsHash() private returns (bytes32 hash) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        bytes32 skips;
        for (uint256 i; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (topic == IInferenceRequests.PosterPaid.selector) continue;
            if (topic == IInferenceResults.GroupSkipped.selector) skips = keccak256(abi.encode(skips, logs[i].data));
            else hash = keccak256(abi.encode(hash, logs[i].topics, logs[i].data, logs[i].emitter));
        }
        return keccak256(abi.encode(hash, skips));
    }

    function submitted() private returns (bytes memory items) {
        submit();
        return item(1);
    }

    function separator(uint256 chainId, address verifier) private pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("inferd"),
                keccak256("1"),
                chainId,
                verifier
            )
        );
    }

    function digestIn(uint256 chainId, address verifier, bytes memory items) private pure returns (bytes32) {
        bytes32 structHash = keccak256(abi.encode(keccak256("ResultGroup(bytes items)"), keccak256(items)));
        return keccak256(abi.encodePacked(hex"1901", separator(chainId, verifier), structHash));
    }

    function stateHash() private view returns (bytes32) {
        return keccak256(
            abi.encode(
                requests.settledWord(0),
                requests.settledWord(1),
                requests.credits(owner),
                requests.credits(otherOwner),
                requests.credits(poster),
                requests.nextId(),
                address(requests).balance
            )
        );
    }

    /// @dev A foreign signature recovers to some other address, which is no worker.
    function expectForeignSkipped(bytes memory items, bytes32 digest) private {
        ResultGroup memory g = group(WORKER_KEY, items);
        g.signatures[0] = sign(WORKER_KEY, digest);
        expectGroupSkipped(g, GroupSkipReason.INACTIVE_WORKER);
    }

    function expectGroupSkipped(ResultGroup memory g, GroupSkipReason reason) private {
        bytes32 before = stateHash();
        vm.recordLogs();
        vm.assertEq(post(groups(g)), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IInferenceResults.GroupSkipped.selector);
        vm.assertEq(logs[0].topics[1], bytes32(0));
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
        vm.assertEq(stateHash(), before);
    }

    function expectItemSkipped(bytes memory items, uint256 id, SkipReason reason) private {
        bytes32 before = stateHash();
        vm.recordLogs();
        vm.assertEq(post(WORKER_KEY, items), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, address(requests));
        vm.assertEq(logs[0].topics[0], IInferenceRequests.ResultSkipped.selector);
        vm.assertEq(logs[0].topics[1], bytes32(id));
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
        vm.assertEq(stateHash(), before);
    }
}
