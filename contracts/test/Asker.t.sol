// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RefundClaim, RequestParams, RequestStatus} from "../src/interfaces/IInferenceRequests.sol";
import {Fixture} from "./base/Fixture.sol";

interface IAsker {
    error NotOwner(address caller);

    function ask(bytes calldata prompt) external payable returns (uint256 id);
    function takeBack() external returns (uint256 amountWei);
}

contract AskerTest is Fixture {
    IAsker private asker;

    function setUp() public override {
        super.setUp();
        vm.prank(requester);
        asker = IAsker(deployCode("Asker", abi.encode(address(requests))));
    }

    function test_ask_isPendingWithItsFee() public {
        uint256 id = asker.ask{value: FEE}("hello");
        vm.assertEq(uint256(requests.statusOf(id)), uint256(RequestStatus.PENDING));
        vm.assertEq(address(requests).balance, FEE);
    }

    function test_takeBack_sendsTheRefundToTheOwner() public {
        uint256 id = asker.ask{value: FEE}("hello");
        vm.warp(START + 10 minutes + 1);
        RefundClaim[] memory claims = new RefundClaim[](1);
        claims[0] = RefundClaim({id: id, requester: address(asker), paramsHash: askedHash("hello")});
        vm.assertEq(requests.refund(claims), 1);

        uint256 before = requester.balance;
        vm.prank(requester);
        vm.assertEq(asker.takeBack(), FEE);
        vm.assertEq(requester.balance, before + FEE);
    }

    function test_RevertWhen_aStrangerTakesBack() public {
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IAsker.NotOwner.selector, stranger));
        asker.takeBack();
    }

    function askedHash(bytes memory prompt) private pure returns (bytes32) {
        RequestParams memory p = params(uint40(START + 10 minutes));
        p.modelId = keccak256("smollm2-135m");
        p.maxTokens = 64;
        p.memoryMb = 0;
        p.input = prompt;
        return hashOf(p);
    }
}
