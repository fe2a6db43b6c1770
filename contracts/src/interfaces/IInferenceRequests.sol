// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "./ICredits.sol";
import {IModelTerms} from "./IModelTerms.sol";
import {IOwned} from "./IOwned.sol";

/// @notice How `RequestParams.input` is to be read.
/// @dev INLINE: the bytes are the model's input. URI: 32 bytes keccak256 of the content, then the URI.
enum InputKind {
    INLINE,
    URI
}

/// @notice Where the result of a request goes besides the event that every result emits.
/// @dev STORED: the digest takes the place of the request's word, readable by `resultOf`. CALLBACK: the output is handed
/// to the requester, a contract, by `IInferenceResults.deliver`.
enum Delivery {
    EVENT,
    STORED,
    CALLBACK
}

/// @notice What a request's place in its life is, as a contract can see it.
enum RequestStatus {
    UNKNOWN,
    PENDING,
    EXPIRED,
    SETTLED
}

/// @notice Why an item of a batch was passed over.
enum SkipReason {
    UNKNOWN_ID,
    COMMITMENT_MISMATCH,
    ALREADY_SETTLED,
    EXPIRED,
    NOT_EXPIRED,
    QUORUM_MISMATCH,
    TERMS_APPLY
}

/// @notice What a requester asks for. All fields are bound by the request's commitment.
struct RequestParams {
    /// keccak256 of the model's name in UTF-8
    bytes32 modelId;
    /// upper bound of generated tokens; 0 where the model has no such notion
    uint32 maxTokens;
    /// last block timestamp, in seconds, at which a result is accepted
    uint40 deadline;
    /// memory a worker must have, in MB; 0 = any
    uint32 memoryMb;
    /// gas given to the consumer's callback, 1 to `MAX_CALLBACK_GAS` with delivery CALLBACK; 0 with others
    uint32 callbackGasLimit;
    /// how many different workers must agree, 1 to 15; 1 = any single one
    uint8 quorum;
    /// whether the result may wait for others to share a transaction
    bool batchable;
    Delivery delivery;
    InputKind inputKind;
    bytes input;
}

/// @notice The preimage that opens a request's commitment for its refund.
struct RefundClaim {
    uint256 id;
    address requester;
    bytes32 paramsHash;
}

/// @notice What the single storage slot of a request holds.
struct RequestRecord {
    uint48 feeGwei;
    uint40 deadline;
    bytes20 commitment;
    Delivery delivery;
    uint8 quorum;
    bool batchable;
    /// whether its model's terms ask for a proof or a dispute window
    bool underTerms;
}

/// @title Requests
/// @notice Holds each request's fee until its result is settled or its deadline has passed.
/// @dev Ids count up from 1. `paramsHash` is keccak256(abi.encode(modelId, maxTokens, deadline, memoryMb,
/// callbackGasLimit, quorum, batchable, delivery, inputKind, keccak256(input))) with the deadline as submitted;
/// `commitment` is the first 20 bytes of keccak256(abi.encode(chain id at deployment, address(this), id, requester,
/// paramsHash)). A reorganisation can hand an id to another request, never a commitment.
interface IInferenceRequests is ICredits, IModelTerms, IOwned {
    /// @dev `record` is the request's storage word: feeGwei (bits 0-47), deadline (48-87), commitment (88-247),
    /// delivery (248-249), quorum (250-253), batchable (254), under terms (255). `limits` packs maxTokens (bits 0-31), memoryMb (32-63),
    /// callbackGasLimit (64-95) and inputKind (96-103). Packed, the event costs 2,600 gas less than field by field.
    event InferenceRequested(
        uint256 indexed id,
        address indexed requester,
        bytes32 indexed modelId,
        uint256 record,
        uint256 limits,
        bytes input
    );
    /// @notice The fee now held for the request, after a raise.
    event FeeRaised(uint256 indexed id, uint256 feeWei);
    /// @notice The deadline now in force, after its requester asked to cancel.
    event CancelRequested(uint256 indexed id, uint40 deadline);
    event InferenceFulfilled(uint256 indexed id, address worker, bytes32 digest);
    /// @notice An item was passed over. Of several reasons the first of ALREADY_SETTLED, UNKNOWN_ID, COMMITMENT_MISMATCH,
    /// EXPIRED, QUORUM_MISMATCH and TERMS_APPLY is told.
    event ResultSkipped(uint256 indexed id, SkipReason reason);
    event RequestRefunded(uint256 indexed id, address indexed requester, uint256 amountWei);
    event RefundSkipped(uint256 indexed id, SkipReason reason);
    /// @notice One worker's share of one group: `results` results for `amountWei`, credited to `owner`.
    event WorkerPaid(address indexed worker, address owner, uint256 results, uint256 amountWei);
    /// @notice The poster's share of a run of groups with one signature, or of another group; none for nothing.
    event PosterPaid(address poster, uint256 amountWei);
    event PausedSet(bool paused);

