// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IStakeManager, SignedItem} from "../../src/interfaces/IStakeManager.sol";
import {Books} from "./Books.sol";

/// @notice Workers' owners, who watches them, and time.
abstract contract WorkerActions is Books {
    /// @dev Mostly seconds; now and then long enough for a ruling to come too late, or for a stake to leave. One time in four
    /// to the very second at which something ends, or to the next one.
    function wait(uint256 seed) internal {
        if (seed >> 240 & 3 == 0) {
            uint256 end = someEnd(seed >> 8) + (seed >> 242 & 1);
            if (end > block.timestamp) return vm.warp(end);
        }
        uint256 longest = 30;
        if (seed % 16 == 0) longest += RULING_PERIOD;
        if (seed % 16 == 1) longest += UNBONDING_DELAY;
        vm.warp(block.timestamp + bound(seed >> 8, longest < 60 ? 1 : longest - 60, longest));
    }

    function setEnabled(uint256 which, bool to) internal {
        GhostWorker storage w = worker_(which);
        // More often in than out, so that results are settled.
        to = to || which >> 8 & 7 != 0;
        vm.prank(w.owner);
        registry.setEnabled(w.signer, to);
        w.enabled = to;
    }

    function stake(uint256 which, uint256 amountWei) internal {
        // Any who ever was one.
        GhostWorker storage w = which >> 8 & 7 == 0 ? workers[which % workers.length] : neediest();
        amountWei = bound(amountWei, 1, 4 * MIN_STAKE);
        if (!w.barred) return stakeFor(w, amountWei);
        vm.deal(w.owner, amountWei);
        vm.prank(w.owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.Barred.selector, w.signer));
        stakes.stake{value: amountWei}(w.signer);
        ++seen[Seen.STAKE_BARRED];
    }

    function unstake(uint256 which, uint256 amountWei) internal {
        GhostWorker storage w = worker_(which);
        if (w.stakedWei == 0) return;
        amountWei = bound(amountWei, 1, w.stakedWei);
        vm.prank(w.owner);
        stakes.unstake(w.signer, amountWei);
        w.stakedWei -= amountWei;
        w.unbondingWei += amountWei;
        w.withdrawableAt = block.timestamp + UNBONDING_DELAY;
        ++seen[Seen.UNSTAKED];
    }

    function withdrawStake(uint256 which) internal {
        GhostWorker storage w = which >> 8 & 7 == 0 ? workers[which % workers.length] : worker_(which);
        bool possible = w.unbondingWei > 0 && block.timestamp >= w.withdrawableAt;
        uint256 before = account("purse").balance;
        vm.prank(w.owner);
        try stakes.withdrawStake(w.signer, payable(account("purse"))) returns (uint256 amountWei) {
            vm.assertTrue(possible, "left before its time");
            vm.assertEq(amountWei, w.unbondingWei, "left");
            vm.assertEq(account("purse").balance - before, amountWei, "left");
            w.unbondingWei = 0;
            w.withdrawableAt = 0;
            ++seen[Seen.STAKE_WITHDRAWN];
        } catch {
            vm.assertFalse(possible);
            if (w.unbondingWei > 0) ++seen[Seen.STAKE_STILL_BONDED];
        }
    }

    /// @dev Mostly no proof at all; when it is one, another worker takes the place of the barred.
    function slashEquivocation(uint256 seed) internal {
        bool real = seed % 4 == 0 && workers.length < MAX_WORKERS;
        uint256 place = seed >> 8 & 7 == 0 ? (seed >> 16) % workers.length : workers.length - WORKERS + (seed >> 16 & 3);
        GhostWorker storage w = workers[place];
        (SignedItem memory one, SignedItem memory other) = statements(seed, w.key, real);
        address reporter = holders[(seed >> 24) % 4];
        vm.recordLogs();
        vm.prank(reporter);
        try stakes.slashEquivocation(one, other) returns (uint256 amountWei) {
            vm.assertTrue(real && !w.barred, "slashed without a reason");
            w.barred = true;
            vm.assertEq(amountWei, takeStake(w, type(uint256).max, reporter), "slashed");
            readLogs();
            ++seen[Seen.EQUIVOCATED];
            replace(place);
        } catch {
            vm.assertFalse(real && !w.barred);
            ++seen[Seen.EQUIVOCATION_REFUSED];
        }
    }

    /// @dev When a request, a dispute's window, the time to rule on it or a stake's delay ends.
    function someEnd(uint256 seed) private view returns (uint256) {
        uint256 kind = seed & 3;
        if (kind == 0) return worker_(seed >> 8).withdrawableAt;
        if (kind == 1 || holds.length == 0) return ghosts[pick(seed)].deadline;
        uint256 near = holds.length < 4 ? holds.length : 4;
        GhostHold storage h = holds[holds.length - 1 - (seed >> 8) % near];
        return kind == 2 ? h.held.disputableUntil : h.rulingUntil;
    }

    function neediest() private view returns (GhostWorker storage least) {
        least = worker_(0);
        for (uint256 slot = 1; slot < WORKERS; ++slot) {
            if (worker_(slot).stakedWei < least.stakedWei) least = worker_(slot);
        }
    }

    /// @dev Two digests for one request, somewhere in two groups; or something that only looks like it.
    function statements(uint256 seed, uint256 key, bool real)
        private
        view
        returns (SignedItem memory one, SignedItem memory other)
    {
        uint256 id = pick(seed);
        bytes20 c = commitment(id);
        one = said(key, id, c, keccak256(output(id, 0)), seed >> 32 & 3);
        if (real) return (one, said(key, id, c, keccak256(output(id, 1)), seed >> 40 & 3));
        uint256 flaw = seed >> 48 & 3;
        if (flaw == 0) return (one, said(key, id, c, keccak256(output(id, 0)), seed >> 40 & 3));
        if (flaw == 1) return (one, said(key, id + 1, c, keccak256(output(id, 1)), seed >> 40 & 3));
        if (flaw == 2) return (one, said(STRAY_KEY, id, c, keccak256(output(id, 1)), seed >> 40 & 3));
        return (one, said(key, id, commitment(id + 1), keccak256(output(id, 1)), seed >> 40 & 3));
    }

    function said(uint256 key, uint256 id, bytes20 c, bytes32 digest, uint256 before)
        private
        view
        returns (SignedItem memory)
    {
        bytes memory items;
        for (uint256 i; i < before; ++i) {
            items = bytes.concat(items, item(1 + i, 0));
        }
        items = bytes.concat(items, item(id, c, digest), item(9, 0));
        return SignedItem({items: items, signature: sign(key, results.groupDigest(items)), index: before});
    }

    /// @dev The workers in use are the last ones: the barred one changes places with the first of them, and is left behind.
    function replace(uint256 place) private {
        uint256 first = workers.length - WORKERS;
        if (place < first) return;
        GhostWorker memory barred = workers[place];
        workers[place] = workers[first];
        workers[first] = barred;
        placeOf[workers[place].signer] = place;
        placeOf[barred.signer] = first;
        hire(0x1000 + workers.length, barred.owner);
        stakeFor(workers[workers.length - 1], MIN_STAKE);
    }
}
