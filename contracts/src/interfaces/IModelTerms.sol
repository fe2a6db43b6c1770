// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IResultVerifier} from "./IResultVerifier.sol";

/// @notice What a model asks for beyond one worker's signature.
struct ModelTerms {
    bytes32 modelId;
    /// checks a proof of each result; zero = none
    IResultVerifier verifier;
    /// seconds for which a result can be disputed and its payment is held back; 0 = paid at once
    uint32 disputeWindow;
    /// what a dispute costs to open, and each worker who loses it; not 0 with a window
    uint56 bondGwei;
    /// the least quorum of a request; 0 and 1 = any
    uint8 minQuorum;
}

/// @title Terms of models
/// @notice A request keeps the terms that were in force when it was submitted.
interface IModelTerms {
    /// @notice The terms of `modelId` from now on; `termsId` 0: none.
    event ModelTermsSet(
        uint256 indexed termsId,
        bytes32 indexed modelId,
        address verifier,
        uint32 disputeWindow,
        uint56 bondGwei,
        uint8 minQuorum
    );

    error VerifierWithoutCode(address verifier);
    error WindowTooLong(uint256 disputeWindow, uint256 atMost);
    error BondZero();
    error QuorumOutOfRange(uint256 quorum, uint256 atLeast, uint256 atMost);

    /// @notice Sets a model's terms for requests to come. Terms without a verifier, without a window and with a least quorum
    /// of 0 or 1 take them away, whatever the bond. Only the owner.
    /// @return termsId counts up from 1; 0 if there are none now
    function setModelTerms(ModelTerms calldata terms) external returns (uint256 termsId);
    /// @notice The terms that a request submitted now would get; all zero = none.
    function termsOfModel(bytes32 modelId) external view returns (ModelTerms memory);
    /// @notice The terms that a request got; all zero unless they ask for a proof or a window.
    function termsOfRequest(uint256 id) external view returns (ModelTerms memory);
}
