// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests} from "../../src/interfaces/IInferenceRequests.sol";
import {RequestWord, RequestWordLib} from "../../src/lib/RequestWord.sol";
import {Test} from "../base/Test.sol";

/// @notice What a fee pays, for every fee and every poster's share. This contract is the one for results.
/// @dev A path that reverts is passed over. That the checked products of `settleJoint` do not is seen from their sizes, 48 + 14 +
/// 17 bits: the compiler's check divides by a factor, and no solver here gets through a division by an unknown.
contract PaymentProofs is Test {
    /// @dev Where the layout puts the requests contract's `_requests`: behind two arrays of 2^56 places.
    uint256 private constant REQUESTS_SLOT = 7 + 2 * 2 ** 56;
    uint256 private constant MAX_BPS = 10_000;
    uint256 private constant WEI_PER_GWEI_BPS = 1e5;
    bytes20 private constant COMMITMENT = bytes20(uint160(0xc0ffee));
    bytes32 private constant DIGEST = keccak256("output");

    address private poster = account("poster");
    address private owner = account("owner");

    /// @dev The other solver does not see within a minute that the parts are small.
    /// @custom:halmos --solver z3
    function check_payment_single(uint48 feeGwei, uint256 posterBps) public {
        IInferenceRequests requests = deploy(posterBps);
        store(requests, 1, feeGwei, 1);
        vm.assertEq(requests.settle(groupOf(itemOf(1)), poster), 1);
        expectSplit(requests, feeGwei, posterBps);
    }

    function check_payment_joint(uint48 feeGwei, uint256 posterBps, uint256 quorum) public {
        vm.assume(quorum >= 2 && quorum <= RequestWordLib.MAX_QUORUM);
        for (uint256 i = 2; i <= RequestWordLib.MAX_QUORUM; ++i) {
            if (quorum == i) return settleJoint(feeGwei, posterBps, i);
        }
    }

    /// @dev That poster's and payment are the whole fee, see above. A quotient is no more than a name for the solver: what
    /// division is, it is told.
    function settleJoint(uint256 feeGwei, uint256 posterBps, uint256 quorum) private {
        IInferenceRequests requests = deploy(posterBps);
        store(requests, 1, feeGwei, quorum);
        address[] memory workers = new address[](quorum);
        for (uint256 i; i < quorum; ++i) {
            workers[i] = address(uint160(0x1000 + i));
        }
        vm.assertEq(requests.settleJoint(itemOf(1), workers, workers, poster, false), 1);
        unchecked {
            vm.assertEq(requests.credits(poster), feeGwei * posterBps * WEI_PER_GWEI_BPS);
            uint256 paymentWei = feeGwei * (MAX_BPS - posterBps) * WEI_PER_GWEI_BPS;
            uint256 shareWei = paymentWei / quorum;
            uint256 restWei = paymentWei % quorum;
            vm.assume(shareWei * quorum + restWei == paymentWei);
            uint256 sumWei;
            for (uint256 i; i < quorum; ++i) {
                uint256 workerWei = requests.credits(workers[i]);
                vm.assertEq(workerWei, i == 0 ? shareWei + restWei : shareWei);
                sumWei += workerWei;
            }
            vm.assertEq(sumWei, paymentWei);
        }
    }

    /// @dev The parts fit 64 bits, and with the factor 1e5 a word: no sum of them is a fee only because it wrapped.
    function expectSplit(IInferenceRequests requests, uint256 feesGwei, uint256 posterBps) private view {
        unchecked {
            uint256 posterPart = feesGwei * posterBps;
            uint256 ownerPart = feesGwei * (MAX_BPS - posterBps);
            vm.assertTrue(posterPart < 2 ** 64);
            vm.assertTrue(ownerPart < 2 ** 64);
            uint256 posterWei = requests.credits(poster);
            uint256 ownerWei = requests.credits(owner);
            vm.assertEq(posterWei, posterPart * WEI_PER_GWEI_BPS);
            vm.assertEq(ownerWei, ownerPart * WEI_PER_GWEI_BPS);
            vm.assertEq(posterWei + ownerWei, feesGwei * 1e9);
        }
    }

    function deploy(uint256 posterBps) private returns (IInferenceRequests requests) {
        vm.assume(posterBps <= MAX_BPS);
        bytes memory code = bytes.concat(
            vm.getCode("out/prove/InferenceRequests.sol/InferenceRequests.json"),
            abi.encode(address(this), address(0), address(0), posterBps, 1)
        );
        assembly ("memory-safe") {
            requests := create(0, add(code, 0x20), mload(code))
        }
        vm.assertTrue(address(requests) != address(0));
    }

    function store(IInferenceRequests requests, uint256 id, uint256 feeGwei, uint256 quorum) private {
        RequestWord word = RequestWordLib.pack(feeGwei, type(uint40).max, COMMITMENT, Delivery.EVENT, quorum, false);
        vm.store(address(requests), bytes32(REQUESTS_SLOT + id), bytes32(RequestWord.unwrap(word)));
    }

    function itemOf(uint256 id) private pure returns (bytes memory) {
        return abi.encodePacked(uint64(id), COMMITMENT, DIGEST);
    }

    function groupOf(bytes memory items) private view returns (bytes memory) {
        return abi.encodePacked(abi.encode(account("worker"), owner, items.length), items);
    }
}
