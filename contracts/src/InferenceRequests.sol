// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {
    Delivery,
    IInferenceRequests,
    RefundClaim,
    RequestParams,
    RequestRecord,
    RequestStatus,
    SkipReason
} from "./interfaces/IInferenceRequests.sol";
import {Bitmap} from "./lib/Bitmap.sol";
import {RequestHash} from "./lib/RequestHash.sol";
import {RequestWord, RequestWordLib} from "./lib/RequestWord.sol";

/// @title Requests and the money that belongs to them
/// @dev Solvency: the balance is the sum of the fees of the unsettled requests and of the credits. A fee moves from the
/// first sum to the second in the transaction that sets the request's bit, and the bit never goes back. There is no
/// receive function: ether that belongs to nobody is refused.
///
/// Fees are whole gwei and shares are whole basis points, so every share is a whole number of wei: nothing is ever
/// rounded, and a fee pays the same however its results are split into groups.
contract InferenceRequests is IInferenceRequests {
    uint256 private constant WEI_PER_GWEI = RequestWordLib.WEI_PER_GWEI;
    uint256 private constant MAX_BPS = 10_000;
    /// @dev Exact: 1e9 wei is a multiple of 10,000 basis points.
    uint256 private constant WEI_PER_GWEI_BPS = WEI_PER_GWEI / MAX_BPS;
    /// @dev Ids have 64 bits in an item; a static array may not have more places than 2^63.
    uint256 private constant MAX_ID = 2 ** 63 - 1;
    /// @dev id (8 bytes), commitment (20), digest (32)
    uint256 private constant ITEM_BYTES = 60;

    address private immutable RESULTS;
    uint256 private immutable POSTER_BPS;
    uint40 private immutable CANCEL_DELAY;

    uint256 private _nextId = 1;
    mapping(address account => uint256) private _credits;

    /// @dev Ids count up, so requests and bits lie side by side in static arrays instead of behind a hash each, which
    /// saves its gas on every access.
    uint256[2 ** 56] private _settledWords;
    RequestWord[2 ** 63] private _requests;

    /// @param results_ the only contract that may settle
    /// @param posterBps_ what part of a fee the sender of the result's transaction earns, in 1/10,000
    /// @param cancelDelay_ seconds that a result under way still has after its requester asked to cancel
    constructor(address results_, uint256 posterBps_, uint40 cancelDelay_) {
        if (posterBps_ > MAX_BPS) revert InvalidPosterBps(posterBps_);
        // With none, a requester could read a pending result and cancel before it lands.
        if (cancelDelay_ == 0) revert CancelDelayZero();
        RESULTS = results_;
        POSTER_BPS = posterBps_;
        CANCEL_DELAY = cancelDelay_;
    }

    /// @inheritdoc IInferenceRequests
    function submit(RequestParams calldata params) external payable returns (uint256 id) {
        id = _nextId;
        _nextId = id + 1;
        _open(id, params, msg.value);
    }

    /// @inheritdoc IInferenceRequests
    function submitMany(RequestParams[] calldata params, uint256[] calldata feesWei)
        external
        payable
        returns (uint256 firstId)
    {
        if (params.length != feesWei.length) revert LengthMismatch(params.length, feesWei.length);
        firstId = _nextId;
        _nextId = firstId + params.length;
        uint256 sumWei;
        for (uint256 i; i < params.length; ++i) {
            _open(firstId + i, params[i], feesWei[i]);
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
        if (word.commitment() != RequestHash.commit(id, msg.sender, paramsHash)) revert CommitmentMismatch(id);
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
        uint256 bits;
        for (uint256 i; i < claims.length; ++i) {
            RefundClaim calldata claim = claims[i];
            uint256 id = claim.id;
            if (id > MAX_ID) {
                emit RefundSkipped(id, SkipReason.UNKNOWN_ID);
                continue;
            }
            if (Bitmap.indexOf(id) != wordIndex) {
                if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits);
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
            } else if (word.commitment() != RequestHash.commit(id, claim.requester, claim.paramsHash)) {
                emit RefundSkipped(id, SkipReason.COMMITMENT_MISMATCH);
            } else if (block.timestamp <= word.deadline()) {
                emit RefundSkipped(id, SkipReason.NOT_EXPIRED);
            } else {
                bits |= Bitmap.maskOf(id);
                // As in `_settleItems`: clearing a quarter of the words pays for itself.
                if (refunded & 3 == 0) _clear(id);
                ++refunded;
                uint256 amountWei = word.feeGwei() * WEI_PER_GWEI;
                _credits[claim.requester] += amountWei;
                emit RequestRefunded(id, claim.requester, amountWei);
            }
        }
        if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits);
    }

    /// @inheritdoc IInferenceRequests
    /// @dev The results contract vouches for the items' length. It alone calls this, and what is passed over is told
    /// by an event: one bad item costs the others nothing.
    function settle(bytes calldata items, address worker, address owner, address poster)
        external
        returns (uint256 settled)
    {
        if (msg.sender != RESULTS) revert NotResults(msg.sender);
        uint256 feesGwei;
        (settled, feesGwei) = _settleItems(items, worker);
        if (settled == 0) return 0;

        // Unchecked: all fees ever held together are less than all ether there is, which fits 96 bits, and the poster's
        // share is at most the whole.
        unchecked {
            uint256 posterWei = feesGwei * POSTER_BPS * WEI_PER_GWEI_BPS;
            uint256 workerWei = feesGwei * WEI_PER_GWEI - posterWei;
            _credits[owner] += workerWei;
            emit WorkerPaid(worker, owner, settled, workerWei);
            if (posterWei != 0) {
                _credits[poster] += posterWei;
                emit PosterPaid(poster, posterWei);
            }
        }
    }

    /// @inheritdoc IInferenceRequests
    function withdraw(address payable to) external returns (uint256 amountWei) {
        amountWei = _credits[msg.sender];
        if (amountWei == 0) revert NothingToWithdraw(msg.sender);
        // Cleared before the transfer: a re-entering `to` finds nothing left.
        _credits[msg.sender] = 0;
        emit Withdrawn(msg.sender, to, amountWei);

        // The zero address would take the money and nobody would ever see it again.
        if (to == address(0)) revert TransferFailed(to, amountWei);
        (bool ok,) = to.call{value: amountWei}("");
        if (!ok) revert TransferFailed(to, amountWei);
    }

    /// @inheritdoc IInferenceRequests
    function nextId() external view returns (uint256) {
        return _nextId;
    }

    /// @inheritdoc IInferenceRequests
    function results() external view returns (address) {
        return RESULTS;
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
    function credits(address account) external view returns (uint256 amountWei) {
        return _credits[account];
    }

    /// @inheritdoc IInferenceRequests
    /// @dev All zero once the request is settled: some words are cleared then and some are not.
    function recordOf(uint256 id) external view returns (RequestRecord memory) {
        return (id > MAX_ID || _isSettled(id) ? RequestWord.wrap(0) : _requests[id]).unpack();
    }

    /// @inheritdoc IInferenceRequests
    function statusOf(uint256 id) external view returns (RequestStatus) {
        if (id > MAX_ID) return RequestStatus.UNKNOWN;
        if (_isSettled(id)) return RequestStatus.SETTLED;
        RequestWord word = _requests[id];
        if (word.isZero()) return RequestStatus.UNKNOWN;
        return block.timestamp > word.deadline() ? RequestStatus.EXPIRED : RequestStatus.PENDING;
    }

    /// @inheritdoc IInferenceRequests
    function settledWord(uint256 wordIndex) external view returns (uint256) {
        return wordIndex >= _settledWords.length ? 0 : _settledWords[wordIndex];
    }

    /// @inheritdoc IInferenceRequests
    function commitmentOf(uint256 id, address requester, bytes32 paramsHash) external view returns (bytes20) {
        return RequestHash.commit(id, requester, paramsHash);
    }

    function _open(uint256 id, RequestParams calldata params, uint256 feeWei) private {
        uint256 feeGwei = _wholeGwei(feeWei);
        if (feeGwei > RequestWordLib.MAX_FEE_GWEI) revert FeeTooLarge(feeWei);
        uint256 deadline = params.deadline;
        if (deadline <= block.timestamp) revert DeadlineNotInFuture(deadline, block.timestamp);
        uint8 quorum = params.quorum;
        if (quorum != 1) revert UnsupportedQuorum(quorum);
        Delivery delivery = params.delivery;
        if (delivery != Delivery.EVENT) revert UnsupportedDelivery(delivery);
        if (params.callbackGasLimit != 0) revert UnexpectedCallbackGas(params.callbackGasLimit);

        bytes20 commitment = RequestHash.commit(id, msg.sender, RequestHash.hashParams(params));
        RequestWord word = RequestWordLib.pack(feeGwei, deadline, commitment, delivery, quorum, params.batchable);
        _requests[id] = word;
        emit InferenceRequested(
            id, msg.sender, params.modelId, RequestWord.unwrap(word), RequestHash.packLimits(params), params.input
        );
    }

    /// @return settled how many items were settled
    /// @return feesGwei the sum of their fees
    function _settleItems(bytes calldata items, address worker) private returns (uint256 settled, uint256 feesGwei) {
        uint256 wordIndex = Bitmap.NO_INDEX;
        uint256 bits;
        uint256 cursor;
        uint256 end;
        assembly ("memory-safe") {
            cursor := items.offset
            end := add(cursor, items.length)
        }
        // Unchecked: the cursor stays within calldata, counts within its length, and 2^64 fees of 48 bits fit a word.
        unchecked {
            for (; cursor < end; cursor += ITEM_BYTES) {
                uint256 head;
                assembly ("memory-safe") {
                    head := calldataload(cursor)
                }
                uint256 id = head >> 192;
                if (Bitmap.indexOf(id) != wordIndex) {
                    if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits);
                    wordIndex = Bitmap.indexOf(id);
                    bits = _loadBits(wordIndex);
                }
                uint256 mask = Bitmap.maskOf(id);
                if (bits & mask != 0) {
                    emit ResultSkipped(id, SkipReason.ALREADY_SETTLED);
                    continue;
                }
                RequestWord word = _load(id);
                // The commitment stands in bits 32-191 of `head`. An unknown request's deadline is 0, long past.
                uint256 misfit;
                assembly ("memory-safe") {
                    misfit := or(
                        shl(96, xor(shr(88, word), shr(32, head))),
                        lt(and(shr(48, word), 0xffffffffff), timestamp())
                    )
                }
                if (misfit != 0) {
                    _skipResult(id, head, word);
                    continue;
                }
                bits |= mask;
                feesGwei += word.feeGwei();
                // EIP-3529 gives back more for a cleared word than clearing costs, up to a fifth of the transaction's gas,
                // which a quarter of the words just reaches. Nobody needs the word of a settled request: its bit is
                // asked first everywhere.
                if (settled & 3 == 0) _clear(id);
                ++settled;
                // Equivalent to emit InferenceFulfilled(id, worker, digest), the digest being the item's last 32 bytes.
                // Memory-safe: scratch space only.
                bytes32 topic = InferenceFulfilled.selector;
                assembly ("memory-safe") {
                    mstore(0x00, calldataload(add(cursor, 28)))
                    log3(0x00, 0x20, topic, id, worker)
                }
            }
        }
        if (wordIndex != Bitmap.NO_INDEX) _storeBits(wordIndex, bits);
    }

    /// @dev Apart from the loop: it is the seldom case, and finds out once more which of the three it was.
    function _skipResult(uint256 id, uint256 head, RequestWord word) private {
        // The commitment stands in bits 32-191 of the item's head: the cast drops the id before it.
        // forge-lint: disable-next-line(unsafe-typecast)
        bytes20 commitment = bytes20(uint160(head >> 32));
        SkipReason reason = SkipReason.EXPIRED;
        if (word.isZero()) reason = SkipReason.UNKNOWN_ID;
        else if (word.commitment() != commitment) reason = SkipReason.COMMITMENT_MISMATCH;
        emit ResultSkipped(id, reason);
    }

    /// @dev Equivalent to `_settledWords[wordIndex]`, for the index of a 64-bit id.
    function _loadBits(uint256 wordIndex) private view returns (uint256 bits) {
        assembly ("memory-safe") {
            bits := sload(add(_settledWords.slot, wordIndex))
        }
    }

    /// @dev Equivalent to `_settledWords[wordIndex] = bits`, for the index of a 64-bit id.
    function _storeBits(uint256 wordIndex, uint256 bits) private {
        assembly ("memory-safe") {
            sstore(add(_settledWords.slot, wordIndex), bits)
        }
    }

    /// @dev Equivalent to `_requests[id]` for ids up to `MAX_ID`; above, up to 64 bits, it reads the untouched slots behind
    /// the array, the last variable, and so finds nothing, without a check.
    function _load(uint256 id) private view returns (RequestWord word) {
        assembly ("memory-safe") {
            word := sload(add(_requests.slot, id))
        }
    }

    /// @dev Equivalent to `_requests[id] = RequestWord.wrap(0)`.
    function _clear(uint256 id) private {
        assembly ("memory-safe") {
            sstore(add(_requests.slot, id), 0)
        }
    }

    function _wholeGwei(uint256 valueWei) private pure returns (uint256 valueGwei) {
        if (valueWei == 0) revert FeeZero();
        if (valueWei % WEI_PER_GWEI != 0) revert FeeNotWholeGwei(valueWei);
        return valueWei / WEI_PER_GWEI;
    }

    function _isSettled(uint256 id) private view returns (bool) {
        return _loadBits(Bitmap.indexOf(id)) & Bitmap.maskOf(id) != 0;
    }

    /// @dev A request that is there, unsettled and unexpired, or a revert.
    function _pending(uint256 id) private view returns (RequestWord word) {
        if (id > MAX_ID || _isSettled(id)) revert NotPending(id);
        word = _requests[id];
        if (word.isZero() || block.timestamp > word.deadline()) revert NotPending(id);
    }
}
