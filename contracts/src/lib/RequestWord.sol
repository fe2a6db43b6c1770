// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Delivery, RequestRecord} from "../interfaces/IInferenceRequests.sol";

/// @notice A request's storage word: feeGwei (bits 0-47), deadline (48-87), commitment (88-247), delivery (248-249),
/// quorum (250-253), batchable (254), under terms (255). Zero means that there is no such request.
type RequestWord is uint256;

using RequestWordLib for RequestWord global;

/// @title The packing of a request into one storage word
/// @dev Values are trusted to fit their fields: callers check those that a requester chooses.
library RequestWordLib {
    uint256 internal constant MAX_FEE_GWEI = (1 << 48) - 1;
    uint256 internal constant MAX_QUORUM = 15;
    uint256 internal constant WEI_PER_GWEI = 1e9;

    /// @dev The fields that must agree with a result which one worker signed and which needs nothing but its event:
    /// commitment, delivery, quorum, under terms.
    uint256 internal constant PLAIN_MASK = COMMITMENT_MASK << COMMITMENT_SHIFT | DELIVERY_MASK << DELIVERY_SHIFT
        | QUORUM_MASK << QUORUM_SHIFT | UNDER_TERMS;
    uint256 internal constant QUORUM_OF_ONE = 1 << QUORUM_SHIFT;
    uint256 internal constant STORED = uint256(Delivery.STORED) << DELIVERY_SHIFT;
    uint256 internal constant UNDER_TERMS = 1 << 255;

    uint256 private constant FEE_MASK = (1 << 48) - 1;
    uint256 private constant DEADLINE_SHIFT = 48;
    uint256 private constant DEADLINE_MASK = (1 << 40) - 1;
    uint256 private constant COMMITMENT_SHIFT = 88;
    uint256 private constant COMMITMENT_MASK = (1 << 160) - 1;
    uint256 private constant DELIVERY_SHIFT = 248;
    uint256 private constant DELIVERY_MASK = 3;
    uint256 private constant QUORUM_SHIFT = 250;
    uint256 private constant QUORUM_MASK = 15;
    uint256 private constant BATCHABLE_SHIFT = 254;

    function pack(
        uint256 feeGwei_,
        uint256 deadline_,
        bytes20 commitment_,
        Delivery delivery_,
        uint256 quorum_,
        bool batchable_
    ) internal pure returns (RequestWord) {
        uint256 flag;
        // Equivalent to `flag = batchable_ ? 1 : 0`, without the branch.
        assembly ("memory-safe") {
            flag := batchable_
        }
        return RequestWord.wrap(
            feeGwei_ | deadline_ << DEADLINE_SHIFT | uint256(uint160(commitment_)) << COMMITMENT_SHIFT
                | uint256(delivery_) << DELIVERY_SHIFT | quorum_ << QUORUM_SHIFT | flag << BATCHABLE_SHIFT
        );
    }

    function isZero(RequestWord word) internal pure returns (bool) {
        return RequestWord.unwrap(word) == 0;
    }

    function feeGwei(RequestWord word) internal pure returns (uint256) {
        return RequestWord.unwrap(word) & FEE_MASK;
    }

    function deadline(RequestWord word) internal pure returns (uint256) {
        return (RequestWord.unwrap(word) >> DEADLINE_SHIFT) & DEADLINE_MASK;
    }

    function commitment(RequestWord word) internal pure returns (bytes20) {
        // Masked to 160 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        return bytes20(uint160((RequestWord.unwrap(word) >> COMMITMENT_SHIFT) & COMMITMENT_MASK));
    }

    function delivery(RequestWord word) internal pure returns (Delivery) {
        return Delivery((RequestWord.unwrap(word) >> DELIVERY_SHIFT) & DELIVERY_MASK);
    }

    function quorum(RequestWord word) internal pure returns (uint256) {
        return (RequestWord.unwrap(word) >> QUORUM_SHIFT) & QUORUM_MASK;
    }

    function isUnderTerms(RequestWord word) internal pure returns (bool) {
        return RequestWord.unwrap(word) & UNDER_TERMS != 0;
    }

    function withTerms(RequestWord word) internal pure returns (RequestWord) {
        return RequestWord.wrap(RequestWord.unwrap(word) | UNDER_TERMS);
    }

    function withFee(RequestWord word, uint256 feeGwei_) internal pure returns (RequestWord) {
        return RequestWord.wrap((RequestWord.unwrap(word) & ~FEE_MASK) | feeGwei_);
    }

    function withDeadline(RequestWord word, uint256 deadline_) internal pure returns (RequestWord) {
        return
            RequestWord.wrap(
                (RequestWord.unwrap(word) & ~(DEADLINE_MASK << DEADLINE_SHIFT)) | deadline_ << DEADLINE_SHIFT
            );
    }

    function unpack(RequestWord word) internal pure returns (RequestRecord memory) {
        uint256 raw = RequestWord.unwrap(word);
        return RequestRecord({
            feeGwei: uint48(feeGwei(word)),
            deadline: uint40(deadline(word)),
            commitment: commitment(word),
            delivery: delivery(word),
            // Masked to 4 bits.
            // forge-lint: disable-next-line(unsafe-typecast)
            quorum: uint8(quorum(word)),
            batchable: (raw >> BATCHABLE_SHIFT) & 1 == 1,
            underTerms: isUnderTerms(word)
        });
    }
}
