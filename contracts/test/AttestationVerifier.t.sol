// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IAttestationVerifier} from "../src/interfaces/IAttestationVerifier.sol";
import {RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {CompactSignature, IInferenceResults, ProvenGroup} from "../src/interfaces/IInferenceResults.sol";
import {ModelTerms} from "../src/interfaces/IModelTerms.sol";
import {IOwned} from "../src/interfaces/IOwned.sol";
import {Fixture} from "./base/Fixture.sol";

contract AttestationVerifierTest is Fixture {
    bytes32 private constant MODEL = keccak256("smollm2-135m");
    bytes32 private constant OTHER_MODEL = keccak256("wordllama");
    uint256 private constant ENCLAVE_KEY = 0xE7C1A;
    uint256 private constant ID = 5;
    bytes20 private constant COMMITMENT = bytes20(uint160(0xC0FFEE));
    bytes32 private constant DIGEST = keccak256("output");

    IAttestationVerifier private verifier;
    address private enclave = vm.addr(ENCLAVE_KEY);

    function setUp() public override {
        super.setUp();
        verifier = deployVerifier();
        trust(MODEL, enclave, true);
    }

    function test_domainSeparator_isEip712() public view {
        vm.assertEq(
            verifier.domainSeparator(),
            keccak256(
                abi.encode(
                    keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                    keccak256("inferd"),
                    keccak256("1"),
                    block.chainid,
                    address(verifier)
                )
            )
        );
    }

    function testFuzz_attestationDigest_isEip712(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest)
        public
        view
    {
        bytes32 typehash = keccak256("Attestation(uint256 id,bytes32 modelId,bytes20 commitment,bytes32 digest)");
        bytes32 structHash = keccak256(abi.encode(typehash, id, modelId, commitment, digest));
        vm.assertEq(
            verifier.attestationDigest(id, modelId, commitment, digest),
            keccak256(abi.encodePacked(hex"1901", verifier.domainSeparator(), structHash))
        );
    }

    // Keys

    function test_setEnclave_trustsAndNoLonger() public {
        vm.expectEmit(address(verifier));
        emit IAttestationVerifier.EnclaveSet(OTHER_MODEL, stranger, true);
        trust(OTHER_MODEL, stranger, true);
        vm.assertTrue(verifier.isEnclave(OTHER_MODEL, stranger));
        vm.assertFalse(verifier.isEnclave(MODEL, stranger));
        vm.expectEmit(address(verifier));
        emit IAttestationVerifier.EnclaveSet(OTHER_MODEL, stranger, false);
        trust(OTHER_MODEL, stranger, false);
        vm.assertFalse(verifier.isEnclave(OTHER_MODEL, stranger));
        vm.assertTrue(verifier.isEnclave(MODEL, enclave));
    }

    function testFuzz_RevertWhen_setEnclave_notOwner(address caller) public {
        vm.assume(caller != admin);
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IOwned.NotContractOwner.selector, caller));
        verifier.setEnclave(MODEL, caller, true);
    }

    /// @notice Or every invalid signature would be an enclave's.
    function test_RevertWhen_setEnclave_zero() public {
        vm.prank(admin);
        vm.expectRevert(IAttestationVerifier.ZeroKey.selector);
        verifier.setEnclave(MODEL, address(0), true);
    }

    // Proofs

    function test_verify_enclavesSignature() public view {
        vm.assertTrue(verify(ENCLAVE_KEY));
    }

    function testFuzz_verify_whateverItSigned(uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest) public {
        trust(modelId, enclave, true);
        bytes memory proof = attest(ENCLAVE_KEY, id, modelId, commitment, digest);
        vm.assertTrue(verifier.verify(id, modelId, commitment, digest, proof));
    }

    function test_verify_severalEnclaves() public {
        trust(MODEL, worker, true);
        vm.assertTrue(verify(WORKER_KEY));
        vm.assertTrue(verify(ENCLAVE_KEY));
        trust(MODEL, enclave, false);
        vm.assertTrue(verify(WORKER_KEY));
        vm.assertFalse(verify(ENCLAVE_KEY));
    }

    function test_verify_strangersSignature() public view {
        vm.assertFalse(verify(OTHER_KEY));
    }

    function testFuzz_verify_anythingElseThanWasSigned(uint256 id, bytes20 commitment, bytes32 digest) public view {
        vm.assume(id != ID || commitment != COMMITMENT || digest != DIGEST);
        bytes memory proof = attest(ENCLAVE_KEY, ID, MODEL, COMMITMENT, DIGEST);
        vm.assertFalse(verifier.verify(id, MODEL, commitment, digest, proof));
    }

    function test_verify_eachPartIsSigned() public {
        trust(OTHER_MODEL, enclave, true);
        bytes memory proof = attest(ENCLAVE_KEY, ID, MODEL, COMMITMENT, DIGEST);
        vm.assertFalse(verifier.verify(ID + 1, MODEL, COMMITMENT, DIGEST, proof));
        vm.assertFalse(verifier.verify(ID, OTHER_MODEL, COMMITMENT, DIGEST, proof));
        vm.assertFalse(verifier.verify(ID, MODEL, bytes20(uint160(1)), DIGEST, proof));
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, keccak256("another"), proof));
        vm.assertTrue(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, proof));
    }

    /// @notice An enclave of one model says nothing about another.
    function test_verify_enclaveOfAnotherModel() public view {
        bytes memory proof = attest(ENCLAVE_KEY, ID, OTHER_MODEL, COMMITMENT, DIGEST);
        vm.assertFalse(verifier.verify(ID, OTHER_MODEL, COMMITMENT, DIGEST, proof));
    }

    function testFuzz_verify_otherLength(bytes calldata proof) public view {
        vm.assume(proof.length != 64);
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, proof));
    }

    function test_verify_aByteMoreOrLess() public view {
        bytes memory proof = attest(ENCLAVE_KEY, ID, MODEL, COMMITMENT, DIGEST);
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, bytes.concat(proof, hex"00")));
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, ""));
        assembly ("memory-safe") {
            mstore(proof, 63)
        }
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, proof));
    }

    function testFuzz_verify_anySignature(bytes32 r, bytes32 vs) public view {
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, abi.encode(r, vs)));
    }

    function test_verify_invalidSignature() public view {
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, new bytes(64)));
    }

    function test_verify_malleated() public view {
        CompactSignature memory signature = sign(ENCLAVE_KEY, verifier.attestationDigest(ID, MODEL, COMMITMENT, DIGEST));
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, abi.encode(highS(signature))));
        signature.vs ^= bytes32(uint256(1) << 255);
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, abi.encode(signature)));
    }

    function test_verify_signedForAnotherChain() public {
        vm.chainId(CHAIN_ID + 1);
        bytes memory proof = attest(ENCLAVE_KEY, ID, MODEL, COMMITMENT, DIGEST);
        vm.assertTrue(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, proof));
        vm.chainId(CHAIN_ID);
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, proof));
    }

    function test_verify_signedForAnotherVerifier() public {
        IAttestationVerifier elsewhere = deployVerifier();
        CompactSignature memory signature =
            sign(ENCLAVE_KEY, elsewhere.attestationDigest(ID, MODEL, COMMITMENT, DIGEST));
        vm.assertFalse(verifier.verify(ID, MODEL, COMMITMENT, DIGEST, abi.encode(signature)));
    }

    // Where it is used

    function test_postProven_withAttestation() public {
        (uint256 id, RequestParams memory p) = ask();
        bytes20 commitment = commitmentFor(id, requester, p);
        vm.assertEq(postProven(signed(id, commitment, attest(ENCLAVE_KEY, id, MODEL, commitment, digestOf(id)))), 1);
        vm.assertTrue(isSettled(id));
    }

    function test_postProven_withoutAttestation() public {
        (uint256 id, RequestParams memory p) = ask();
        bytes20 commitment = commitmentFor(id, requester, p);
        // The worker's own word is not the enclave's.
        bytes memory proof = attest(WORKER_KEY, id, MODEL, commitment, digestOf(id));
        vm.expectEmit(address(results));
        emit IInferenceResults.ProofRejected(id, address(verifier));
        vm.assertEq(postProven(signed(id, commitment, proof)), 0);
        vm.assertEq(postProven(signed(id, commitment, "")), 0);
        vm.assertFalse(isSettled(id));
        vm.assertEq(requests.credits(owner), 0);
    }

    /// @notice A key that is no longer trusted proves nothing, whatever it signed before.
    function test_postProven_enclaveNoLongerTrusted() public {
        (uint256 id, RequestParams memory p) = ask();
        bytes20 commitment = commitmentFor(id, requester, p);
        ProvenGroup memory group_ = signed(id, commitment, attest(ENCLAVE_KEY, id, MODEL, commitment, digestOf(id)));
        trust(MODEL, enclave, false);
        vm.assertEq(postProven(group_), 0);
    }

    function ask() private returns (uint256 id, RequestParams memory p) {
        activate(WORKER_KEY, owner);
        ModelTerms memory terms = noTerms();
        terms.verifier = verifier;
        setTerms(terms);
        p = params();
        id = submit(p);
    }

    function signed(uint256 id, bytes20 commitment, bytes memory proof) private view returns (ProvenGroup memory) {
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        bytes[] memory proofs = new bytes[](1);
        proofs[0] = proof;
        return provenGroup(keys, item(id, commitment), proofs);
    }

    function deployVerifier() private returns (IAttestationVerifier) {
        return IAttestationVerifier(deployCode("AttestationVerifier", abi.encode(admin)));
    }

    function trust(bytes32 modelId, address key, bool trusted) private {
        vm.prank(admin);
        verifier.setEnclave(modelId, key, trusted);
    }

    function attest(uint256 key, uint256 id, bytes32 modelId, bytes20 commitment, bytes32 digest)
        private
        view
        returns (bytes memory)
    {
        return abi.encode(sign(key, verifier.attestationDigest(id, modelId, commitment, digest)));
    }

    function verify(uint256 key) private view returns (bool) {
        return verifier.verify(ID, MODEL, COMMITMENT, DIGEST, attest(key, ID, MODEL, COMMITMENT, DIGEST));
    }
}
