// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    InputKind,
    RefundClaim,
    RequestParams
} from "../../src/interfaces/IInferenceRequests.sol";
import {
    CompactSignature,
    IInferenceResults,
    ProvenGroup,
    ResultGroup
} from "../../src/interfaces/IInferenceResults.sol";
import {IDisputes} from "../../src/interfaces/IDisputes.sol";
import {ModelTerms} from "../../src/interfaces/IModelTerms.sol";
import {IResultVerifier} from "../../src/interfaces/IResultVerifier.sol";
import {IStakeManager, StakeConfig} from "../../src/interfaces/IStakeManager.sol";
import {IWorkerRegistry, WorkerInfo} from "../../src/interfaces/IWorkerRegistry.sol";
import {Test} from "./Test.sol";

/// @notice The five contracts, wired as the deployment wires them, and short ways to use them.
abstract contract Fixture is Test {
    uint256 internal constant CHAIN_ID = 31_337;
    uint256 internal constant START = 1_800_000_000;
    uint256 internal constant POSTER_BPS = 1_000;
    uint40 internal constant CANCEL_DELAY = 60;
    uint256 internal constant MIN_STAKE = 1 ether;
    uint40 internal constant UNBONDING_DELAY = 1 days;
    uint40 internal constant RULING_PERIOD = 6 hours;
    uint256 internal constant REPORTER_BPS = 1_000;
    uint256 internal constant FEE = 0.01 ether;
    /// @dev Where the layout puts the requests contract's `_state`, whose lowest bits are the next id.
    bytes32 private constant STATE_SLOT = bytes32(uint256(6));

    uint256 internal constant WORKER_KEY = 0xA11CE;
    uint256 internal constant OTHER_KEY = 0xB0B;

    IWorkerRegistry internal registry;
    IStakeManager internal stakes;
    IInferenceResults internal results;
    IDisputes internal disputes;
    IInferenceRequests internal requests;

    address internal worker = vm.addr(WORKER_KEY);
    address internal otherWorker = vm.addr(OTHER_KEY);
    address internal owner = account("owner");
    address internal otherOwner = account("other owner");
    address internal requester = account("requester");
    address internal poster = account("poster");
    address internal stranger = account("stranger");
    address internal admin = account("admin");
    address internal arbiter = account("arbiter");
    address internal treasury = account("treasury");

    function setUp() public virtual {
        vm.warp(START);
        deploy(POSTER_BPS);
        vm.deal(requester, 1_000_000 ether);
        vm.deal(owner, 1_000 ether);
        vm.deal(otherOwner, 1_000 ether);
    }

    function deploy(uint256 posterBps) internal {
        uint256 nonce = vm.getNonce(address(this));
        address registryAt = vm.computeCreateAddress(address(this), nonce);
        address stakesAt = vm.computeCreateAddress(address(this), nonce + 1);
        address resultsAt = vm.computeCreateAddress(address(this), nonce + 2);
        address disputesAt = vm.computeCreateAddress(address(this), nonce + 3);
        address requestsAt = vm.computeCreateAddress(address(this), nonce + 4);
        registry = deployRegistry(stakesAt);
        stakes = deployStakes(
            StakeConfig({
                registry: registryAt,
                requests: requestsAt,
                results: resultsAt,
                disputes: disputesAt,
                treasury: treasury,
                minStakeWei: MIN_STAKE,
                unbondingDelay: UNBONDING_DELAY,
                reporterBps: REPORTER_BPS
            })
        );
        results = IInferenceResults(deployCode("InferenceResults", abi.encode(requestsAt, registryAt)));
        disputes = IDisputes(deployCode("Disputes", abi.encode(requestsAt, stakesAt, arbiter, RULING_PERIOD)));
        requests = deployRequests(resultsAt, disputesAt, posterBps, CANCEL_DELAY);
        vm.assertEq(address(registry), registryAt);
        vm.assertEq(address(stakes), stakesAt);
        vm.assertEq(address(results), resultsAt);
        vm.assertEq(address(disputes), disputesAt);
        vm.assertEq(address(requests), requestsAt);
    }

    function deployRegistry(address stakesAt) internal returns (IWorkerRegistry) {
        return IWorkerRegistry(deployCode("WorkerRegistry", abi.encode(stakesAt)));
    }

    function deployStakes(StakeConfig memory config) internal returns (IStakeManager) {
        return IStakeManager(deployCode("StakeManager", abi.encode(config)));
    }

    function deployRequests(address resultsAt, address disputesAt, uint256 posterBps, uint40 cancelDelay)
        internal
        returns (IInferenceRequests)
    {
        return IInferenceRequests(
            deployCode("InferenceRequests", abi.encode(resultsAt, disputesAt, admin, posterBps, cancelDelay))
        );
    }

    /// @dev Lets ids count up from `id`, as if so many requests had been made.
    function startAt(uint256 id) internal {
        uint256 state = uint256(vm.load(address(requests), STATE_SLOT));
        vm.store(address(requests), STATE_SLOT, bytes32(state - requests.nextId() + id));
        vm.assertEq(requests.nextId(), id);
    }

    /// @dev The configuration of the fixture's own stake manager, to alter a copy of.
    function stakeConfig() internal view returns (StakeConfig memory) {
        return StakeConfig({
            registry: address(registry),
            requests: address(requests),
            results: address(results),
            disputes: address(disputes),
            treasury: treasury,
            minStakeWei: MIN_STAKE,
            unbondingDelay: UNBONDING_DELAY,
            reporterBps: REPORTER_BPS
        });
    }

    /// @dev From the artifact: with `new`, every test contract would compile the contracts once more.
    function deployCode(string memory name, bytes memory arguments) internal returns (address deployed) {
        bytes memory code = bytes.concat(vm.getCode(string.concat(name, ".sol:", name)), arguments);
        assembly ("memory-safe") {
            deployed := create(0, add(code, 0x20), mload(code))
            if iszero(deployed) {
                let m := mload(0x40)
                returndatacopy(m, 0, returndatasize())
                revert(m, returndatasize())
            }
        }
    }

    // Workers

    function info(address signer) internal pure returns (WorkerInfo memory out) {
        out.signer = signer;
        out.models = new bytes32[](2);
        out.models[0] = keccak256("smollm2-135m");
        out.models[1] = keccak256("wordllama");
        out.endpoint = "http://127.0.0.1:9000";
        out.slots = 4;
        out.memoryMb = 8_000;
    }

    function sign(uint256 key, bytes32 digest) internal pure returns (CompactSignature memory signature) {
        (signature.r, signature.vs) = vm.signCompact(key, digest);
    }

    /// @dev A signature whose s is the first of the upper half. (The mirror image of a signature, n - s, mostly needs
    /// the top bit, where this form keeps the recovery bit, and cannot even be written down.)
    function highS(CompactSignature memory signature) internal pure returns (CompactSignature memory) {
        return CompactSignature({r: signature.r, vs: bytes32(SECP256K1_N / 2 + 1)});
    }

    function register(uint256 key, address owner_) internal {
        address signer = vm.addr(key);
        CompactSignature memory consent = sign(key, registry.consentDigest(owner_, signer));
        vm.prank(owner_);
        registry.register(info(signer), consent);
    }

    function activate(uint256 key, address owner_) internal {
        register(key, owner_);
        vm.prank(owner_);
        stakes.stake{value: MIN_STAKE}(vm.addr(key));
    }

    /// @dev Keys of `count` active workers in ascending order of their addresses, each owned by `ownerOf` it.
    function activateMany(uint256 count) internal returns (uint256[] memory keys) {
        keys = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            uint256 key = 0x5160 + i;
            vm.deal(ownerOf(key), MIN_STAKE);
            activate(key, ownerOf(key));
            uint256 place = i;
            for (; place > 0 && vm.addr(keys[place - 1]) > vm.addr(key); --place) {
                keys[place] = keys[place - 1];
            }
            keys[place] = key;
        }
    }

    function ownerOf(uint256 key) internal pure returns (address) {
        return account(string(abi.encode("owner of", key)));
    }

    // Terms

    /// @dev Terms of the default parameters' model that ask for nothing yet.
    function noTerms() internal pure returns (ModelTerms memory) {
        return ModelTerms({
            modelId: keccak256("smollm2-135m"),
            verifier: IResultVerifier(address(0)),
            disputeWindow: 0,
            bondGwei: 0,
            minQuorum: 0
        });
    }

    function setTerms(ModelTerms memory terms) internal returns (uint256 termsId) {
        vm.prank(admin);
        return requests.setModelTerms(terms);
    }

    // Requests

    function params() internal view returns (RequestParams memory) {
        return params(uint40(block.timestamp + 600));
    }

    function params(uint40 deadline) internal pure returns (RequestParams memory) {
        return RequestParams({
            modelId: keccak256("smollm2-135m"),
            maxTokens: 128,
            deadline: deadline,
            memoryMb: 512,
            callbackGasLimit: 0,
            quorum: 1,
            batchable: true,
            delivery: Delivery.EVENT,
            inputKind: InputKind.INLINE,
            input: "What is the capital of France?"
        });
    }

    /// @dev Written out once more, apart from the library under test.
    function hashOf(RequestParams memory p) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                p.modelId,
                p.maxTokens,
                p.deadline,
                p.memoryMb,
                p.callbackGasLimit,
                p.quorum,
                p.batchable,
                p.delivery,
                p.inputKind,
                keccak256(p.input)
            )
        );
    }

    function commitmentFor(uint256 id, address requester_, RequestParams memory p) internal view returns (bytes20) {
        return bytes20(keccak256(abi.encode(block.chainid, address(requests), id, requester_, hashOf(p))));
    }

    function submit() internal returns (uint256 id) {
        return submit(params());
    }

    function submit(RequestParams memory p) internal returns (uint256 id) {
        vm.prank(requester);
        return requests.submit{value: FEE}(p);
    }

    /// @dev As many requests as asked for, with the default fee and parameters; ids count up from the first.
    function submitMany(uint256 count) internal returns (uint256 firstId) {
        RequestParams[] memory list = new RequestParams[](count);
        uint256[] memory fees = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            list[i] = params();
            fees[i] = FEE;
        }
        vm.prank(requester);
        return requests.submitMany{value: FEE * count}(list, fees);
    }

    function claim(uint256 id, RequestParams memory p) internal view returns (RefundClaim[] memory claims) {
        claims = new RefundClaim[](1);
        claims[0] = RefundClaim({id: id, requester: requester, paramsHash: hashOf(p)});
    }

    // Results

    function item(uint256 id) internal view returns (bytes memory) {
        return item(id, commitmentFor(id, requester, params()));
    }

    function item(uint256 id, bytes20 commitment) internal pure returns (bytes memory) {
        return item(id, commitment, digestOf(id));
    }

    function item(uint256 id, bytes20 commitment, bytes32 digest) internal pure returns (bytes memory) {
        return abi.encodePacked(uint64(id), commitment, digest);
    }

    function digestOf(uint256 id) internal pure returns (bytes32) {
        return keccak256(abi.encode("output", id));
    }

    /// @dev Items of `count` requests of the same parameters in one row.
    function itemsFrom(uint256 firstId, uint256 count) internal view returns (bytes memory items) {
        for (uint256 i; i < count; ++i) {
            items = bytes.concat(items, item(firstId + i));
        }
    }

    function group(uint256 key, bytes memory items) internal view returns (ResultGroup memory out) {
        out.items = items;
        out.signatures = new CompactSignature[](1);
        out.signatures[0] = sign(key, results.groupDigest(items));
    }

    /// @dev Signed by each key, in the order given.
    function group(uint256[] memory keys, bytes memory items) internal view returns (ResultGroup memory out) {
        out.items = items;
        out.signatures = signAll(keys, items);
    }

    function provenGroup(uint256[] memory keys, bytes memory items, bytes[] memory proofs)
        internal
        view
        returns (ProvenGroup memory)
    {
        return ProvenGroup({items: items, signatures: signAll(keys, items), proofs: proofs});
    }

    function signAll(uint256[] memory keys, bytes memory items)
        internal
        view
        returns (CompactSignature[] memory signatures)
    {
        signatures = new CompactSignature[](keys.length);
        for (uint256 i; i < keys.length; ++i) {
            signatures[i] = sign(keys[i], results.groupDigest(items));
        }
    }

    function groups(ResultGroup memory only) internal pure returns (ResultGroup[] memory out) {
        out = new ResultGroup[](1);
        out[0] = only;
    }

    function post(ResultGroup[] memory list) internal returns (uint256) {
        vm.prank(poster);
        return results.post(list, 0);
    }

    function post(uint256 key, bytes memory items) internal returns (uint256) {
        return post(groups(group(key, items)));
    }

    function postProven(ProvenGroup memory only) internal returns (uint256) {
        return postProven(poster, only);
    }

    function postProven(address by, ProvenGroup memory only) internal returns (uint256) {
        ProvenGroup[] memory list = new ProvenGroup[](1);
        list[0] = only;
        vm.prank(by);
        return results.postProven(list, 0);
    }

    function isSettled(uint256 id) internal view returns (bool) {
        return requests.settledWord(id >> 8) >> (id & 255) & 1 == 1;
    }

    // Gas

    /// @dev The least gas with which a call of the results contract succeeds, up to `high`; leaves no trace.
    function leastGas(bytes memory data, uint256 high) internal returns (uint256) {
        uint256 low;
        while (high - low > 1) {
            uint256 middle = (low + high) / 2;
            uint256 snapshot = vm.snapshotState();
            (bool ok,) = address(results).call{gas: middle}(data);
            vm.revertToState(snapshot);
            if (ok) high = middle;
            else low = middle;
        }
        return high;
    }

    /// @dev An argument of a custom error, by its place behind the selector.
    function wordOf(bytes memory out, uint256 index) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            value := mload(add(add(out, 0x24), shl(5, index)))
        }
    }
}
