// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IAttestationVerifier} from "../src/interfaces/IAttestationVerifier.sol";
import {IOwned} from "../src/interfaces/IOwned.sol";
import {Fixture} from "./base/Fixture.sol";

/// @notice The owner of the requests contract and that of a verifier change in the same way.
contract OwnedTest is Fixture {
    address private next = account("next");

    function test_constructor_owner() public {
        vm.assertEq(requests.owner(), admin);
        vm.assertEq(requests.pendingOwner(), address(0));
        vm.expectEmit(vm.computeCreateAddress(address(this), vm.getNonce(address(this))));
        emit IOwned.OwnershipTaken(address(0), stranger);
        vm.assertEq(verifierOf(stranger).owner(), stranger);
    }

    function test_ownership_changesInTwoSteps() public {
        changesInTwoSteps(IOwned(address(requests)));
        changesInTwoSteps(IOwned(address(verifierOf(admin))));
    }

    function test_offerOwnership_replacesAnEarlierOffer() public {
        offer(stranger);
        offer(next);
        vm.assertEq(requests.pendingOwner(), next);
        expectNotPending(stranger);
        vm.prank(next);
        requests.acceptOwnership();
        vm.assertEq(requests.owner(), next);
    }

    function test_offerOwnership_ofZeroTakesItBack() public {
        offer(next);
        offer(address(0));
        vm.assertEq(requests.pendingOwner(), address(0));
        expectNotPending(next);
        vm.assertEq(requests.owner(), admin);
    }

    function test_offerOwnership_keepsThePowerUntilAccepted() public {
        offer(next);
        vm.prank(next);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, next));
        requests.setPaused(true);
        vm.prank(admin);
        requests.setPaused(true);
        vm.assertTrue(requests.paused());
    }

    function test_offerOwnership_toOneself() public {
        offer(admin);
        vm.prank(admin);
        requests.acceptOwnership();
        vm.assertEq(requests.owner(), admin);
        vm.assertEq(requests.pendingOwner(), address(0));
    }

    function test_acceptOwnership_onlyOnce() public {
        offer(next);
        vm.prank(next);
        requests.acceptOwnership();
        expectNotPending(next);
    }

    function test_acceptOwnership_formerOwnerHasNothingLeft() public {
        offer(next);
        vm.prank(next);
        requests.acceptOwnership();
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.offerOwnership(admin);
        vm.prank(admin);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, admin));
        requests.setPaused(true);
        vm.prank(next);
        requests.setPaused(true);
    }

    function testFuzz_RevertWhen_offerOwnership_notOwner(address caller) public {
        vm.assume(caller != admin);
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, caller));
        requests.offerOwnership(caller);
    }

    function testFuzz_RevertWhen_acceptOwnership_notPending(address caller) public {
        vm.assume(caller != next);
        offer(next);
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotPendingOwner.selector, caller));
        requests.acceptOwnership();
    }

    /// @notice Nobody, for ever: there is no offer that anybody could accept, and nobody to make one.
    function testFuzz_withoutOwner_nobody(address caller) public {
        vm.assume(caller != address(0));
        IAttestationVerifier ownerless = verifierOf(address(0));
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, caller));
        IOwned(address(ownerless)).offerOwnership(caller);
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotPendingOwner.selector, caller));
        IOwned(address(ownerless)).acceptOwnership();
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, caller));
        ownerless.setEnclave(keccak256("model"), caller, true);
    }

    function changesInTwoSteps(IOwned owned) private {
        vm.expectEmit(address(owned));
        emit IOwned.OwnershipOffered(admin, next);
        vm.prank(admin);
        owned.offerOwnership(next);
        vm.assertEq(owned.owner(), admin);
        vm.assertEq(owned.pendingOwner(), next);
        vm.expectEmit(address(owned));
        emit IOwned.OwnershipTaken(admin, next);
        vm.prank(next);
        owned.acceptOwnership();
        vm.assertEq(owned.owner(), next);
        vm.assertEq(owned.pendingOwner(), address(0));
    }

    function offer(address to) private {
        vm.prank(admin);
        requests.offerOwnership(to);
    }

    function expectNotPending(address caller) private {
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotPendingOwner.selector, caller));
        requests.acceptOwnership();
    }

    function verifierOf(address owner_) private returns (IAttestationVerifierOwned) {
        return IAttestationVerifierOwned(deployCode("AttestationVerifier", abi.encode(owner_)));
    }
}

/// @dev A verifier is both.
interface IAttestationVerifierOwned is IAttestationVerifier, IOwned {}
