// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice Takes ether and, on each payment, calls back once more with what it was told to.
contract Reenterer {
    address private target;
    bytes private data;
    uint256 public attempts;
    uint256 public successes;

    receive() external payable {
        ++attempts;
        (bool ok,) = target.call(data);
        if (ok) ++successes;
    }

    function arm(address target_, bytes calldata data_) external {
        target = target_;
        data = data_;
    }

    function forward(address to, uint256 valueWei, bytes calldata callData) external payable returns (bytes memory) {
        (bool ok, bytes memory out) = to.call{value: valueWei}(callData);
        require(ok, "forward failed");
        return out;
    }
}

/// @notice Refuses every payment.
contract Refuser {
    receive() external payable {
        revert("no, thanks");
    }
}
