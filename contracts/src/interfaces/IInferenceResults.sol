// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice An EIP-2098 signature: `vs` is s with the recovery bit on top; s must be in the lower half.
struct CompactSignature {
    bytes32 r;
    bytes32 vs;
}

/// @notice Results that one worker (or, for a quorum, several) signed together.
/// @dev `items` is packed, 60 bytes each: id (8), commitment (20), digest (32). Each signature is over the EIP-712
/// struct `ResultGroup(bytes items)`; the signer is recovered, never named, and must be an active worker.
struct ResultGroup {
    bytes items;
    CompactSignature[] signatures;
}

/// @notice Why a whole group was passed over.
enum GroupSkipReason {
    BAD_LENGTH,
    BAD_SIGNATURE,
    BAD_SIGNER_COUNT,
    INACTIVE_WORKER
}

/// @title Signed results
/// @notice Verifies groups of signed results and settles them; a bad group or item is skipped with a reason and
/// harms no other.
interface IInferenceResults {
    event GroupSkipped(uint256 indexed groupIndex, GroupSkipReason reason);
    /// @notice Merkle root of the scheduler's decisions since the poster's last one.
    event DecisionsAnchored(bytes32 indexed root, address indexed poster);

    /// @notice Settles every item that can be; anyone may post, the recovered workers' owners are paid.
    /// @param decisionsRoot anchored by an event; zero = nothing to anchor
    /// @return settled how many items this call settled
    function post(ResultGroup[] calldata groups, bytes32 decisionsRoot) external returns (uint256 settled);

    function requests() external view returns (address);
    function registry() external view returns (address);
    /// @notice The EIP-712 digest a worker signs for `items`.
    function groupDigest(bytes calldata items) external view returns (bytes32);
    function domainSeparator() external view returns (bytes32);
}
