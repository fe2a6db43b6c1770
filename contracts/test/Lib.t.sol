// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, RequestRecord} from "../src/interfaces/IInferenceRequests.sol";
import {CompactSignature} from "../src/interfaces/IInferenceResults.sol";
import {Bitmap} from "../src/lib/Bitmap.sol";
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
        }
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
