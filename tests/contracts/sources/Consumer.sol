// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @notice A contract that asks, and behaves well or badly when it is called or paid.
contract Consumer {
    enum Mode {
        ACCEPT,
        REFUSE_AT_LENGTH,
        REFUSE_SHORTLY,
        BURN,
        REENTER
    }

    event Called(uint256 id, uint256 gasGiven, bytes32 digest);
    event Reentered(bool success);

    error No();

    Mode private _mode;
    address private _target;
    bytes private _data;

    function behave(Mode mode, address target, bytes calldata data) external {
        _mode = mode;
        _target = target;
        _data = data;
    }

    function onInference(uint256 id, bytes calldata output) external {
        uint256 given = gasleft();
        _act();
        emit Called(id, given, keccak256(output));
    }

    receive() external payable {
        _act();
    }

    function _act() private {
        if (_mode == Mode.REFUSE_AT_LENGTH) {
            assembly ("memory-safe") {
                let from := mload(0x40)
                for { let i } lt(i, 10000) { i := add(i, 32) } { mstore(add(from, i), add(i, 1)) }
                revert(from, 10000)
            }
        }
        if (_mode == Mode.REFUSE_SHORTLY) revert No();
        if (_mode == Mode.BURN) assembly { invalid() }
        if (_mode == Mode.REENTER) {
            (bool success,) = _target.call(_data);
            emit Reentered(success);
        }
    }
}
