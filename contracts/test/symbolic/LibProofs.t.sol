// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, RequestRecord} from "../../src/interfaces/IInferenceRequests.sol";
import {Bitmap} from "../../src/lib/Bitmap.sol";
import {DecisionProof} from "../../src/lib/DecisionProof.sol";
import {Items} from "../../src/lib/Items.sol";
import {RequestWord, RequestWordLib} from "../../src/lib/RequestWord.sol";
import {Test} from "../base/Test.sol";

/// @notice For all arguments, not for drawn ones: `make prove` runs what begins with `check_`, forge does not.
contract LibProofs is Test {
    // Bitmap

    function check_bitmap_everyIdHasItsBit(uint256 left, uint256 right) public pure {
        bool same = Bitmap.indexOf(left) == Bitmap.indexOf(right) && Bitmap.maskOf(left) == Bitmap.maskOf(right);
        vm.assertEq(same, left == right);
    }

    function check_bitmap_maskHasOneBit(uint256 id) public pure {
        uint256 mask = Bitmap.maskOf(id);
        vm.assertTrue(mask != 0);
        vm.assertEq(mask & (mask - 1), 0);
    }

    function check_bitmap_noIdHasNoIndex(uint256 id) public pure {
        vm.assertTrue(Bitmap.indexOf(id) != Bitmap.NO_INDEX);
    }

    // RequestWord

    /// @dev All fields at once: two that overlapped could not both come back.
    function check_requestWord_roundTrip(
        uint48 feeGwei,
        uint40 deadline,
        bytes20 commitment,
        Delivery delivery,
        uint8 quorum,
        bool batchable
    ) public pure {
        vm.assume(quorum <= RequestWordLib.MAX_QUORUM);
        RequestWord word = RequestWordLib.pack(feeGwei, deadline, commitment, delivery, quorum, batchable);
        RequestRecord memory record = word.unpack();
        vm.assertEq(record.feeGwei, feeGwei);
        vm.assertEq(record.deadline, deadline);
        vm.assertEq(bytes32(record.commitment), bytes32(commitment));
        vm.assertEq(uint256(record.delivery), uint256(delivery));
        vm.assertEq(record.quorum, quorum);
        vm.assertEq(record.batchable, batchable);
        vm.assertFalse(record.underTerms);
        vm.assertTrue(word.withTerms().unpack().underTerms);
    }

    /// @dev And back: no bit of a word belongs to no field.
    function check_requestWord_everyBitHasItsField(uint256 raw) public pure {
        RequestRecord memory record = wordOf(raw).unpack();
        RequestWord word = RequestWordLib.pack(
            record.feeGwei, record.deadline, record.commitment, record.delivery, record.quorum, record.batchable
        );
        if (record.underTerms) word = word.withTerms();
        vm.assertEq(RequestWord.unwrap(word), raw);
    }

    function check_requestWord_changesOneField(uint256 raw, uint48 feeGwei, uint40 deadline) public pure {
        RequestWord word = RequestWord.wrap(raw);
        RequestWord withFee = word.withFee(feeGwei);
        vm.assertEq(withFee.feeGwei(), feeGwei);
        vm.assertEq(RequestWord.unwrap(withFee.withFee(word.feeGwei())), raw);
        RequestWord withDeadline = word.withDeadline(deadline);
        vm.assertEq(withDeadline.deadline(), deadline);
        vm.assertEq(RequestWord.unwrap(withDeadline.withDeadline(word.deadline())), raw);
        RequestWord withTerms = word.withTerms();
        vm.assertTrue(withTerms.isUnderTerms());
        vm.assertEq(RequestWord.unwrap(withTerms) << 1, raw << 1);
    }

    /// @dev What `Settling._settleItems` compares in one go, against the fields one by one.
    function check_requestWord_plainMask(uint256 raw, bytes20 commitment) public pure {
        RequestWord word = wordOf(raw);
        uint256 expected = uint256(uint160(commitment)) << 88;
        uint256 misfit = (raw ^ expected ^ RequestWordLib.QUORUM_OF_ONE) & RequestWordLib.PLAIN_MASK;
        bool fits = word.commitment() == commitment && word.quorum() == 1 && !word.isUnderTerms();
        vm.assertEq(misfit == 0, fits && word.delivery() == Delivery.EVENT);
        vm.assertEq(misfit == RequestWordLib.STORED, fits && word.delivery() == Delivery.STORED);
    }

    // Items

    function check_items_areWhole(uint32 length) public pure {
        bytes calldata items;
        // Only the length is looked at.
        assembly ("memory-safe") {
            items.offset := 0
            items.length := length
        }
        vm.assertEq(Items.areWhole(items), length != 0 && length % Items.BYTES == 0);
    }

    function itemAt(bytes calldata items, uint256 index) external pure returns (uint256, bytes20, bytes32) {
        return Items.itemAt(items, index);
    }

    function check_items_itemAt(uint64[3] calldata ids, bytes20[3] calldata commitments, bytes32[3] calldata digests)
        public
        view
    {
        bytes memory items;
        for (uint256 i; i < 3; ++i) {
            items = bytes.concat(items, abi.encodePacked(ids[i], commitments[i], digests[i]));
        }
        for (uint256 i; i < 3; ++i) {
            (uint256 id, bytes20 commitment, bytes32 digest) = this.itemAt(items, i);
            vm.assertEq(id, ids[i]);
            vm.assertEq(bytes32(commitment), bytes32(commitments[i]));
            vm.assertEq(digest, digests[i]);
        }
    }

    // DecisionProof, with a hash that nobody finds collisions of

    function check_decisionProof_everyLeaf(bytes32 one, bytes32 two, bytes32 three) public pure {
        bytes32 pair = nodeOf(one, two);
        bytes32 root = nodeOf(pair, three);
        vm.assertTrue(DecisionProof.verify(root, one, proofOf(two, three)));
        vm.assertTrue(DecisionProof.verify(root, two, proofOf(one, three)));
        bytes32[] memory proof = new bytes32[](1);
        proof[0] = pair;
        vm.assertTrue(DecisionProof.verify(root, three, proof));
    }

    function check_decisionProof_noOther(bytes32 one, bytes32 two, bytes32 leaf, bytes32 sibling) public pure {
        bytes32[] memory proof = new bytes32[](1);
        proof[0] = sibling;
        bool known = (leaf == one && sibling == two) || (leaf == two && sibling == one);
        vm.assertEq(DecisionProof.verify(nodeOf(one, two), leaf, proof), known);
    }

    function nodeOf(bytes32 left, bytes32 right) private pure returns (bytes32) {
        return keccak256(left < right ? abi.encode(left, right) : abi.encode(right, left));
    }

    function proofOf(bytes32 first, bytes32 second) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](2);
        proof[0] = first;
        proof[1] = second;
    }

    /// @dev Deliveries are 0 to 2; the packing never makes a 3.
    function wordOf(uint256 raw) private pure returns (RequestWord) {
        vm.assume(raw >> 248 & 3 != 3);
        return RequestWord.wrap(raw);
    }
}
