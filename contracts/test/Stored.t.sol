// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    RefundClaim,
    RequestParams,
    RequestStatus,
    SkipReason
} from "../src/interfaces/IInferenceRequests.sol";
import {Fixture} from "./base/Fixture.sol";

/// @notice Results that contracts read: delivery STORED.
contract StoredTest is Fixture {
    uint256 private constant MAX_ID = 2 ** 63 - 1;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        // A contract, so that it can ask with every delivery.
        vm.etch(requester, hex"00");
    }

    function test_resultOf_isTheDigestOnceSettled() public {
        submit(asking(Delivery.STORED));
        expectNone(1);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.InferenceFulfilled(1, worker, digestOf(1));
        vm.assertEq(settle(1, Delivery.STORED), 1);
        expectStored(1, digestOf(1));
        vm.assertEq(uint256(requests.statusOf(1)), uint256(RequestStatus.SETTLED));
        vm.assertEq(requests.recordOf(1).feeGwei, 0);
        vm.assertEq(requests.credits(owner) + requests.credits(poster), FEE);
    }

    function test_resultOf_staysAfterTheDeadline() public {
        submit(asking(Delivery.STORED));
        settle(1, Delivery.STORED);
        vm.warp(START + 10_000 days);
        expectStored(1, digestOf(1));
    }

    function test_resultOf_pendingAndExpiredAreNotFound() public {
        submit(asking(Delivery.STORED));
        expectNone(1);
        vm.warp(START + 601);
        expectNone(1);
    }

    function test_resultOf_refundedIsNotFound() public {
        // Only the first and the fifth of these words are cleared; the others are left behind.
        RefundClaim[] memory claims = new RefundClaim[](6);
        RequestParams memory p = asking(Delivery.STORED);
        for (uint256 i; i < 6; ++i) {
            claims[i] = claim(submit(p), p)[0];
        }
        vm.warp(START + 601);
        vm.assertEq(requests.refund(claims), 6);
        for (uint256 id = 1; id <= 6; ++id) {
            expectNone(id);
        }
    }

    function test_resultOf_otherDeliveriesAreNotFound() public {
        bytes memory items;
        for (uint256 id = 1; id <= 8; ++id) {
            Delivery delivery = id % 2 == 0 ? Delivery.EVENT : Delivery.CALLBACK;
            submit(asking(delivery));
            items = bytes.concat(items, itemOf(id, delivery, digestOf(id)));
        }
        vm.assertEq(post(WORKER_KEY, items), 8);
        for (uint256 id = 1; id <= 8; ++id) {
            expectNone(id);
        }
    }

    function test_resultOf_unknownAndBeyondTheIds() public view {
        expectNone(0);
        expectNone(1);
        expectNone(MAX_ID);
        expectNone(MAX_ID + 1);
        expectNone(type(uint64).max);
        expectNone(uint256(type(uint64).max) + 2);
        expectNone(type(uint256).max);
    }

    function test_resultOf_wordsEdge() public {
        startAt(254);
        bytes memory items;
        for (uint256 id = 254; id <= 258; ++id) {
            submit(asking(Delivery.STORED));
            items = bytes.concat(items, itemOf(id, Delivery.STORED, digestOf(id)));
        }
        // All but the middle one: neighbours on both sides of the edge stay apart.
        bytes memory without = bytes.concat(
            itemOf(256, Delivery.STORED, digestOf(256)),
            itemOf(255, Delivery.STORED, digestOf(255)),
            itemOf(258, Delivery.STORED, digestOf(258)),
            itemOf(254, Delivery.STORED, digestOf(254))
        );
        vm.assertEq(post(WORKER_KEY, without), 4);
        expectStored(254, digestOf(254));
        expectStored(255, digestOf(255));
        expectStored(256, digestOf(256));
        expectNone(257);
        expectStored(258, digestOf(258));
        expectNone(253);
        expectNone(0);
        expectNone(512);
        vm.assertEq(post(WORKER_KEY, items), 1);
        expectStored(257, digestOf(257));
    }

    function test_resultOf_lastId() public {
        startAt(MAX_ID);
        submit(asking(Delivery.STORED));
        vm.assertEq(settle(MAX_ID, Delivery.STORED), 1);
        expectStored(MAX_ID, digestOf(MAX_ID));
        // The neighbours in the layout: same low bits, and the id behind the last.
        expectNone(MAX_ID + 1);
        expectNone(MAX_ID + 2 ** 63 + 1);
        expectNone(type(uint256).max);
    }

    function test_RevertWhen_submit_beyondTheLastId() public {
        startAt(MAX_ID);
        submit();
        vm.prank(requester);
        vm.expectRevert();
        requests.submit{value: FEE}(asking(Delivery.EVENT));
        vm.assertEq(requests.nextId(), MAX_ID + 1);
    }

    function test_resultOf_digestOfNothing() public {
        submit(asking(Delivery.STORED));
        post(WORKER_KEY, itemOf(1, Delivery.STORED, 0));
        expectStored(1, 0);
        // Its word is zero, like that of no request; still it is settled.
        vm.assertEq(uint256(requests.statusOf(1)), uint256(RequestStatus.SETTLED));
        expectSettledForGood(1);
    }

    function test_post_storedDigestMadeLikeAPendingRequest() public {
        // A worker can sign any digest, even one that reads as a request with a far deadline and a large fee.
        submit(asking(Delivery.STORED));
        uint256 word = uint256(type(uint48).max) | uint256(type(uint40).max) << 48
            | uint256(uint160(commitmentFor(1, requester, asking(Delivery.EVENT)))) << 88 | uint256(1) << 250;
        post(WORKER_KEY, itemOf(1, Delivery.STORED, bytes32(word)));
        expectStored(1, bytes32(word));
        expectSettledForGood(1);
        vm.assertEq(post(WORKER_KEY, itemOf(1, Delivery.EVENT, digestOf(1))), 0);
        expectStored(1, bytes32(word));
    }

    function test_post_secondDigestChangesNothing() public {
        submit(asking(Delivery.STORED));
        settle(1, Delivery.STORED);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.ALREADY_SETTLED);
        vm.assertEq(post(WORKER_KEY, itemOf(1, Delivery.STORED, keccak256("another"))), 0);
        expectStored(1, digestOf(1));
    }

    function test_post_firstDigestInAGroupCounts() public {
        submit(asking(Delivery.STORED));
        bytes memory items =
            bytes.concat(itemOf(1, Delivery.STORED, digestOf(1)), itemOf(1, Delivery.STORED, keccak256("another")));
        vm.assertEq(post(WORKER_KEY, items), 1);
        expectStored(1, digestOf(1));
    }

    function test_post_storedSkipsLikeOthers() public {
        submit(asking(Delivery.STORED));
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.COMMITMENT_MISMATCH);
        vm.assertEq(post(WORKER_KEY, itemOf(1, Delivery.EVENT, digestOf(1))), 0);
        expectNone(1);
        bytes memory items = itemOf(1, Delivery.STORED, digestOf(1));
        vm.warp(START + 601);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.ResultSkipped(1, SkipReason.EXPIRED);
        vm.assertEq(post(WORKER_KEY, items), 0);
        expectNone(1);
    }

    function testFuzz_resultOf_anyDigest(bytes32 digest, uint64 id) public {
        id = uint64(bound(id, 1, MAX_ID));
        startAt(id);
        submit(asking(Delivery.STORED));
        post(WORKER_KEY, itemOf(id, Delivery.STORED, digest));
        expectStored(id, digest);
        expectSettledForGood(id);
    }

    /// @dev For each place in a word: one of them is the very bit by which a delivery STORED differs from EVENT. Of four
    /// words in a row the first is cleared, so every place is tried with a word that is left, too.
    function test_post_settledBitIsNotTakenForADelivery() public {
        startAt(256);
        bytes memory items;
        for (uint256 id = 256; id < 512; ++id) {
            submit(asking(Delivery.EVENT));
            items = bytes.concat(items, itemOf(id, Delivery.EVENT, digestOf(id)));
        }
        uint256 before = vm.snapshotState();
        for (uint256 first; first < 4; ++first) {
            vm.revertToState(before);
            expectSettledOnce(items, first);
        }
    }

    /// @param first how many items go in a group before the others
    function expectSettledOnce(bytes memory items, uint256 first) private {
        bytes memory head = new bytes(60 * first);
        bytes memory tail = new bytes(items.length - head.length);
        for (uint256 i; i < items.length; ++i) {
            if (i < head.length) head[i] = items[i];
            else tail[i - head.length] = items[i];
        }
        if (first != 0) post(WORKER_KEY, head);
        vm.assertEq(post(WORKER_KEY, tail), 256 - first);
        uint256 creditWei = requests.credits(owner);
        vm.assertEq(post(WORKER_KEY, items), 0);
        vm.assertEq(requests.credits(owner), creditWei);
        for (uint256 id = 256; id < 512; ++id) {
            expectNone(id);
        }
    }

    /// @dev Any mixture of deliveries in one group: each gets its own, and nobody another's.
    function testFuzz_post_mixedDeliveries(uint256 seed, uint256 count) public {
        count = bound(count, 1, 40);
        startAt(240);
        bytes memory items;
        for (uint256 i; i < count; ++i) {
            Delivery delivery = drawn(seed, i);
            uint256 id = submit(asking(delivery));
            items = bytes.concat(items, itemOf(id, delivery, digestOf(id)));
        }
        vm.assertEq(post(WORKER_KEY, items), count);
        vm.assertEq(requests.credits(owner), count * FEE * 9 / 10);
        vm.assertEq(requests.credits(poster), count * FEE / 10);
        for (uint256 i; i < count; ++i) {
            Delivery delivery = drawn(seed, i);
            uint256 id = 240 + i;
            if (delivery == Delivery.STORED) expectStored(id, digestOf(id));
            else expectNone(id);
            vm.assertEq(
                requests.owesCallback(id, commitmentFor(id, requester, asking(delivery)), digestOf(id)),
                delivery == Delivery.CALLBACK
            );
            vm.assertTrue(isSettled(id));
            vm.assertEq(requests.recordOf(id).feeGwei, 0);
        }
        expectNone(239);
        expectNone(240 + count);
    }

    // helpers

    function drawn(uint256 seed, uint256 i) private pure returns (Delivery) {
        return Delivery(uint256(keccak256(abi.encode(seed, i))) % 3);
    }

    function asking(Delivery delivery) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.delivery = delivery;
        if (delivery == Delivery.CALLBACK) p.callbackGasLimit = 100_000;
    }

    function itemOf(uint256 id, Delivery delivery, bytes32 digest) private view returns (bytes memory) {
        return item(id, commitmentFor(id, requester, asking(delivery)), digest);
    }

    function settle(uint256 id, Delivery delivery) private returns (uint256) {
        return post(WORKER_KEY, itemOf(id, delivery, digestOf(id)));
    }

    function expectStored(uint256 id, bytes32 digest) private view {
        (bool found, bytes32 stored) = requests.resultOf(id);
        vm.assertTrue(found);
        vm.assertEq(stored, digest);
    }

    function expectNone(uint256 id) private view {
        (bool found, bytes32 stored) = requests.resultOf(id);
        vm.assertFalse(found);
        vm.assertEq(stored, bytes32(0));
    }

    /// @dev Neither raised nor cancelled nor refunded, whatever the word says.
    function expectSettledForGood(uint256 id) private {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotPending.selector, id));
        requests.raiseFee{value: 1 gwei}(id);
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotPending.selector, id));
        requests.requestCancel(id, hashOf(asking(Delivery.STORED)));
        vm.warp(START + 601);
        vm.expectEmit(address(requests));
        emit IInferenceRequests.RefundSkipped(id, SkipReason.ALREADY_SETTLED);
        vm.assertEq(requests.refund(claim(id, asking(Delivery.STORED))), 0);
        vm.warp(START);
        vm.assertEq(requests.recordOf(id).feeGwei, 0);
    }
}
