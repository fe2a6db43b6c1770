// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, RefundClaim, RequestParams} from "../src/interfaces/IInferenceRequests.sol";
import {CallbackClaim} from "../src/interfaces/IInferenceResults.sol";
import {Fixture} from "./base/Fixture.sol";

interface IExample {
    event Asked(uint256 indexed id);
    event Answered(uint256 indexed id, bytes answer);

    error NotOwner(address caller);
    error NotResults(address caller);
    error NotAsked(uint256 id);

    function onInference(uint256 id, bytes calldata output) external;
    function takeBack() external returns (uint256 amountWei);
}

interface IDiary is IExample {
    function ask(bytes32 modelId, bytes calldata prompt, uint32 maxTokens, uint40 seconds_)
        external
        payable
        returns (uint256 id);
    function answerOf(uint256 id) external view returns (bytes memory);
}

interface IEmitter is IExample {
    function ask(uint256 count, uint40 deadline, bytes calldata input) external payable returns (uint256 firstId);
    function CALLBACK_GAS() external view returns (uint32);
    function MODEL_ID() external view returns (bytes32);
}

/// @notice The two examples that are called back.
contract ExamplesTest is Fixture {
    IDiary private diary;
    IEmitter private emitter;

    function setUp() public override {
        super.setUp();
        activate(WORKER_KEY, owner);
        vm.startPrank(requester);
        diary = IDiary(deployCode("Diary", abi.encode(address(requests))));
        emitter = IEmitter(deployCode("Emitter", abi.encode(address(requests))));
        vm.stopPrank();
    }

    function test_diary_keepsTheAnswer() public {
        (uint256 id, RequestParams memory p) = askDiary();
        vm.assertEq(diary.answerOf(id), "");
        answer(id, address(diary), p, "Paris");
        vm.assertEq(diary.answerOf(id), "Paris");
    }

    /// @notice As long an answer as its gas is for.
    function test_diary_keepsALongAnswer() public {
        (uint256 id, RequestParams memory p) = askDiary();
        bytes memory long = new bytes(600);
        long[599] = 0x01;
        answer(id, address(diary), p, long);
        vm.assertEq(diary.answerOf(id), long);
    }

    function test_diary_saysWhatItAsked() public {
        vm.expectEmit(address(diary));
        emit IExample.Asked(1);
        askDiary();
    }

    function testFuzz_RevertWhen_diary_isToldByAnybodyElse(address caller) public {
        vm.assume(caller != address(results));
        (uint256 id,) = askDiary();
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IExample.NotResults.selector, caller));
        diary.onInference(id, "Lyon");
    }

    function test_RevertWhen_diary_didNotAsk() public {
        vm.prank(address(results));
        vm.expectRevert(abi.encodeWithSelector(IExample.NotAsked.selector, uint256(7)));
        diary.onInference(7, "Lyon");
    }

    function test_diary_takesBackItsRefund() public {
        (uint256 id, RequestParams memory p) = askDiary();
        takesBack(diary, id, p);
    }

    function test_emitter_sharesTheValueOut() public {
        RequestParams memory p = emitterParams();
        uint256 firstId = emitter.ask{value: 3 * FEE}(3, p.deadline, p.input);
        for (uint256 id = firstId; id < firstId + 3; ++id) {
            vm.assertEq(requests.recordOf(id).feeGwei, FEE / 1 gwei);
        }
        vm.assertEq(address(requests).balance, 3 * FEE);
        vm.assertEq(requests.nextId(), firstId + 3);
    }

    function test_emitter_emitsTheOutput() public {
        RequestParams memory p = emitterParams();
        uint256 id = emitter.ask{value: FEE}(1, p.deadline, p.input);
        answer(id, address(emitter), p, "an output");
    }

    function testFuzz_RevertWhen_emitter_isToldByAnybodyElse(address caller) public {
        vm.assume(caller != address(results));
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(IExample.NotResults.selector, caller));
        emitter.onInference(1, "an output");
    }

    function test_emitter_takesBackItsRefund() public {
        RequestParams memory p = emitterParams();
        takesBack(emitter, emitter.ask{value: FEE}(1, p.deadline, p.input), p);
    }

    function askDiary() private returns (uint256 id, RequestParams memory p) {
        p = params();
        p.delivery = Delivery.CALLBACK;
        p.callbackGasLimit = 600_000;
        p.memoryMb = 0;
        id = diary.ask{value: FEE}(p.modelId, p.input, p.maxTokens, 600);
    }

    function emitterParams() private view returns (RequestParams memory p) {
        p = params();
        p.modelId = emitter.MODEL_ID();
        p.maxTokens = 0;
        p.memoryMb = 0;
        p.delivery = Delivery.CALLBACK;
        p.callbackGasLimit = emitter.CALLBACK_GAS();
    }

    function answer(uint256 id, address consumer, RequestParams memory p, bytes memory output) private {
        vm.assertEq(post(WORKER_KEY, item(id, commitmentFor(id, consumer, p), keccak256(output))), 1);
        CallbackClaim[] memory claims = new CallbackClaim[](1);
        claims[0] = CallbackClaim({id: id, requester: consumer, params: p, output: output});
        vm.expectEmit(consumer);
        emit IExample.Answered(id, output);
        vm.assertEq(results.deliver(claims), 1);
    }

    function takesBack(IExample example, uint256 id, RequestParams memory p) private {
        vm.warp(uint256(p.deadline) + 1);
        RefundClaim[] memory claims = new RefundClaim[](1);
        claims[0] = RefundClaim({id: id, requester: address(example), paramsHash: hashOf(p)});
        vm.assertEq(requests.refund(claims), 1);
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IExample.NotOwner.selector, stranger));
        example.takeBack();
        uint256 before = requester.balance;
        vm.prank(requester);
        vm.assertEq(example.takeBack(), FEE);
        vm.assertEq(requester.balance, before + FEE);
    }
}
