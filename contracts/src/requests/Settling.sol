// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Hold} from "../interfaces/IDisputes.sol";
import {IInferenceRequests, SkipReason} from "../interfaces/IInferenceRequests.sol";
import {ModelTerms} from "../interfaces/IModelTerms.sol";
import {Bitmap} from "../lib/Bitmap.sol";
import {Items} from "../lib/Items.sol";
import {RequestHash} from "../lib/RequestHash.sol";
import {RequestWord, RequestWordLib} from "../lib/RequestWord.sol";
import {Credits} from "./Credits.sol";
import {RequestStore} from "./RequestStore.sol";
import {TermsBook} from "./TermsBook.sol";

/// @title From a signed group to credits
/// @dev Fees are whole gwei and shares are whole basis points, so the poster's share is a whole number of wei, and what
/// several workers get of a result is worked out for each result: a fee pays the same however results are split into
/// groups.
///
/// The results contract vouches for signers and for the items' length. It alone calls this, and what is passed over is
/// told by an event: one bad item costs the others nothing.
abstract contract Settling is TermsBook, Credits, RequestStore {
    uint256 internal constant WEI_PER_GWEI = RequestWordLib.WEI_PER_GWEI;
    uint256 internal constant MAX_BPS = 10_000;
    /// @dev Exact: 1e9 wei is a multiple of 10,000 basis points.
    uint256 private constant WEI_PER_GWEI_BPS = WEI_PER_GWEI / MAX_BPS;

    uint256 private constant SUM_BITS = 128;
    uint256 private constant SUM_MASK = (1 << SUM_BITS) - 1;

    address internal immutable RESULTS;
    uint256 internal immutable POSTER_BPS;

    /// @dev What a shared group has come to so far.
    struct Tally {
        uint256 settled;
        /// results whose payment is not held back
        uint256 paid;
        /// their fees
        uint256 feesGwei;
        /// what every worker gets
        uint256 shareWei;
        /// what the first worker gets besides, because it does not divide
        uint256 restWei;
        uint256 heldWei;
    }

    constructor(address results_, uint256 posterBps_) {
        RESULTS = results_;
        POSTER_BPS = posterBps_;
    }

    modifier onlyResults() {
        if (msg.sender != RESULTS) revert NotResults(msg.sender);
        _;
    }

    /// @inheritdoc IInferenceRequests
    function settle(bytes calldata groups, address poster) external onlyResults returns (uint256 settled) {
        uint256 group;
        uint256 end;
        assembly ("memory-safe") {
            group := groups.offset
            end := add(group, groups.length)
        }
        uint256 total;
        uint256 wordIndex;
        // The id of the first item is in its first 8 bytes.
        assembly ("memory-safe") {
            wordIndex := shr(200, calldataload(add(group, 0x60)))
        }
        uint256 bits = _loadBits(wordIndex);
        uint256 storedBits;
        // Unchecked: all fees ever held together are less than all ether there is, which fits 96 bits.
        unchecked {
            while (group < end) {
                uint256 sum;
                (sum, wordIndex, bits, storedBits) = _settleItems(group, wordIndex, bits, storedBits);
                total += sum;
                if (sum != 0) _payWorker(group, sum);
                assembly ("memory-safe") {
                    group := add(add(group, 0x60), calldataload(add(group, 0x40)))
                }
            }
            _storeBits(wordIndex, bits, storedBits);
            _payPoster(poster, (total & SUM_MASK) * POSTER_BPS * WEI_PER_GWEI_BPS);
            return total >> SUM_BITS;
        }
    }

    /// @inheritdoc IInferenceRequests
    function settleJoint(
        bytes calldata items,
        address[] memory workers,
        address[] memory owners,
        address poster,
        bool proven
    ) external onlyResults returns (uint256) {
        // Zero at first, as all memory that Solidity allocates.
        // slither-disable-next-line uninitialized-local
        Tally memory tally;
        uint256 count = items.length / Items.BYTES;
        for (uint256 i; i < count; ++i) {
            (uint256 id, bytes20 commitment, bytes32 digest) = Items.itemAt(items, i);
            _settleJoint(id, commitment, digest, workers, owners, poster, proven, tally);
        }
        if (tally.paid != 0) {
            for (uint256 i; i < workers.length; ++i) {
                uint256 amountWei = i == 0 ? tally.shareWei + tally.restWei : tally.shareWei;
                _credits[owners[i]] += amountWei;
                emit WorkerPaid(workers[i], owners[i], tally.paid, amountWei);
            }
        }
        if (tally.heldWei != 0) _credits[address(DISPUTES)] += tally.heldWei;
        _payPoster(poster, tally.feesGwei * POSTER_BPS * WEI_PER_GWEI_BPS);
        return tally.settled;
    }

    /// @inheritdoc IInferenceRequests
    /// @dev The word is zero while the consumer runs: a re-entering delivery finds nothing owed.
    function takeCallback(uint256 id, bytes20 commitment, bytes32 digest) external onlyResults returns (bool taken) {
        taken = _owesCallback(id, RequestHash.callbackKey(commitment, digest));
        if (taken) _requests[id] = RequestWord.wrap(0);
    }

    /// @inheritdoc IInferenceRequests
    function returnCallback(uint256 id, bytes20 commitment, bytes32 digest) external onlyResults {
        _requests[id] = RequestWord.wrap(uint256(RequestHash.callbackKey(commitment, digest)));
    }

    /// @dev Equivalent to `_credits[owner] += workerWei` and `emit WorkerPaid(worker, owner, count, workerWei)`. Memory-safe:
    /// scratch space, and behind the free memory pointer.
    function _payWorker(uint256 group, uint256 sum) private {
        uint256 workerWei;
        // Unchecked: all fees ever held together are less than all ether there is, which fits 96 bits.
        unchecked {
            workerWei = (sum & SUM_MASK) * (MAX_BPS - POSTER_BPS) * WEI_PER_GWEI_BPS;
        }
        bytes32 topic = WorkerPaid.selector;
        assembly ("memory-safe") {
            let owner := calldataload(add(group, 0x20))
            mstore(0x00, owner)
            mstore(0x20, _credits.slot)
            let slot := keccak256(0x00, 0x40)
            sstore(slot, add(sload(slot), workerWei))
            let m := mload(0x40)
            mstore(m, owner)
            mstore(add(m, 0x20), shr(128, sum))
            mstore(add(m, 0x40), workerWei)
            log2(m, 0x60, topic, calldataload(group))
        }
    }

    /// @dev The loop that most results go through, so every step of it is worth its gas. Equivalent to `_settleJoint` for each
    /// item, with one signer and no proof, save that bits are kept at hand for as long as the items' ids are in one word, and
    /// that the first and then every fourth word of a group is cleared, of requests with delivery EVENT: EIP-3529 gives
    /// back more for that than it costs, up to a fifth of the transaction's gas, which a quarter of the words just reaches.
    /// @param group where in calldata the group stands
    /// @param wordIndex the word that `bits` are of, and `storedBits`, which are still to be added to it
    /// @return sum how many items were settled (bits 128-255) and the sum of their fees in gwei (0-127)
    function _settleItems(uint256 group, uint256 wordIndex, uint256 bits, uint256 storedBits)
        private
        returns (uint256 sum, uint256, uint256, uint256)
    {
        uint256 cursor;
        uint256 end;
        assembly ("memory-safe") {
            cursor := add(group, 0x60)
            end := add(cursor, calldataload(add(group, 0x40)))
        }
        uint256 plainMask = RequestWordLib.PLAIN_MASK;
        uint256 quorumOfOne = RequestWordLib.QUORUM_OF_ONE;
        uint256 stored = RequestWordLib.STORED;
        bytes32 topic = InferenceFulfilled.selector;
        while (true) {
            // Settles results up to the end or to the first that is not as usual. The commitment stands in bits 32-191 of
            // `head` and in bits 88-247 of a word. What is left of a word in `misfit` does not agree with a result that one
            // worker signed and that needs nothing but its event; an unknown request has no quorum. The bit of a settled id
            // can be just the one by which a delivery STORED differs: hence it is looked at once more. Sums cannot overflow:
            // counts are within the length of calldata, and 2^64 fees of 48 bits fit a word. Memory-safe: scratch space only.
            assembly ("memory-safe") {
                mstore(0x00, calldataload(group))
                for {} lt(cursor, end) { cursor := add(cursor, 60) } {
                    let head := calldataload(cursor)
                    if xor(shr(200, head), wordIndex) {
                        sstore(add(_settledWords.slot, wordIndex), bits)
                        if storedBits {
                            let slot := add(_storedWords.slot, wordIndex)
                            sstore(slot, or(sload(slot), storedBits))
                            storedBits := 0
                        }
                        wordIndex := shr(200, head)
                        bits := sload(add(_settledWords.slot, wordIndex))
                    }
                    let id := shr(192, head)
                    let word := sload(add(_requests.slot, id))
                    // One bit, shifted by the low byte of the id: the operands are in their right order.
                    // slither-disable-next-line incorrect-shift
                    let mask := shl(and(id, 0xff), 1)
                    let misfit :=
                        or(
                            and(xor(xor(word, shr(8, shl(64, head))), quorumOfOne), plainMask),
                            or(and(bits, mask), lt(and(shr(48, word), 0xffffffffff), timestamp()))
                        )
                    mstore(0x20, calldataload(add(cursor, 28)))
                    switch misfit
                    // A set of bits, which no amount that others could add to.
                    // slither-disable-next-line incorrect-equality
                    case 0 { if iszero(and(shr(128, sum), 3)) { sstore(add(_requests.slot, id), 0) } }
                    default {
                        if or(xor(misfit, stored), and(bits, mask)) { break }
                        storedBits := or(storedBits, mask)
                        sstore(add(_requests.slot, id), mload(0x20))
                    }
                    bits := or(bits, mask)
                    sum := add(sum, or(shl(128, 1), and(word, 0xffffffffffff)))
                    log2(0x00, 0x40, topic, id)
                }
            }
            if (cursor == end) break;
            (uint256 id, bytes20 commitment, bytes32 digest) = _itemAt(cursor);
            cursor += Items.BYTES;
            if (bits & Bitmap.maskOf(id) != 0) {
                emit ResultSkipped(id, SkipReason.ALREADY_SETTLED);
            } else {
                RequestWord word = _load(id);
                if (_fits(id, word, commitment, 1, false)) {
                    _keep(id, word.delivery(), commitment, digest);
                    bits |= Bitmap.maskOf(id);
                    sum += 1 << SUM_BITS | word.feeGwei();
                    address worker;
                    assembly ("memory-safe") {
                        worker := calldataload(group)
                    }
                    emit InferenceFulfilled(id, worker, digest);
                }
            }
        }
        return (sum, wordIndex, bits, storedBits);
    }

    function _itemAt(uint256 cursor) private pure returns (uint256 id, bytes20 commitment, bytes32 digest) {
        assembly ("memory-safe") {
            let head := calldataload(cursor)
            id := shr(192, head)
            commitment := shl(96, shr(96, shl(64, head)))
            digest := calldataload(add(cursor, 28))
        }
    }

    function _settleJoint(
        uint256 id,
        bytes20 commitment,
        bytes32 digest,
        address[] memory workers,
        address[] memory owners,
        address poster,
        bool proven,
        Tally memory tally
    ) private {
        if (_isSettled(id)) {
            emit ResultSkipped(id, SkipReason.ALREADY_SETTLED);
            return;
        }
        RequestWord word = _load(id);
        if (!_fits(id, word, commitment, workers.length, proven)) return;

        _storeBits(Bitmap.indexOf(id), _loadBits(Bitmap.indexOf(id)) | Bitmap.maskOf(id), 0);
        _keep(id, word.delivery(), commitment, digest);
        emit InferenceFulfilled(id, workers[0], digest);
        ++tally.settled;
        uint256 paymentWei = word.feeGwei() * (MAX_BPS - POSTER_BPS) * WEI_PER_GWEI_BPS;
        if (word.isUnderTerms()) {
            ModelTerms memory terms = _termsFor(id);
            if (terms.disputeWindow != 0) {
                uint256 feeWei = word.feeGwei() * WEI_PER_GWEI;
                tally.heldWei += feeWei;
                DISPUTES.hold(
                    Hold({
                        id: id,
                        commitment: commitment,
                        digest: digest,
                        workers: workers,
                        owners: owners,
                        paymentWei: paymentWei,
                        poster: poster,
                        posterWei: feeWei - paymentWei,
                        bondWei: terms.bondGwei * WEI_PER_GWEI,
                        disputableUntil: uint40(block.timestamp + terms.disputeWindow)
                    })
                );
                return;
            }
        }
        ++tally.paid;
        tally.feesGwei += word.feeGwei();
        tally.shareWei += paymentWei / workers.length;
        // A remainder, and nobody's dice.
        // slither-disable-next-line weak-prng
        tally.restWei += paymentWei % workers.length;
    }

    /// @dev Whether a result may settle this unsettled request; if not, says why.
    function _fits(uint256 id, RequestWord word, bytes20 commitment, uint256 signers, bool proven)
        private
        returns (bool)
    {
        SkipReason reason;
        if (word.isZero()) reason = SkipReason.UNKNOWN_ID;
        else if (word.commitment() != commitment) reason = SkipReason.COMMITMENT_MISMATCH;
        else if (block.timestamp > word.deadline()) reason = SkipReason.EXPIRED;
        else if (word.quorum() != signers) reason = SkipReason.QUORUM_MISMATCH;
        else if (word.isUnderTerms() && !proven) reason = SkipReason.TERMS_APPLY;
        else return true;
        emit ResultSkipped(id, reason);
        return false;
    }

    function _payPoster(address poster, uint256 amountWei) private {
        // An amount that this contract worked out, and no balance.
        // slither-disable-next-line incorrect-equality
        if (amountWei == 0) return;
        bytes32 topic = PosterPaid.selector;
        // Equivalent to `_credits[poster] += amountWei` and `emit PosterPaid(poster, amountWei)`. Memory-safe: scratch space
        // only.
        assembly ("memory-safe") {
            mstore(0x00, poster)
            mstore(0x20, _credits.slot)
            let slot := keccak256(0x00, 0x40)
            sstore(slot, add(sload(slot), amountWei))
            mstore(0x20, amountWei)
            log1(0x00, 0x40, topic)
        }
    }
}
