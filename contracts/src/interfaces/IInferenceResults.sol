// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {RequestParams} from "./IInferenceRequests.sol";

/// @notice An EIP-2098 signature: `vs` is s with the recovery bit on top; s must be in the lower half.
struct CompactSignature {
    bytes32 r;
    bytes32 vs;
}

/// @notice Results that one worker (or, for a quorum, several) signed together.
/// @dev `items` is packed, 60 bytes each: id (8), commitment (20), digest (32). Each signature is over the EIP-712
/// struct `ResultGroup(bytes items)`; the signer is recovered, never named, and must be an active worker. There are as
/// many signatures as the requests' quorum, by different workers in ascending order of their addresses.
struct ResultGroup {
    bytes items;
    CompactSignature[] signatures;
}

/// @notice A group whose items may be under terms: one proof for each item, empty where none is asked for.
struct ProvenGroup {
    bytes items;
    CompactSignature[] signatures;
    bytes[] proofs;
}

/// @notice A fulfilled request's output, and what opens the request's commitment.
struct CallbackClaim {
    uint256 id;
    address requester;
    RequestParams params;
    bytes output;
}

/// @notice Why a whole group was passed over.
enum GroupSkipReason {
    BAD_LENGTH,
    BAD_SIGNATURE,
    BAD_SIGNER_COUNT,
    INACTIVE_WORKER,
    SIGNERS_NOT_ASCENDING,
    BAD_PROOF_COUNT
}

/// @notice Why a callback was passed over.
enum CallbackSkipReason {
    NOT_OWED,
    NOT_CALLBACK
}

/// @title Signed results
/// @notice Verifies groups of signed results and settles them; a bad group or item is skipped with a reason and
/// harms no other.
interface IInferenceResults {
    event GroupSkipped(uint256 indexed groupIndex, GroupSkipReason reason);
    /// @notice Merkle root of the scheduler's decisions since the poster's last one.
    event DecisionsAnchored(bytes32 indexed root, address poster);
    /// @notice The verifier of the model's terms did not accept the proof; the item was passed over, whatever else would
    /// have been against it.
    event ProofRejected(uint256 indexed id, address indexed verifier);
    event CallbackDelivered(uint256 indexed id, address indexed consumer);
    /// @notice The consumer reverted or ran out of its gas; it can be called again.
    /// @param reason the first 128 bytes of what it returned
    event CallbackFailed(uint256 indexed id, address indexed consumer, bytes reason);
    event CallbackSkipped(uint256 indexed id, CallbackSkipReason reason);

    error InsufficientGas(uint256 gasLeft, uint256 gasNeeded);

    /// @notice Settles every item that can be; anyone may post, the recovered workers' owners are paid.
    /// @param decisionsRoot anchored by an event; zero = nothing to anchor
    /// @return settled how many items this call settled
    function post(ResultGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled);

    /// @notice As `post`, with proofs: the only way for requests under a model's terms, open to others too.
    /// @dev Each verifier gets exactly 1,000,000 gas; where that cannot be given, the whole call reverts with
    /// `InsufficientGas`.
    function postProven(ProvenGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled);

    /// @notice Hands outputs to the contracts that asked with delivery CALLBACK; anyone who has the outputs may.
    /// @dev Each consumer gets exactly its `callbackGasLimit`; where that cannot be given, the whole call reverts, so that
    /// nobody can starve a consumer. A failing consumer harms no other.
    /// @return delivered how many consumers returned
    function deliver(CallbackClaim[] calldata claims) external returns (uint256 delivered);

    function requests() external view returns (address);
    function registry() external view returns (address);
    /// @notice The EIP-712 digest a worker signs for `items`.
    function groupDigest(bytes calldata items) external view returns (bytes32);
    function domainSeparator() external view returns (bytes32);
}
