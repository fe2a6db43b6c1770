// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {ICredits} from "../interfaces/ICredits.sol";

/// @title The one purse of a deployment
/// @dev There is no receive function: ether that belongs to nobody is refused.
abstract contract Credits is ICredits {
    mapping(address account => uint256) internal _credits;

    /// @inheritdoc ICredits
    function withdraw() external returns (uint256 amountWei) {
        return _withdraw(payable(msg.sender));
    }

    /// @inheritdoc ICredits
    function withdrawTo(address payable to) external returns (uint256 amountWei) {
        return _withdraw(to);
    }

    /// @inheritdoc ICredits
    function credit(address account) external payable {
        if (account == address(0)) revert CreditToNobody();
        _credits[account] += msg.value;
        emit Credited(account, msg.sender, msg.value);
    }

    /// @inheritdoc ICredits
    function transferCredit(address to, uint256 amountWei) external {
        if (to == address(0)) revert CreditToNobody();
        uint256 creditWei = _credits[msg.sender];
        if (amountWei > creditWei) revert InsufficientCredit(creditWei, amountWei);
        _credits[msg.sender] = creditWei - amountWei;
        _credits[to] += amountWei;
        emit CreditTransferred(msg.sender, to, amountWei);
    }

    /// @inheritdoc ICredits
    function credits(address account) external view returns (uint256 amountWei) {
        return _credits[account];
    }

    function _withdraw(address payable to) private returns (uint256 amountWei) {
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
}
