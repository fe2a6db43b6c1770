// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IAttestationVerifier} from "../../src/interfaces/IAttestationVerifier.sol";
import {AnyConsumer} from "./AnyConsumer.sol";
import {Books} from "./Books.sol";
import {Checks} from "./Checks.sol";
import {CreditActions} from "./CreditActions.sol";
import {DisputeActions} from "./DisputeActions.sol";
import {PostActions} from "./PostActions.sol";
import {RequestActions} from "./RequestActions.sol";
import {WorkerActions} from "./WorkerActions.sol";

/// @notice Plays everybody there is, and keeps its own books beside the contracts'.
contract Handler is RequestActions, PostActions, WorkerActions, DisputeActions, CreditActions, Checks {
    uint256 private immutable SALT;

    /// @param salt what tells apart two handlers that are given the same seeds
    constructor(uint256 posterBps, uint256 salt) Books(posterBps) {
        SALT = salt;
        vm.warp(START);
        deploy(posterBps);
        startAt(FIRST_ID);
        verifier = IAttestationVerifier(deployCode("AttestationVerifier", abi.encode(admin)));

        askers = [account("asker 0"), account("asker 1")];
        for (uint256 i; i < 2; ++i) {
            consumers.push(new AnyConsumer());
            askers.push(address(consumers[i]));
        }
        workerOwners = [account("owner 0"), account("owner 1"), account("owner 2")];
        posters = [account("poster 0"), workerOwners[0]];
        // Who reports and disputes is one of the first four; disputes must be the last.
        holders = [askers[0], askers[1], account("watcher"), workerOwners[1]];
        holders.push(askers[2]);
        holders.push(askers[3]);
        holders.push(workerOwners[0]);
        holders.push(workerOwners[2]);
        holders.push(posters[0]);
        holders.push(treasury);
        holders.push(address(disputes));

        // Two workers are of one owner; one is not staked yet.
        for (uint256 i; i < WORKERS; ++i) {
            hire(0x1000 + i, workerOwners[i % 3]);
            if (i != 1) stakeFor(workers[i], 2 * MIN_STAKE);
        }
        for (uint256 i; i < models.length; ++i) {
            vm.prank(admin);
            verifier.setEnclave(bytes32(models[i]), vm.addr(ENCLAVE_KEY), true);
        }
        terms.push();
        setGhostTerms(1, GhostTerms({verified: false, minQuorum: 0, window: 120, bondGwei: 0.3e9}));
        setGhostTerms(2, GhostTerms({verified: true, minQuorum: 0, window: 0, bondGwei: 0}));
        setGhostTerms(3, GhostTerms({verified: true, minQuorum: 2, window: 60, bondGwei: 0.7e9}));
    }

    /// @dev One door, so that things come about as often as they should: most of all requests and results.
    function act(uint256 seed) external {
        seed = next(seed ^ SALT);
        uint256 a = next(seed);
        uint256 b = seed >> 128;
        uint256 chance = seed % 100;
        seed >>= 8;
        if (chance < 14) submit(seed, a, b, a >> 128);
        else if (chance < 26) post(seed, a, b & 3 == 0);
        else if (chance < 38) postProven(seed, a, b & 3 == 0);
        else if (chance < 44) deliver(seed, a);
        else if (chance < 52) wait(seed);
        else if (chance < 55) refund(seed, a);
        else actOnTheSide(chance, seed, a, b);
    }

    function actOnTheSide(uint256 chance, uint256 seed, uint256 a, uint256 b) private {
        if (chance < 57) raiseFee(seed, a);
        else if (chance < 58) requestCancel(seed, a);
        else if (chance < 59) setPaused(seed);
        else if (chance < 61) setModelTerms(seed);
        else if (chance < 64) release(seed, a);
        else if (chance < 73) openDispute(seed);
        else if (chance < 79) rule(seed, b & 1 == 0);
        else if (chance < 82) close(seed);
        else if (chance < 87) stake(seed, a);
        else if (chance < 89) unstake(seed, a);
        else if (chance < 91) setEnabled(seed, b & 1 == 0);
        else if (chance < 94) withdrawStake(seed);
        else if (chance < 95) slashEquivocation(seed);
        else if (chance < 96) credit(seed, a);
        else if (chance < 98) transferCredit(seed, a);
        else withdraw(seed);
    }
}
