// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice A payment held back. Storage keeps its hash: whoever acts on it brings it along, from the event `PaymentHeld`.
struct Hold {
    uint256 id;
    bytes20 commitment;
    bytes32 digest;
    address[] workers;
    /// who is credited for each worker
    address[] owners;
    /// what the owners share; where a dispute is rejected, as one sum with the bond
    uint256 paymentWei;
    /// who posted the result, and its share of the fee
    address poster;
    uint256 posterWei;
    /// what a dispute costs to open, and each worker who loses it
    uint256 bondWei;
    /// last block timestamp, in seconds, at which the result can be disputed
    uint40 disputableUntil;
}

/// @notice What became of a held payment.
enum HoldStatus {
    NONE,
    HELD,
    DISPUTED,
    CLOSED
}

enum HoldSkipReason {
    NOT_HELD,
    STILL_DISPUTABLE
}

/// @title Disputes
/// @notice Holds the payments of results whose model has a dispute window, and what becomes of them.
/// @dev The money itself is credit of this contract in `ICredits`. If the result stands, payment and bond go to the
/// workers' owners and the poster gets its share; if it falls, the whole fee goes back to the requester, the bond to the
/// disputer, and each worker is slashed by up to the bond. The poster's share waits too, or a worker that posts its own
/// lie would keep it. Nobody's silence can keep money here: see `release` and `close`.
interface IDisputes {
    event PaymentHeld(
        uint256 indexed id,
        bytes20 commitment,
        bytes32 digest,
        address[] workers,
        address[] owners,
        uint256 paymentWei,
        address poster,
        uint256 posterWei,
        uint256 bondWei,
        uint40 disputableUntil
    );
    event PaymentReleased(uint256 indexed id);
    event ReleaseSkipped(uint256 indexed id, HoldSkipReason reason);
    /// @param rulingUntil last block timestamp, in seconds, at which the arbiter can rule
    event DisputeOpened(uint256 indexed id, address indexed disputer, uint40 rulingUntil);
    event DisputeRuled(uint256 indexed id, bool upheld, address indexed disputer, uint256 slashedWei);
    /// @notice The arbiter did not rule in time: bond and payment went to whom they belonged.
    event DisputeLapsed(uint256 indexed id);
    event ArbiterSet(address indexed arbiter);

    error NotRequests(address caller);
    error NotArbiter(address caller);
    error NotContractOwner(address caller);
    error NotHeld(uint256 id);
    error NotDisputed(uint256 id);
    error WindowClosed(uint256 disputableUntil, uint256 timestamp);
    error WrongBond(uint256 valueWei, uint256 bondWei);
    error RulingTooLate(uint256 rulingUntil, uint256 timestamp);
    error RulingStillPossible(uint256 rulingUntil, uint256 timestamp);
    error CommitmentMismatch(uint256 id);

    /// @notice Takes note of a payment that was just credited to this contract. Only the requests contract.
    function hold(Hold calldata held) external;
    /// @notice Pays what was not disputed in time; anyone may. What cannot be paid is skipped with an event.
    function release(Hold[] calldata holds) external returns (uint256 released);
    /// @notice Disputes a result; anyone may, with exactly the bond, once.
    function open(Hold calldata held) external payable;
    /// @notice Rules on a dispute. Only the arbiter, in time.
    /// @param upheld whether the disputer was right
    /// @param requester who gets the fee back in that case
    /// @param paramsHash opens the request's commitment, with the requester
    function rule(Hold calldata held, bool upheld, address requester, bytes32 paramsHash) external;
    /// @notice Ends a dispute on which nobody ruled in time; anyone may.
    function close(Hold calldata held) external;
    /// @notice Appoints who rules, also on open disputes. Only the owner of the requests contract.
    function setArbiter(address arbiter) external;

    function arbiter() external view returns (address);
    function requests() external view returns (address);
    function stakes() external view returns (address);
    /// @notice Seconds the arbiter has from the opening of a dispute.
    function rulingPeriod() external view returns (uint40);
    /// @notice The longest window, in seconds, after which a ruling still reaches a stake that started to leave at once.
    function maxWindow() external view returns (uint256);
    function statusOf(uint256 id) external view returns (HoldStatus);
}
