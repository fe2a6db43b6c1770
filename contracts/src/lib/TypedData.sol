// SPDX-License-Identifier: MIT
pragma solidity ^0.8.30;

/// @title The EIP-712 domain of an inferd contract: name "inferd", version "1"
abstract contract TypedData {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME_HASH = keccak256("inferd");
    bytes32 private constant VERSION_HASH = keccak256("1");

    uint256 private immutable DEPLOYED_CHAIN_ID;
    bytes32 private immutable DEPLOYED_SEPARATOR;

    constructor() {
        DEPLOYED_CHAIN_ID = block.chainid;
        DEPLOYED_SEPARATOR = _buildSeparator();
    }

    /// @dev Built anew when the chain id is another than at deployment: after a fork of the chain, what was signed for
    /// one side must not count on the other.
    function _domainSeparator() internal view returns (bytes32) {
        return block.chainid == DEPLOYED_CHAIN_ID ? DEPLOYED_SEPARATOR : _buildSeparator();
    }

    function _typedDigest(bytes32 structHash) internal view returns (bytes32 digest) {
        bytes32 separator = _domainSeparator();
        // Equivalent to keccak256(abi.encodePacked(hex"1901", separator, structHash)). Memory-safe: written behind the
        // free memory pointer.
        assembly ("memory-safe") {
            let m := mload(0x40)
            mstore(m, shl(240, 0x1901))
            mstore(add(m, 0x02), separator)
            mstore(add(m, 0x22), structHash)
            digest := keccak256(m, 0x42)
        }
    }

    function _buildSeparator() private view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, NAME_HASH, VERSION_HASH, block.chainid, address(this)));
    }
}
