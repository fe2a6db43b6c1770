// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "../src/interfaces/ICredits.sol";
import {IStakeManager, StakeConfig, StakeRecord} from "../src/interfaces/IStakeManager.sol";
import {IWorkerRegistry} from "../src/interfaces/IWorkerRegistry.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {Reenterer, Refuser} from "./mocks/Reenterer.sol";

contract StakeManagerTest is Fixture {
    address payable private to = payable(account("to"));

    function setUp() public override {
        super.setUp();
        register(WORKER_KEY, owner);
    }

    function test_constructor_wires() public view {
        vm.assertEq(stakes.registry(), address(registry));
        vm.assertEq(stakes.requests(), address(requests));
        vm.assertEq(stakes.results(), address(results));
        vm.assertEq(stakes.disputes(), address(disputes));
        vm.assertEq(stakes.treasury(), treasury);
        vm.assertEq(stakes.minStakeWei(), MIN_STAKE);
        vm.assertEq(stakes.unbondingDelay(), UNBONDING_DELAY);
        vm.assertEq(stakes.reporterBps(), REPORTER_BPS);
    }

    function test_constructor_reporterGetsAtMostAHalf() public {
        StakeConfig memory config = stakeConfig();
        config.reporterBps = 5_000;
        vm.assertEq(deployStakes(config).reporterBps(), 5_000);
        config.reporterBps = 0;
        vm.assertEq(deployStakes(config).reporterBps(), 0);
    }

    function testFuzz_RevertWhen_constructor_reporterGetsMoreThanAHalf(uint256 bps) public {
        StakeConfig memory config = stakeConfig();
        config.reporterBps = bound(bps, 5_001, type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.InvalidReporterBps.selector, config.reporterBps));
        this.deployStakesExternally(config);
    }

    function test_constructor_delayIsAtMostAYear() public {
        StakeConfig memory config = stakeConfig();
        config.unbondingDelay = 365 days;
        vm.assertEq(deployStakes(config).unbondingDelay(), 365 days);
        config.unbondingDelay = 0;
        vm.assertEq(deployStakes(config).unbondingDelay(), 0);
    }

    function testFuzz_RevertWhen_constructor_delayOfMoreThanAYear(uint40 delay) public {
        StakeConfig memory config = stakeConfig();
        config.unbondingDelay = uint40(bound(delay, 365 days + 1, type(uint40).max));
        vm.expectRevert(
            abi.encodeWithSelector(IStakeManager.UnbondingDelayTooLong.selector, uint256(config.unbondingDelay))
        );
        this.deployStakesExternally(config);
    }

    function test_RevertWhen_constructor_noTreasury() public {
        StakeConfig memory config = stakeConfig();
        config.treasury = address(0);
        vm.expectRevert(IStakeManager.NoTreasury.selector);
        this.deployStakesExternally(config);
    }

    function test_stake_byAnyone() public {
        vm.deal(stranger, 1 ether);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Staked(worker, stranger, 0.4 ether, 0.4 ether);
        vm.prank(stranger);
        stakes.stake{value: 0.4 ether}(worker);
        expectStake(0.4 ether, 0, 0);
        vm.assertFalse(registry.workerOf(worker).staked);
    }

    function test_stake_belowMinimum() public {
        stake(MIN_STAKE - 1);
        vm.assertFalse(registry.workerOf(worker).staked);
    }

    function test_stake_exactlyMinimumInTwoParts() public {
        stake(MIN_STAKE - 1);
        stake(1);
        vm.assertTrue(registry.workerOf(worker).staked);
        vm.assertEq(registry.activeOwner(worker), owner);
    }

    function test_stake_tellsRegistryOnlyOnCrossing() public {
        stake(MIN_STAKE);
        vm.recordLogs();
        stake(1);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IStakeManager.Staked.selector);
    }

    function test_stake_withoutMinimum() public {
        // With a minimum of zero one wei is enough, and the worker stays in when it takes that wei out.
        uint256 nonce = vm.getNonce(address(this));
        registry = deployRegistry(vm.computeCreateAddress(address(this), nonce + 1));
        StakeConfig memory config = stakeConfig();
        config.minStakeWei = 0;
        stakes = deployStakes(config);
        register(WORKER_KEY, owner);
        vm.assertFalse(registry.workerOf(worker).staked);
        stake(1);
        vm.assertTrue(registry.workerOf(worker).staked);
        unstake(1);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_RevertWhen_stake_zero() public {
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.stake(worker);
    }

    function test_RevertWhen_stake_unregistered() public {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotRegistered.selector, otherWorker));
        stakes.stake{value: 1}(otherWorker);
    }

    function test_stake_largest() public {
        vm.deal(owner, type(uint96).max);
        stake(type(uint96).max);
        expectStake(type(uint96).max, 0, 0);
    }

    function test_RevertWhen_stake_tooLarge() public {
        vm.deal(owner, uint256(type(uint96).max) + 1);
        stake(1);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.StakeTooLarge.selector, uint256(type(uint96).max)));
        stakes.stake{value: type(uint96).max}(worker);
    }

    function test_RevertWhen_stake_tooLargeWithUnbonding() public {
        vm.deal(owner, uint256(type(uint96).max) + 1);
        stake(type(uint96).max);
        unstake(type(uint96).max);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.StakeTooLarge.selector, uint256(1)));
        stakes.stake{value: 1}(worker);
    }

    function test_unstake_startsDelay() public {
        stake(3 ether);
        vm.expectEmit(address(stakes));
        emit IStakeManager.UnstakeStarted(worker, 1 ether, 2 ether, 1 ether, uint40(START + UNBONDING_DELAY));
        unstake(1 ether);
        expectStake(2 ether, 1 ether, START + UNBONDING_DELAY);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_unstake_belowMinimumDeactivates() public {
        stake(MIN_STAKE);
        unstake(1);
        vm.assertFalse(registry.workerOf(worker).staked);
        vm.assertEq(registry.activeOwner(worker), address(0));
        // What is on its way out does not count, but can be replaced.
        stake(1);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_unstake_secondRestartsDelayForSum() public {
        stake(3 ether);
        unstake(1 ether);
        vm.warp(START + UNBONDING_DELAY - 1);
        unstake(0.5 ether);
        expectStake(1.5 ether, 1.5 ether, START + 2 * uint256(UNBONDING_DELAY) - 1);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakeManager.StillBonded.selector,
                START + 2 * uint256(UNBONDING_DELAY) - 1,
                START + uint256(UNBONDING_DELAY)
            )
        );
        stakes.withdrawStake(worker, to);
    }

    function test_RevertWhen_unstake_zero() public {
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.unstake(worker, 0);
    }

    function test_RevertWhen_unstake_unregistered() public {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotRegistered.selector, otherWorker));
        stakes.unstake(otherWorker, 1);
    }

    function test_RevertWhen_unstake_notOwner() public {
        stake(1 ether);
        vm.prank(worker);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotOwner.selector, worker));
        stakes.unstake(worker, 1);
    }

    function testFuzz_RevertWhen_unstake_moreThanStaked(uint256 amount, uint256 more) public {
        amount = bound(amount, 1, 100 ether);
        more = bound(more, amount + 1, type(uint256).max);
        stake(amount);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.InsufficientStake.selector, amount, more));
        stakes.unstake(worker, more);
    }

    function test_withdrawStake_atTheDelay() public {
        stake(3 ether);
        unstake(1 ether);
        vm.warp(START + UNBONDING_DELAY);
        vm.expectEmit(address(stakes));
        emit IStakeManager.StakeWithdrawn(worker, to, 1 ether);
        vm.prank(owner);
        vm.assertEq(stakes.withdrawStake(worker, to), 1 ether);
        vm.assertEq(to.balance, 1 ether);
        expectStake(2 ether, 0, 0);
        vm.assertEq(address(stakes).balance, 2 ether);
    }

    function testFuzz_RevertWhen_withdrawStake_early(uint256 wait) public {
        wait = bound(wait, 0, UNBONDING_DELAY - 1);
        stake(3 ether);
        unstake(1 ether);
        vm.warp(START + wait);
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(IStakeManager.StillBonded.selector, START + UNBONDING_DELAY, START + wait)
        );
        stakes.withdrawStake(worker, to);
    }

    function test_RevertWhen_withdrawStake_oneSecondEarly() public {
        stake(3 ether);
        unstake(1 ether);
        vm.warp(START + UNBONDING_DELAY - 1);
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakeManager.StillBonded.selector, START + UNBONDING_DELAY, START + UNBONDING_DELAY - 1
            )
        );
        stakes.withdrawStake(worker, to);
    }

    function test_RevertWhen_withdrawStake_nothing() public {
        stake(1 ether);
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.withdrawStake(worker, to);
    }

    function test_RevertWhen_withdrawStake_notOwner() public {
        unbonded();
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotOwner.selector, stranger));
        stakes.withdrawStake(worker, to);
    }

    function test_RevertWhen_withdrawStake_unregistered() public {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotRegistered.selector, otherWorker));
        stakes.withdrawStake(otherWorker, to);
    }

    function test_RevertWhen_withdrawStake_toZero() public {
        unbonded();
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IStakeManager.TransferFailed.selector, address(0), uint256(1 ether)));
        stakes.withdrawStake(worker, payable(address(0)));
        expectStake(2 ether, 1 ether, START + UNBONDING_DELAY);
    }

    function test_RevertWhen_withdrawStake_refused() public {
        unbonded();
        Refuser refuser = new Refuser();
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(IStakeManager.TransferFailed.selector, address(refuser), uint256(1 ether))
        );
        stakes.withdrawStake(worker, payable(address(refuser)));
        expectStake(2 ether, 1 ether, START + UNBONDING_DELAY);
    }

    function test_withdrawStake_reentrant() public {
        Reenterer attacker = new Reenterer();
        register(OTHER_KEY, address(attacker));
        vm.deal(address(attacker), 2 ether);
        attacker.forward(address(stakes), 2 ether, abi.encodeCall(stakes.stake, (otherWorker)));
        attacker.forward(address(stakes), 0, abi.encodeCall(stakes.unstake, (otherWorker, 1 ether)));
        vm.warp(START + UNBONDING_DELAY);
        bytes memory again = abi.encodeCall(stakes.withdrawStake, (otherWorker, payable(address(attacker))));
        attacker.arm(address(stakes), again);
        stake(5 ether);
        attacker.forward(address(stakes), 0, again);
        vm.assertEq(attacker.attempts(), 1);
        vm.assertEq(attacker.successes(), 0);
        vm.assertEq(address(attacker).balance, 1 ether);
        vm.assertEq(address(stakes).balance, 6 ether);
    }

    function test_RevertWhen_etherIsSent() public {
        vm.prank(owner);
        (bool ok,) = address(stakes).call{value: 1}("");
        vm.assertFalse(ok);
    }

    function testFuzz_stakeUnstakeWithdraw_conserves(uint96 amount, uint96 part) public {
        vm.assume(amount > 0);
        part = uint96(bound(part, 1, amount));
        vm.deal(owner, amount);
        stake(amount);
        unstake(part);
        vm.assertEq(registry.workerOf(worker).staked, amount - part >= MIN_STAKE);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        stakes.withdrawStake(worker, to);
        vm.assertEq(to.balance, part);
        vm.assertEq(address(stakes).balance, amount - part);
    }

    // Slashing by the disputes contract

    function test_slashLoser_fromTheStakeFirst() public {
        stake(3 ether);
        unstake(1 ether);
        vm.expectEmit(address(stakes));
        emit IStakeManager.Slashed(worker, stranger, 0.5 ether, 1.5 ether, 1 ether);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(stranger, address(stakes), 0.05 ether);
        vm.expectEmit(address(requests));
        emit ICredits.Credited(treasury, address(stakes), 0.45 ether);
        vm.assertEq(slashLoser(0.5 ether), 0.5 ether);
        expectStake(1.5 ether, 1 ether, START + UNBONDING_DELAY);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_slashLoser_thenFromWhatIsUnbonding() public {
        stake(3 ether);
        unstake(1 ether);
        vm.assertEq(slashLoser(2.25 ether), 2.25 ether);
        expectStake(0, 0.75 ether, START + UNBONDING_DELAY);
        // The rest leaves when it would have left.
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        vm.assertEq(stakes.withdrawStake(worker, to), 0.75 ether);
        vm.assertEq(address(stakes).balance, 0);
    }

    function test_slashLoser_exactlyTheStake() public {
        stake(3 ether);
        unstake(1 ether);
        vm.assertEq(slashLoser(2 ether), 2 ether);
        expectStake(0, 1 ether, START + UNBONDING_DELAY);
    }

    function test_slashLoser_atMostWhatThereIs() public {
        stake(3 ether);
        unstake(1 ether);
        vm.assertEq(slashLoser(type(uint256).max), 3 ether);
        expectStake(0, 0, START + UNBONDING_DELAY);
        vm.warp(START + UNBONDING_DELAY);
        vm.prank(owner);
        vm.expectRevert(IStakeManager.AmountZero.selector);
        stakes.withdrawStake(worker, to);
    }

    function test_slashLoser_nothingThere() public {
        vm.recordLogs();
        vm.assertEq(slashLoser(1 ether), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].topics[0], IStakeManager.Slashed.selector);
        vm.assertEq(address(requests).balance, 0);
    }

    function test_slashLoser_nothingAsked() public {
        stake(MIN_STAKE);
        vm.assertEq(slashLoser(0), 0);
        expectStake(MIN_STAKE, 0, 0);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_slashLoser_oneWeiBelowTheMinimumIsOutOfService() public {
        stake(MIN_STAKE + 1);
        slashLoser(1);
        vm.assertEq(registry.activeOwner(worker), owner);
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerStaked(worker, false);
        slashLoser(1);
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    function test_slashLoser_isNotBarred() public {
        stake(MIN_STAKE);
        slashLoser(MIN_STAKE);
        vm.assertFalse(stakes.stakeOf(worker).barred);
        stake(MIN_STAKE);
        vm.assertEq(registry.activeOwner(worker), owner);
    }

    function testFuzz_slashLoser_toTheWei(uint96 stakedWei, uint96 unbondingWei, uint256 atMostWei) public {
        stakedWei = uint96(bound(stakedWei, 0, type(uint96).max / 2));
        unbondingWei = uint96(bound(unbondingWei, 0, type(uint96).max / 2));
        uint256 whole = uint256(stakedWei) + unbondingWei;
        if (atMostWei % 2 == 0) atMostWei = bound(atMostWei, 0, whole);
        vm.deal(owner, whole);
        if (unbondingWei != 0) {
            stake(unbondingWei);
            unstake(unbondingWei);
        }
        if (stakedWei != 0) stake(stakedWei);

        uint256 expectedWei = atMostWei < whole ? atMostWei : whole;
        vm.assertEq(slashLoser(atMostWei), expectedWei);
        StakeRecord memory record = stakes.stakeOf(worker);
        vm.assertEq(record.stakedWei, expectedWei < stakedWei ? stakedWei - expectedWei : 0);
        vm.assertEq(uint256(record.stakedWei) + record.unbondingWei, whole - expectedWei);
        vm.assertEq(registry.workerOf(worker).staked, record.stakedWei >= MIN_STAKE);
        vm.assertEq(address(stakes).balance, whole - expectedWei);
        vm.assertEq(requests.credits(stranger), expectedWei / 10);
        vm.assertEq(requests.credits(treasury), expectedWei - expectedWei / 10);
        vm.assertEq(address(requests).balance, expectedWei);
    }

    function test_RevertWhen_slashLoser_notDisputes() public {
        stake(MIN_STAKE);
        address[6] memory callers = [owner, admin, arbiter, treasury, address(requests), address(registry)];
        for (uint256 i; i < callers.length; ++i) {
            vm.prank(callers[i]);
            vm.expectRevert(abi.encodeWithSelector(IStakeManager.NotDisputes.selector, callers[i]));
            stakes.slashLoser(worker, 1, callers[i]);
        }
        expectStake(MIN_STAKE, 0, 0);
    }

    /// @notice While it is paid, a worker's owner may stake and unstake, but gets nothing twice.
    function test_attack_withdrawStakeReenteredByOtherDoors() public {
        Reenterer attacker = new Reenterer();
        register(OTHER_KEY, address(attacker));
        vm.deal(address(attacker), 2 ether);
        attacker.forward(address(stakes), 2 ether, abi.encodeCall(stakes.stake, (otherWorker)));
        attacker.forward(address(stakes), 0, abi.encodeCall(stakes.unstake, (otherWorker, 1 ether)));
        vm.warp(START + UNBONDING_DELAY);
        attacker.arm(address(stakes), abi.encodeCall(stakes.unstake, (otherWorker, 1 ether)));
        stake(5 ether);
        attacker.forward(
            address(stakes), 0, abi.encodeCall(stakes.withdrawStake, (otherWorker, payable(address(attacker))))
        );
        vm.assertEq(attacker.successes(), 1);
        // What it unstaked meanwhile waits its own delay.
        StakeRecord memory record = stakes.stakeOf(otherWorker);
        vm.assertEq(record.stakedWei, 0);
        vm.assertEq(record.unbondingWei, 1 ether);
        vm.assertEq(record.withdrawableAt, START + 2 * uint256(UNBONDING_DELAY));
        vm.assertEq(address(attacker).balance, 1 ether);
        vm.assertEq(address(stakes).balance, 6 ether);
    }

    /// @dev So that a revert of the constructor is that of a call.
    function deployStakesExternally(StakeConfig calldata config) external returns (IStakeManager) {
        return deployStakes(config);
    }

    function slashLoser(uint256 atMostWei) private returns (uint256) {
        vm.prank(address(disputes));
        return stakes.slashLoser(worker, atMostWei, stranger);
    }

    function stake(uint256 amount) private {
        vm.prank(owner);
        stakes.stake{value: amount}(worker);
    }

    function unstake(uint256 amount) private {
        vm.prank(owner);
        stakes.unstake(worker, amount);
    }

    function unbonded() private {
        stake(3 ether);
        unstake(1 ether);
        vm.warp(START + UNBONDING_DELAY);
    }

    function expectStake(uint256 stakedWei, uint256 unbondingWei, uint256 withdrawableAt) private view {
        StakeRecord memory record = stakes.stakeOf(worker);
        vm.assertEq(record.stakedWei, stakedWei);
        vm.assertEq(record.unbondingWei, unbondingWei);
        vm.assertEq(record.withdrawableAt, withdrawableAt);
    }
}
