// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, RefundClaim, RequestParams} from "../../src/interfaces/IInferenceRequests.sol";
import {IModelTerms, ModelTerms} from "../../src/interfaces/IModelTerms.sol";
import {Books} from "./Books.sol";

/// @notice Requesters, and the owner.
abstract contract RequestActions is Books {
    function submit(uint256 seed, uint256 feeGwei, uint256 life, uint256 count) internal {
        feeGwei = seed % 31 == 0 ? MAX_FEE_GWEI : bound(feeGwei, 1, 1e9);
        Ghost memory g;
        g.model = uint8(seed >> 8 & 3);
        g.termsId = uint32(termsOf[g.model]);
        g.submittedDeadline = uint40(block.timestamp + bound(life, 1, 200));
        g.deadline = g.submittedDeadline;
        g.quorum = uint8(seed >> 16 & 3);
        if (g.quorum == 0) g.quorum = 1;
        // Mostly as many as the model asks for.
        if (seed >> 24 & 7 != 0 && g.quorum < terms[g.termsId].minQuorum) g.quorum = terms[g.termsId].minQuorum;
        g.delivery = [Delivery.EVENT, Delivery.EVENT, Delivery.STORED, Delivery.CALLBACK][seed >> 32 & 3];
        g.requester = askers[g.delivery == Delivery.CALLBACK ? 2 + (seed >> 40 & 1) : (seed >> 40) & 3];
        g.salt = seed;
        g.feeWei = feeGwei * 1 gwei;
        submitAll(g, bound(count, 1, 4));
    }

    function raiseFee(uint256 seed, uint256 gweis) internal {
        uint256 id = pickOpen(seed);
        Ghost storage g = ghosts[id];
        gweis = bound(gweis, 1, 1e9);
        vm.deal(address(this), gweis * 1 gwei);
        bool possible = isOpen(g) && g.feeWei / 1 gwei + gweis <= MAX_FEE_GWEI;
        try requests.raiseFee{value: gweis * 1 gwei}(id) {
            vm.assertTrue(possible, "raised what cannot be");
            g.feeWei += gweis * 1 gwei;
            feesIn += gweis * 1 gwei;
            ++seen[Seen.FEE_RAISED];
        } catch {
            vm.assertFalse(possible);
        }
    }

    function requestCancel(uint256 seed, uint256 who) internal {
        uint256 id = pickOpen(seed);
        Ghost storage g = ghosts[id];
        address caller = who % 4 == 0 ? askers[(who >> 8) & 3] : g.requester;
        bool possible = isOpen(g) && caller == g.requester;
        vm.prank(caller);
        try requests.requestCancel(id, g.paramsHash) {
            vm.assertTrue(possible, "cancelled what cannot be");
            if (block.timestamp + CANCEL_DELAY < g.deadline) g.deadline = uint40(block.timestamp) + CANCEL_DELAY;
            ++seen[Seen.CANCELLED];
        } catch {
            vm.assertFalse(possible);
        }
    }

    function refund(uint256 seed, uint256 count) internal {
        count = bound(count, 1, 8);
        RefundClaim[] memory claims = new RefundClaim[](count);
        uint256 expected;
        for (uint256 i; i < count; ++i) {
            seed = next(seed);
            uint256 id = pick(seed);
            Ghost storage g = ghosts[id];
            claims[i] = RefundClaim(id, g.requester, g.paramsHash);
            if (seed >> 240 & 7 == 0) {
                // Somebody else's hand.
                claims[i].requester = workerOwners[0];
            } else if (g.requester != address(0) && g.end == End.OPEN && block.timestamp > g.deadline) {
                g.end = End.REFUNDED;
                give(g.requester, g.feeWei);
                ++expected;
            }
        }
        vm.recordLogs();
        vm.assertEq(requests.refund(claims), expected, "refunded");
        readLogs();
    }

    /// @dev Now and then, for a while.
    function setPaused(uint256 seed) internal {
        paused = seed % 8 == 0;
        vm.prank(admin);
        requests.setPaused(paused);
    }

    /// @dev Of any model but the first: a verifier, a window, several workers, all of them or none.
    function setModelTerms(uint256 seed) internal {
        uint256 model = 1 + seed % 3;
        GhostTerms memory g;
        g.verified = seed >> 8 & 1 == 1;
        g.minQuorum = uint8(seed >> 16 & 3);
        if (seed >> 24 & 1 == 1) {
            uint32 longest = uint32(disputes.maxWindow());
            g.window = seed >> 32 & 7 == 0 ? longest : uint32(bound(seed >> 40, 1, 400));
            g.bondGwei = uint56(bound(seed >> 72, 1, 2 * MIN_STAKE / 1 gwei));
        }
        if (seed >> 128 & 7 == 0) delete g;
        setGhostTerms(model, g);
        ++seen[Seen.TERMS_SET];
    }

    function setGhostTerms(uint256 model, GhostTerms memory g) internal {
        ModelTerms memory set = noTerms();
        set.modelId = bytes32(models[model]);
        if (g.verified) set.verifier = verifier;
        set.disputeWindow = g.window;
        set.bondGwei = g.bondGwei;
        set.minQuorum = g.minQuorum;
        setTerms(set);
        termsOf[model] = terms.length;
        terms.push(g);
    }

    /// @dev Mostly one that is open, if there is any near.
    function pickOpen(uint256 seed) private view returns (uint256 id) {
        id = pick(seed);
        for (uint256 i; i < 4 && !isOpen(ghosts[id]); ++i) {
            seed = next(seed);
            id = pick(seed);
        }
    }

    function submitAll(Ghost memory g, uint256 count) private {
        RequestParams memory p = paramsFor(g.model, g.submittedDeadline, g.quorum, g.delivery, g.salt);
        g.paramsHash = hashOf(p);
        uint256 firstId = requests.nextId();
        bytes4 refusal = paused
            ? IInferenceRequests.RequestsPaused.selector
            : g.quorum < terms[g.termsId].minQuorum ? IModelTerms.QuorumOutOfRange.selector : bytes4(0);
        bytes memory data = count == 1
            ? abi.encodeCall(requests.submit, (p))
            : abi.encodeCall(requests.submitMany, (repeated(p, count), repeated(g.feeWei, count)));
        vm.deal(g.requester, g.feeWei * count);
        vm.prank(g.requester);
        (bool ok, bytes memory out) = address(requests).call{value: g.feeWei * count}(data);
        vm.assertEq(ok, refusal == 0);
        if (!ok) {
            vm.assertTrue(bytes4(out) == refusal, "another refusal");
            ++seen[paused ? Seen.PAUSED_SUBMISSION : Seen.QUORUM_REFUSED];
            return;
        }
        vm.assertEq(abi.decode(out, (uint256)), firstId);
        feesIn += g.feeWei * count;
        for (uint256 id = firstId; id < firstId + count; ++id) {
            ghosts[id] = g;
            if (g.delivery == Delivery.CALLBACK) callbackIds.push(id);
        }
    }

    function repeated(RequestParams memory p, uint256 count) private pure returns (RequestParams[] memory list) {
        list = new RequestParams[](count);
        for (uint256 i; i < count; ++i) {
            list[i] = p;
        }
    }

    function repeated(uint256 value, uint256 count) private pure returns (uint256[] memory list) {
        list = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            list[i] = value;
        }
    }
}
