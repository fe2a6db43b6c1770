"""What each client says when it refuses a transaction, in its own words, and what that means."""

from __future__ import annotations

import pytest

from indexer.rpc import RpcError
from indexer.rpc.refusals import SendError, classify, lacks_method

KNOWN = SendError.ALREADY_KNOWN
LOW = SendError.NONCE_TOO_LOW
HIGH = SendError.NONCE_TOO_HIGH
CHEAP = SendError.UNDERPRICED
REPLACED = SendError.REPLACEMENT_UNDERPRICED
POOR = SendError.INSUFFICIENT_FUNDS
LATER = SendError.TRY_LATER
INVALID = SendError.INVALID
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
        "intrinsic gas too low: gas 1, minimum needed 21000": INVALID,
        "exceeds block gas limit": INVALID,
        "account limit exceeded": LATER,
        "txpool is full": LATER,
        "in-flight transaction limit reached for delegated accounts": LATER,
        "gapped-nonce tx from delegated accounts": HIGH,
        "address already reserved": LATER,
        "insufficient gas for floor data gas cost: gas 21000, minimum needed 25120": INVALID,
        "transaction gas limit too high (cap: 16777216, tx: 20000000)": INVALID,
        "oversized data: transaction size 131073, limit 131072": INVALID,
        "transaction type not supported": INVALID,
        "invalid sender": INVALID,
        "invalid chain id for signer: have 1 want 2": INVALID,
        "sender not an eoa: address 0x1, len(code): 5": INVALID,
        "max priority fee per gas higher than max fee per gas: address 0x1": INVALID,
        "nonce has max value": INVALID,
        # Another endpoint has another cap, and may have taken it.
        "tx fee (1.10 ether) exceeds the configured cap (1.00 ether)": UNKNOWN,
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
        "max priority fee per gas higher than max fee per gas": INVALID,
        "intrinsic gas too low": INVALID,
        "intrinsic gas too high": INVALID,
        "gas limit too high": INVALID,
        "exceeds block gas limit": INVALID,
        "oversized data": INVALID,
        "invalid chain ID": INVALID,
        "sender is not an EOA": INVALID,
        "transaction type not supported": INVALID,
        "txpool is full": LATER,
    },
    "nethermind": {
        "already known": KNOWN,
        "nonce too low": LOW,
        "nonce too high": HIGH,
        "nonce too far in future": HIGH,
        "transaction underpriced": CHEAP,
        "replacement transaction underpriced": REPLACED,
        "insufficient funds for gas * price + value": POOR,
        "node is syncing": LATER,
        "gas limit reached": INVALID,
        "sender not an eoa": INVALID,
        "intrinsic gas too low": INVALID,
        "transaction invalid": UNKNOWN,
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
        "Wrong chainId": INVALID,
        "Intrinsic gas exceeds gas limit": INVALID,
        "Transaction gas limit exceeds block gas limit": INVALID,
        "Invalid transaction type": INVALID,
        "Max priority fee per gas exceeds max fee per gas": INVALID,
        "Initial sync is still in progress": LATER,
        "Transaction pool not enabled. (Either txpool explicitly disabled, or node not yet in"
        " sync).": LATER,
        "Sender account not authorized to send transactions": UNKNOWN,
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
        "pending sub-pool is full": LATER,
        "baseFee sub-pool is full": LATER,
        "IntrinsicGas": INVALID,
        "RLPTooLong": INVALID,
        "oversized data": INVALID,
        "invalid sender": INVALID,
        "gas limit is too high": INVALID,
        "spammer": UNKNOWN,
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


def test_what_may_never_pass_is_given_up_in_time_and_nothing_else() -> None:
    assert {kind for kind in SendError if kind.may_never_pass} == {INVALID, UNKNOWN}
    assert classify("unknown transaction") is UNKNOWN
    assert classify("unknown transaction type not supported") is INVALID


@pytest.mark.parametrize(
    ("code", "message", "lacking"),
    [
        (-32601, "whatever", True),
        (-32004, "Method not supported", True),
        (-32000, "the method eth_maxPriorityFeePerGas does not exist/is not available", True),
        (-32603, "Unsupported method: eth_feeHistory", True),
        (-32603, "internal error", False),
        (-32000, "header not found", False),
        (-32005, "limit exceeded", False),
    ],
)
def test_a_method_that_is_not_there(code: int, message: str, *, lacking: bool) -> None:
    assert lacks_method(RpcError(code, message)) is lacking
