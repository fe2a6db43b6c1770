"""What each client says when it refuses a transaction, in its own words, and what that means."""

from __future__ import annotations

import pytest

from indexer.rpc.refusals import SendError, classify

KNOWN = SendError.ALREADY_KNOWN
LOW = SendError.NONCE_TOO_LOW
HIGH = SendError.NONCE_TOO_HIGH
CHEAP = SendError.UNDERPRICED
REPLACED = SendError.REPLACEMENT_UNDERPRICED
POOR = SendError.INSUFFICIENT_FUNDS
UNKNOWN = SendError.UNKNOWN

CLIENTS: dict[str, dict[str, SendError]] = {
    "geth": {
        "already known": KNOWN,
        "known transaction: 0xabcd": KNOWN,  # before 1.10
        "nonce too low: next nonce 7, tx nonce 5": LOW,
        "nonce too high": HIGH,
        "future transaction tries to replace pending": HIGH,
        "transaction underpriced: tip needed 1, tip permitted 0": CHEAP,
        "max fee per gas less than block base fee: address 0x1, maxFeePerGas: 1": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds for gas * price + value: balance 1, tx cost 2, overshot 1": POOR,
        "intrinsic gas too low: gas 1, minimum needed 21000": UNKNOWN,
        "exceeds block gas limit": UNKNOWN,
        "account limit exceeded": UNKNOWN,
    },
    "reth": {
        "already known": KNOWN,
        "nonce too low: next nonce 7, tx nonce 5": LOW,
        "nonce too high": HIGH,
        "transaction underpriced": CHEAP,
        "max fee per gas less than block base fee": CHEAP,
        "transaction priority fee below minimum required priority fee 7": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds for gas * price + value: have 1 want 2": POOR,
        "max priority fee per gas higher than max fee per gas": UNKNOWN,
        "txpool is full": UNKNOWN,
    },
    "nethermind": {
        "already known": KNOWN,
        "nonce too low": LOW,
        "nonce too high": HIGH,
        "nonce too far in future": HIGH,
        "transaction underpriced": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds for gas * price + value": POOR,
        "node is syncing": UNKNOWN,
        # Older releases name the kind, and put their own words behind it.
        "AlreadyKnown, Transaction already known": KNOWN,
        "OldNonce, Current nonce: 7, nonce of rejected tx: 5": LOW,
        "NonceGap, Future nonce. Expected nonce: 5": HIGH,
        "NonceTooFarInTheFuture": HIGH,
        "NonceTooFarInFuture": HIGH,
        "FeeTooLow, MaxFeePerGas too low": CHEAP,
        "ReplacementNotAllowed, existing hash 0x1": REPLACED,
        "InsufficientFunds, Account balance: 1": POOR,
    },
    "besu": {
        "Known transaction": KNOWN,
        "Nonce too low": LOW,
        "Nonce below current sender nonce": LOW,
        "Nonce too high": HIGH,
        "Transaction nonce is too far in the future": HIGH,
        "Transaction nonce is too distant from current sender nonce": HIGH,
        "An invalid transaction with a lower nonce exists": HIGH,
        "Gas price below configured minimum gas price": CHEAP,
        "Gas price below current base fee": CHEAP,
        "Replacement transaction underpriced": REPLACED,
        "Upfront cost exceeds account balance (transaction up-front cost 0x2)": POOR,
        "Wrong chainId": UNKNOWN,
        "Transaction fee cap exceeded": UNKNOWN,
    },
    "erigon": {
        "already known": KNOWN,
        "existing tx with same hash": KNOWN,
        "existing txn with same hash": KNOWN,
        "nonce too low": LOW,
        "underpriced": CHEAP,
        "fee too low": CHEAP,
        "could not replace existing tx": REPLACED,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds": POOR,
        "pending sub-pool is full": UNKNOWN,
    },
    "anvil": {
        "transaction already imported": KNOWN,
        "nonce too low": LOW,
        "nonce too high": HIGH,
        "max fee per gas less than block base fee": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "Insufficient funds for gas * price + value": POOR,
    },
    "arbitrum": {
        "nonce too low: address 0x1, tx: 5 state: 7": LOW,
        "nonce too high: address 0x1, tx: 7 state: 5": HIGH,
        "max fee per gas less than block base fee: address 0x1, maxFeePerGas: 1": CHEAP,
        "insufficient funds for gas * price + value: address 0x1 have 1 want 2": POOR,
    },
    "op": {
        "already known": KNOWN,
        "nonce too low: next nonce 7, tx nonce 5": LOW,
        "transaction underpriced: tip needed 1, tip permitted 0": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds for gas * price + value: balance 1, tx cost 2, overshot 1": POOR,
    },
    "others": {
        "nonce is too low": LOW,
        "nonce is too high": HIGH,
        "tx nonce exceeds next nonce": HIGH,
        "gas price is below the minimum": CHEAP,
        "unknown transaction": UNKNOWN,
        "no answer: RPC timeout": UNKNOWN,
        "": UNKNOWN,
    },
}


@pytest.mark.parametrize(
    ("client", "message"),
    [(client, message) for client, lines in CLIENTS.items() for message in lines],
)
def test_meaning(client: str, message: str) -> None:
    assert classify(message) is CLIENTS[client][message]
    assert classify(f"INTERNAL_ERROR: {message.upper()}") is CLIENTS[client][message]
