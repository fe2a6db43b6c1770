// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {
    CompactSignature,
    GroupSkipReason,
    IInferenceResults,
    ResultGroup
} from "../src/interfaces/IInferenceResults.sol";
import {IStakeManager, SignedItem, StakeConfig, StakeRecord} from "../src/interfaces/IStakeManager.sol";
import {IWorkerRegistry} from "../src/interfaces/IWorkerRegistry.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";

/// @notice One worker, two digests for one request. Nothing of the request itself is looked at: what was signed is enough.
contract EquivocationTest is Fixture {
    uint256 private constant STAKE = 3 ether;
    uint256 private constant ID = 7;
    bytes20 private constant COMMITMENT = bytes20(uint160(0xC0FFEE));
    bytes32 private constant ONE = keccak256("one");
    bytes32 private constant OTHER = keccak256("other");

    function setUp() public override {
        super.setUp();
        register(WORKER_KEY, owner);
        stake(STAKE);
    }

    // What is slashed

    function test_slashEquivocation_takesTheWholeStake() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Equivocated(worker, ID, COMMITMENT, ONE, OTHER);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Slashed(worker, stranger, STAKE, 0, 0);
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerStaked(worker, false);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(stranger, address(stakes), STAKE / 10);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(treasury, address(stakes), STAKE - STAKE / 10);
        vm.assertEq(slash(one, other), STAKE);

        vm.assertEq(requests.credits(stranger), STAKE / 10);
        vm.assertEq(requests.credits(treasury), STAKE - STAKE / 10);
        vm.assertEq(address(stakes).balance, 0);
        vm.assertEq(address(requests).balance, STAKE);
        vm.assertEq(registry.activeOwner(worker), address(0));
        expectBarred(0);
    }

    function test_slashEquivocation_inEitherOrder() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Equivocated(worker, ID, COMMITMENT, OTHER, ONE);
        vm.assertEq(slash(other, one), STAKE);
    }

    function test_slashEquivocation_takesWhatIsUnbonding() public {
        unstake(1 ether);
        vm.warp(START + UNBONDING_DELAY - 1);
        vm.assertEq(slashWorker(), STAKE);
        expectBarred(START + UNBONDING_DELAY);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.withdrawStake(worker, payable(owner));
    }

    /// @notice Once the delay is over, whoever comes first.
    function test_slashEquivocation_takesWhatCouldBeWithdrawn() public {
        unstake(STAKE);
        vm.warp(START + 10 * uint256(UNBONDING_DELAY));
        vm.assertEq(slashWorker(), STAKE);
    }

    function test_slashEquivocation_afterFullWithdrawalStillBars() public {
        unstake(STAKE);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        stakes.withdrawStake(worker, payable(owner));
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        vm.recordLogs();
        vm.assertEq(slash(one, other), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        // Nothing for anybody, and the registry had heard of it before.
        vm.assertEq(logs.length, 2);
        vm.assertEq(logs[0].topics[0], IStakeManager.Equivocated.selector);
        vm.assertEq(logs[1].topics[0], IStakeManager.Slashed.selector);
        vm.assertEq(requests.credits(stranger) + requests.credits(treasury), 0);
        expectBarred(0);
    }

    function test_slashEquivocation_neverStakedIsBarredToo() public {
        register(OTHER_KEY, otherOwner);
        (SignedItem memory one, SignedItem memory other) = proof(OTHER_KEY);
        vm.assertEq(slash(one, other), 0);
        vm.prank(otherOwner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.Barred.selector, otherWorker));
        stakes.stake{value: MIN_STAKE}(otherWorker);
    }

    function test_slashEquivocation_belowMinimumTellsTheRegistryNothing() public {
        unstake(STAKE - MIN_STAKE + 1);
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        vm.recordLogs();
        vm.assertEq(slash(one, other), STAKE);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            vm.assertTrue(logs[i].topics[0] != IWorkerRegistry.WorkerStaked.selector);
        }
    }

    function test_slashEquivocation_leavesOthersAlone() public {
        activate(OTHER_KEY, otherOwner);
        slashWorker();
        vm.assertEq(stakes.stakeOf(otherWorker).stakedWei, MIN_STAKE);
        vm.assertEq(registry.activeOwner(otherWorker), otherOwner);
        vm.assertEq(address(stakes).balance, MIN_STAKE);
    }

    function test_slashEquivocation_reachesADisabledWorker() public {
        vm.prank(owner);
        registry.setEnabled(worker, false);
        vm.assertEq(slashWorker(), STAKE);
    }

    function testFuzz_slashEquivocation_sharesToTheWei(uint96 stakedWei, uint96 unbondingWei, uint256 bps) public {
        bps = bound(bps, 0, 5_000);
        redeploy(bps, MIN_STAKE);
        unbondingWei = uint96(bound(unbondingWei, 0, type(uint96).max / 2));
        stakedWei = uint96(bound(stakedWei, 0, type(uint96).max / 2));
        if (unbondingWei != 0) {
            stake(unbondingWei);
            unstake(unbondingWei);
        }
        if (stakedWei != 0) stake(stakedWei);
        uint256 whole = uint256(stakedWei) + unbondingWei;
        vm.assertEq(slashWorker(), whole);
        vm.assertEq(requests.credits(stranger), whole * bps / 10_000);
        vm.assertEq(requests.credits(treasury), whole - whole * bps / 10_000);
        vm.assertEq(address(requests).balance, whole);
        vm.assertEq(address(stakes).balance, 0);
    }

    /// @notice Who reports itself, before another does, loses at least half.
    function testFuzz_slashEquivocation_reportingOneselfNeverPays(uint96 stakedWei, uint256 bps) public {
        bps = bound(bps, 0, 5_000);
        redeploy(bps, MIN_STAKE);
        vm.assume(stakedWei != 0);
        vm.deal(owner, stakedWei);
        stake(stakedWei);
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        vm.startPrank(owner);
        stakes.slashEquivocation(one, other);
        if (requests.credits(owner) != 0) requests.withdraw();
        vm.stopPrank();
        vm.assertTrue(owner.balance * 2 <= stakedWei);
    }

    // Barred for ever

    function test_barred_cannotStakeAgain() public {
        slashWorker();
        vm.deal(owner, MIN_STAKE);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.Barred.selector, worker));
        stakes.stake{value: MIN_STAKE}(worker);
        vm.warp(START + 100 * 365 days);
        vm.deal(stranger, MIN_STAKE);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.Barred.selector, worker));
        stakes.stake{value: MIN_STAKE}(worker);
    }

    function test_barred_cannotBeEnabledIntoService() public {
        slashWorker();
        vm.prank(owner);
        registry.setEnabled(worker, true);
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    function test_barred_resultsAreSkipped() public {
        uint256 id = submit();
        ResultGroup[] memory list = groups(group(WORKER_KEY, item(id)));
        slashWorker();
        vm.expectEmit(address(results));
        emit IInferenceResults.GroupSkipped(0, GroupSkipReason.INACTIVE_WORKER);
        vm.assertEq(post(list), 0);
    }

    function test_RevertWhen_slashEquivocation_sameProofTwice() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        slash(one, other);
        expectNoSlash(one, other, abi.encodeWithSelector(IStakeManager.Barred.selector, worker));
    }

    function test_RevertWhen_slashEquivocation_anotherProof() public {
        slashWorker();
        SignedItem memory one = said(WORKER_KEY, item(8, COMMITMENT, ONE), 0);
        SignedItem memory other = said(WORKER_KEY, item(8, COMMITMENT, OTHER), 0);
        expectNoSlash(one, other, abi.encodeWithSelector(IStakeManager.Barred.selector, worker));
    }

    /// @notice A minimum of zero lets any stake do for ever, but not who is barred.
    function test_barred_isOutOfServiceWithoutMinimum() public {
        redeploy(REPORTER_BPS, 0);
        stake(1);
        vm.assertEq(registry.activeOwner(worker), owner);
        slashWorker();
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    /// @notice Nor does being slashed put anybody in service who never staked.
    function test_barred_neverStakedStaysOutWithoutMinimum() public {
        redeploy(REPORTER_BPS, 0);
        slashWorker();
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    // Which proofs count

    function test_slashEquivocation_firstAndLastOfLargerGroups() public {
        SignedItem memory one =
            said(WORKER_KEY, bytes.concat(item(ID, COMMITMENT, ONE), item(1, COMMITMENT, ONE), item(2, 0, ONE)), 0);
        SignedItem memory other =
            said(WORKER_KEY, bytes.concat(item(1, COMMITMENT, ONE), item(ID, COMMITMENT, OTHER)), 1);
        vm.assertEq(slash(one, other), STAKE);
    }

    function testFuzz_slashEquivocation_anyPlaceInAnyGroup(uint256 size, uint256 place, uint256 size2, uint256 place2)
        public
    {
        size = bound(size, 1, 40);
        size2 = bound(size2, 1, 40);
        place = bound(place, 0, size - 1);
        place2 = bound(place2, 0, size2 - 1);
        SignedItem memory one = said(WORKER_KEY, filled(size, place, ONE), place);
        SignedItem memory other = said(WORKER_KEY, filled(size2, place2, OTHER), place2);
        vm.assertEq(slash(one, other), STAKE);
    }

    /// @notice Two answers in one group are two answers.
    function test_slashEquivocation_bothInOneGroup() public {
        bytes memory items = bytes.concat(item(ID, COMMITMENT, ONE), item(ID, COMMITMENT, OTHER));
        vm.assertEq(slash(said(WORKER_KEY, items, 0), said(WORKER_KEY, items, 1)), STAKE);
    }

    function test_slashEquivocation_digestOfZero() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, 0), 0);
        SignedItem memory other = said(WORKER_KEY, item(ID, COMMITMENT, OTHER), 0);
        vm.assertEq(slash(one, other), STAKE);
    }

    function test_RevertWhen_slashEquivocation_sameItemTwice() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        expectNoEquivocation(one, one);
    }

    /// @notice A worker signs each result alone and in groups: the same answer, however often, is one.
    function test_RevertWhen_slashEquivocation_sameDigestInTwoGroups() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        bytes memory items = bytes.concat(item(1, COMMITMENT, OTHER), item(ID, COMMITMENT, ONE));
        expectNoEquivocation(one, said(WORKER_KEY, items, 1));
        // Not the other item of that group, either.
        expectNoEquivocation(one, said(WORKER_KEY, items, 0));
    }

    function test_RevertWhen_slashEquivocation_otherId() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        expectNoEquivocation(one, said(WORKER_KEY, item(ID + 1, COMMITMENT, OTHER), 0));
        expectNoEquivocation(one, said(WORKER_KEY, item(ID | 1 << 63, COMMITMENT, OTHER), 0));
    }

    /// @notice After a reorganisation an id can belong to another request: two commitments, two answers, no fault.
    function test_RevertWhen_slashEquivocation_otherCommitment() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        bytes20 near = bytes20(uint160(COMMITMENT) ^ 1);
        bytes20 far = bytes20(uint160(COMMITMENT) ^ (1 << 159));
        expectNoEquivocation(one, said(WORKER_KEY, item(ID, near, OTHER), 0));
        expectNoEquivocation(one, said(WORKER_KEY, item(ID, far, OTHER), 0));
    }

    function testFuzz_RevertWhen_slashEquivocation_notOneRequest(uint64 id, bytes20 commitment, bytes32 digest) public {
        vm.assume(id != ID || commitment != COMMITMENT || digest == ONE);
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        expectNoEquivocation(one, said(WORKER_KEY, item(id, commitment, digest), 0));
    }

    function test_RevertWhen_slashEquivocation_unregistered() public {
        (SignedItem memory one, SignedItem memory other) = proof(OTHER_KEY);
        expectNoSlash(one, other, abi.encodeWithSelector(IStakeManager.NotRegistered.selector, otherWorker));
    }

    function test_RevertWhen_slashEquivocation_indexBehindTheLast() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        other.index = 1;
        expectNoSlash(one, other, noSuchItem(1));
        expectNoSlash(other, one, noSuchItem(1));
    }

    function testFuzz_RevertWhen_slashEquivocation_indexOutOfRange(uint256 size, uint256 index) public {
        size = bound(size, 1, 20);
        index = bound(index, size, type(uint256).max);
        (SignedItem memory one,) = proof(WORKER_KEY);
        SignedItem memory other = said(WORKER_KEY, filled(size, 0, OTHER), index);
        expectNoSlash(one, other, noSuchItem(index));
    }

    function testFuzz_RevertWhen_slashEquivocation_partOfAnItem(uint256 length) public {
        length = bound(length, 0, 600);
        if (length % 60 == 0 && length != 0) ++length;
        (SignedItem memory one,) = proof(WORKER_KEY);
        SignedItem memory other = said(WORKER_KEY, new bytes(length), 0);
        expectNoSlash(one, other, noSuchItem(0));
        expectNoSlash(other, one, noSuchItem(0));
    }

    // Forgeries

    function test_attack_equivocationForgedByAThirdParty() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        bytes memory items = item(ID, COMMITMENT, OTHER);
        // Signed by somebody else, registered or not.
        expectNoEquivocation(one, said(OTHER_KEY, items, 0));
        activate(OTHER_KEY, otherOwner);
        expectNoEquivocation(one, said(OTHER_KEY, items, 0));
        // The worker's signature under another digest: it recovers to somebody, but not to the worker.
        SignedItem memory pasted = SignedItem({items: items, signature: one.signature, index: 0});
        expectNoEquivocation(one, pasted);
        // Two forged halves that name the same stranger would slash only the stranger.
        (SignedItem memory a, SignedItem memory b) = proof(0xBAD);
        expectNoSlash(a, b, abi.encodeWithSelector(IStakeManager.NotRegistered.selector, vm.addr(0xBAD)));
        vm.assertEq(stakes.stakeOf(worker).stakedWei, STAKE);
    }

    function testFuzz_attack_equivocationWithAnySignature(bytes32 r, bytes32 vs) public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        SignedItem memory other =
            SignedItem({items: item(ID, COMMITMENT, OTHER), signature: CompactSignature({r: r, vs: vs}), index: 0});
        vm.prank(stranger);
        vm.expectRevert();
        stakes.slashEquivocation(one, other);
        vm.prank(stranger);
        vm.expectRevert();
        stakes.slashEquivocation(other, one);
    }

    function test_RevertWhen_slashEquivocation_invalidSignature() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        other.signature.r = 0;
        expectNoSlash(one, other, abi.encodePacked(IStakeManager.BadSignature.selector));
        expectNoSlash(other, one, abi.encodePacked(IStakeManager.BadSignature.selector));
        // Both invalid: the zero address said nothing twice.
        one.signature.r = 0;
        expectNoSlash(one, other, abi.encodePacked(IStakeManager.BadSignature.selector));
    }

    function test_RevertWhen_slashEquivocation_malleated() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        other.signature = highS(other.signature);
        expectNoSlash(one, other, abi.encodePacked(IStakeManager.BadSignature.selector));
        // The other recovery bit is another signer.
        (one, other) = proof(WORKER_KEY);
        other.signature.vs ^= bytes32(uint256(1) << 255);
        expectNoEquivocation(one, other);
    }

    function test_RevertWhen_slashEquivocation_signedForAnotherChain() public {
        SignedItem memory one = said(WORKER_KEY, item(ID, COMMITMENT, ONE), 0);
        vm.chainId(CHAIN_ID + 1);
        SignedItem memory other = said(WORKER_KEY, item(ID, COMMITMENT, OTHER), 0);
        // Nor does what was said before the fork count after it.
        expectNoEquivocation(one, other);
        vm.chainId(CHAIN_ID);
        expectNoEquivocation(one, other);
    }

    function test_RevertWhen_slashEquivocation_signedForAnotherContract() public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        IInferenceResults elsewhere =
            IInferenceResults(deployCode("InferenceResults", abi.encode(address(requests), address(registry))));
        other.signature = sign(WORKER_KEY, elsewhere.groupDigest(other.items));
        expectNoEquivocation(one, other);
        // A consent to an owner is not a result.
        other.signature = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        expectNoEquivocation(one, other);
    }

    // Running away

    function test_attack_slashingFrontRunByUnstaking() public {
        // The worker sees the report coming and starts to leave in the same block, before it.
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        unstake(STAKE);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.StillBonded.selector, START + UNBONDING_DELAY, START));
        stakes.withdrawStake(worker, payable(owner));
        vm.assertEq(slash(one, other), STAKE);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.withdrawStake(worker, payable(owner));
        vm.assertEq(address(stakes).balance, 0);
    }

    function testFuzz_attack_slashingFrontRunByUnstakingInParts(uint256 seed) public {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        uint256 leftWei = STAKE;
        for (uint256 i; i < 5 && leftWei != 0; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 amountWei = bound(seed, 1, leftWei);
            unstake(amountWei);
            leftWei -= amountWei;
            // Never long enough for anything to come free.
            vm.warp(block.timestamp + seed % UNBONDING_DELAY);
        }
        vm.assertEq(slash(one, other), STAKE);
    }

    function stake(uint256 amountWei) private {
        vm.deal(owner, amountWei);
        vm.prank(owner);
        stakes.stake{value: amountWei}(worker);
    }

    function unstake(uint256 amountWei) private {
        vm.prank(owner);
        stakes.unstake(worker, amountWei);
    }

    function redeploy(uint256 reporterBps, uint256 minStakeWei) private {
        address freshAt = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + 1);
        registry = deployRegistry(freshAt);
        StakeConfig memory config = stakeConfig();
        config.reporterBps = reporterBps;
        config.minStakeWei = minStakeWei;
        stakes = deployStakes(config);
        vm.assertEq(address(stakes), freshAt);
        register(WORKER_KEY, owner);
    }

    function said(uint256 key, bytes memory items, uint256 index) private view returns (SignedItem memory) {
        return SignedItem({items: items, signature: sign(key, results.groupDigest(items)), index: index});
    }

    function proof(uint256 key) private view returns (SignedItem memory one, SignedItem memory other) {
        one = said(key, item(ID, COMMITMENT, ONE), 0);
        other = said(key, item(ID, COMMITMENT, OTHER), 0);
    }

    /// @dev A group in which only `place` is about the request.
    function filled(uint256 size, uint256 place, bytes32 digest) private pure returns (bytes memory items) {
        for (uint256 i; i < size; ++i) {
            bytes memory next = i == place ? item(ID, COMMITMENT, digest) : item(100 + i, COMMITMENT, digest);
            items = bytes.concat(items, next);
        }
    }

    function slash(SignedItem memory one, SignedItem memory other) private returns (uint256) {
        vm.prank(stranger);
        return stakes.slashEquivocation(one, other);
    }

    function slashWorker() private returns (uint256) {
        (SignedItem memory one, SignedItem memory other) = proof(WORKER_KEY);
        return slash(one, other);
    }

    function expectBarred(uint256 withdrawableAt) private view {
        StakeRecord memory record = stakes.stakeOf(worker);
        vm.assertEq(record.stakedWei, 0);
        vm.assertEq(record.unbondingWei, 0);
        vm.assertEq(record.withdrawableAt, withdrawableAt);
        vm.assertTrue(record.barred);
    }

    function expectNoEquivocation(SignedItem memory one, SignedItem memory other) private {
        expectNoSlash(one, other, abi.encodePacked(IStakeManager.NoEquivocation.selector));
        expectNoSlash(other, one, abi.encodePacked(IStakeManager.NoEquivocation.selector));
    }

    function expectNoSlash(SignedItem memory one, SignedItem memory other, bytes memory why) private {
        vm.prank(stranger);
        vm.expectRevert(why);
        stakes.slashEquivocation(one, other);
    }

    function noSuchItem(uint256 index) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IStakeManager.NoSuchItem.selector, index);
    }
}
