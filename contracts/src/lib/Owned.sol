// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IOwned} from "../interfaces/IOwned.sol";

/// @title An owner, who changes in two steps
abstract contract Owned is IOwned {
    address private _owner;
    address private _pendingOwner;

    modifier onlyOwner() {
        if (msg.sender != _owner) revert NotContractOwner(msg.sender);
        _;
    }

    /// @param owner_ zero: nobody, for ever
    constructor(address owner_) {
        _owner = owner_;
        emit OwnershipTaken(address(0), owner_);
    }

    /// @inheritdoc IOwned
    function offerOwnership(address pendingOwner_) external onlyOwner {
        _pendingOwner = pendingOwner_;
        emit OwnershipOffered(_owner, pendingOwner_);
    }

    /// @inheritdoc IOwned
    function acceptOwnership() external {
        if (msg.sender != _pendingOwner) revert NotPendingOwner(msg.sender);
        emit OwnershipTaken(_owner, msg.sender);
        _owner = msg.sender;
        _pendingOwner = address(0);
    }

    /// @inheritdoc IOwned
    function owner() external view returns (address) {
        return _owner;
    }

    /// @inheritdoc IOwned
    function pendingOwner() external view returns (address) {
        return _pendingOwner;
    }
}