    error NotResults(address caller);
    error FeeNotWholeGwei(uint256 valueWei);
    error FeeZero();
    error FeeTooLarge(uint256 valueWei);
    error FeeSumMismatch(uint256 valueWei, uint256 sumWei);
    error LengthMismatch(uint256 params, uint256 fees);
    error DeadlineNotInFuture(uint256 deadline, uint256 timestamp);
    error CallbackGasOutOfRange(uint256 callbackGasLimit, uint256 atMost);
    error CallbackNeedsCode(address requester);
    error RequestsPaused();
    error NotPending(uint256 id);
    error CommitmentMismatch(uint256 id);
    error InvalidPosterBps(uint256 posterBps);
    error CancelDelayZero();

    /// @notice Asks for one inference and escrows `msg.value` (whole gwei, not zero) as its fee.
    function submit(RequestParams calldata params) external payable returns (uint256 id);

    /// @notice Asks for several at once; `feesWei` must add up to `msg.value`. Ids are consecutive from `firstId`.
    function submitMany(RequestParams[] calldata params, uint256[] calldata feesWei)
        external
        payable
        returns (uint256 firstId);

    /// @notice Adds `msg.value` to a pending, unexpired request's fee; anyone may.
    function raiseFee(uint256 id) external payable;

    /// @notice Shortens the caller's own request to now + `cancelDelay`, so a result under way can still land.
    function requestCancel(uint256 id, bytes32 paramsHash) external;

    /// @notice Credits expired requests' fees back to their requesters; anyone may. Items that cannot be refunded
    /// are skipped with an event.
    function refund(RefundClaim[] calldata claims) external returns (uint256 refunded);

    /// @notice Settles groups each signed by one worker (see IInferenceResults). Only the results contract.
    /// @param groups for each: worker, owner who is credited for it, length of the items, a word each; then the items: id (8
    /// bytes), commitment (20), digest (32), repeated, at least one
    /// @param poster who is credited for the transaction
    function settle(bytes calldata groups, address poster) external returns (uint256 settled);

    /// @notice Settles one group that several workers signed, or whose items are under terms. Only the results contract.
    /// @dev Each result's payment is shared equally; what does not divide goes to the first worker. The payment of a
    /// result with a dispute window goes to the disputes contract.
    /// @param workers the signers, in ascending order; the first is named in the events
    /// @param owners who is credited for each
    /// @param proven whether the terms' proofs have been checked; if not, items under terms are skipped
    function settleJoint(
        bytes calldata items,
        address[] calldata workers,
        address[] calldata owners,
        address poster,
        bool proven
    ) external returns (uint256 settled);

    /// @notice Takes the one right to call a fulfilled request's consumer. Only the results contract.
    /// @return taken false if no callback of this request with this result is owed
    function takeCallback(uint256 id, bytes20 commitment, bytes32 digest) external returns (bool taken);

    /// @notice Gives the right back after a failed call. Only the results contract.
    function returnCallback(uint256 id, bytes20 commitment, bytes32 digest) external;

    /// @notice Stops or allows new requests; everything else goes on. Only the owner.
    function setPaused(bool paused) external;

    function nextId() external view returns (uint256);
    function paused() external view returns (bool);
    function disputes() external view returns (address);
    function results() external view returns (address);
    function posterBps() external view returns (uint256);
    /// @notice Seconds between a cancel request and the deadline it sets.
    function cancelDelay() external view returns (uint40);
    function recordOf(uint256 id) external view returns (RequestRecord memory);
    function statusOf(uint256 id) external view returns (RequestStatus);
    /// @notice The digest of a fulfilled request whose delivery is STORED.
    /// @dev Also while the result can be disputed, and after a dispute that was upheld: see `IDisputes.statusOf`.
    /// @return found false for every other request
    function resultOf(uint256 id) external view returns (bool found, bytes32 digest);
    /// @notice Whether `deliver` may still call the consumer of this request with this result.
    function owesCallback(uint256 id, bytes20 commitment, bytes32 digest) external view returns (bool);
    /// @notice One bit per id: set once its request is fulfilled or refunded, for ever.
    function settledWord(uint256 wordIndex) external view returns (uint256);
    function commitmentOf(uint256 id, address requester, bytes32 paramsHash) external view returns (bytes20);
}
