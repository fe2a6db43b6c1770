// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, InputKind, RequestParams, RequestRecord} from "../src/interfaces/IInferenceRequests.sol";
import {CompactSignature} from "../src/interfaces/IInferenceResults.sol";
import {Bitmap} from "../src/lib/Bitmap.sol";
import {DecisionProof} from "../src/lib/DecisionProof.sol";
import {Items} from "../src/lib/Items.sol";
import {RequestHash} from "../src/lib/RequestHash.sol";
import {RequestWord, RequestWordLib} from "../src/lib/RequestWord.sol";
import {Signature} from "../src/lib/Signature.sol";
import {Test} from "./base/Test.sol";

contract LibTest is Test {
    // RequestWord

    function testFuzz_requestWord_roundTrip(
        uint48 feeGwei,
        uint40 deadline,
        bytes20 commitment,
        uint8 quorum,
        bool batchable
    ) public pure {
        quorum = uint8(bound(quorum, 0, 15));
        for (uint256 delivery; delivery < 3; ++delivery) {
            RequestWord word = RequestWordLib.pack(feeGwei, deadline, commitment, Delivery(delivery), quorum, batchable);
            expectFields(word, feeGwei, deadline, commitment);
            RequestRecord memory record = word.unpack();
            vm.assertEq(uint256(record.delivery), delivery);
            vm.assertEq(record.quorum, quorum);
            vm.assertEq(record.batchable, batchable);
            vm.assertEq(RequestWord.unwrap(word) >> 255, 0);
            vm.assertEq(word.quorum(), quorum);
            vm.assertEq(uint256(word.delivery()), delivery);
            vm.assertFalse(word.isUnderTerms());
            vm.assertFalse(record.underTerms);
        }
    }

    function testFuzz_requestWord_withTerms(uint256 raw) public pure {
        raw &= ~(uint256(1) << 249);
        RequestWord word = RequestWord.wrap(raw).withTerms();
        vm.assertEq(RequestWord.unwrap(word), raw | 1 << 255);
        vm.assertTrue(word.isUnderTerms());
        vm.assertTrue(word.unpack().underTerms);
        vm.assertEq(RequestWord.wrap(raw).isUnderTerms(), raw >> 255 == 1);
    }

    /// @dev What the plain way of settling compares: just these bits, and just this value besides the commitment.
    function test_requestWord_plainMask() public pure {
        uint256 commitment = uint256(type(uint160).max) << 88;
        vm.assertEq(RequestWordLib.PLAIN_MASK, commitment | uint256(3) << 248 | uint256(15) << 250 | 1 << 255);
        RequestWord word = RequestWordLib.pack(1, 2, bytes20(uint160(type(uint160).max)), Delivery.EVENT, 1, true);
        vm.assertEq(RequestWord.unwrap(word) & RequestWordLib.PLAIN_MASK, commitment | RequestWordLib.QUORUM_OF_ONE);
    }

    function testFuzz_requestWord_changesOneField(uint256 raw, uint48 feeGwei, uint40 deadline) public pure {
        // Deliveries are 0 to 2; the packing never makes a 3.
        raw &= ~(uint256(1) << 249);
        RequestWord word = RequestWord.wrap(raw);
        RequestWord withFee = word.withFee(feeGwei);
        expectFields(withFee, feeGwei, word.deadline(), word.commitment());
        vm.assertEq(RequestWord.unwrap(withFee) >> 48, raw >> 48);
        RequestWord withDeadline = word.withDeadline(deadline);
        expectFields(withDeadline, word.feeGwei(), deadline, word.commitment());
        vm.assertEq(RequestWord.unwrap(withDeadline) >> 88, raw >> 88);
    }

    function testFuzz_requestWord_isZero(uint256 raw) public pure {
        vm.assertEq(RequestWord.wrap(raw).isZero(), raw == 0);
        vm.assertTrue(RequestWord.wrap(0).isZero());
    }

    // Bitmap

    function testFuzz_bitmap_everyIdHasItsBit(uint64 left, uint64 right) public pure {
        bool same = Bitmap.indexOf(left) == Bitmap.indexOf(right) && Bitmap.maskOf(left) == Bitmap.maskOf(right);
        vm.assertEq(same, left == right);
        vm.assertTrue(Bitmap.indexOf(left) != Bitmap.NO_INDEX);
    }

    function test_bitmap_edge() public pure {
        vm.assertEq(Bitmap.indexOf(255), 0);
        vm.assertEq(Bitmap.maskOf(255), 1 << 255);
        vm.assertEq(Bitmap.indexOf(256), 1);
        vm.assertEq(Bitmap.maskOf(256), 1);
    }

    // Items

    function itemAt(bytes calldata items, uint256 index) external pure returns (uint256, bytes20, bytes32) {
        return Items.itemAt(items, index);
    }

    function areWhole(bytes calldata items) external pure returns (bool) {
        return Items.areWhole(items);
    }

    function testFuzz_items_itemAt(uint256 seed, uint256 count, uint256 index) public view {
        count = bound(count, 1, 20);
        index = bound(index, 0, count - 1);
        bytes memory items;
        for (uint256 i; i < count; ++i) {
            (uint64 id, bytes20 commitment, bytes32 digest) = drawn(seed, i);
            items = bytes.concat(items, abi.encodePacked(id, commitment, digest));
        }
        (uint64 expectedId, bytes20 expectedCommitment, bytes32 expectedDigest) = drawn(seed, index);
        (uint256 foundId, bytes20 foundCommitment, bytes32 foundDigest) = this.itemAt(items, index);
        vm.assertEq(foundId, expectedId);
        vm.assertEq(bytes32(foundCommitment), bytes32(expectedCommitment));
        vm.assertEq(foundDigest, expectedDigest);
    }

    function testFuzz_RevertWhen_items_noSuchItem(uint256 length, uint256 index) public {
        length = bound(length, 0, 600);
        index = bound(index, length / 60, type(uint256).max);
        vm.expectRevert();
        this.itemAt(new bytes(length), index);
    }

    function testFuzz_items_areWhole(uint256 length) public view {
        length = bound(length, 0, 700);
        vm.assertEq(this.areWhole(new bytes(length)), length != 0 && length % 60 == 0);
    }

    function test_items_areWholeEdges() public view {
        vm.assertFalse(this.areWhole(""));
        vm.assertFalse(this.areWhole(new bytes(1)));
        vm.assertFalse(this.areWhole(new bytes(59)));
        vm.assertTrue(this.areWhole(new bytes(60)));
        vm.assertFalse(this.areWhole(new bytes(61)));
        vm.assertTrue(this.areWhole(new bytes(120)));
    }

    function drawn(uint256 seed, uint256 i) private pure returns (uint64, bytes20, bytes32) {
        bytes32 digest = keccak256(abi.encode(seed, i));
        return (uint64(uint256(digest) >> 8), bytes20(keccak256(abi.encode(digest))), digest);
    }

    // RequestHash

    function hashParams(RequestParams calldata p) external pure returns (bytes32) {
        // Dirt where the hashed words go.
        assembly ("memory-safe") {
            let m := mload(0x40)
            for { let i := 0 } lt(i, 0x400) { i := add(i, 0x20) } { mstore(add(m, i), not(0)) }
        }
        return RequestHash.hashParams(p);
    }

    function packLimits(RequestParams calldata p) external pure returns (uint256) {
        return RequestHash.packLimits(p);
    }

    function testFuzz_requestHash_hashParams(
        bytes32 modelId,
        uint32[3] calldata limits,
        uint40 deadline,
        uint8[3] calldata small,
        bool batchable,
        bytes calldata input
    ) public view {
        RequestParams memory p = RequestParams({
            modelId: modelId,
            maxTokens: limits[0],
            deadline: deadline,
            memoryMb: limits[1],
            callbackGasLimit: limits[2],
            quorum: small[0],
            batchable: batchable,
            delivery: Delivery(small[1] % 3),
            inputKind: InputKind(small[2] % 2),
            input: input
        });
        bytes memory head = abi.encode(p.modelId, p.maxTokens, p.deadline, p.memoryMb, p.callbackGasLimit);
        bytes memory tail = abi.encode(p.quorum, p.batchable, p.delivery, p.inputKind, keccak256(input));
        vm.assertEq(this.hashParams(p), keccak256(bytes.concat(head, tail)));
        vm.assertEq(
            this.packLimits(p),
            uint256(limits[0]) | uint256(limits[1]) << 32 | uint256(limits[2]) << 64 | uint256(small[2] % 2) << 96
        );
    }

    function testFuzz_requestHash_commit(address target, uint256 id, address requester, bytes32 paramsHash)
        public
        view
    {
        bytes32 whole = keccak256(abi.encode(block.chainid, target, id, requester, paramsHash));
        vm.assertEq(
            bytes32(RequestHash.commit(block.chainid, target, id, requester, paramsHash)), bytes32(bytes20(whole))
        );
    }

    function testFuzz_requestHash_callbackKey(bytes20 commitment, bytes32 digest) public pure {
        bytes32 key = RequestHash.callbackKey(commitment, digest);
        vm.assertEq(key, keccak256(abi.encode(commitment, digest)));
        vm.assertTrue(key != RequestHash.callbackKey(commitment, ~digest));
        vm.assertTrue(key != RequestHash.callbackKey(~commitment, digest));
    }

    // DecisionProof

    function test_decisionProof_leafIsHashedTwice() public pure {
        vm.assertEq(DecisionProof.leafOf("decision"), keccak256(abi.encodePacked(keccak256("decision"))));
        vm.assertEq(DecisionProof.leafOf(""), keccak256(abi.encodePacked(keccak256(""))));
    }

    function test_decisionProof_singleLeafIsTheRoot() public pure {
        bytes32 leaf = DecisionProof.leafOf("only");
        vm.assertTrue(DecisionProof.verify(leaf, leaf, new bytes32[](0)));
        vm.assertFalse(DecisionProof.verify(leaf, DecisionProof.leafOf("other"), new bytes32[](0)));
        bytes32[] memory proof = new bytes32[](1);
        vm.assertFalse(DecisionProof.verify(leaf, leaf, proof));
    }

    function test_decisionProof_twoLeavesInEitherOrder() public pure {
        bytes32 one = bytes32(uint256(1));
        bytes32 two = bytes32(uint256(2));
        bytes32 root = keccak256(abi.encodePacked(one, two));
        bytes32[] memory proof = new bytes32[](1);
        proof[0] = two;
        vm.assertTrue(DecisionProof.verify(root, one, proof));
        proof[0] = one;
        vm.assertTrue(DecisionProof.verify(root, two, proof));
        vm.assertFalse(DecisionProof.verify(keccak256(abi.encodePacked(two, one)), two, proof));
    }

    /// @dev Every leaf of trees of 1 to 33 leaves, odd counts among them, against a root computed here.
    function testFuzz_decisionProof_everyLeaf(uint256 seed, uint256 count, uint256 index) public pure {
        count = bound(count, 1, 33);
        index = bound(index, 0, count - 1);
        bytes32[] memory leaves = leavesOf(seed, count);
        (bytes32 root, bytes32[] memory proof) = rootAndProof(leaves, index);
        vm.assertTrue(DecisionProof.verify(root, leaves[index], proof));
        vm.assertFalse(DecisionProof.verify(root, DecisionProof.leafOf(abi.encode(seed, count)), proof));
        vm.assertFalse(DecisionProof.verify(~root, leaves[index], proof));
        if (proof.length == 0) return;
        proof[seed % proof.length] ^= bytes32(uint256(1) << (seed % 256));
        vm.assertFalse(DecisionProof.verify(root, leaves[index], proof));
    }

    function test_decisionProof_oddCounts() public pure {
        for (uint256 count = 1; count <= 17; count += 2) {
            for (uint256 index; index < count; ++index) {
                bytes32[] memory leaves = leavesOf(count, count);
                (bytes32 root, bytes32[] memory proof) = rootAndProof(leaves, index);
                vm.assertTrue(DecisionProof.verify(root, leaves[index], proof));
            }
        }
    }

    /// @dev What `scheduler.audit` computes of the encodings 0x00 to 0x04.
    function test_decisionProof_asTheScheduler() public pure {
        bytes32 root = 0x588bba5775a48dabe4bdf2c47210eb25eb5b73c8958fe9575950576380109317;
        bytes32[] memory proof = new bytes32[](3);
        proof[0] = 0x8811aabf7829558eff4f8a1f53650e8f23cad0b42f3fd2fd4db4fe83fc8c63a9;
        proof[1] = 0x6b34044be53a41b608fc3ef2092b956e6153f84256885e22c5ba58b7c7877582;
        proof[2] = 0xd0555453bba9ca5ab80f541730ee9e8dadf24bb50587cdfcfb5ebd5508fac14b;
        vm.assertTrue(DecisionProof.verify(root, DecisionProof.leafOf(hex"03"), proof));
        // The one without a sibling on two levels.
        proof = new bytes32[](1);
        proof[0] = 0x69c59d9cab9c1e0d2e54bbc528f8146dac6e2fa4e8929856f4b69361f9b56b27;
        vm.assertTrue(DecisionProof.verify(root, DecisionProof.leafOf(hex"01"), proof));
    }

    function test_decisionProof_innerNodeIsNoDecision() public pure {
        // The second preimage: an inner node, given out as a leaf, is under the root, but it is the leaf of nothing.
        bytes32[] memory leaves = leavesOf(7, 4);
        (bytes32 root, bytes32[] memory proof) = rootAndProof(leaves, 0);
        bytes32[] memory shorter = new bytes32[](1);
        shorter[0] = proof[1];
        (bytes32 low, bytes32 high) = leaves[0] < leaves[1] ? (leaves[0], leaves[1]) : (leaves[1], leaves[0]);
        bytes memory encoding = abi.encodePacked(low, high);
        vm.assertTrue(DecisionProof.verify(root, keccak256(encoding), shorter));
        vm.assertFalse(DecisionProof.verify(root, DecisionProof.leafOf(encoding), shorter));
        vm.assertFalse(DecisionProof.verify(root, DecisionProof.leafOf(abi.encodePacked(keccak256(encoding))), shorter));
    }

    function leavesOf(uint256 seed, uint256 count) private pure returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            leaves[i] = DecisionProof.leafOf(abi.encode("decision", seed, i));
        }
    }

    /// @dev Written out once more: pairs sorted, and a node without sibling goes up as it is.
    function rootAndProof(bytes32[] memory leaves, uint256 index)
        private
        pure
        returns (bytes32 root, bytes32[] memory proof)
    {
        bytes32[] memory level = leaves;
        while (level.length > 1) {
            uint256 sibling = index ^ 1;
            if (sibling < level.length) proof = append(proof, level[sibling]);
            bytes32[] memory above = new bytes32[]((level.length + 1) / 2);
            for (uint256 i; i < above.length; ++i) {
                bytes32 left = level[2 * i];
                if (2 * i + 1 == level.length) {
                    above[i] = left;
                    continue;
                }
                bytes32 right = level[2 * i + 1];
                above[i] = keccak256(left < right ? abi.encodePacked(left, right) : abi.encodePacked(right, left));
            }
            level = above;
            index /= 2;
        }
        root = level[0];
    }

    function append(bytes32[] memory list, bytes32 one) private pure returns (bytes32[] memory longer) {
        longer = new bytes32[](list.length + 1);
        for (uint256 i; i < list.length; ++i) {
            longer[i] = list[i];
        }
        longer[list.length] = one;
    }

    // Signature

    function recover(bytes32 digest, CompactSignature calldata signature) external view returns (address) {
        // Dirt where the precompile's answer goes must not be taken for one.
        assembly {
            mstore(0x00, not(0))
        }
        return Signature.recover(digest, signature);
    }

    function testFuzz_signature_recoversTheSigner(uint256 key, bytes32 digest) public view {
        key = bound(key, 1, SECP256K1_N - 1);
        (bytes32 r, bytes32 vs) = vm.signCompact(key, digest);
        vm.assertEq(this.recover(digest, CompactSignature(r, vs)), vm.addr(key));
    }

    function testFuzz_signature_asThePrecompile(bytes32 digest, bytes32 r, bytes32 vs) public view {
        uint256 s = uint256(vs) << 1 >> 1;
        address expected =
            s > SECP256K1_N / 2 ? address(0) : ecrecover(digest, uint8(27 + (uint256(vs) >> 255)), r, bytes32(s));
        vm.assertEq(this.recover(digest, CompactSignature(r, vs)), expected);
    }

    function test_signature_halfOrderIsTheLimit() public view {
        (bytes32 r,) = vm.signCompact(1, keccak256("digest"));
        bytes32 largest = bytes32(SECP256K1_N / 2);
        vm.assertTrue(this.recover("", CompactSignature(r, largest)) != address(0));
        vm.assertEq(this.recover("", CompactSignature(r, bytes32(uint256(largest) + 1))), address(0));
        vm.assertEq(this.recover("", CompactSignature(r, bytes32(type(uint256).max))), address(0));
    }

    function test_signature_invalidIsZero() public view {
        vm.assertEq(this.recover("", CompactSignature(0, 0)), address(0));
        vm.assertEq(this.recover("", CompactSignature(bytes32(SECP256K1_N), bytes32(uint256(1)))), address(0));
    }

    function expectFields(RequestWord word, uint256 feeGwei, uint256 deadline, bytes20 commitment) private pure {
        vm.assertEq(word.feeGwei(), feeGwei);
        vm.assertEq(word.deadline(), deadline);
        vm.assertEq(bytes32(word.commitment()), bytes32(commitment));
        RequestRecord memory record = word.unpack();
        vm.assertEq(record.feeGwei, feeGwei);
        vm.assertEq(record.deadline, deadline);
        vm.assertEq(bytes32(record.commitment), bytes32(commitment));
    }
}
