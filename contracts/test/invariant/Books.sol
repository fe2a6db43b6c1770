// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IAttestationVerifier} from "../../src/interfaces/IAttestationVerifier.sol";
import {ICredits} from "../../src/interfaces/ICredits.sol";
import {Hold, HoldStatus, IDisputes} from "../../src/interfaces/IDisputes.sol";
import {Delivery, IInferenceRequests, RequestParams} from "../../src/interfaces/IInferenceRequests.sol";
import {IInferenceResults} from "../../src/interfaces/IInferenceResults.sol";
import {IStakeManager} from "../../src/interfaces/IStakeManager.sol";
import {Fixture} from "../base/Fixture.sol";
import {Vm} from "../base/Vm.sol";
import {AnyConsumer} from "./AnyConsumer.sol";

/// @notice What the handler knows beside the contracts: who plays, what must be, and what the contracts said.
abstract contract Books is Fixture {
    enum End {
        OPEN,
        FULFILLED,
        REFUNDED
    }

    /// @dev `...Events` count what the contracts said, all else is what must be.
    struct Ghost {
        address requester;
        uint40 submittedDeadline;
        uint40 deadline;
        uint8 quorum;
        Delivery delivery;
        uint8 model;
        End end;
        bool owed;
        uint8 fulfilledEvents;
        uint8 refundedEvents;
        uint8 deliveredEvents;
        uint32 termsId;
        uint256 feeWei;
        uint256 salt;
        bytes32 paramsHash;
        bytes32 digest;
    }

    struct GhostTerms {
        bool verified;
        uint8 minQuorum;
        uint32 window;
        uint56 bondGwei;
    }

    struct GhostWorker {
        uint256 key;
        address signer;
        address owner;
        bool enabled;
        bool barred;
        uint256 stakedWei;
        uint256 unbondingWei;
        uint256 withdrawableAt;
    }

    struct GhostHold {
        Hold held;
        HoldStatus status;
        address disputer;
        uint256 rulingUntil;
    }

    /// @dev How often each thing came about, so that a test can see that it does.
    enum Seen {
        FULFILLED,
        FULFILLED_STORED,
        FULFILLED_CALLBACK,
        FULFILLED_JOINTLY,
        FULFILLED_PROVEN,
        REFUNDED,
        RESULT_SKIPPED,
        REFUND_SKIPPED,
        GROUP_SKIPPED,
        PROOF_REJECTED,
        POSTED_TWICE,
        DELIVERED,
        DELIVERY_FAILED,
        DELIVERY_SKIPPED,
        REENTERED,
        PAUSED_SUBMISSION,
        QUORUM_REFUSED,
        FEE_RAISED,
        CANCELLED,
        TERMS_SET,
        HELD,
        RELEASED,
        RELEASE_SKIPPED,
        DISPUTED,
        DISPUTE_REFUSED,
        UPHELD,
        REJECTED,
        RULING_REFUSED,
        LAPSED,
        CLOSE_REFUSED,
        EQUIVOCATED,
        EQUIVOCATION_REFUSED,
        SLASHED,
        UNSTAKED,
        STAKE_WITHDRAWN,
        STAKE_STILL_BONDED,
        STAKE_BARRED,
        CREDITED,
        TRANSFERRED,
        TRANSFER_REFUSED,
        WITHDRAWN
    }

    /// @dev Near the end of a word of bits, so that a run is in two of them.
    uint256 public constant FIRST_ID = 240;
    uint256 internal constant MAX_FEE_GWEI = (1 << 48) - 1;
    uint256 internal constant WORKERS = 4;
    uint256 internal constant MAX_WORKERS = 12;
    uint256 internal constant ENCLAVE_KEY = 0xE7C1A;
    uint256 internal constant STRAY_KEY = 0xBAD;

    uint256 internal immutable BPS;

    IAttestationVerifier internal verifier;
    /// @dev Two keys, and two contracts that can be called back.
    address[] internal askers;
    AnyConsumer[] internal consumers;
    address[] internal workerOwners;
    /// @dev The last one owns a worker, too.
    address[] internal posters;
    /// @dev Everybody who can ever have a credit, and some who never may.
    address[] internal holders;
    /// @dev The first two share a place in the filter of models; the first never has terms.
    uint256[4] internal models = [uint256(5), 5 + 128, 6, 7];

    /// @dev The last `WORKERS` are in use: one who is barred is replaced.
    GhostWorker[] internal workers;
    mapping(address signer => uint256 place) internal placeOf;
    mapping(uint256 id => Ghost) internal ghosts;
    GhostTerms[] internal terms;
    mapping(uint256 model => uint256 termsId) internal termsOf;
    GhostHold[] internal holds;
    uint256[] internal callbackIds;
    bool internal paused;

    mapping(address account => uint256) internal ghostCredits;
    uint256 public feesIn;
    uint256 public bondsIn;
    uint256 public slashesIn;
    uint256 public depositsIn;
    /// @dev Anybody can give away credit; this one never gets any further.
    uint256 internal giftsToDisputes;
    uint256 public paidOut;
    /// @dev The sum of what the contracts said that they credit to anybody, transfers aside.
    uint256 public saidCreditsWei;
    mapping(Seen thing => uint256) public seen;

    constructor(uint256 posterBps) {
        BPS = posterBps;
    }

    // What must come of things

    function isOpen(Ghost storage g) internal view returns (bool) {
        return g.requester != address(0) && g.end == End.OPEN && block.timestamp <= g.deadline;
    }

    function isActive(GhostWorker storage w) internal view returns (bool) {
        return w.enabled && w.stakedWei >= MIN_STAKE;
    }

    function give(address to, uint256 amountWei) internal {
        ghostCredits[to] += amountWei;
    }

    /// @dev Slashes the books' worker.
    function takeStake(GhostWorker storage w, uint256 atMostWei, address reporter) internal returns (uint256 takenWei) {
        uint256 stakedWei = atMostWei < w.stakedWei ? atMostWei : w.stakedWei;
        uint256 restWei = atMostWei - stakedWei;
        uint256 unbondingWei = restWei < w.unbondingWei ? restWei : w.unbondingWei;
        w.stakedWei -= stakedWei;
        w.unbondingWei -= unbondingWei;
        takenWei = stakedWei + unbondingWei;
        uint256 reporterWei = takenWei * REPORTER_BPS / 10_000;
        give(reporter, reporterWei);
        give(treasury, takenWei - reporterWei);
        slashesIn += takenWei;
        if (takenWei != 0) ++seen[Seen.SLASHED];
    }

    /// @dev What is due to the workers of one result: equal shares, and what does not divide to the first.
    function giveShares(address[] memory to, uint256 amountWei) internal {
        for (uint256 i; i < to.length; ++i) {
            give(to[i], amountWei / to.length + (i == 0 ? amountWei % to.length : 0));
        }
    }

    // What the contracts say

    function readLogs() internal {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].emitter == address(requests)) readRequests(logs[i]);
            else if (logs[i].emitter == address(results)) readResults(logs[i]);
            else if (logs[i].emitter == address(disputes)) readDisputes(logs[i]);
        }
    }

    function readRequests(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        if (topic == IInferenceRequests.InferenceFulfilled.selector) {
            Ghost storage g = ghosts[uint256(log.topics[1])];
            ++g.fulfilledEvents;
            require(lastWord(log.data) == uint256(g.digest), "another digest was said");
            ++seen[Seen.FULFILLED];
        } else if (topic == IInferenceRequests.RequestRefunded.selector) {
            ++ghosts[uint256(log.topics[1])].refundedEvents;
            saidCreditsWei += lastWord(log.data);
            ++seen[Seen.REFUNDED];
        } else if (
            topic == IInferenceRequests.WorkerPaid.selector || topic == IInferenceRequests.PosterPaid.selector
                || topic == ICredits.Credited.selector
        ) {
            saidCreditsWei += lastWord(log.data);
        } else if (topic == IInferenceRequests.ResultSkipped.selector) {
            ++seen[Seen.RESULT_SKIPPED];
        } else if (topic == IInferenceRequests.RefundSkipped.selector) {
            ++seen[Seen.REFUND_SKIPPED];
        }
    }

    function readResults(Vm.Log memory log) private {
        bytes32 topic = log.topics[0];
        if (topic == IInferenceResults.CallbackDelivered.selector) {
            ++ghosts[uint256(log.topics[1])].deliveredEvents;
            ++seen[Seen.DELIVERED];
        } else if (topic == IInferenceResults.CallbackFailed.selector) {
            ++seen[Seen.DELIVERY_FAILED];
        } else if (topic == IInferenceResults.CallbackSkipped.selector) {
            ++seen[Seen.DELIVERY_SKIPPED];
        } else if (topic == IInferenceResults.GroupSkipped.selector) {
            ++seen[Seen.GROUP_SKIPPED];
        } else if (topic == IInferenceResults.ProofRejected.selector) {
            ++seen[Seen.PROOF_REJECTED];
        }
    }

    function readDisputes(Vm.Log memory log) private {
        if (log.topics[0] == IDisputes.PaymentHeld.selector) {
            ++seen[Seen.HELD];
            saidCreditsWei += word(log.data, 4) + word(log.data, 6);
        } else if (log.topics[0] == IDisputes.ReleaseSkipped.selector) {
            ++seen[Seen.RELEASE_SKIPPED];
        }
    }

    function lastWord(bytes memory data) private pure returns (uint256) {
        return word(data, data.length / 32 - 1);
    }

    function word(bytes memory data, uint256 place) private pure returns (uint256 out) {
        assembly ("memory-safe") {
            out := mload(add(add(data, 0x20), mul(place, 0x20)))
        }
    }

    // Helpers

    function next(uint256 seed) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed)));
    }

    /// @dev An id near those that are there; now and then one that is not. Mostly of the last twenty.
    function pick(uint256 seed) internal view returns (uint256) {
        uint256 end = requests.nextId() + 1;
        uint256 low = seed >> 16 & 3 != 0 && end > FIRST_ID + 20 ? end - 20 : FIRST_ID - 1;
        return low + (seed >> 32) % (end - low);
    }

    function commitment(uint256 id) internal view returns (bytes20) {
        Ghost storage g = ghosts[id];
        return bytes20(keccak256(abi.encode(CHAIN_ID, address(requests), id, g.requester, g.paramsHash)));
    }

    /// @dev Each request can be answered in two ways.
    function output(uint256 id, uint256 variant) internal pure returns (bytes memory) {
        return abi.encode("output", id, variant & 1);
    }

    /// @dev As it was submitted.
    function paramsOf(Ghost storage g) internal view returns (RequestParams memory p) {
        return paramsFor(g.model, g.submittedDeadline, g.quorum, g.delivery, g.salt);
    }

    function paramsFor(uint256 model, uint40 deadline, uint8 quorum, Delivery delivery, uint256 salt)
        internal
        view
        returns (RequestParams memory p)
    {
        p = params(deadline);
        p.modelId = bytes32(models[model]);
        p.quorum = quorum;
        p.delivery = delivery;
        if (delivery == Delivery.CALLBACK) p.callbackGasLimit = salt % 2 == 0 ? 400_000 : 1_600_000;
        p.batchable = salt % 3 != 0;
        p.input = abi.encode(salt);
    }

    function worker_(uint256 slot) internal view returns (GhostWorker storage) {
        return workers[workers.length - WORKERS + slot % WORKERS];
    }

    function hire(uint256 key, address owner_) internal {
        GhostWorker storage w = workers.push();
        w.key = key;
        w.signer = vm.addr(key);
        w.owner = owner_;
        w.enabled = true;
        placeOf[w.signer] = workers.length - 1;
        register(key, owner_);
    }

    function stakeFor(GhostWorker storage w, uint256 amountWei) internal {
        vm.deal(w.owner, amountWei);
        vm.prank(w.owner);
        stakes.stake{value: amountWei}(w.signer);
        w.stakedWei += amountWei;
    }
}
