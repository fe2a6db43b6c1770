// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    RefundClaim,
    RequestParams,
    RequestRecord
} from "../../src/interfaces/IInferenceRequests.sol";
import {CompactSignature, ResultGroup} from "../../src/interfaces/IInferenceResults.sol";
import {StakeRecord} from "../../src/interfaces/IStakeManager.sol";
import {Fixture} from "../base/Fixture.sol";
import {Vm} from "../base/Vm.sol";

/// @notice Plays requesters, worker owners, posters and passers-by, and keeps its own books beside the contracts'.
contract Handler is Fixture {
    /// @dev What the books say of a request. `settledEvents` counts what the contract said, not what it should say.
    struct Ghost {
        address requester;
        bytes32 paramsHash;
        uint256 feeWei;
        uint256 deadline;
        bool closed;
        uint256 fulfilledEvents;
        uint256 refundedEvents;
    }

    struct GhostStake {
        uint256 stakedWei;
        uint256 unbondingWei;
        uint256 withdrawableAt;
    }

    uint256 public constant FIRST_ID = 250;
    uint256 private constant MAX_FEE_GWEI = (1 << 48) - 1;

    address[] public requesters;
    address[] public owners;
    address[] public posters;
    /// @dev The last is never registered.
    uint256[] private keys;

    mapping(uint256 id => Ghost) private ghosts;
    mapping(address account => uint256) public ghostCredits;
    mapping(address signer => GhostStake) private ghostStakes;
    mapping(address signer => bool) public enabled;
    uint256 public feesIn;
    uint256 public paidOut;
    /// @dev How often each interesting thing came about, so that a test can see that it does.
    uint256 public fulfilled;
    uint256 public refunded;
    uint256 public skipped;

    constructor() {
        vm.warp(START);
        deploy(POSTER_BPS + 1);
        startAt(FIRST_ID);
        vm.assertEq(requests.nextId(), FIRST_ID);

        for (uint256 i; i < 3; ++i) {
            requesters.push(account(string(abi.encode("requester", i))));
            owners.push(account(string(abi.encode("owner", i))));
            keys.push(0x1000 + i);
        }
        keys.push(0xBAD);
        posters.push(account("poster 0"));
        // This one owns a worker, too.
        posters.push(owners[0]);
        for (uint256 i; i < 3; ++i) {
            vm.deal(owners[i], type(uint96).max);
            register(keys[i], owners[i]);
            enabled[vm.addr(keys[i])] = true;
            if (i < 2) stakeFor(i, MIN_STAKE);
        }
    }

    // Actions

    function submit(uint256 who, uint256 feeGwei, uint256 life, uint256 count) external {
        address requester_ = requesters[who % 3];
        feeGwei = who % 7 == 0 ? MAX_FEE_GWEI : bound(feeGwei, 1, 1e9);
        life = bound(life, 1, 200);
        count = bound(count, 1, 4);
        RequestParams memory p = params(uint40(block.timestamp + life));
        p.input = abi.encode(who, feeGwei);
        uint256 firstId = requests.nextId();
        vm.deal(requester_, feeGwei * 1 gwei * count);
        if (count == 1) {
            vm.prank(requester_);
            vm.assertEq(requests.submit{value: feeGwei * 1 gwei}(p), firstId);
        } else {
            RequestParams[] memory list = new RequestParams[](count);
            uint256[] memory fees = new uint256[](count);
            for (uint256 i; i < count; ++i) {
                list[i] = p;
                fees[i] = feeGwei * 1 gwei;
            }
            vm.prank(requester_);
            vm.assertEq(requests.submitMany{value: feeGwei * 1 gwei * count}(list, fees), firstId);
        }
        for (uint256 i; i < count; ++i) {
            ghosts[firstId + i] = Ghost(requester_, hashOf(p), feeGwei * 1 gwei, block.timestamp + life, false, 0, 0);
        }
        feesIn += feeGwei * 1 gwei * count;
    }

    function raiseFee(uint256 seed, uint256 gweis) external {
        uint256 id = pick(seed);
        Ghost storage g = ghosts[id];
        gweis = bound(gweis, 1, 1e9);
        vm.deal(address(this), gweis * 1 gwei);
        bool possible = isOpen(g) && g.feeWei / 1 gwei + gweis <= MAX_FEE_GWEI;
        try requests.raiseFee{value: gweis * 1 gwei}(id) {
            vm.assertTrue(possible, "raised what cannot be");
            g.feeWei += gweis * 1 gwei;
            feesIn += gweis * 1 gwei;
        } catch {
            vm.assertFalse(possible);
        }
    }

    function requestCancel(uint256 seed, uint256 who) external {
        uint256 id = pick(seed);
        Ghost storage g = ghosts[id];
        address caller = who % 4 == 0 ? requesters[(who >> 8) % 3] : g.requester;
        bool possible = isOpen(g) && caller == g.requester;
        vm.prank(caller);
        try requests.requestCancel(id, g.paramsHash) {
            vm.assertTrue(possible, "cancelled what cannot be");
            if (block.timestamp + CANCEL_DELAY < g.deadline) g.deadline = block.timestamp + CANCEL_DELAY;
        } catch {
            vm.assertFalse(possible);
        }
    }

    function refund(uint256 seed, uint256 count) external {
        count = bound(count, 1, 8);
        RefundClaim[] memory claims = new RefundClaim[](count);
        uint256 expected;
        for (uint256 i; i < count; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 id = pick(seed);
            Ghost storage g = ghosts[id];
            claims[i] = RefundClaim(id, g.requester, g.paramsHash);
            if (seed >> 240 & 7 == 0) {
                // Somebody else's hand.
                claims[i].requester = owners[0];
            } else if (g.requester != address(0) && !g.closed && block.timestamp > g.deadline) {
                g.closed = true;
                ghostCredits[g.requester] += g.feeWei;
                ++expected;
            }
        }
        vm.recordLogs();
        vm.assertEq(requests.refund(claims), expected, "refunded");
        readLogs();
    }

    function post(uint256 seed, uint256 groupCount, bool twice) external {
        address poster_ = posters[seed & 1];
        groupCount = bound(groupCount, 1, 3);
        ResultGroup[] memory list = new ResultGroup[](groupCount);
        uint256 expected;
        for (uint256 i; i < groupCount; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 key = keys[seed % 16 == 0 ? 3 : seed % 3];
            bytes memory items;
            uint256 settled;
            (items, settled) = draw(seed, vm.addr(key), poster_);
            list[i] = group(key, items);
            expected += settled;
        }
        vm.recordLogs();
        vm.prank(poster_);
        vm.assertEq(results.post(list, bytes32(seed)), expected, "settled");
        if (twice) {
            vm.prank(poster_);
            vm.assertEq(results.post(list, 0), 0, "settled again");
        }
        readLogs();
    }

    function withdraw(uint256 who) external {
        address from = who % 2 == 0 ? requesters[(who >> 8) % 3] : who % 4 == 1 ? owners[(who >> 8) % 3] : posters[0];
        if (requests.credits(from) == 0) return;
        address payable to = payable(account("purse"));
        uint256 before = to.balance;
        vm.prank(from);
        uint256 amountWei = requests.withdrawTo(to);
        vm.assertEq(amountWei, ghostCredits[from], "withdrawn");
        vm.assertEq(to.balance - before, amountWei, "received");
        ghostCredits[from] = 0;
        paidOut += amountWei;
    }

    function wait(uint256 seconds_) external {
        vm.warp(block.timestamp + bound(seconds_, 1, seconds_ % 20 == 0 ? UNBONDING_DELAY : 60));
    }

    function setEnabled(uint256 which, bool to) external {
        // More often in than out, so that results are settled.
        to = to || which % 3 != 0;
        address signer = vm.addr(keys[which % 3]);
        vm.prank(owners[which % 3]);
        registry.setEnabled(signer, to);
        enabled[signer] = to;
    }

    function stake(uint256 which, uint256 amountWei) external {
        stakeFor(which % 3, bound(amountWei, 1, 2 * MIN_STAKE));
    }

    function unstake(uint256 which, uint256 amountWei) external {
        address signer = vm.addr(keys[which % 3]);
        GhostStake storage g = ghostStakes[signer];
        if (g.stakedWei == 0) return;
        amountWei = bound(amountWei, 1, g.stakedWei);
        vm.prank(owners[which % 3]);
        stakes.unstake(signer, amountWei);
        g.stakedWei -= amountWei;
        g.unbondingWei += amountWei;
        g.withdrawableAt = block.timestamp + UNBONDING_DELAY;
    }

    function withdrawStake(uint256 which) external {
        address signer = vm.addr(keys[which % 3]);
        GhostStake storage g = ghostStakes[signer];
        bool possible = g.unbondingWei > 0 && block.timestamp >= g.withdrawableAt;
        vm.prank(owners[which % 3]);
        try stakes.withdrawStake(signer, payable(account("purse"))) returns (uint256 amountWei) {
            vm.assertTrue(possible, "left before its time");
            vm.assertEq(amountWei, g.unbondingWei, "left");
            g.unbondingWei = 0;
        } catch {
            vm.assertFalse(possible);
        }
    }

    // What the books say

    function escrowWei() external view returns (uint256 sumWei) {
        uint256 end = requests.nextId();
        for (uint256 id = FIRST_ID; id < end; ++id) {
            if (!ghosts[id].closed) sumWei += ghosts[id].feeWei;
        }
    }

    function creditsWei() external view returns (uint256 sumWei) {
        for (uint256 i; i < 3; ++i) {
            sumWei += requests.credits(requesters[i]) + requests.credits(owners[i]);
        }
        sumWei += requests.credits(posters[0]);
    }

    function stakesWei() external view returns (uint256 sumWei) {
        for (uint256 i; i < 3; ++i) {
            GhostStake storage g = ghostStakes[vm.addr(keys[i])];
            sumWei += g.stakedWei + g.unbondingWei;
        }
    }

    function checkCredits() external view {
        for (uint256 i; i < 3; ++i) {
            vm.assertEq(requests.credits(requesters[i]), ghostCredits[requesters[i]], "requester's credit");
            vm.assertEq(requests.credits(owners[i]), ghostCredits[owners[i]], "owner's credit");
        }
        vm.assertEq(requests.credits(posters[0]), ghostCredits[posters[0]], "poster's credit");
        for (uint256 i; i < 4; ++i) {
            vm.assertEq(requests.credits(vm.addr(keys[i])), 0, "a signer's credit");
        }
    }

    /// @dev Plain comparisons: a cheatcode for each id after each step would make up most of the run.
    function checkBits() external view {
        uint256 end = requests.nextId() + 2;
        uint256 word;
        for (uint256 id = FIRST_ID - 2; id < end; ++id) {
            if (id == FIRST_ID - 2 || id % 256 == 0) word = requests.settledWord(id / 256);
            Ghost storage g = ghosts[id];
            uint256 events = g.fulfilledEvents + g.refundedEvents;
            require(events < 2, "settled twice");
            require((word >> (id % 256) & 1 == 1) == (events == 1), "bit without event, or event without bit");
            require(g.closed == (events == 1), "settled, or not, against the books");
        }
    }

    function checkRecords() external view {
        uint256 end = requests.nextId();
        for (uint256 id = FIRST_ID; id < end; ++id) {
            Ghost storage g = ghosts[id];
            if (g.closed) continue;
            RequestRecord memory record = requests.recordOf(id);
            require(uint256(record.feeGwei) * 1 gwei == g.feeWei, "fee");
            require(record.deadline == g.deadline, "deadline");
            require(record.commitment == commitment(id), "commitment");
            require(record.delivery == Delivery.EVENT && record.quorum == 1 && record.batchable, "terms");
        }
    }

    function checkStakes() external view {
        for (uint256 i; i < 3; ++i) {
            address signer = vm.addr(keys[i]);
            GhostStake storage g = ghostStakes[signer];
            StakeRecord memory record = stakes.stakeOf(signer);
            vm.assertEq(record.stakedWei, g.stakedWei, "staked");
            vm.assertEq(record.unbondingWei, g.unbondingWei, "unbonding");
            vm.assertEq(registry.workerOf(signer).staked, g.stakedWei >= MIN_STAKE);
            vm.assertEq(registry.activeOwner(signer), isActive(signer) ? owners[i] : address(0));
        }
    }

    function requestsBalance() external view returns (uint256) {
        return address(requests).balance;
    }

    function stakesBalance() external view returns (uint256) {
        return address(stakes).balance;
    }

    // Helpers

    /// @dev Draws up to 12 items, some of them bad, and books what settling them in this order must do.
    function draw(uint256 seed, address signer, address poster_) private returns (bytes memory items, uint256 settled) {
        uint256 count = 1 + seed % 12;
        uint256 feesWei;
        for (uint256 i; i < count; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 id = pick(seed);
            bytes20 c = commitment(id);
            bool right = seed >> 240 & 7 != 0;
            if (!right) c = bytes20(uint160(c) ^ uint160(1 << (seed >> 200 & 127)));
            items = bytes.concat(items, item(id, c));
            Ghost storage g = ghosts[id];
            if (right && isOpen(g) && isActive(signer)) {
                g.closed = true;
                ++settled;
                feesWei += g.feeWei;
            }
        }
        if (settled > 0) {
            uint256 posterWei = feesWei * (POSTER_BPS + 1) / 10_000;
            ghostCredits[poster_] += posterWei;
            ghostCredits[registry.workerOf(signer).owner] += feesWei - posterWei;
        }
    }

    function readLogs() private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (topic == IInferenceRequests.InferenceFulfilled.selector) {
                ++ghosts[uint256(logs[i].topics[1])].fulfilledEvents;
                ++fulfilled;
            } else if (topic == IInferenceRequests.RequestRefunded.selector) {
                ++ghosts[uint256(logs[i].topics[1])].refundedEvents;
                ++refunded;
            } else if (topic == IInferenceRequests.ResultSkipped.selector) {
                ++skipped;
            }
        }
    }

    /// @dev An id near those that are there; now and then one that is not. Mostly of the last twenty.
    function pick(uint256 seed) private view returns (uint256) {
        uint256 end = requests.nextId() + 1;
        uint256 low = seed >> 16 & 3 != 0 && end > FIRST_ID + 20 ? end - 20 : FIRST_ID - 1;
        return low + (seed >> 32) % (end - low);
    }

    function commitment(uint256 id) private view returns (bytes20) {
        Ghost storage g = ghosts[id];
        return bytes20(keccak256(abi.encode(CHAIN_ID, address(requests), id, g.requester, g.paramsHash)));
    }

    function isOpen(Ghost storage g) private view returns (bool) {
        return g.requester != address(0) && !g.closed && block.timestamp <= g.deadline;
    }

    function isActive(address signer) private view returns (bool) {
        return enabled[signer] && ghostStakes[signer].stakedWei >= MIN_STAKE;
    }

    function stakeFor(uint256 which, uint256 amountWei) private {
        address signer = vm.addr(keys[which]);
        vm.prank(owners[which]);
        stakes.stake{value: amountWei}(signer);
        ghostStakes[signer].stakedWei += amountWei;
    }
}
