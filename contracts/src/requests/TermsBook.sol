// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {IDisputes} from "../interfaces/IDisputes.sol";
import {IModelTerms, ModelTerms} from "../interfaces/IModelTerms.sol";
import {Owned} from "../lib/Owned.sol";
import {RequestWordLib} from "../lib/RequestWord.sol";

/// @title Terms of models, and which of them each request got
/// @dev Terms once set never change: new ones are added, so that nobody can alter what a pending request was made under.
abstract contract TermsBook is IModelTerms, Owned {
    uint256 private constant FILTER_PLACES = 128;

    IDisputes internal immutable DISPUTES;

    /// @dev The first place is never used: 0 = no terms.
    ModelTerms[] private _terms;
    mapping(bytes32 modelId => uint256 termsId) private _termsOfModel;
    mapping(uint256 id => uint256 termsId) private _termsOfRequest;

    constructor(address disputes_) {
        DISPUTES = IDisputes(disputes_);
        _terms.push();
    }

    /// @inheritdoc IModelTerms
    function setModelTerms(ModelTerms calldata terms) external onlyOwner returns (uint256 termsId) {
        if (terms.minQuorum > RequestWordLib.MAX_QUORUM) {
            revert QuorumOutOfRange(terms.minQuorum, 0, RequestWordLib.MAX_QUORUM);
        }
        if (address(terms.verifier) != address(0) && address(terms.verifier).code.length == 0) {
            revert VerifierWithoutCode(address(terms.verifier));
        }
        if (terms.disputeWindow != 0) {
            // Without a bond, anybody could hold back anybody's payment for nothing.
            if (terms.bondGwei == 0) revert BondZero();
            uint256 atMost = DISPUTES.maxWindow();
            if (terms.disputeWindow > atMost) revert WindowTooLong(terms.disputeWindow, atMost);
        }
        if (terms.minQuorum > 1 || _outlast(terms)) {
            termsId = _terms.length;
            _terms.push(terms);
            _noteModel(_filterMaskOf(terms.modelId));
        }
        _termsOfModel[terms.modelId] = termsId;
        emit ModelTermsSet(
            termsId, terms.modelId, address(terms.verifier), terms.disputeWindow, terms.bondGwei, terms.minQuorum
        );
    }

    /// @inheritdoc IModelTerms
    function termsOfModel(bytes32 modelId) external view returns (ModelTerms memory) {
        return _terms[_termsOfModel[modelId]];
    }

    /// @inheritdoc IModelTerms
    function termsOfRequest(uint256 id) external view returns (ModelTerms memory) {
        return _termsFor(id);
    }

    /// @dev Remembers a bit for a model that has terms. A bit is never taken back: it only says where to look.
    function _noteModel(uint256 mask) internal virtual;

    /// @dev Which of the 128 places of the filter a model has. A model whose place is empty has no terms, which spares
    /// its requests the read of a cold slot.
    function _filterMaskOf(bytes32 modelId) internal pure returns (uint256) {
        return 1 << (uint256(modelId) % FILTER_PLACES);
    }

    /// @dev Gives a new request the terms that are in force.
    /// @return under whether they still matter when its result comes
    function _takeTerms(uint256 id, bytes32 modelId, uint256 quorum) internal returns (bool under) {
        uint256 termsId = _termsOfModel[modelId];
        if (termsId == 0) return false;
        ModelTerms memory terms = _terms[termsId];
        if (quorum < terms.minQuorum) {
            revert QuorumOutOfRange(quorum, terms.minQuorum, RequestWordLib.MAX_QUORUM);
        }
        under = _outlast(terms);
        if (under) _termsOfRequest[id] = termsId;
    }

    function _termsFor(uint256 id) internal view returns (ModelTerms memory) {
        return _terms[_termsOfRequest[id]];
    }

    function _outlast(ModelTerms memory terms) private pure returns (bool) {
        return address(terms.verifier) != address(0) || terms.disputeWindow != 0;
    }
}
