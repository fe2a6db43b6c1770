// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title The one purse of a deployment
/// @notice What results, refunds, released payments, bonds and slashes earn somebody is a credit here, and leaves when its
/// owner fetches it.
interface ICredits {
    event Credited(address indexed account, address indexed from, uint256 amountWei);
    event CreditTransferred(address indexed from, address indexed to, uint256 amountWei);
    event Withdrawn(address indexed account, address indexed to, uint256 amountWei);

    error NothingToWithdraw(address account);
    error InsufficientCredit(uint256 creditWei, uint256 amountWei);
    /// @notice The receiver refused, or is the zero address.
    error TransferFailed(address to, uint256 amountWei);
    error CreditToNobody();

    /// @notice Sends the caller's whole credit to the caller.
    function withdraw() external returns (uint256 amountWei);
    /// @notice Sends the caller's whole credit to `to`.
    function withdrawTo(address payable to) external returns (uint256 amountWei);
    /// @notice Credits `msg.value` to `account`.
    function credit(address account) external payable;
    /// @notice Moves a part of the caller's credit to `to`.
    function transferCredit(address to, uint256 amountWei) external;
    function credits(address account) external view returns (uint256 amountWei);
}
