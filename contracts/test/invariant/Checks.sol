// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {HoldStatus} from "../../src/interfaces/IDisputes.sol";
import {Delivery, RequestRecord, RequestStatus} from "../../src/interfaces/IInferenceRequests.sol";
import {StakeRecord} from "../../src/interfaces/IStakeManager.sol";
import {WorkerRecord} from "../../src/interfaces/IWorkerRegistry.sol";
import {AnyConsumer} from "./AnyConsumer.sol";
import {Books} from "./Books.sol";

/// @notice The contracts against the books. Plain comparisons: a cheatcode for each would make up most of the run.
abstract contract Checks is Books {
    /// @dev To the wei: what is held is what is escrowed and what is credited, and came from those who paid.
    function checkRequestsAreSolvent() external view {
        uint256 heldWei = address(requests).balance;
        uint256 creditsWei = creditsSum();
        uint256 inWei = feesIn + bondsIn + slashesIn + depositsIn;
        require(heldWei == escrowWei() + creditsWei, "balance of requests");
        require(heldWei + paidOut == inWei, "what came in");
        require(saidCreditsWei == creditsWei + paidOut, "credits that were said");
        require(saidCreditsWei <= inWei, "more credited than came in");
    }

    /// @dev To the wei: what is held is what is staked and what is on its way out.
    function checkStakesAreSolvent() external view {
        uint256 sumWei;
        for (uint256 i; i < workers.length; ++i) {
            sumWei += workers[i].stakedWei + workers[i].unbondingWei;
        }
        require(address(stakes).balance == sumWei, "balance of stakes");
    }

    function checkOthersHoldNothing() external view {
        require(address(results).balance == 0, "balance of results");
        require(address(disputes).balance == 0, "balance of disputes");
        require(address(registry).balance == 0, "balance of registry");
    }

    /// @dev Nobody else ever gets anything, whatever they sign or send.
    function checkCredits() external view {
        for (uint256 i; i < holders.length; ++i) {
            require(requests.credits(holders[i]) == ghostCredits[holders[i]], "credit");
        }
        for (uint256 i; i < workers.length; ++i) {
            require(requests.credits(workers[i].signer) == 0, "a signer's credit");
        }
        address[7] memory nobodies =
            [address(0), address(requests), address(results), address(stakes), admin, arbiter, vm.addr(STRAY_KEY)];
        for (uint256 i; i < nobodies.length; ++i) {
            require(requests.credits(nobodies[i]) == 0, "a stranger's credit");
        }
    }

    /// @dev A bit for each request that ended, in one way, once, and for no other id.
    function checkBits() external view {
        uint256 end = requests.nextId() + 2;
        uint256 word;
        for (uint256 id = FIRST_ID - 2; id < end; ++id) {
            if (id == FIRST_ID - 2 || id % 256 == 0) word = requests.settledWord(id / 256);
            Ghost storage g = ghosts[id];
            require(g.fulfilledEvents == (g.end == End.FULFILLED ? 1 : 0), "fulfilled, or not, against the books");
            require(g.refundedEvents == (g.end == End.REFUNDED ? 1 : 0), "refunded, or not, against the books");
            require((word >> (id % 256) & 1 == 1) == (g.end != End.OPEN), "bit without event, or event without bit");
        }
    }

    function checkRecords() external view {
        uint256 end = requests.nextId() + 1;
        for (uint256 id = FIRST_ID - 1; id < end; ++id) {
            Ghost storage g = ghosts[id];
            if (g.end == End.OPEN) checkOpen(id, g);
            (bool found, bytes32 digest) = requests.resultOf(id);
            require(found == (g.end == End.FULFILLED && g.delivery == Delivery.STORED), "stored, or not");
            require(digest == (found ? g.digest : bytes32(0)), "another digest is stored");
        }
    }

    /// @dev Each consumer is called with its result at most once, and is owed it until then.
    function checkCallbacks() external view {
        for (uint256 i; i < callbackIds.length; ++i) {
            uint256 id = callbackIds[i];
            Ghost storage g = ghosts[id];
            bool delivered = g.end == End.FULFILLED && !g.owed;
            require(g.deliveredEvents == (delivered ? 1 : 0), "deliveries that were said");
            require(AnyConsumer(g.requester).calls(id) == (delivered ? 1 : 0), "deliveries that came");
            require(requests.owesCallback(id, commitment(id), g.digest) == g.owed, "owed");
        }
    }

    function checkHolds() external view {
        uint256 sumWei = giftsToDisputes;
        for (uint256 i; i < holds.length; ++i) {
            GhostHold storage h = holds[i];
            require(disputes.statusOf(h.held.id) == h.status, "state of a hold");
            uint256 feeWei = h.held.paymentWei + h.held.posterWei;
            if (h.status == HoldStatus.HELD) sumWei += feeWei;
            if (h.status == HoldStatus.DISPUTED) sumWei += feeWei + h.held.bondWei;
        }
        require(requests.credits(address(disputes)) == sumWei, "credit of disputes");
        require(seen[Seen.HELD] == holds.length, "holds that were said");
    }

    function checkStakes() external view {
        for (uint256 i; i < workers.length; ++i) {
            GhostWorker storage w = workers[i];
            StakeRecord memory record = stakes.stakeOf(w.signer);
            require(record.stakedWei == w.stakedWei, "staked");
            require(record.unbondingWei == w.unbondingWei, "unbonding");
            require(record.withdrawableAt == w.withdrawableAt, "withdrawable at");
            require(record.barred == w.barred, "barred");
            WorkerRecord memory known = registry.workerOf(w.signer);
            require(known.owner == w.owner && known.enabled == w.enabled, "worker");
            require(known.staked == (w.stakedWei >= MIN_STAKE), "counts as staked");
            require(registry.activeOwner(w.signer) == (isActive(w) ? w.owner : address(0)), "in service");
        }
    }

    function checkOpen(uint256 id, Ghost storage g) private view {
        RequestRecord memory record = requests.recordOf(id);
        require(uint256(record.feeGwei) * 1 gwei == g.feeWei, "fee");
        require(record.deadline == g.deadline, "deadline");
        if (g.requester == address(0)) {
            require(requests.statusOf(id) == RequestStatus.UNKNOWN && record.commitment == 0, "never submitted");
            return;
        }
        GhostTerms storage t = terms[g.termsId];
        require(record.commitment == commitment(id), "commitment");
        require(record.delivery == g.delivery && record.quorum == g.quorum, "delivery and quorum");
        require(record.batchable == (g.salt % 3 != 0), "batchable");
        require(record.underTerms == (t.verified || t.window != 0), "under terms");
        require(requests.statusOf(id) == (isOpen(g) ? RequestStatus.PENDING : RequestStatus.EXPIRED), "status");
    }

    function escrowWei() private view returns (uint256 sumWei) {
        uint256 end = requests.nextId();
        for (uint256 id = FIRST_ID; id < end; ++id) {
            if (ghosts[id].end == End.OPEN) sumWei += ghosts[id].feeWei;
        }
    }

    function creditsSum() private view returns (uint256 sumWei) {
        for (uint256 i; i < holders.length; ++i) {
            sumWei += requests.credits(holders[i]);
        }
    }
}
