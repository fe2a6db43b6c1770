// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, RequestParams} from "../../src/interfaces/IInferenceRequests.sol";
import {CompactSignature, ProvenGroup, ResultGroup} from "../../src/interfaces/IInferenceResults.sol";
import {ModelTerms} from "../../src/interfaces/IModelTerms.sol";
import {Fixture} from "../base/Fixture.sol";
import {AnyConsumer} from "./AnyConsumer.sol";

/// @notice The same results in two ways: one after the other, and in any groups, in any order, some of them twice, with
/// nonsense in between. It must come to the same, to the wei.
contract SplitsTest is Fixture {
    uint256 private constant COUNT = 18;
    /// @dev The ids are in two words of bits.
    uint256 private constant FIRST_ID = 246;
    bytes32 private constant WINDOW_MODEL = keccak256("disputable");

    /// @dev One result: signed by `quorum` workers in a row from the `from`th.
    struct Result {
        bytes item;
        uint256 quorum;
        uint256 from;
        bool disputable;
    }

    AnyConsumer private consumer;
    uint256[] private keys;
    bytes20[] private commitments;
    Result[] private all;

    function setUp() public override {
        super.setUp();
        deploy(POSTER_BPS + 1);
        startAt(FIRST_ID);
        consumer = new AnyConsumer();
        keys = activateMany(4);
        ModelTerms memory terms = noTerms();
        terms.modelId = WINDOW_MODEL;
        terms.disputeWindow = 1 hours;
        terms.bondGwei = 1e9;
        setTerms(terms);
        for (uint256 i; i < COUNT; ++i) {
            request(FIRST_ID + i);
        }
    }

    function testFuzz_post_anySplitPermutationAndOverlap(uint256 seed) public {
        uint256 snapshot = vm.snapshotState();
        for (uint256 i; i < COUNT; ++i) {
            Result[] memory one = new Result[](1);
            one[0] = all[i];
            vm.assertEq(all[i].disputable ? post(provenGroupOf(one)) : post(groups(groupOf(one))), 1);
        }
        bytes32[] memory expected = outcome();
        vm.assertTrue(vm.revertToState(snapshot));

        uint256 settled = postSomehow(seed);
        vm.assertEq(settled, COUNT, "settled");
        bytes32[] memory found = outcome();
        for (uint256 i; i < expected.length; ++i) {
            vm.assertEq(found[i], expected[i], "outcome");
        }
    }

    /// @dev Every second time, the rest of a group is left out and comes later.
    function postSomehow(uint256 seed) private returns (uint256 settled) {
        uint256 left = (1 << COUNT) - 1;
        uint256 missing = left;
        while (missing != 0) {
            seed = uint256(keccak256(abi.encode(seed)));
            if (left == 0) left = missing;
            uint256 first = (seed >> 8) % COUNT;
            while (left >> first & 1 == 0) {
                first = (first + 1) % COUNT;
            }
            (Result[] memory list, uint256 taken) = together(seed, first);
            bool alone = seed >> 32 & 1 == 0;
            if (alone || list[0].disputable) {
                settled += seed >> 33 & 1 == 0 || list[0].disputable
                    ? post(provenGroupOf(list))
                    : post(groups(groupOf(list)));
            } else {
                settled += post(withOthers(seed, list));
            }
            left &= ~taken;
            missing &= ~taken;
        }
        // All of them again, in one go: nothing.
        vm.assertEq(post(everythingPlain()), 0, "settled again");
    }

    /// @dev Some of the results that the same workers signed, `first` among them, in any order. Whether they have been posted
    /// before does not matter.
    function together(uint256 seed, uint256 first) private view returns (Result[] memory list, uint256 taken) {
        list = new Result[](COUNT);
        uint256 count;
        uint256 start = seed >> 40;
        for (uint256 k; k < COUNT; ++k) {
            uint256 i = seed >> 48 & 1 == 0 ? (start + k) % COUNT : (start + COUNT - k) % COUNT;
            bool same = all[i].quorum == all[first].quorum && all[i].from == all[first].from
                && all[i].disputable == all[first].disputable;
            if (i != first && (!same || seed >> (64 + i) & 1 == 0)) continue;
            list[count++] = all[i];
            taken |= 1 << i;
        }
        assembly ("memory-safe") {
            mstore(list, count)
        }
    }

    /// @dev The group in one post with nonsense, with itself, and with a part of itself.
    function withOthers(uint256 seed, Result[] memory list) private view returns (ResultGroup[] memory out) {
        Result[] memory part = new Result[](1);
        part[0] = list[list.length - 1];
        out = new ResultGroup[](5);
        out[0] = group(WORKER_KEY, part[0].item);
        out[1] = groupOf(seed >> 56 & 1 == 0 ? list : part);
        out[2] = group(keys[0], bytes.concat(item(1, 0), item(FIRST_ID + COUNT, 0)));
        out[3] = groupOf(list);
        out[4] = groupOf(part);
        out[4].items = bytes.concat(out[4].items, hex"00");
    }

    function everythingPlain() private view returns (ResultGroup[] memory out) {
        out = new ResultGroup[](COUNT);
        for (uint256 i; i < COUNT; ++i) {
            Result[] memory one = new Result[](1);
            one[0] = all[COUNT - 1 - i];
            out[i] = groupOf(one);
        }
    }

    /// @dev All that anybody can see of it.
    function outcome() private view returns (bytes32[] memory out) {
        out = new bytes32[](COUNT + 3);
        for (uint256 i; i < COUNT; ++i) {
            uint256 id = FIRST_ID + i;
            (bool found, bytes32 digest) = requests.resultOf(id);
            out[i] = keccak256(
                abi.encode(
                    requests.statusOf(id),
                    requests.recordOf(id),
                    found,
                    digest,
                    requests.owesCallback(id, commitments[i], digestOf(id)),
                    disputes.statusOf(id)
                )
            );
        }
        out[COUNT] = keccak256(abi.encode(requests.settledWord(0), requests.settledWord(1)));
        bytes memory credits = abi.encode(requests.credits(poster), requests.credits(address(disputes)));
        for (uint256 i; i < keys.length; ++i) {
            credits = bytes.concat(credits, abi.encode(requests.credits(ownerOf(keys[i]))));
        }
        out[COUNT + 1] = keccak256(credits);
        out[COUNT + 2] = bytes32(address(requests).balance);
    }

    /// @dev One request of each kind after the other, with fees that hardly divide.
    function request(uint256 id) private {
        RequestParams memory p = params();
        p.quorum = uint8(1 + id % 3);
        bool disputable = id % 5 == 0;
        if (disputable) p.modelId = WINDOW_MODEL;
        p.delivery = [Delivery.EVENT, Delivery.STORED, Delivery.CALLBACK, Delivery.EVENT][id & 3];
        address from = requester;
        if (p.delivery == Delivery.CALLBACK) {
            p.callbackGasLimit = 100_000;
            from = address(consumer);
        }
        vm.deal(from, 1 ether);
        vm.prank(from);
        vm.assertEq(requests.submit{value: (1e6 + id * 7) * 1 gwei}(p), id);
        commitments.push(commitmentFor(id, from, p));
        all.push(
            Result({
                item: item(id, commitments[commitments.length - 1]),
                quorum: p.quorum,
                from: id % (5 - p.quorum),
                disputable: disputable
            })
        );
    }

    function groupOf(Result[] memory list) private view returns (ResultGroup memory) {
        return group(signersOf(list[0]), itemsOf(list));
    }

    function provenGroupOf(Result[] memory list) private view returns (ProvenGroup[] memory out) {
        out = new ProvenGroup[](1);
        out[0] = provenGroup(signersOf(list[0]), itemsOf(list), new bytes[](list.length));
    }

    function post(ProvenGroup[] memory list) private returns (uint256) {
        vm.prank(poster);
        return results.postProven(list, 0);
    }

    function itemsOf(Result[] memory list) private pure returns (bytes memory items) {
        for (uint256 i; i < list.length; ++i) {
            items = bytes.concat(items, list[i].item);
        }
    }

    /// @dev The keys are in the order of their addresses.
    function signersOf(Result memory result) private view returns (uint256[] memory signers) {
        signers = new uint256[](result.quorum);
        for (uint256 i; i < signers.length; ++i) {
            signers[i] = keys[result.from + i];
        }
    }
}

/// @notice What a batch of plain results costs, whole transactions: at most a constant and a part for each result.
/// @dev Isolated: each outer call is a transaction of its own.
/// forge-config: default.isolate = true
contract BatchGasTest is Fixture {
    uint256 private constant BASE_GAS = 65_000;
    uint256 private constant RESULT_GAS = 4_800;
    uint256 private constant MOST = 200;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        submitMany(MOST + 100);
        // A credit for the owner and for the poster, and a bit in the first word.
        post(WORKER_KEY, item(1));
    }

    /// forge-config: default.fuzz.runs = 64
    function testFuzz_gas_batchIsLinear(uint256 count, uint256 firstId) public {
        count = bound(count, 1, MOST);
        firstId = bound(firstId, 2, 100);
        ResultGroup[] memory list = groups(group(WORKER_KEY, itemsFrom(firstId, count)));
        vm.prank(poster);
        vm.assertEq(results.post(list, keccak256("decisions")), count);
        uint256 used = vm.lastCallGas().gasTotalUsed;
        vm.assertTrue(used > 42_000, "measures nothing");
        vm.assertLe(used, BASE_GAS + RESULT_GAS * count, "gas of a batch");
    }
}
