// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Hold, HoldStatus} from "../../src/interfaces/IDisputes.sol";
import {Books} from "./Books.sol";

/// @notice Disputers, the arbiter, and who clears up.
abstract contract DisputeActions is Books {
    function release(uint256 seed, uint256 count) internal {
        if (holds.length == 0) return;
        Hold[] memory list = new Hold[](bound(count, 1, 5));
        uint256 expected;
        for (uint256 i; i < list.length; ++i) {
            seed = next(seed);
            GhostHold storage h = holds[pickHold(seed, HoldStatus.HELD, false)];
            list[i] = h.held;
            if (seed >> 240 & 15 == 0) {
                ++list[i].paymentWei;
            } else if (h.status == HoldStatus.HELD && block.timestamp > h.held.disputableUntil) {
                h.status = HoldStatus.CLOSED;
                pay(h, h.held.paymentWei);
                ++expected;
            }
        }
        vm.recordLogs();
        vm.assertEq(disputes.release(list), expected, "released");
        readLogs();
        seen[Seen.RELEASED] += expected;
    }

    function openDispute(uint256 seed) internal {
        if (holds.length == 0) return;
        GhostHold storage h = holds[pickHold(seed, HoldStatus.HELD, true)];
        Hold memory held = h.held;
        uint256 valueWei = held.bondWei;
        if (seed >> 240 & 15 == 0) ++valueWei;
        if (seed >> 240 & 15 == 1) held.bondWei = ++valueWei;
        bool possible = h.status == HoldStatus.HELD && block.timestamp <= held.disputableUntil && seed >> 240 & 15 > 1;
        address disputer = holders[(seed >> 8) % 4];
        vm.deal(disputer, valueWei);
        vm.recordLogs();
        vm.prank(disputer);
        try disputes.open{value: valueWei}(held) {
            vm.assertTrue(possible, "opened what cannot be");
            readLogs();
            h.status = HoldStatus.DISPUTED;
            h.disputer = disputer;
            h.rulingUntil = block.timestamp + RULING_PERIOD;
            bondsIn += valueWei;
            give(address(disputes), valueWei);
            ++seen[Seen.DISPUTED];
        } catch {
            vm.assertFalse(possible);
            ++seen[Seen.DISPUTE_REFUSED];
        }
    }

    function rule(uint256 seed, bool upheld) internal {
        if (holds.length == 0) return;
        GhostHold storage h = holds[pickHold(seed, HoldStatus.DISPUTED, true)];
        Ghost storage g = ghosts[h.held.id];
        uint256 flaw = seed >> 240 & 15;
        bool possible =
            h.status == HoldStatus.DISPUTED && block.timestamp <= h.rulingUntil && flaw != 0 && (flaw != 1 || !upheld);
        vm.recordLogs();
        vm.prank(flaw == 0 ? admin : arbiter);
        try disputes.rule(h.held, upheld, flaw == 1 ? arbiter : g.requester, g.paramsHash) {
            vm.assertTrue(possible, "ruled what cannot be");
            readLogs();
            h.status = HoldStatus.CLOSED;
            if (upheld) uphold(h, g.requester);
            else pay(h, h.held.paymentWei + h.held.bondWei);
            ++seen[upheld ? Seen.UPHELD : Seen.REJECTED];
        } catch {
            vm.assertFalse(possible);
            ++seen[Seen.RULING_REFUSED];
        }
    }

    function close(uint256 seed) internal {
        if (holds.length == 0) return;
        GhostHold storage h = holds[pickHold(seed, HoldStatus.DISPUTED, false)];
        bool possible = h.status == HoldStatus.DISPUTED && block.timestamp > h.rulingUntil;
        try disputes.close(h.held) {
            vm.assertTrue(possible, "closed what cannot be");
            h.status = HoldStatus.CLOSED;
            ghostCredits[address(disputes)] -= h.held.bondWei;
            give(h.disputer, h.held.bondWei);
            pay(h, h.held.paymentWei);
            ++seen[Seen.LAPSED];
        } catch {
            vm.assertFalse(possible);
            ++seen[Seen.CLOSE_REFUSED];
        }
    }

    function uphold(GhostHold storage h, address requester_) private {
        uint256 feeWei = h.held.paymentWei + h.held.posterWei;
        ghostCredits[address(disputes)] -= feeWei + h.held.bondWei;
        give(requester_, feeWei);
        give(h.disputer, h.held.bondWei);
        for (uint256 i; i < h.held.workers.length; ++i) {
            takeStake(workers[placeOf[h.held.workers[i]]], h.held.bondWei, h.disputer);
        }
    }

    function pay(GhostHold storage h, uint256 ownersWei) private {
        ghostCredits[address(disputes)] -= ownersWei + h.held.posterWei;
        giveShares(h.held.owners, ownersWei);
        give(h.held.poster, h.held.posterWei);
    }

    /// @dev Mostly the latest that is in that state and still, or no longer, in time, if there is any near.
    function pickHold(uint256 seed, HoldStatus wanted, bool inTime) private view returns (uint256 place) {
        place = holds.length - 1 - (seed >> 16) % (holds.length < 4 ? holds.length : 4);
        for (uint256 i; seed >> 8 & 7 != 0 && i < 16; ++i) {
            GhostHold storage h = holds[place];
            uint256 end = h.status == HoldStatus.HELD ? h.held.disputableUntil : h.rulingUntil;
            if (h.status == wanted && block.timestamp <= end == inTime) break;
            place = place == 0 ? holds.length - 1 : place - 1;
        }
    }
}
