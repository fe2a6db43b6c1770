// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {CompactSignature} from "../src/interfaces/IInferenceResults.sol";
import {IWorkerRegistry, WorkerInfo, WorkerRecord} from "../src/interfaces/IWorkerRegistry.sol";
import {Fixture} from "./base/Fixture.sol";

contract WorkerRegistryTest is Fixture {
    function test_constructor_wires() public view {
        vm.assertEq(registry.stakeManager(), address(stakes));
    }

    function test_domainSeparator_isEip712() public view {
        vm.assertEq(
            registry.domainSeparator(),
            keccak256(
                abi.encode(
                    keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                    keccak256("inferd"),
                    keccak256("1"),
                    block.chainid,
                    address(registry)
                )
            )
        );
    }

    function test_domainSeparator_followsChainId() public {
        bytes32 before = registry.domainSeparator();
        vm.chainId(CHAIN_ID + 1);
        vm.assertTrue(registry.domainSeparator() != before);
        vm.chainId(CHAIN_ID);
        vm.assertEq(registry.domainSeparator(), before);
    }

    function test_consentDigest_isEip712() public view {
        bytes32 structHash =
            keccak256(abi.encode(keccak256("WorkerConsent(address owner,address signer)"), owner, worker));
        vm.assertEq(
            registry.consentDigest(owner, worker),
            keccak256(abi.encodePacked(hex"1901", registry.domainSeparator(), structHash))
        );
    }

    function test_register_records() public {
        WorkerInfo memory offered = info(worker);
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerRegistered(
            worker, owner, offered.models, offered.endpoint, offered.slots, offered.memoryMb
        );
        vm.prank(owner);
        registry.register(offered, consent);

        WorkerRecord memory record = registry.workerOf(worker);
        vm.assertEq(record.owner, owner);
        vm.assertTrue(record.enabled);
        vm.assertFalse(record.staked);
        vm.assertEq(record.slots, 4);
        vm.assertEq(record.memoryMb, 8_000);
        vm.assertEq(record.infoHash, keccak256(abi.encode(offered.models, offered.endpoint)));
    }

    function test_register_ownKey() public {
        register(WORKER_KEY, worker);
        vm.assertEq(registry.workerOf(worker).owner, worker);
    }

    function test_RevertWhen_register_twice() public {
        register(WORKER_KEY, owner);
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(otherOwner, worker));
        vm.prank(otherOwner);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.AlreadyRegistered.selector, worker));
        registry.register(info(worker), consent);
    }

    function test_RevertWhen_register_othersKeyWithoutConsent() public {
        // The stranger signs with a key of its own for a signer that is not.
        CompactSignature memory consent = sign(OTHER_KEY, registry.consentDigest(stranger, worker));
        expectBadConsent(stranger, consent);
    }

    function test_RevertWhen_register_consentToAnotherOwner() public {
        // Copied from the pending transaction of the rightful owner.
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        expectBadConsent(stranger, consent);
    }

    function test_RevertWhen_register_consentOfOtherChain() public {
        vm.chainId(CHAIN_ID + 1);
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        vm.chainId(CHAIN_ID);
        expectBadConsent(owner, consent);
    }

    function test_RevertWhen_register_consentOfOtherContract() public {
        bytes32 structHash =
            keccak256(abi.encode(keccak256("WorkerConsent(address owner,address signer)"), owner, worker));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", results.domainSeparator(), structHash));
        expectBadConsent(owner, sign(WORKER_KEY, digest));
    }

    function test_RevertWhen_register_highS() public {
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        expectBadConsent(owner, highS(consent));
    }

    function test_RevertWhen_register_zeroSigner() public {
        // An invalid signature recovers to zero; that must not make zero a worker.
        CompactSignature memory nothing;
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.BadConsent.selector, address(0)));
        registry.register(info(address(0)), nothing);
    }

    function test_RevertWhen_register_noModels() public {
        WorkerInfo memory offered = info(worker);
        offered.models = new bytes32[](0);
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        vm.prank(owner);
        vm.expectRevert(IWorkerRegistry.NoModels.selector);
        registry.register(offered, consent);
    }

    function test_RevertWhen_register_noSlots() public {
        WorkerInfo memory offered = info(worker);
        offered.slots = 0;
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        vm.prank(owner);
        vm.expectRevert(IWorkerRegistry.NoSlots.selector);
        registry.register(offered, consent);
    }

    function testFuzz_register_anyOwnerWithConsent(address anyOwner, uint256 key) public {
        vm.assume(anyOwner != address(0));
        key = bound(key, 1, SECP256K1_N - 1);
        register(key, anyOwner);
        vm.assertEq(registry.workerOf(vm.addr(key)).owner, anyOwner);
    }

    function testFuzz_RevertWhen_register_signatureIsNotTheSigners(bytes32 r, bytes32 vs) public {
        CompactSignature memory consent = CompactSignature({r: r, vs: vs});
        expectBadConsent(stranger, consent);
    }

    function test_update_replaces() public {
        activate(WORKER_KEY, owner);
        WorkerInfo memory offered = info(worker);
        offered.models[0] = keccak256("another");
        offered.endpoint = "";
        offered.slots = 9;
        offered.memoryMb = type(uint32).max;
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerUpdated(
            worker, owner, offered.models, offered.endpoint, offered.slots, offered.memoryMb
        );
        vm.prank(owner);
        registry.update(offered);

        WorkerRecord memory record = registry.workerOf(worker);
        vm.assertEq(record.owner, owner);
        vm.assertTrue(record.enabled);
        vm.assertTrue(record.staked);
        vm.assertEq(record.slots, 9);
        vm.assertEq(record.memoryMb, type(uint32).max);
        vm.assertEq(record.infoHash, keccak256(abi.encode(offered.models, "")));
    }

    function test_RevertWhen_update_unregistered() public {
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotRegistered.selector, worker));
        registry.update(info(worker));
    }

    function test_RevertWhen_update_notOwner() public {
        register(WORKER_KEY, owner);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotOwner.selector, stranger));
        registry.update(info(worker));
    }

    function test_RevertWhen_update_noModels() public {
        register(WORKER_KEY, owner);
        WorkerInfo memory offered = info(worker);
        offered.models = new bytes32[](0);
        vm.prank(owner);
        vm.expectRevert(IWorkerRegistry.NoModels.selector);
        registry.update(offered);
    }

    function test_RevertWhen_update_noSlots() public {
        register(WORKER_KEY, owner);
        WorkerInfo memory offered = info(worker);
        offered.slots = 0;
        vm.prank(owner);
        vm.expectRevert(IWorkerRegistry.NoSlots.selector);
        registry.update(offered);
    }

    function test_setEnabled_offAndOn() public {
        activate(WORKER_KEY, owner);
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerEnabled(worker, false);
        vm.prank(owner);
        registry.setEnabled(worker, false);
        vm.assertFalse(registry.workerOf(worker).enabled);
        vm.assertEq(registry.activeOwner(worker), address(0));

        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerEnabled(worker, true);
        vm.prank(owner);
        registry.setEnabled(worker, true);
        vm.assertEq(registry.activeOwner(worker), owner);
    }

    function test_RevertWhen_setEnabled_unregistered() public {
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotRegistered.selector, worker));
        registry.setEnabled(worker, true);
    }

    function test_RevertWhen_setEnabled_notOwner() public {
        register(WORKER_KEY, owner);
        vm.prank(worker);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotOwner.selector, worker));
        registry.setEnabled(worker, false);
    }

    function test_setStaked_byManager() public {
        register(WORKER_KEY, owner);
        vm.expectEmit(address(registry));
        emit IWorkerRegistry.WorkerStaked(worker, true);
        vm.prank(address(stakes));
        registry.setStaked(worker, true);
        vm.assertTrue(registry.workerOf(worker).staked);
    }

    function test_RevertWhen_setStaked_notManager() public {
        register(WORKER_KEY, owner);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotStakeManager.selector, owner));
        registry.setStaked(worker, true);
    }

    function test_RevertWhen_setStaked_unregistered() public {
        vm.prank(address(stakes));
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotRegistered.selector, worker));
        registry.setStaked(worker, true);
    }

    /// @notice The owner's switch and the stake are two things: neither turns the other.
    function testFuzz_activeOwner_isBothOrNobody(bool enabled, bool staked) public {
        register(WORKER_KEY, owner);
        vm.prank(address(stakes));
        registry.setStaked(worker, staked);
        vm.prank(owner);
        registry.setEnabled(worker, enabled);
        vm.assertEq(registry.workerOf(worker).enabled, enabled);
        vm.assertEq(registry.workerOf(worker).staked, staked);
        vm.assertEq(registry.activeOwner(worker), enabled && staked ? owner : address(0));
    }

    function test_register_isNotYetInService() public {
        register(WORKER_KEY, owner);
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    function test_RevertWhen_update_zeroSigner() public {
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.NotRegistered.selector, address(0)));
        registry.update(info(address(0)));
    }

    /// @notice What was consented to before a fork of the chain does not count on its other side.
    function test_RevertWhen_register_afterAFork() public {
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        vm.chainId(CHAIN_ID + 1);
        expectBadConsent(owner, consent);
        register(WORKER_KEY, owner);
    }

    /// @notice The signer of the consent is the worker; who sends the transaction is its owner, even a worker of its own.
    function test_attack_registrationFrontRun() public {
        // The consent is seen in the pending transaction; whoever copies it has consented to nothing.
        CompactSignature memory consent = sign(WORKER_KEY, registry.consentDigest(owner, worker));
        expectBadConsent(stranger, consent);
        expectBadConsent(worker, consent);
        vm.prank(owner);
        registry.register(info(worker), consent);
        vm.assertEq(registry.workerOf(worker).owner, owner);
        // Nor can it be used again.
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.AlreadyRegistered.selector, worker));
        registry.register(info(worker), consent);
    }

    function test_activeOwner_needsAllThree() public {
        vm.assertEq(registry.activeOwner(worker), address(0));
        register(WORKER_KEY, owner);
        vm.assertEq(registry.activeOwner(worker), address(0));
        vm.prank(address(stakes));
        registry.setStaked(worker, true);
        vm.assertEq(registry.activeOwner(worker), owner);
        vm.prank(owner);
        registry.setEnabled(worker, false);
        vm.assertEq(registry.activeOwner(worker), address(0));
    }

    function test_RevertWhen_etherIsSent() public {
        vm.deal(address(this), 1);
        (bool ok,) = address(registry).call{value: 1}("");
        vm.assertFalse(ok);
    }

    function expectBadConsent(address caller, CompactSignature memory consent) private {
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IWorkerRegistry.BadConsent.selector, worker));
        registry.register(info(worker), consent);
    }
}
