// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title An owner, who changes in two steps
/// @notice A new owner must accept, so that a mistyped address gets nothing. A deployment without owner has none for ever.
interface IOwned {
    event OwnershipOffered(address indexed owner, address indexed pendingOwner);
    event OwnershipTaken(address indexed formerOwner, address indexed owner);

    error NotContractOwner(address caller);
    error NotPendingOwner(address caller);

    /// @notice Offers ownership; another offer replaces it, and zero takes it back. Only the owner.
    function offerOwnership(address pendingOwner) external;
    /// @notice Takes what was offered. Only the pending owner.
    function acceptOwnership() external;
    function owner() external view returns (address);
    function pendingOwner() external view returns (address);
}
