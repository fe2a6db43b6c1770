// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, IInferenceRequests, RequestRecord, RequestStatus} from "../interfaces/IInferenceRequests.sol";
import {Bitmap} from "../lib/Bitmap.sol";
import {RequestHash} from "../lib/RequestHash.sol";
import {RequestWord} from "../lib/RequestWord.sol";

/// @title What is kept of each request: a word, and two bits
/// @dev The word is a `RequestWord` until the request is settled. Then it is nobody's business any more, save that of a
/// fulfilled request with delivery STORED it is the digest, which the second bit tells, and of one with delivery CALLBACK
/// the hash of commitment and digest, until the consumer has been called.
///
/// Must be the last in the order of storage: see `_load`.
abstract contract RequestStore is IInferenceRequests {
    /// @dev Ids have 64 bits in an item; a static array may not have more places than 2^63.
    uint256 internal constant MAX_ID = 2 ** 63 - 1;

    /// @dev The next id and two things that a submission must know as well, in one word: see InferenceRequests.
    uint256 internal _state;

    /// @dev Ids count up, so requests and bits lie side by side in static arrays instead of behind a hash each, which
    /// saves its gas on every access.
    /// Written in assembly only.
    // slither-disable-next-line uninitialized-state
    uint256[2 ** 56] internal _settledWords;
    uint256[2 ** 56] internal _storedWords;
    RequestWord[2 ** 63] internal _requests;

    /// @inheritdoc IInferenceRequests
    /// @dev All zero once the request is settled.
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
    function resultOf(uint256 id) external view returns (bool found, bytes32 digest) {
        if (id > MAX_ID || !_isStored(id)) return (false, 0);
        return (true, bytes32(RequestWord.unwrap(_requests[id])));
    }

    /// @inheritdoc IInferenceRequests
    function owesCallback(uint256 id, bytes20 commitment, bytes32 digest) external view returns (bool) {
        return _owesCallback(id, RequestHash.callbackKey(commitment, digest));
    }

    /// @inheritdoc IInferenceRequests
    function settledWord(uint256 wordIndex) external view returns (uint256) {
        return wordIndex >= _settledWords.length ? 0 : _settledWords[wordIndex];
    }

    /// @dev Puts what a fulfilled request's delivery asks for in its place.
    function _keep(uint256 id, Delivery delivery, bytes20 commitment, bytes32 digest) internal {
        // An enum's value and a hash are what they are: nothing that others could add to.
        // slither-disable-start incorrect-equality
        if (delivery == Delivery.STORED) {
            _storedWords[Bitmap.indexOf(id)] |= Bitmap.maskOf(id);
            _requests[id] = RequestWord.wrap(uint256(digest));
        } else if (delivery == Delivery.CALLBACK) {
            _requests[id] = RequestWord.wrap(uint256(RequestHash.callbackKey(commitment, digest)));
        }
        // slither-disable-end incorrect-equality
    }

    /// @dev A key is a hash, so no word of a request is ever equal to one; a digest is whatever its worker signed and could
    /// be, so ids that store theirs are excepted.
    function _owesCallback(uint256 id, bytes32 key) internal view returns (bool) {
        // slither-disable-next-line incorrect-equality
        return id <= MAX_ID && RequestWord.unwrap(_requests[id]) == uint256(key) && !_isStored(id);
    }

    /// @dev Equivalent to `_settledWords[wordIndex]`, for the index of a 64-bit id.
    function _loadBits(uint256 wordIndex) internal view returns (uint256 bits) {
        assembly ("memory-safe") {
            bits := sload(add(_settledWords.slot, wordIndex))
        }
    }

    /// @dev Equivalent to `_settledWords[wordIndex] = bits`, for the index of a 64-bit id.
    function _storeBits(uint256 wordIndex, uint256 bits, uint256 storedBits) internal {
        assembly ("memory-safe") {
            sstore(add(_settledWords.slot, wordIndex), bits)
            if storedBits {
                let slot := add(_storedWords.slot, wordIndex)
                sstore(slot, or(sload(slot), storedBits))
            }
        }
    }

    /// @dev Equivalent to `_requests[id]` for ids up to `MAX_ID`; above, up to 64 bits, it reads the untouched slots behind
    /// the array, the last variable, and so finds nothing, without a check.
    function _load(uint256 id) internal view returns (RequestWord word) {
        assembly ("memory-safe") {
            word := sload(add(_requests.slot, id))
        }
    }

    /// @dev Equivalent to `_requests[id] = RequestWord.wrap(0)`.
    function _clear(uint256 id) internal {
        assembly ("memory-safe") {
            sstore(add(_requests.slot, id), 0)
        }
    }

    function _isSettled(uint256 id) internal view returns (bool) {
        return _loadBits(Bitmap.indexOf(id)) & Bitmap.maskOf(id) != 0;
    }

    /// @dev A request that is there, unsettled and unexpired, or a revert.
    function _pending(uint256 id) internal view returns (RequestWord word) {
        if (id > MAX_ID || _isSettled(id)) revert NotPending(id);
        word = _requests[id];
        if (word.isZero() || block.timestamp > word.deadline()) revert NotPending(id);
    }

    function _isStored(uint256 id) private view returns (bool) {
        return _storedWords[Bitmap.indexOf(id)] & Bitmap.maskOf(id) != 0;
    }
}
