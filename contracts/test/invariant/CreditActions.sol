// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

import {Books} from "./Books.sol";

/// @notice The purse.
abstract contract CreditActions is Books {
    function withdraw(uint256 who) internal {
        address from = holderOtherThanDisputes(who);
        if (requests.credits(from) == 0) return;
        address payable to = payable(account("purse"));
        uint256 before = to.balance;
        vm.prank(from);
        uint256 amountWei = requests.withdrawTo(to);
        vm.assertEq(amountWei, ghostCredits[from], "withdrawn");
        vm.assertEq(to.balance - before, amountWei, "received");
        ghostCredits[from] = 0;
        paidOut += amountWei;
        ++seen[Seen.WITHDRAWN];
    }

    function credit(uint256 who, uint256 amountWei) internal {
        amountWei = bound(amountWei, 0, 1 ether);
        address to = holders[who % holders.length];
        vm.deal(address(this), amountWei);
        vm.recordLogs();
        requests.credit{value: amountWei}(to);
        readLogs();
        receiveGift(to, amountWei);
        depositsIn += amountWei;
        ++seen[Seen.CREDITED];
    }

    function transferCredit(uint256 who, uint256 amountWei) internal {
        address from = holderOtherThanDisputes(who);
        address to = holders[(who >> 8) % holders.length];
        bool possible = who >> 16 & 3 != 0;
        amountWei = possible ? bound(amountWei, 0, ghostCredits[from]) : ghostCredits[from] + 1;
        vm.prank(from);
        try requests.transferCredit(to, amountWei) {
            vm.assertTrue(possible, "moved more than there was");
            ghostCredits[from] -= amountWei;
            receiveGift(to, amountWei);
            ++seen[Seen.TRANSFERRED];
        } catch {
            vm.assertFalse(possible);
            ++seen[Seen.TRANSFER_REFUSED];
        }
    }

    function receiveGift(address to, uint256 amountWei) private {
        give(to, amountWei);
        if (to == address(disputes)) giftsToDisputes += amountWei;
    }

    /// @dev The last of the holders is the disputes contract, which transfers of its own accord only.
    function holderOtherThanDisputes(uint256 seed) private view returns (address) {
        return holders[seed % (holders.length - 1)];
    }
}
