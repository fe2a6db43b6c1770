// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    RefundClaim,
    RequestParams,
    SkipReason
} from "./interfaces/IInferenceRequests.sol";
import {Bitmap} from "./lib/Bitmap.sol";
import {Owned} from "./lib/Owned.sol";
import {RequestHash} from "./lib/RequestHash.sol";
import {RequestWord, RequestWordLib} from "./lib/RequestWord.sol";
import {RequestStore} from "./requests/RequestStore.sol";
import {Settling} from "./requests/Settling.sol";
import {TermsBook} from "./requests/TermsBook.sol";

/// @title Requests and the money that belongs to them
/// @dev Solvency: the balance is the sum of the fees of the unsettled requests and of the credits. A fee moves from the
/// first sum to the second in the transaction that sets the request's bit, and the bit never goes back. There is no
/// receive function: ether that belongs to nobody is refused.
contract InferenceRequests is Settling {
    /// @dev With the rest of a delivery, it fits the 2^24 gas of a transaction (EIP-7825).
    uint256 private constant MAX_CALLBACK_GAS = 8_000_000;
    /// @dev Where `_state` keeps what.
    uint256 private constant ID_MASK = type(uint64).max;
    uint256 private constant PAUSED = 1 << 64;
    uint256 private constant FILTER_SHIFT = 128;

    uint256 private immutable CHAIN_ID = block.chainid;
    uint40 private immutable CANCEL_DELAY;

    /// @param results_ the only contract that may settle
    /// @param disputes_ who holds the payments of results that can be disputed
    /// @param owner_ who may pause and set terms; zero: nobody, for ever
    /// @param posterBps_ what part of a fee the sender of the result's transaction earns, in 1/10,000
    /// @param cancelDelay_ seconds that a result under way still has after its requester asked to cancel
    constructor(address results_, address disputes_, address owner_, uint256 posterBps_, uint40 cancelDelay_)
        Owned(owner_)
        TermsBook(disputes_)
        Settling(results_, posterBps_)
    {
        if (posterBps_ > MAX_BPS) revert InvalidPosterBps(posterBps_);
        // With none, a requester could read a pending result and cancel before it lands.
        if (cancelDelay_ == 0) revert CancelDelayZero();
        CANCEL_DELAY = cancelDelay_;
        _state = 1;
    }

    /// @inheritdoc IInferenceRequests
    function submit(RequestParams calldata params) external payable returns (uint256 id) {
        uint256 state = _allowed();
        _state = state + 1;
        id = state & ID_MASK;
        _open(id, params, msg.value, state);
    }

    /// @inheritdoc IInferenceRequests
    function submitMany(RequestParams[] calldata params, uint256[] calldata feesWei)
        external
        payable
        returns (uint256 firstId)
    {
        if (params.length != feesWei.length) revert LengthMismatch(params.length, feesWei.length);
        uint256 state = _allowed();
        _state = state + params.length;
        firstId = state & ID_MASK;
        // Zero at first, as every local variable.
        // slither-disable-next-line uninitialized-local
        uint256 sumWei;
        for (uint256 i; i < params.length; ++i) {
            _open(firstId + i, params[i], feesWei[i], state);
            sumWei += feesWei[i];
        }
        if (sumWei != msg.value) revert FeeSumMismatch(msg.value, sumWei);
    }

    /// @inheritdoc IInferenceRequests
    function raiseFee(uint256 id) external payable {
        RequestWord word = _pending(id);
        uint256 feeGwei = word.feeGwei() + _wholeGwei(msg.value);
        if (feeGwei > RequestWordLib.MAX_FEE_GWEI) revert FeeTooLarge(feeGwei * WEI_PER_GWEI);
        _requests[id] = word.withFee(feeGwei);
        emit FeeRaised(id, feeGwei * WEI_PER_GWEI);
    }

    /// @inheritdoc IInferenceRequests
    /// @dev The requester is only in the commitment, so another caller and other parameters both show as a mismatch.
    function requestCancel(uint256 id, bytes32 paramsHash) external {
        RequestWord word = _pending(id);
        if (word.commitment() != RequestHash.commit(CHAIN_ID, address(this), id, msg.sender, paramsHash)) {
            revert CommitmentMismatch(id);
        }
        uint256 deadline = block.timestamp + CANCEL_DELAY;
        // Only ever earlier: asking again must not give time back.
        if (deadline < word.deadline()) _requests[id] = word.withDeadline(deadline);
        else deadline = word.deadline();
        // The smaller of two numbers, one of which is a uint40.
        // forge-lint: disable-next-line(unsafe-typecast)
        emit CancelRequested(id, uint40(deadline));
    }

    /// @inheritdoc IInferenceRequests
    function refund(RefundClaim[] calldata claims) external returns (uint256 refunded) {
        uint256 wordIndex = Bitmap.NO_INDEX;
        // Read only once a word was loaded into it.
        // slither-disable-next-line uninitialized-local
        uint256 bits;
        for (uint256 i; i < claims.length; ++i) {
            RefundClaim calldata claim = claims[i];
            uint256 id = claim.id;
            if (id > MAX_ID) {
                emit RefundSkipped(id, SkipReason.UNKNOWN_ID);
                continue;
            }
            if (Bitmap.indexOf(id) != wordIndex) {
                if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits, 0);
                wordIndex = Bitmap.indexOf(id);
                bits = _loadBits(wordIndex);
            }
            if (bits & Bitmap.maskOf(id) != 0) {
                emit RefundSkipped(id, SkipReason.ALREADY_SETTLED);
                continue;
            }
            RequestWord word = _requests[id];
            if (word.isZero()) {
                emit RefundSkipped(id, SkipReason.UNKNOWN_ID);
            } else if (
                word.commitment() != RequestHash.commit(CHAIN_ID, address(this), id, claim.requester, claim.paramsHash)
            ) {
                emit RefundSkipped(id, SkipReason.COMMITMENT_MISMATCH);
            } else if (block.timestamp <= word.deadline()) {
                emit RefundSkipped(id, SkipReason.NOT_EXPIRED);
            } else {
                bits |= Bitmap.maskOf(id);
                // As in `Settling._settleItems`: clearing a quarter of the words pays for itself.
                if (refunded & 3 == 0) _clear(id);
                ++refunded;
                uint256 amountWei = word.feeGwei() * WEI_PER_GWEI;
                _credits[claim.requester] += amountWei;
                emit RequestRefunded(id, claim.requester, amountWei);
            }
        }
        if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits, 0);
    }

    /// @inheritdoc IInferenceRequests
    function setPaused(bool paused_) external onlyOwner {
        _state = paused_ ? _state | PAUSED : _state & ~PAUSED;
        emit PausedSet(paused_);
    }

    /// @inheritdoc IInferenceRequests
    function nextId() external view returns (uint256) {
        return _state & ID_MASK;
    }

    /// @inheritdoc IInferenceRequests
    function paused() external view returns (bool) {
        return _state & PAUSED != 0;
    }

    /// @inheritdoc IInferenceRequests
    function results() external view returns (address) {
        return RESULTS;
    }

    /// @inheritdoc IInferenceRequests
    function disputes() external view returns (address) {
        return address(DISPUTES);
    }

    /// @inheritdoc IInferenceRequests
    function posterBps() external view returns (uint256) {
        return POSTER_BPS;
    }

    /// @inheritdoc IInferenceRequests
    function cancelDelay() external view returns (uint40) {
        return CANCEL_DELAY;
    }

    /// @inheritdoc IInferenceRequests
    function commitmentOf(uint256 id, address requester, bytes32 paramsHash) external view returns (bytes20) {
        return RequestHash.commit(CHAIN_ID, address(this), id, requester, paramsHash);
    }

    function _noteModel(uint256 mask) internal override {
        _state |= mask << FILTER_SHIFT;
    }

    /// @param state as it was when the call began
    function _open(uint256 id, RequestParams calldata params, uint256 feeWei, uint256 state) private {
        uint256 feeGwei = _wholeGwei(feeWei);
        if (feeGwei > RequestWordLib.MAX_FEE_GWEI) revert FeeTooLarge(feeWei);
        uint256 deadline = params.deadline;
        if (deadline <= block.timestamp) revert DeadlineNotInFuture(deadline, block.timestamp);
        uint256 quorum = params.quorum;
        if (quorum == 0 || quorum > RequestWordLib.MAX_QUORUM) {
            revert QuorumOutOfRange(quorum, 1, RequestWordLib.MAX_QUORUM);
        }
        Delivery delivery = params.delivery;
        uint256 callbackGasLimit = params.callbackGasLimit;
        if (delivery == Delivery.CALLBACK) _checkCallback(callbackGasLimit);
        else if (callbackGasLimit != 0) revert CallbackGasOutOfRange(callbackGasLimit, 0);

        bytes20 commitment = RequestHash.commit(CHAIN_ID, address(this), id, msg.sender, RequestHash.hashParams(params));
        RequestWord word = RequestWordLib.pack(feeGwei, deadline, commitment, delivery, quorum, params.batchable);
        bytes32 modelId = params.modelId;
        if (state >> FILTER_SHIFT & _filterMaskOf(modelId) != 0 && _takeTerms(id, modelId, quorum)) {
            word = word.withTerms();
        }
        _requests[id] = word;
        emit InferenceRequested(
            id, msg.sender, modelId, RequestWord.unwrap(word), RequestHash.packLimits(params), params.input
        );
    }

    /// @dev A key cannot be called back; nor can a contract in its constructor, which has no code yet.
    function _checkCallback(uint256 callbackGasLimit) private view {
        if (callbackGasLimit == 0 || callbackGasLimit > MAX_CALLBACK_GAS) {
            revert CallbackGasOutOfRange(callbackGasLimit, MAX_CALLBACK_GAS);
        }
        if (msg.sender.code.length == 0) revert CallbackNeedsCode(msg.sender);
    }

    function _allowed() private view returns (uint256 state) {
        state = _state;
        if (state & PAUSED != 0) revert RequestsPaused();
    }

    function _wholeGwei(uint256 valueWei) private pure returns (uint256 valueGwei) {
        if (valueWei == 0) revert FeeZero();
        if (valueWei % WEI_PER_GWEI != 0) revert FeeNotWholeGwei(valueWei);
        return valueWei / WEI_PER_GWEI;
    }
}
