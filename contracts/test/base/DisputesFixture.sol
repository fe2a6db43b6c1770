// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Hold, HoldStatus, IDisputes} from "../../src/interfaces/IDisputes.sol";
import {RequestParams} from "../../src/interfaces/IInferenceRequests.sol";
import {ModelTerms} from "../../src/interfaces/IModelTerms.sol";
import {Fixture} from "./Fixture.sol";

/// @notice A model with a dispute window, and what disputes need.
abstract contract DisputesFixture is Fixture {
    uint32 internal constant WINDOW = 1 hours;
    uint56 internal constant BOND_GWEI = 0.3e9;
    uint256 internal constant BOND = 0.3 ether;
    uint256 internal constant PAYMENT = FEE - FEE / 10;
    uint256 internal constant UNTIL = START + WINDOW;

    address internal disputer = account("disputer");

    function setUp() public virtual override {
        super.setUp();
        activate(WORKER_KEY, owner);
        setTerms(windowTerms(WINDOW));
        vm.deal(disputer, 100 ether);
    }

    function windowTerms(uint32 window) internal pure returns (ModelTerms memory terms) {
        terms = noTerms();
        terms.disputeWindow = window;
        terms.bondGwei = BOND_GWEI;
    }

    /// @dev A new request's result by the one worker, and the hold that it leads to.
    function heldResult() internal returns (Hold memory) {
        uint256[] memory keys = new uint256[](1);
        keys[0] = WORKER_KEY;
        return heldResult(keys, FEE);
    }

    function heldResult(uint256[] memory keys, uint256 feeWei) internal returns (Hold memory) {
        RequestParams memory p = params();
        p.quorum = uint8(keys.length);
        vm.prank(requester);
        uint256 id = requests.submit{value: feeWei}(p);
        return heldResult(id, p, keys, feeWei);
    }

    function heldResult(uint256 id, RequestParams memory p, uint256[] memory keys, uint256 feeWei)
        internal
        returns (Hold memory held)
    {
        held = holdOf(id, p, keys, feeWei);
        vm.assertEq(postProven(provenGroup(keys, item(id, held.commitment), new bytes[](1))), 1);
    }

    function holdOf(uint256 id, RequestParams memory p, uint256[] memory keys, uint256 feeWei)
        internal
        view
        returns (Hold memory held)
    {
        held.id = id;
        held.commitment = commitmentFor(id, requester, p);
        held.digest = digestOf(id);
        held.workers = new address[](keys.length);
        held.owners = new address[](keys.length);
        for (uint256 i; i < keys.length; ++i) {
            held.workers[i] = vm.addr(keys[i]);
            held.owners[i] = registry.workerOf(held.workers[i]).owner;
        }
        held.paymentWei = feeWei - feeWei * requests.posterBps() / 10_000;
        held.poster = poster;
        held.posterWei = feeWei - held.paymentWei;
        held.bondWei = BOND;
        held.disputableUntil = uint40(block.timestamp) + WINDOW;
    }

    function open(Hold memory held) internal {
        vm.prank(disputer);
        disputes.open{value: held.bondWei}(held);
    }

    /// @dev Of a request with the default parameters, submitted at the start.
    function rule(Hold memory held, bool upheld) internal {
        RequestParams memory p = params(uint40(START + 600));
        p.quorum = uint8(held.workers.length);
        vm.prank(arbiter);
        disputes.rule(held, upheld, requester, hashOf(p));
    }

    function release(Hold memory held) internal returns (uint256) {
        Hold[] memory list = new Hold[](1);
        list[0] = held;
        return disputes.release(list);
    }

    function expectStatus(Hold memory held, HoldStatus status) internal view {
        vm.assertEq(uint256(disputes.statusOf(held.id)), uint256(status));
    }

    function expectRevert(bytes4 selector, uint256 id) internal {
        vm.expectRevert(abi.encodeWithSelector(selector, id));
    }

    function deployDisputes(address arbiter_, uint40 rulingPeriod) internal returns (IDisputes) {
        return IDisputes(deployCode("Disputes", abi.encode(address(requests), address(stakes), arbiter_, rulingPeriod)));
    }

    function expectWrongBond(Hold memory held, uint256 valueWei) internal {
        vm.prank(disputer);
        vm.expectRevert(abi.encodeWithSelector(IDisputes.WrongBond.selector, valueWei, BOND));
        disputes.open{value: valueWei}(held);
    }

    function copyOf(Hold memory held) internal pure returns (Hold memory) {
        return abi.decode(abi.encode(held), (Hold));
    }

    /// @dev The hold altered in one of eleven ways.
    function altered(Hold memory held, uint256 part, uint256 by) internal pure returns (Hold memory out) {
        out = copyOf(held);
        if (part == 0) out.commitment = bytes20(uint160(held.commitment) ^ uint160(1 << by % 160));
        else if (part == 1) out.digest = bytes32(uint256(held.digest) ^ (1 << by % 256));
        else if (part == 2) out.workers[0] = address(uint160(held.workers[0]) ^ uint160(1 << by % 160));
        else if (part == 3) out.owners[0] = address(uint160(held.owners[0]) ^ uint160(1 << by % 160));
        else if (part == 4) out.paymentWei = held.paymentWei ^ (1 << by % 256);
        else if (part == 5) out.bondWei = held.bondWei ^ (1 << by % 256);
        else if (part == 6) out.disputableUntil = held.disputableUntil ^ uint40(1 << by % 40);
        else if (part == 7) out.owners = twice(held.owners[0]);
        else if (part == 8) out.poster = address(uint160(held.poster) ^ uint160(1 << by % 160));
        else if (part == 9) out.posterWei = held.posterWei ^ (1 << by % 256);
        else out.workers = twice(held.workers[0]);
    }

    function twice(address one) private pure returns (address[] memory list) {
        list = new address[](2);
        list[0] = one;
        list[1] = one;
    }
}

