"""The local signer signs as its address, and never shows its key."""

from __future__ import annotations

from eth_account import Account

from inferd.chain.signers import LocalSigner

KEY = b"\x42" * 32


async def test_signs_as_its_address() -> None:
    signer = LocalSigner(Account.from_key(KEY))
    signed = await signer.sign(
        {
            "type": 2,
            "chainId": 31337,
            "nonce": 3,
            "to": b"\x01" * 20,
            "value": 0,
            "data": b"\x01",
            "gas": 21_000,
            "maxFeePerGas": 5,
            "maxPriorityFeePerGas": 1,
        }
    )
    assert bytes.fromhex(Account.recover_transaction(signed.raw)[2:]) == signer.address
    assert len(signed.hash) == 32


def test_no_text_of_it_holds_the_key() -> None:
    signer = LocalSigner(Account.from_key(KEY))
    assert KEY.hex() not in f"{signer!r} {signer}"
    assert not hasattr(signer, "__dict__")
