// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "./interfaces/ICredits.sol";
import {Hold, HoldSkipReason, HoldStatus, IDisputes} from "./interfaces/IDisputes.sol";
import {IOwned} from "./interfaces/IOwned.sol";
import {IStakeManager} from "./interfaces/IStakeManager.sol";
import {RequestHash} from "./lib/RequestHash.sol";

/// @title Disputes
/// @dev Solvency: this contract's credit in the purse is at least the sum of the payments held and of the bonds of open disputes.
/// It holds no ether and calls only contracts of its own deployment.
contract Disputes is IDisputes {
    /// @dev What is kept of a held payment. `disputer` is zero until somebody disputes.
    struct Case {
        bytes32 holdHash;
        address disputer;
        uint40 rulingUntil;
        bool closed;
    }

    uint256 private immutable CHAIN_ID = block.chainid;
    address private immutable REQUESTS;
    IStakeManager private immutable STAKES;
    uint40 private immutable RULING_PERIOD;

    address private _arbiter;
    mapping(uint256 id => Case) private _cases;

    constructor(address requests_, address stakes_, address arbiter_, uint40 rulingPeriod_) {
        REQUESTS = requests_;
        STAKES = IStakeManager(stakes_);
        RULING_PERIOD = rulingPeriod_;
        _arbiter = arbiter_;
        emit ArbiterSet(arbiter_);
    }

    /// @inheritdoc IDisputes
    function hold(Hold calldata held) external {
        if (msg.sender != REQUESTS) revert NotRequests(msg.sender);
        _cases[held.id].holdHash = keccak256(abi.encode(held));
        emit PaymentHeld(
            held.id,
            held.commitment,
            held.digest,
            held.workers,
            held.owners,
            held.paymentWei,
            held.poster,
            held.posterWei,
            held.bondWei,
            held.disputableUntil
        );
    }

    /// @inheritdoc IDisputes
    /// @dev Between two payments only the purse of this deployment is called, which calls nobody.
    // slither-disable-next-line reentrancy-no-eth
    function release(Hold[] calldata holds) external returns (uint256 released) {
        for (uint256 i; i < holds.length; ++i) {
            Hold calldata held = holds[i];
            if (_statusOf(held) != HoldStatus.HELD) {
                emit ReleaseSkipped(held.id, HoldSkipReason.NOT_HELD);
            } else if (block.timestamp <= held.disputableUntil) {
                emit ReleaseSkipped(held.id, HoldSkipReason.STILL_DISPUTABLE);
            } else {
                _cases[held.id].closed = true;
                ++released;
                emit PaymentReleased(held.id);
                _pay(held, held.paymentWei);
            }
        }
    }

    /// @inheritdoc IDisputes
    function open(Hold calldata held) external payable {
        if (_statusOf(held) != HoldStatus.HELD) revert NotHeld(held.id);
        if (block.timestamp > held.disputableUntil) revert WindowClosed(held.disputableUntil, block.timestamp);
        if (msg.value != held.bondWei) revert WrongBond(msg.value, held.bondWei);
        uint40 rulingUntil = uint40(block.timestamp) + RULING_PERIOD;
        Case storage opened = _cases[held.id];
        opened.disputer = msg.sender;
        opened.rulingUntil = rulingUntil;
        emit DisputeOpened(held.id, msg.sender, rulingUntil);
        ICredits(REQUESTS).credit{value: msg.value}(address(this));
    }

    /// @inheritdoc IDisputes
    function rule(Hold calldata held, bool upheld, address requester, bytes32 paramsHash) external {
        if (msg.sender != _arbiter) revert NotArbiter(msg.sender);
        Case storage ruled = _disputed(held);
        if (block.timestamp > ruled.rulingUntil) revert RulingTooLate(ruled.rulingUntil, block.timestamp);
        ruled.closed = true;
        address disputer = ruled.disputer;
        // Zero at first, as every local variable.
        // slither-disable-next-line uninitialized-local
        uint256 slashedWei;
        if (upheld) {
            if (RequestHash.commit(CHAIN_ID, REQUESTS, held.id, requester, paramsHash) != held.commitment) {
                revert CommitmentMismatch(held.id);
            }
            ICredits(REQUESTS).transferCredit(requester, held.paymentWei + held.posterWei);
            ICredits(REQUESTS).transferCredit(disputer, held.bondWei);
            for (uint256 i; i < held.workers.length; ++i) {
                slashedWei += STAKES.slashLoser(held.workers[i], held.bondWei, disputer);
            }
        } else {
            _pay(held, held.paymentWei + held.bondWei);
        }
        emit DisputeRuled(held.id, upheld, disputer, slashedWei);
    }

    /// @inheritdoc IDisputes
    function close(Hold calldata held) external {
        Case storage lapsed = _disputed(held);
        if (block.timestamp <= lapsed.rulingUntil) revert RulingStillPossible(lapsed.rulingUntil, block.timestamp);
        lapsed.closed = true;
        emit DisputeLapsed(held.id);
        ICredits(REQUESTS).transferCredit(lapsed.disputer, held.bondWei);
        _pay(held, held.paymentWei);
    }

    /// @inheritdoc IDisputes
    function setArbiter(address arbiter_) external {
        if (msg.sender != IOwned(REQUESTS).owner()) revert NotContractOwner(msg.sender);
        _arbiter = arbiter_;
        emit ArbiterSet(arbiter_);
    }

    /// @inheritdoc IDisputes
    function arbiter() external view returns (address) {
        return _arbiter;
    }

    /// @inheritdoc IDisputes
    function requests() external view returns (address) {
        return REQUESTS;
    }

    /// @inheritdoc IDisputes
    function stakes() external view returns (address) {
        return address(STAKES);
    }

    /// @inheritdoc IDisputes
    function rulingPeriod() external view returns (uint40) {
        return RULING_PERIOD;
    }

    /// @inheritdoc IDisputes
    /// @dev A worker can unstake in the very block of its result.
    function maxWindow() external view returns (uint256) {
        uint256 delay = STAKES.unbondingDelay();
        // A ruling in its last second must still come before a withdrawal.
        return delay > RULING_PERIOD ? delay - RULING_PERIOD - 1 : 0;
    }

    /// @inheritdoc IDisputes
    function statusOf(uint256 id) external view returns (HoldStatus) {
        return _statusOf(_cases[id]);
    }

    /// @dev Of a result that stands. As several workers share a payment: what does not divide goes to the first.
    function _pay(Hold calldata held, uint256 ownersWei) private {
        uint256 shareWei = ownersWei / held.owners.length;
        for (uint256 i; i < held.owners.length; ++i) {
            uint256 restWei = i == 0 ? ownersWei % held.owners.length : 0;
            ICredits(REQUESTS).transferCredit(held.owners[i], shareWei + restWei);
        }
        ICredits(REQUESTS).transferCredit(held.poster, held.posterWei);
    }

    function _disputed(Hold calldata held) private view returns (Case storage disputed) {
        if (_statusOf(held) != HoldStatus.DISPUTED) revert NotDisputed(held.id);
        disputed = _cases[held.id];
    }

    /// @dev NONE also for other contents than were held.
    function _statusOf(Hold calldata held) private view returns (HoldStatus) {
        Case storage known = _cases[held.id];
        return known.holdHash == keccak256(abi.encode(held)) ? _statusOf(known) : HoldStatus.NONE;
    }

    function _statusOf(Case storage known) private view returns (HoldStatus) {
        if (known.holdHash == 0) return HoldStatus.NONE;
        if (known.closed) return HoldStatus.CLOSED;
        return known.disputer == address(0) ? HoldStatus.HELD : HoldStatus.DISPUTED;
    }
}
