// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, RefundClaim, RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {CallbackClaim, CallbackSkipReason, IInferenceResults} from "../src/interfaces/IInferenceResults.sol";
import {Fixture} from "./base/Fixture.sol";
import {Vm} from "./base/Vm.sol";
import {Busybody, Bytecode, Recorder, Unborn} from "./mocks/Consumers.sol";

/// @notice Outputs handed to the contracts that asked: delivery CALLBACK.
contract CallbacksTest is Fixture {
    uint32 private constant GAS_LIMIT = 300_000;
    uint32 private constant MAX_GAS_LIMIT = 8_000_000;
    bytes private constant OUTPUT = "Paris";
    /// @dev More than what `deliver` needs for itself: check, the one call and its events.
    uint256 private constant DELIVER_GAS = 120_000;

    Recorder private recorder;
    address private consumer;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        recorder = new Recorder();
        consumer = address(recorder);
    }

    // submit

    function test_submit_callbackByAContract() public {
        vm.assertEq(ask(consumer, GAS_LIMIT), 1);
        vm.assertEq(uint256(requests.recordOf(1).delivery), uint256(Delivery.CALLBACK));
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, false);
    }

    function testFuzz_submit_callbackGas(uint32 gasLimit) public {
        if (gasLimit == 0 || gasLimit > MAX_GAS_LIMIT) {
            vm.deal(consumer, FEE);
            vm.prank(consumer);
            vm.expectRevert(
                abi.encodeWithSelector(
                    IInferenceRequests.CallbackGasOutOfRange.selector, uint256(gasLimit), uint256(MAX_GAS_LIMIT)
                )
            );
            requests.submit{value: FEE}(withGas(gasLimit));
        } else {
            vm.assertEq(ask(consumer, gasLimit), 1);
        }
    }

    function test_submit_callbackGasEdges() public {
        vm.assertEq(ask(consumer, 1), 1);
        vm.assertEq(ask(consumer, MAX_GAS_LIMIT), 2);
        testFuzz_submit_callbackGas(0);
        testFuzz_submit_callbackGas(MAX_GAS_LIMIT + 1);
        testFuzz_submit_callbackGas(type(uint32).max);
    }

    function test_RevertWhen_submit_callbackByAKey() public {
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CallbackNeedsCode.selector, requester));
        requests.submit{value: FEE}(withGas(GAS_LIMIT));
    }

    function test_RevertWhen_submit_callbackInAConstructor() public {
        address place = vm.computeCreateAddress(address(this), vm.getNonce(address(this)));
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CallbackNeedsCode.selector, place));
        new Unborn{value: FEE}(address(requests), abi.encodeCall(requests.submit, (withGas(GAS_LIMIT))));
    }

    function test_submit_eventInAConstructor() public {
        new Unborn{value: FEE}(address(requests), abi.encodeCall(requests.submit, (params())));
        vm.assertEq(requests.nextId(), 2);
    }

    function test_RevertWhen_submitMany_callbackByAKey() public {
        RequestParams[] memory list = new RequestParams[](2);
        list[0] = params();
        list[1] = withGas(GAS_LIMIT);
        uint256[] memory fees = new uint256[](2);
        fees[0] = fees[1] = FEE;
        vm.prank(requester);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.CallbackNeedsCode.selector, requester));
        requests.submitMany{value: 2 * FEE}(list, fees);
    }

    // deliver: what is handed over

    function test_deliver_handsOverTheOutput() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, true);
        vm.expectEmit(address(results));
        emit IInferenceResults.CallbackDelivered(1, consumer);
        vm.prank(stranger);
        vm.assertEq(results.deliver(claims(1, consumer, GAS_LIMIT, OUTPUT)), 1);
        expectRecorded(1, 1, OUTPUT);
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, false);
        vm.assertEq(recorder.lastCaller(), address(results));
    }

    function testFuzz_deliver_anyOutput(bytes calldata output, uint256 id) public {
        id = bound(id, 1, 2 ** 63 - 1);
        startAt(id);
        vm.assertEq(fulfil(consumer, GAS_LIMIT, output), id);
        vm.assertEq(deliver(id, consumer, GAS_LIMIT, output), 1);
        expectRecorded(1, id, output);
    }

    function test_deliver_outputsOfNothingAndOf64Kib() public {
        fulfil(consumer, GAS_LIMIT, "");
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, ""), 1);
        expectRecorded(1, 1, "");
        bytes memory large = new bytes(65_536);
        large[65_535] = 0x01;
        fulfil(consumer, GAS_LIMIT, large);
        vm.assertEq(deliver(2, consumer, GAS_LIMIT, large), 1);
        expectRecorded(2, 2, large);
    }

    function test_deliver_afterTheDeadlineToo() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        vm.warp(START + 1_000 days);
        // The parameters are those that were submitted.
        CallbackClaim[] memory list = claims(1, consumer, GAS_LIMIT, OUTPUT);
        vm.assertEq(results.deliver(list), 1);
    }

    function test_deliver_afterAShortenedDeadlineAndARaise() public {
        ask(consumer, GAS_LIMIT);
        vm.prank(consumer);
        requests.requestCancel(1, hashOf(withGas(GAS_LIMIT)));
        vm.prank(requester);
        requests.raiseFee{value: 1 gwei}(1);
        settle(1, consumer, GAS_LIMIT, OUTPUT);
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, OUTPUT), 1);
    }

    function test_deliver_idsOnBothSidesOfAWordsEdge() public {
        startAt(255);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        vm.assertEq(deliver(256, consumer, GAS_LIMIT, OUTPUT), 1);
        expectOwed(255, consumer, GAS_LIMIT, OUTPUT, true);
        vm.assertEq(deliver(255, consumer, GAS_LIMIT, OUTPUT), 1);
        expectRecorded(2, 255, OUTPUT);
    }

    function test_deliver_lastId() public {
        startAt(2 ** 63 - 1);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        vm.assertEq(deliver(2 ** 63 - 1, consumer, GAS_LIMIT, OUTPUT), 1);
    }

    function test_deliver_none() public {
        vm.recordLogs();
        vm.assertEq(results.deliver(new CallbackClaim[](0)), 0);
        vm.assertEq(vm.getRecordedLogs().length, 0);
    }

    function test_deliver_settledWithoutClearingItsWord() public {
        // Every fourth settled word is cleared, never one that a consumer waits for.
        bytes memory items;
        for (uint256 i; i < 5; ++i) {
            uint256 id = ask(consumer, GAS_LIMIT);
            items = bytes.concat(items, itemOf(id, consumer, GAS_LIMIT, OUTPUT));
        }
        vm.assertEq(post(WORKER_KEY, items), 5);
        for (uint256 id = 1; id <= 5; ++id) {
            vm.assertEq(deliver(id, consumer, GAS_LIMIT, OUTPUT), 1);
        }
    }

    // deliver: what is passed over

    function test_deliver_skipsSecond() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, OUTPUT), 1);
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        vm.assertEq(recorder.calls(), 1);
    }

    function test_deliver_skipsSecondInOneCall() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        CallbackClaim[] memory list = new CallbackClaim[](2);
        list[0] = list[1] = claims(1, consumer, GAS_LIMIT, OUTPUT)[0];
        vm.assertEq(results.deliver(list), 1);
        vm.assertEq(recorder.calls(), 1);
    }

    function testFuzz_deliver_skipsOtherOutput(bytes calldata output) public {
        vm.assume(keccak256(output) != keccak256(OUTPUT));
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        expectSkipped(claims(1, consumer, GAS_LIMIT, output), CallbackSkipReason.NOT_OWED);
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, true);
    }

    function test_deliver_skipsOtherRequester() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        Recorder other = new Recorder();
        expectSkipped(claims(1, address(other), GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        vm.assertEq(other.calls(), 0);
    }

    function testFuzz_deliver_skipsOtherId(uint256 id) public {
        vm.assume(id != 1);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        expectSkipped(claims(id, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        // Same low 64 bits.
        expectSkipped(claims((1 << 64) + 1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
    }

    function testFuzz_deliver_skipsOtherParams(uint256 field, uint256 value) public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        CallbackClaim[] memory list = claims(1, consumer, GAS_LIMIT, OUTPUT);
        RequestParams memory p = list[0].params;
        bytes32 before = hashOf(p);
        field = bound(field, 0, 6);
        if (field == 0) p.modelId = bytes32(value);
        if (field == 1) p.maxTokens = uint32(value);
        if (field == 2) p.deadline = uint40(value);
        if (field == 3) p.memoryMb = uint32(value);
        if (field == 4) p.callbackGasLimit = uint32(value);
        if (field == 5) p.quorum = uint8(value);
        if (field == 6) p.input = abi.encode(value);
        vm.assume(hashOf(p) != before);
        expectSkipped(list, CallbackSkipReason.NOT_OWED);
        p.batchable = !p.batchable;
        expectSkipped(list, CallbackSkipReason.NOT_OWED);
    }

    /// @dev The hash takes the parameters as they stand in calldata: none of them may be read as another value.
    function testFuzz_RevertWhen_deliver_dirtyCalldata(uint256 place, uint256 bit) public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes memory data = abi.encodeCall(results.deliver, (claims(1, consumer, GAS_LIMIT, OUTPUT)));
        place = 0x20 + 4 + 0x20 * bound(place, 0, (data.length - 4) / 32 - 1);
        bit = bound(bit, 0, 255);
        assembly ("memory-safe") {
            let pointer := add(data, place)
            mstore(pointer, xor(mload(pointer), shl(bit, 1)))
        }
        (bool ok,) = address(results).call{gas: 3_000_000}(data);
        // Behind the last character of input and output there is padding, which says nothing.
        if (ok && recorder.calls() == 1) expectRecorded(1, 1, OUTPUT);
        else expectOwed(1, consumer, GAS_LIMIT, OUTPUT, true);
    }

    function test_deliver_skipsPending() public {
        ask(consumer, GAS_LIMIT);
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        vm.assertEq(settle(1, consumer, GAS_LIMIT, OUTPUT), 1);
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, OUTPUT), 1);
    }

    function test_deliver_skipsUnknown() public {
        expectSkipped(claims(0, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        expectSkipped(claims(2 ** 63, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        expectSkipped(claims(type(uint256).max, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
    }

    function test_deliver_skipsRefunded() public {
        // The second word is not cleared.
        RequestParams memory p = withGas(GAS_LIMIT);
        RefundClaim[] memory refunds = new RefundClaim[](2);
        for (uint256 i; i < 2; ++i) {
            refunds[i] = RefundClaim(ask(consumer, GAS_LIMIT), consumer, hashOf(p));
        }
        vm.warp(START + 601);
        vm.assertEq(requests.refund(refunds), 2);
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        expectSkipped(claims(2, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        vm.assertEq(requests.credits(consumer), 2 * FEE);
    }

    function test_deliver_skipsOtherDeliveries() public {
        Delivery[2] memory others = [Delivery.EVENT, Delivery.STORED];
        for (uint256 i; i < 2; ++i) {
            RequestParams memory p = withGas(0);
            p.delivery = others[i];
            vm.deal(consumer, FEE);
            vm.prank(consumer);
            uint256 id = requests.submit{value: FEE}(p);
            post(WORKER_KEY, item(id, commitmentFor(id, consumer, p), keccak256(OUTPUT)));
            CallbackClaim[] memory list = claims(id, consumer, GAS_LIMIT, OUTPUT);
            // As it was asked, and as if it had been asked with a callback.
            expectSkipped(list, CallbackSkipReason.NOT_OWED);
            list[0].params = p;
            expectSkipped(list, CallbackSkipReason.NOT_CALLBACK);
        }
        vm.assertEq(recorder.calls(), 0);
    }

    function test_deliver_skipsStoredDigestMadeLikeACallbackKey() public {
        // The requester and the worker agree on a digest that is the key of a callback nobody asked for.
        RequestParams memory stored = withGas(0);
        stored.delivery = Delivery.STORED;
        vm.deal(consumer, FEE);
        vm.prank(consumer);
        requests.submit{value: FEE}(stored);
        bytes20 made = commitmentFor(1, consumer, withGas(GAS_LIMIT));
        bytes32 key = keccak256(abi.encode(made, keccak256(OUTPUT)));
        vm.assertEq(post(WORKER_KEY, item(1, commitmentFor(1, consumer, stored), key)), 1);

        vm.assertFalse(requests.owesCallback(1, made, keccak256(OUTPUT)));
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
        (bool found, bytes32 digest) = requests.resultOf(1);
        vm.assertTrue(found);
        vm.assertEq(digest, key);
        vm.assertEq(recorder.calls(), 0);
    }

    function testFuzz_owesCallback_onlyOfWhatWasSettled(uint256 id, bytes20 commitment, bytes32 digest) public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes20 right = commitmentFor(1, consumer, withGas(GAS_LIMIT));
        vm.assume(commitment != right && digest != keccak256(OUTPUT));
        vm.assertTrue(requests.owesCallback(1, right, keccak256(OUTPUT)));
        vm.assertFalse(requests.owesCallback(id, commitment, digest));
        vm.assertFalse(requests.owesCallback(1, commitment, keccak256(OUTPUT)));
        vm.assertFalse(requests.owesCallback(1, right, digest));
        vm.assertFalse(requests.owesCallback(type(uint256).max, right, keccak256(OUTPUT)));
        vm.assertFalse(requests.owesCallback((1 << 64) + 1, right, keccak256(OUTPUT)));
    }

    // deliver: gas

    function testFuzz_deliver_exactGas(uint32 gasLimit, uint256 extra) public {
        gasLimit = uint32(bound(gasLimit, 22_110, MAX_GAS_LIMIT));
        consumer = etched("meter", Bytecode.GAS_METER);
        fulfil(consumer, gasLimit, OUTPUT);
        extra = bound(extra, 0, 10_000_000);
        uint256 given = uint256(gasLimit) + gasLimit / 63 + DELIVER_GAS + extra;
        vm.assertEq(results.deliver{gas: given}(claims(1, consumer, gasLimit, OUTPUT)), 1);
        // The opcode that asks costs 2.
        vm.assertEq(uint256(vm.load(consumer, 0)), gasLimit - 2);
    }

    function test_deliver_exactGasWithALargeOutput() public {
        consumer = etched("meter", Bytecode.GAS_METER);
        bytes memory large = new bytes(65_536);
        fulfil(consumer, GAS_LIMIT, large);
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, large), 1);
        vm.assertEq(uint256(vm.load(consumer, 0)), GAS_LIMIT - 2);
    }

    function test_deliver_limitTooSmallForTheConsumer() public {
        // With enough in the transaction, but no more for the consumer than it asked for.
        fulfil(consumer, 2_300, OUTPUT);
        expectFailed(1, consumer, 2_300, "");
        vm.assertEq(recorder.calls(), 0);
    }

    function test_RevertWhen_deliver_oneGasTooFew() public {
        consumer = etched("meter", Bytecode.GAS_METER);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        CallbackClaim[] memory list = claims(1, consumer, GAS_LIMIT, OUTPUT);
        uint256 least = leastGas(abi.encodeCall(results.deliver, (list)), 20_000_000);
        bytes memory data = abi.encodeCall(results.deliver, (list));
        (bool ok, bytes memory out) = address(results).call{gas: least - 1}(data);
        vm.assertFalse(ok);
        uint256 needed = uint256(GAS_LIMIT) + GAS_LIMIT / 63 + 10_000;
        vm.assertEq(bytes32(bytes4(out)), bytes32(IInferenceResults.InsufficientGas.selector));
        vm.assertEq(uint256(wordOf(out, 1)), needed);
        // Measured, and named, in the same place: what is left lies just below.
        vm.assertTrue(uint256(wordOf(out, 0)) < needed && uint256(wordOf(out, 0)) + 100 > needed);
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, true);
        vm.assertEq(uint256(vm.load(consumer, 0)), 0);
        (ok,) = address(results).call{gas: least}(data);
        vm.assertTrue(ok);
        vm.assertEq(uint256(vm.load(consumer, 0)), GAS_LIMIT - 2);
    }

    function test_RevertWhen_deliver_tooLittleGasForTheSecond() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        fulfil(consumer, MAX_GAS_LIMIT, OUTPUT);
        CallbackClaim[] memory list = new CallbackClaim[](2);
        list[0] = claims(1, consumer, GAS_LIMIT, OUTPUT)[0];
        list[1] = claims(2, consumer, MAX_GAS_LIMIT, OUTPUT)[0];
        (bool ok,) = address(results).call{gas: 4_000_000}(abi.encodeCall(results.deliver, (list)));
        vm.assertFalse(ok);
        // Nor the first.
        vm.assertEq(recorder.calls(), 0);
        expectOwed(1, consumer, GAS_LIMIT, OUTPUT, true);
        expectOwed(2, consumer, MAX_GAS_LIMIT, OUTPUT, true);
    }

    function test_deliver_largestLimitFitsATransaction() public {
        // The gas of a transaction ends at 2^24 (EIP-7825).
        consumer = etched("burner", Bytecode.BURNER);
        fulfil(consumer, MAX_GAS_LIMIT, OUTPUT);
        vm.assertEq(results.deliver{gas: (1 << 24) - 100_000}(claims(1, consumer, MAX_GAS_LIMIT, OUTPUT)), 0);
        expectOwed(1, consumer, MAX_GAS_LIMIT, OUTPUT, true);
    }

    // deliver: consumers that fail

    function test_deliver_failedThenAgainThenOnce() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        recorder.refuse(true, "not now");
        expectFailed(1, consumer, GAS_LIMIT, "not now");
        expectFailed(1, consumer, GAS_LIMIT, "not now");
        recorder.refuse(false, "");
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, OUTPUT), 1);
        expectRecorded(1, 1, OUTPUT);
        expectSkipped(claims(1, consumer, GAS_LIMIT, OUTPUT), CallbackSkipReason.NOT_OWED);
    }

    function test_deliver_failsWithoutData() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        recorder.refuse(true, "");
        expectFailed(1, consumer, GAS_LIMIT, "");
    }

    function testFuzz_deliver_failsWithAnyData(bytes calldata data) public {
        fulfil(consumer, MAX_GAS_LIMIT, OUTPUT);
        recorder.refuse(true, data);
        expectFailed(1, consumer, MAX_GAS_LIMIT, data.length > 128 ? data[:128] : data);
    }

    function test_deliver_failsWith128And129Bytes() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes memory reason = new bytes(128);
        reason[127] = 0x7f;
        recorder.refuse(true, reason);
        expectFailed(1, consumer, GAS_LIMIT, reason);
        recorder.refuse(true, bytes.concat(reason, hex"ff"));
        expectFailed(1, consumer, GAS_LIMIT, reason);
    }

    function test_deliver_consumerWithoutThatFunction() public {
        consumer = etched("invalid", Bytecode.INVALID);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        expectFailed(1, consumer, GAS_LIMIT, "");
    }

    function test_deliver_consumerWithoutCode() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes memory code = consumer.code;
        // As after a self-destruction.
        vm.etch(consumer, "");
        expectFailed(1, consumer, GAS_LIMIT, "");
        // Created again at the same place.
        vm.etch(consumer, code);
        vm.assertEq(deliver(1, consumer, GAS_LIMIT, OUTPUT), 1);
        expectRecorded(1, 1, OUTPUT);
    }

    function test_deliver_endlessConsumer() public {
        consumer = etched("burner", Bytecode.BURNER);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        uint256 before = gasleft();
        expectFailed(1, consumer, GAS_LIMIT, "");
        vm.assertLe(before - gasleft(), GAS_LIMIT + 2 * DELIVER_GAS, "gas of an endless consumer");
    }

    function test_deliver_consumersThatReturnALot() public {
        consumer = etched("returns", Bytecode.RETURN_BOMB);
        fulfil(consumer, 3_000_000, OUTPUT);
        CallbackClaim[] memory list = claims(1, consumer, 3_000_000, OUTPUT);
        uint256 before = gasleft();
        vm.assertEq(results.deliver(list), 1);
        vm.assertLe(before - gasleft(), 3_000_000 + DELIVER_GAS, "gas of a return bomb");
    }

    // deliver: consumers that call back

    function test_deliver_consumerDeliversAgain() public {
        Busybody busybody = newBusybody(2_000_000);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        // Its own claim, which it is being called for; another's; its own once more.
        bytes memory own = abi.encodeCall(results.deliver, (claims(1, address(busybody), 2_000_000, OUTPUT)));
        busybody.send(address(results), 0, own);
        busybody.send(address(results), 0, abi.encodeCall(results.deliver, (claims(2, consumer, GAS_LIMIT, OUTPUT))));
        busybody.send(address(results), 0, own);
        vm.assertEq(deliver(1, address(busybody), 2_000_000, OUTPUT), 1);
        vm.assertEq(busybody.calls(), 1);
        expectReturned(busybody, 0, 0);
        expectReturned(busybody, 1, 1);
        expectReturned(busybody, 2, 0);
        expectRecorded(1, 2, OUTPUT);
        expectOwed(1, address(busybody), 2_000_000, OUTPUT, false);
        expectOwed(2, consumer, GAS_LIMIT, OUTPUT, false);
    }

    function test_deliver_consumerDeliversWhatFollows() public {
        // What the consumer of the first claim delivers is passed over when its turn comes.
        Busybody busybody = newBusybody(2_000_000);
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        CallbackClaim[] memory list = new CallbackClaim[](2);
        list[0] = claims(1, address(busybody), 2_000_000, OUTPUT)[0];
        list[1] = claims(2, consumer, GAS_LIMIT, OUTPUT)[0];
        CallbackClaim[] memory second = new CallbackClaim[](1);
        second[0] = list[1];
        busybody.send(address(results), 0, abi.encodeCall(results.deliver, (second)));
        vm.expectEmit(address(results));
        emit IInferenceResults.CallbackSkipped(2, CallbackSkipReason.NOT_OWED);
        vm.assertEq(results.deliver(list), 1);
        vm.assertEq(recorder.calls(), 1);
    }

    function test_deliver_consumerPostsAndPostsAgain() public {
        Busybody busybody = newBusybody(2_000_000);
        vm.assertEq(submit(), 2);
        bytes memory again = bytes.concat(itemOf(1, address(busybody), 2_000_000, OUTPUT), item(2));
        bytes memory data = abi.encodeCall(results.post, (groups(group(WORKER_KEY, again)), bytes32(0)));
        busybody.send(address(results), 0, data);
        busybody.send(address(results), 0, data);
        uint256 before = requests.credits(owner);
        vm.assertEq(deliver(1, address(busybody), 2_000_000, OUTPUT), 1);
        // Its own request is settled; the other is now, once, and it is the poster.
        expectReturned(busybody, 0, 1);
        expectReturned(busybody, 1, 0);
        vm.assertEq(requests.credits(owner) - before, FEE * 9 / 10);
        vm.assertEq(requests.credits(address(busybody)), FEE / 10);
    }

    function test_deliver_consumerSubmitsAndWithdraws() public {
        Busybody busybody = newBusybody(2_000_000);
        requests.credit{value: 1 ether}(address(busybody));
        vm.deal(address(busybody), FEE);
        busybody.send(address(requests), FEE, abi.encodeCall(requests.submit, (params())));
        busybody.send(address(requests), 0, abi.encodeCall(requests.withdraw, ()));
        busybody.send(address(requests), 0, abi.encodeCall(requests.withdraw, ()));
        vm.assertEq(deliver(1, address(busybody), 2_000_000, OUTPUT), 1);
        expectReturned(busybody, 0, 2);
        expectReturned(busybody, 1, 1 ether);
        vm.assertFalse(busybody.succeeded(2));
        vm.assertEq(address(busybody).balance, 1 ether);
        vm.assertEq(requests.credits(address(busybody)), 0);
        vm.assertEq(bytes32(requests.recordOf(2).commitment), bytes32(commitmentFor(2, address(busybody), params())));
    }

    function test_deliver_consumerTakesWhatIsNotItsRight() public {
        Busybody busybody = newBusybody(2_000_000);
        bytes20 commitment = commitmentFor(1, address(busybody), withGas(2_000_000));
        busybody.send(address(requests), 0, abi.encodeCall(requests.returnCallback, (1, commitment, keccak256(OUTPUT))));
        busybody.send(address(requests), 0, abi.encodeCall(requests.takeCallback, (1, commitment, keccak256(OUTPUT))));
        vm.assertEq(deliver(1, address(busybody), 2_000_000, OUTPUT), 1);
        vm.assertFalse(busybody.succeeded(0));
        vm.assertFalse(busybody.succeeded(1));
        expectOwed(1, address(busybody), 2_000_000, OUTPUT, false);
    }

    // deliver: many

    /// @dev Any mixture of consumers that do well, fail in all ways, and claims that are wrong: each for itself.
    function testFuzz_deliver_eachForItself(uint256 seed, uint256 count) public {
        count = bound(count, 1, 24);
        CallbackClaim[] memory list = new CallbackClaim[](count);
        uint256 expected;
        for (uint256 i; i < count; ++i) {
            uint256 kind = kindOf(seed, i);
            address made = make(kind, i);
            uint256 id = fulfil(made, GAS_LIMIT, abi.encode(i));
            list[i] = claims(id, made, GAS_LIMIT, abi.encode(i))[0];
            if (kind == 6) list[i].output = "another";
            if (kind == 7) list[i].params.delivery = Delivery.EVENT;
            if (kind < 3) ++expected;
        }
        vm.recordLogs();
        vm.assertEq(results.deliver(list), expected);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, count);
        for (uint256 i; i < count; ++i) {
            uint256 kind = kindOf(seed, i);
            vm.assertEq(logs[i].topics[0], eventOf(kind));
            vm.assertEq(logs[i].topics[1], bytes32(i + 1));
            address made = list[i].requester;
            if (kind < 3) {
                vm.assertEq(Recorder(made).calls(), 1);
                vm.assertEq(Recorder(made).lastHash(), keccak256(abi.encode(i)));
            }
            expectOwed(i + 1, made, GAS_LIMIT, abi.encode(i), kind >= 3);
        }
    }

    // takeCallback, returnCallback

    function testFuzz_RevertWhen_takeOrReturnCallback_notResults(address anyone) public {
        vm.assume(anyone != address(results));
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes20 commitment = commitmentFor(1, consumer, withGas(GAS_LIMIT));
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotResults.selector, anyone));
        requests.takeCallback(1, commitment, keccak256(OUTPUT));
        vm.prank(anyone);
        vm.expectRevert(abi.encodeWithSelector(IInferenceRequests.NotResults.selector, anyone));
        requests.returnCallback(2, commitment, keccak256(OUTPUT));
    }

    function test_takeCallback_once() public {
        fulfil(consumer, GAS_LIMIT, OUTPUT);
        bytes20 commitment = commitmentFor(1, consumer, withGas(GAS_LIMIT));
        vm.startPrank(address(results));
        vm.assertFalse(requests.takeCallback(1, commitment, 0));
        vm.assertTrue(requests.takeCallback(1, commitment, keccak256(OUTPUT)));
        vm.assertFalse(requests.takeCallback(1, commitment, keccak256(OUTPUT)));
        requests.returnCallback(1, commitment, keccak256(OUTPUT));
        vm.assertTrue(requests.takeCallback(1, commitment, keccak256(OUTPUT)));
        vm.stopPrank();
    }

    // helpers

    function withGas(uint32 gasLimit) private pure returns (RequestParams memory p) {
        p = params(uint40(START + 600));
        p.delivery = Delivery.CALLBACK;
        p.callbackGasLimit = gasLimit;
    }

    function ask(address from, uint32 gasLimit) private returns (uint256 id) {
        vm.deal(from, from.balance + FEE);
        vm.prank(from);
        return requests.submit{value: FEE}(withGas(gasLimit));
    }

    function itemOf(uint256 id, address from, uint32 gasLimit, bytes memory output)
        private
        view
        returns (bytes memory)
    {
        return item(id, commitmentFor(id, from, withGas(gasLimit)), keccak256(output));
    }

    function settle(uint256 id, address from, uint32 gasLimit, bytes memory output) private returns (uint256) {
        return post(WORKER_KEY, itemOf(id, from, gasLimit, output));
    }

    function fulfil(address from, uint32 gasLimit, bytes memory output) private returns (uint256 id) {
        id = ask(from, gasLimit);
        vm.assertEq(settle(id, from, gasLimit, output), 1);
    }

    function claims(uint256 id, address from, uint32 gasLimit, bytes memory output)
        private
        pure
        returns (CallbackClaim[] memory list)
    {
        list = new CallbackClaim[](1);
        list[0] = CallbackClaim({id: id, requester: from, params: withGas(gasLimit), output: output});
    }

    function deliver(uint256 id, address from, uint32 gasLimit, bytes memory output) private returns (uint256) {
        return results.deliver(claims(id, from, gasLimit, output));
    }

    function etched(string memory name, bytes memory code) private returns (address place) {
        place = account(name);
        vm.etch(place, code);
    }

    function newBusybody(uint32 gasLimit) private returns (Busybody busybody) {
        busybody = new Busybody();
        fulfil(address(busybody), gasLimit, OUTPUT);
    }

    function kindOf(uint256 seed, uint256 i) private pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, i))) % 8;
    }

    /// @dev 0-2 do well, 3 reverts, 4 never ends, 5 is a bomb; 6 and 7 would do well.
    function make(uint256 kind, uint256 i) private returns (address) {
        string memory name = string(abi.encode("consumer", i));
        if (kind == 4) return etched(name, Bytecode.BURNER);
        if (kind == 5) return etched(name, Bytecode.REVERT_BOMB);
        Recorder made = new Recorder();
        if (kind == 3) made.refuse(true, "no");
        return address(made);
    }

    function eventOf(uint256 kind) private pure returns (bytes32) {
        if (kind < 3) return IInferenceResults.CallbackDelivered.selector;
        return kind < 6 ? IInferenceResults.CallbackFailed.selector : IInferenceResults.CallbackSkipped.selector;
    }

    function expectOwed(uint256 id, address from, uint32 gasLimit, bytes memory output, bool owed) private view {
        vm.assertEq(requests.owesCallback(id, commitmentFor(id, from, withGas(gasLimit)), keccak256(output)), owed);
    }

    function expectRecorded(uint256 calls, uint256 id, bytes memory output) private view {
        vm.assertEq(recorder.calls(), calls);
        vm.assertEq(recorder.lastId(), id);
        vm.assertEq(recorder.lastHash(), keccak256(output));
        vm.assertEq(recorder.lastLength(), output.length);
    }

    function expectReturned(Busybody busybody, uint256 index, uint256 value) private view {
        vm.assertTrue(busybody.succeeded(index));
        vm.assertEq(abi.decode(busybody.returned(index), (uint256)), value);
    }

    function expectSkipped(CallbackClaim[] memory list, CallbackSkipReason reason) private {
        uint256 calls = recorder.calls();
        vm.recordLogs();
        vm.assertEq(results.deliver(list), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, address(results));
        vm.assertEq(logs[0].topics[0], IInferenceResults.CallbackSkipped.selector);
        vm.assertEq(logs[0].topics[1], bytes32(list[0].id));
        vm.assertEq(bytes32(logs[0].data), bytes32(uint256(reason)));
        vm.assertEq(recorder.calls(), calls);
    }

    /// @dev Fails with this reason, and is owed as before.
    function expectFailed(uint256 id, address from, uint32 gasLimit, bytes memory reason) private {
        vm.recordLogs();
        vm.assertEq(deliver(id, from, gasLimit, OUTPUT), 0);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 1);
        vm.assertEq(logs[0].emitter, address(results));
        vm.assertEq(logs[0].topics[0], IInferenceResults.CallbackFailed.selector);
        vm.assertEq(logs[0].topics[1], bytes32(id));
        vm.assertEq(logs[0].topics[2], bytes32(uint256(uint160(from))));
        vm.assertEq(logs[0].data, abi.encode(reason));
        expectOwed(id, from, gasLimit, OUTPUT, true);
    }
}
