// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Hold, HoldStatus} from "../../src/interfaces/IDisputes.sol";
import {Delivery} from "../../src/interfaces/IInferenceRequests.sol";
import {CallbackClaim, ProvenGroup, ResultGroup} from "../../src/interfaces/IInferenceResults.sol";
import {AnyConsumer} from "./AnyConsumer.sol";
import {Books} from "./Books.sol";

/// @notice Posters, and who delivers outputs.
abstract contract PostActions is Books {
    /// @dev A group that is being drawn.
    struct Draft {
        uint256 seed;
        address poster;
        bool proven;
        /// who signs, in the order of the signatures; the books' places of the workers
        uint256[] keys;
        address[] signers;
        address[] owners;
        bool counts;
        bytes items;
        bytes[] proofs;
        uint256 settled;
    }

    function post(uint256 seed, uint256 groupCount, bool twice) internal {
        address poster_ = posters[seed & 1];
        ResultGroup[] memory list = new ResultGroup[](bound(groupCount, 1, 2));
        uint256 expected;
        for (uint256 i; i < list.length; ++i) {
            seed = next(seed);
            Draft memory d = draw(seed, poster_, false);
            list[i] = group(d.keys, d.items);
            expected += d.settled;
        }
        vm.recordLogs();
        vm.prank(poster_);
        vm.assertEq(results.post(list, bytes32(seed)), expected, "settled");
        if (twice) {
            vm.prank(poster_);
            vm.assertEq(results.post(list, 0), 0, "settled again");
            ++seen[Seen.POSTED_TWICE];
        }
        readLogs();
    }

    function postProven(uint256 seed, uint256 groupCount, bool twice) internal {
        address poster_ = posters[seed & 1];
        ProvenGroup[] memory list = new ProvenGroup[](bound(groupCount, 1, 2));
        uint256 expected;
        for (uint256 i; i < list.length; ++i) {
            seed = next(seed);
            Draft memory d = draw(seed, poster_, true);
            list[i] = provenGroup(d.keys, d.items, d.proofs);
            expected += d.settled;
        }
        vm.recordLogs();
        vm.prank(poster_);
        vm.assertEq(results.postProven(list, bytes32(seed)), expected, "settled");
        if (twice) {
            vm.prank(poster_);
            vm.assertEq(results.postProven(list, 0), 0, "settled again");
            ++seen[Seen.POSTED_TWICE];
        }
        readLogs();
    }

    /// @dev Outputs of requests of late, some of them wrong, some not yet or no longer owed.
    function deliver(uint256 seed, uint256 count) internal {
        if (callbackIds.length == 0) return;
        CallbackClaim[] memory claims = new CallbackClaim[](bound(count, 1, 3));
        for (uint256 i; i < claims.length; ++i) {
            seed = next(seed);
            uint256 near = callbackIds.length < 12 ? callbackIds.length : 12;
            claims[i] = claimOf(callbackIds[callbackIds.length - 1 - (seed >> 8) % near], seed);
        }
        AnyConsumer.Mood[2] memory moods;
        for (uint256 i; i < 2; ++i) {
            moods[i] = AnyConsumer.Mood(uint8(seed >> (80 + 8 * i) & 3));
            consumers[i].tell(moods[i], address(results), abi.encodeCall(results.deliver, (onlyOne(claims, i))));
        }
        uint256 expected = bookDeliveries(claims, moods);
        uint256 before = consumers[0].reentries() + consumers[1].reentries();
        vm.recordLogs();
        uint256 delivered = results.deliver(claims);
        readLogs();
        uint256 reentries = consumers[0].reentries() + consumers[1].reentries() - before;
        seen[Seen.REENTERED] += reentries;
        // What a re-entering consumer delivered is not counted by the outer call.
        vm.assertTrue(delivered <= expected, "delivered");
        if (reentries == 0) vm.assertEq(delivered, expected, "delivered");
    }

    // What must come of them

    function bookDeliveries(CallbackClaim[] memory claims, AnyConsumer.Mood[2] memory moods)
        private
        returns (uint256 expected)
    {
        for (uint256 i; i < claims.length; ++i) {
            Ghost storage g = ghosts[claims[i].id];
            AnyConsumer.Mood mood = moods[g.requester == address(consumers[0]) ? 0 : 1];
            bool willing = mood == AnyConsumer.Mood.RETURNS || mood == AnyConsumer.Mood.REENTERS;
            if (g.owed && willing && keccak256(claims[i].output) == g.digest) {
                g.owed = false;
                ++expected;
            }
        }
    }

    /// @dev What a re-entering consumer delivers: one claim, the first or the last. (Of more, one could be delivered before
    /// another reverts for lack of gas, and recorded logs are not undone.)
    function onlyOne(CallbackClaim[] memory claims, uint256 which) private pure returns (CallbackClaim[] memory one) {
        one = new CallbackClaim[](1);
        one[0] = claims[which == 0 ? 0 : claims.length - 1];
    }

    function claimOf(uint256 id, uint256 seed) private view returns (CallbackClaim memory) {
        Ghost storage g = ghosts[id];
        bytes memory out = output(id, 0);
        // Mostly what was signed.
        if (keccak256(out) != g.digest != (seed & 7 == 0)) out = output(id, 1);
        return CallbackClaim({id: id, requester: g.requester, params: paramsOf(g), output: out});
    }

    /// @dev Draws a group, some of it bad, and books what settling it in its order must do.
    function draw(uint256 seed, address poster_, bool proven) private returns (Draft memory d) {
        d.seed = seed;
        d.poster = poster_;
        d.proven = proven;
        drawSigners(d);
        uint256 count = 1 + (seed >> 8) % 7;
        d.proofs = new bytes[](proven ? count : 0);
        bool wrongCount = proven && seed >> 248 & 15 == 0;
        if (wrongCount) d.counts = false;
        for (uint256 i; i < count; ++i) {
            d.seed = next(d.seed);
            drawItem(d, i);
        }
        if (wrongCount) d.proofs = new bytes[](count + 1);
    }

    function drawSigners(Draft memory d) private view {
        uint256 count = d.seed >> 16 & 3;
        if (count == 0) count = 1;
        d.keys = new uint256[](count);
        d.signers = new address[](count);
        d.owners = new address[](count);
        d.counts = true;
        // Some of the workers in a row, put in order.
        for (uint256 i; i < count; ++i) {
            GhostWorker storage w = worker_((d.seed >> 24) + i);
            uint256 place = i;
            for (; place > 0 && d.signers[place - 1] > w.signer; --place) {
                (d.keys[place], d.signers[place], d.owners[place]) =
                (d.keys[place - 1], d.signers[place - 1], d.owners[place - 1]);
            }
            (d.keys[place], d.signers[place], d.owners[place]) = (w.key, w.signer, w.owner);
            if (!isActive(w)) d.counts = false;
        }
        uint256 flaw = d.seed >> 32 & 31;
        if (flaw == 0) {
            d.keys[0] = STRAY_KEY;
            d.counts = false;
        } else if (flaw == 1 && count > 1) {
            // In the wrong order, or one of them twice.
            d.keys[0] = d.keys[1];
            d.counts = false;
        }
    }

    function drawItem(Draft memory d, uint256 place) private {
        uint256 id = pick(d.seed);
        // Mostly one that fits, if there is any near.
        for (uint256 i; i < 8 && (ghosts[id].quorum != d.keys.length || !isOpen(ghosts[id])); ++i) {
            id = pick(next(d.seed ^ i));
        }
        Ghost storage g = ghosts[id];
        bytes20 c = commitment(id);
        bool right = d.seed >> 240 & 7 != 0;
        if (!right) c = bytes20(uint160(c) ^ uint160(1 << (d.seed >> 200 & 127)));
        bytes32 digest = keccak256(output(id, d.seed >> 8));
        d.items = bytes.concat(d.items, item(id, c, digest));

        GhostTerms storage t = terms[g.termsId];
        if (d.proven && t.verified) {
            bool forged = d.seed >> 232 & 7 == 0;
            bytes32 asked = verifier.attestationDigest(id, bytes32(models[g.model]), c, digest);
            d.proofs[place] = abi.encode(sign(forged ? d.keys[0] : ENCLAVE_KEY, asked));
            if (forged) right = false;
        }
        bool underTerms = t.verified || t.window != 0;
        if (!right || !d.counts || !isOpen(g) || g.quorum != d.keys.length || underTerms && !d.proven) return;
        ++d.settled;
        fulfil(d, id, g, t, digest);
    }

    function fulfil(Draft memory d, uint256 id, Ghost storage g, GhostTerms storage t, bytes32 digest) private {
        g.end = End.FULFILLED;
        g.digest = digest;
        uint256 posterWei = g.feeWei * BPS / 10_000;
        if (d.proven) ++seen[Seen.FULFILLED_PROVEN];
        if (d.keys.length > 1) ++seen[Seen.FULFILLED_JOINTLY];
        if (g.delivery == Delivery.STORED) ++seen[Seen.FULFILLED_STORED];
        if (g.delivery == Delivery.CALLBACK) {
            ++seen[Seen.FULFILLED_CALLBACK];
            g.owed = true;
        }
        if (t.window == 0) {
            give(d.poster, posterWei);
            giveShares(d.owners, g.feeWei - posterWei);
            return;
        }
        give(address(disputes), g.feeWei);
        GhostHold storage h = holds.push();
        h.status = HoldStatus.HELD;
        h.held = Hold({
            id: id,
            commitment: commitment(id),
            digest: digest,
            workers: d.signers,
            owners: d.owners,
            paymentWei: g.feeWei - posterWei,
            poster: d.poster,
            posterWei: posterWei,
            bondWei: uint256(t.bondGwei) * 1 gwei,
            disputableUntil: uint40(block.timestamp) + t.window
        });
    }
}
