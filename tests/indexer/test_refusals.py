"""One line per client and meaning, as the clients word it."""

from __future__ import annotations

import pytest

from indexer.rpc.refusals import SendError, classify


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("already known", SendError.ALREADY_KNOWN),  # geth, reth, erigon
        ("transaction already imported", SendError.ALREADY_KNOWN),  # anvil
        ("AlreadyKnown, Transaction already known", SendError.ALREADY_KNOWN),  # nethermind
        ("Known transaction", SendError.ALREADY_KNOWN),  # besu
        ("known transaction: 0xabcd", SendError.ALREADY_KNOWN),  # old geth
        ("unknown transaction", SendError.UNKNOWN),
        ("nonce too low: next nonce 7, tx nonce 5", SendError.NONCE_TOO_LOW),  # geth, reth
        ("nonce too low", SendError.NONCE_TOO_LOW),  # anvil, erigon
        ("OldNonce, Current nonce: 7, nonce of rejected tx: 5", SendError.NONCE_TOO_LOW),
        ("Nonce below current sender nonce", SendError.NONCE_TOO_LOW),  # besu
        ("nonce is too low", SendError.NONCE_TOO_LOW),
        ("nonce too high", SendError.NONCE_TOO_HIGH),  # geth, anvil
        ("nonce is too high", SendError.NONCE_TOO_HIGH),
        ("NonceGap, Future nonce. Expected nonce: 5", SendError.NONCE_TOO_HIGH),  # nethermind
        ("NonceTooFarInTheFuture", SendError.NONCE_TOO_HIGH),  # nethermind
        ("Transaction nonce is too far in the future", SendError.NONCE_TOO_HIGH),  # besu
        ("tx nonce exceeds next nonce", SendError.NONCE_TOO_HIGH),
        ("transaction underpriced: tip needed 1, tip permitted 0", SendError.UNDERPRICED),  # geth
        ("transaction underpriced", SendError.UNDERPRICED),  # reth
        ("max fee per gas less than block base fee", SendError.UNDERPRICED),  # geth, reth, anvil
        ("FeeTooLow, MaxFeePerGas too low", SendError.UNDERPRICED),  # nethermind
        ("fee too low", SendError.UNDERPRICED),  # erigon
        (
            "Gas price below configured minimum gas price",
            SendError.UNDERPRICED,
        ),  # besu
        ("gas price is below the minimum", SendError.UNDERPRICED),  # besu
        ("replacement transaction underpriced", SendError.REPLACEMENT_UNDERPRICED),  # geth, anvil
        ("Replacement transaction underpriced", SendError.REPLACEMENT_UNDERPRICED),  # besu
        ("ReplacementNotAllowed, existing hash 0x1", SendError.REPLACEMENT_UNDERPRICED),
        ("could not replace existing tx", SendError.REPLACEMENT_UNDERPRICED),  # erigon
        (
            "insufficient funds for gas * price + value: balance 1, tx cost 2",
            SendError.INSUFFICIENT_FUNDS,
        ),  # geth, reth
        ("Insufficient funds for gas * price + value", SendError.INSUFFICIENT_FUNDS),  # anvil
        ("InsufficientFunds, Account balance: 1", SendError.INSUFFICIENT_FUNDS),  # nethermind
        (
            "Upfront cost exceeds account balance (transaction up-front cost 0x2)",
            SendError.INSUFFICIENT_FUNDS,
        ),  # besu
        ("no answer: RPC timeout", SendError.UNKNOWN),
        ("intrinsic gas too low", SendError.UNKNOWN),
        ("", SendError.UNKNOWN),
    ],
)
def test_meaning(message: str, meaning: SendError) -> None:
    assert classify(message) is meaning
