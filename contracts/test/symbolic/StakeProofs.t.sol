// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IStakeManager, StakeConfig, StakeRecord} from "../../src/interfaces/IStakeManager.sol";
import {WorkerRecord} from "../../src/interfaces/IWorkerRegistry.sol";
import {Test} from "../base/Test.sol";

/// @notice What a slash takes and pays, for every stake and every reporter's share. This contract is the registry, the
/// purse and the one for disputes.
contract StakeProofs is Test {
    uint256 private constant MAX_BPS = 10_000;
    /// @dev Where the layout puts the stakes.
    uint256 private constant STAKES_SLOT = 0;

    address private signer = account("signer");
    address private reporter = account("reporter");
    address private treasury = account("treasury");

    mapping(address account => uint256) private credits;

    function workerOf(address) external view returns (WorkerRecord memory worker) {
        worker.owner = address(this);
    }

    function setStaked(address, bool) external {}

    function credit(address account) external payable {
        credits[account] += msg.value;
    }

    function check_slash(uint96 stakedWei, uint96 unbondingWei, uint256 atMostWei, uint256 reporterBps) public {
        vm.assume(reporterBps <= MAX_BPS / 2);
        IStakeManager stakes = deploy(reporterBps);
        uint256 heldWei = uint256(stakedWei) + unbondingWei;
        // As `stake` has it.
        vm.assume(heldWei <= type(uint96).max);
        bytes32 slot = keccak256(abi.encode(signer, STAKES_SLOT));
        vm.store(address(stakes), slot, bytes32(uint256(stakedWei) | uint256(unbondingWei) << 96));
        vm.deal(address(stakes), heldWei);

        uint256 amountWei = stakes.slashLoser(signer, atMostWei, reporter);
        vm.assertEq(amountWei, atMostWei < heldWei ? atMostWei : heldWei);
        StakeRecord memory left = stakes.stakeOf(signer);
        vm.assertEq(uint256(left.stakedWei) + left.unbondingWei + amountWei, heldWei);
        // From the stake first.
        vm.assertTrue(left.stakedWei == 0 || left.unbondingWei == unbondingWei);

        vm.assertEq(credits[reporter] + credits[treasury], amountWei);
        vm.assertEq(credits[reporter], amountWei * reporterBps / MAX_BPS);
    }

    function deploy(uint256 reporterBps) private returns (IStakeManager stakes) {
        StakeConfig memory config = StakeConfig({
            registry: address(this),
            requests: address(this),
            results: address(this),
            disputes: address(this),
            treasury: treasury,
            minStakeWei: 1 ether,
            unbondingDelay: 1 days,
            reporterBps: reporterBps
        });
        bytes memory code = bytes.concat(vm.getCode("out/prove/StakeManager.sol/StakeManager.json"), abi.encode(config));
        assembly ("memory-safe") {
            stakes := create(0, add(code, 0x20), mload(code))
        }
        vm.assertTrue(address(stakes) != address(0));
    }
}
