"""What an endpoint's refusal of a transaction means: one table for all clients."""

from __future__ import annotations

from enum import StrEnum

from indexer.rpc.types import RpcError


class SendError(StrEnum):
    """Why a transaction was not taken. Only ALREADY_KNOWN is a success."""

    ALREADY_KNOWN = "already_known"
    NONCE_TOO_LOW = "nonce_too_low"
    NONCE_TOO_HIGH = "nonce_too_high"
    UNDERPRICED = "underpriced"
    REPLACEMENT_UNDERPRICED = "replacement_underpriced"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    TRY_LATER = "try_later"
    """The node takes no more now, of this sender or of anybody. Nothing is wrong with it."""
    INVALID = "invalid"
    """The node would never take these bytes."""
    UNKNOWN = "unknown"

    @property
    def may_never_pass(self) -> bool:
        """Whether the same bytes, sent again, may be refused for ever."""
        return self in (SendError.INVALID, SendError.UNKNOWN)


# Lower-cased fragments; the first that is contained decides, so narrower ones come first.
_FRAGMENTS: tuple[tuple[str, SendError], ...] = (
    ("already known", SendError.ALREADY_KNOWN),  # geth, reth, erigon, besu
    ("already imported", SendError.ALREADY_KNOWN),  # anvil
    ("alreadyknown", SendError.ALREADY_KNOWN),  # nethermind
    ("existing tx with same hash", SendError.ALREADY_KNOWN),  # erigon
    ("existing txn with same hash", SendError.ALREADY_KNOWN),  # erigon
    ("known transaction", SendError.ALREADY_KNOWN),  # besu, old geth; see _NOT_KNOWN
    ("replacement transaction underpriced", SendError.REPLACEMENT_UNDERPRICED),  # geth, reth, anvil
    ("replacementnotallowed", SendError.REPLACEMENT_UNDERPRICED),  # nethermind
    ("could not replace existing tx", SendError.REPLACEMENT_UNDERPRICED),  # erigon
    ("nonce too low", SendError.NONCE_TOO_LOW),  # geth, reth, anvil, erigon
    ("nonce is too low", SendError.NONCE_TOO_LOW),
    ("oldnonce", SendError.NONCE_TOO_LOW),  # nethermind
    ("nonce below current", SendError.NONCE_TOO_LOW),  # besu
    ("nonce too high", SendError.NONCE_TOO_HIGH),  # geth, anvil
    ("nonce is too high", SendError.NONCE_TOO_HIGH),
    ("noncegap", SendError.NONCE_TOO_HIGH),  # nethermind
    ("noncetoofarinthefuture", SendError.NONCE_TOO_HIGH),  # nethermind
    ("noncetoofarinfuture", SendError.NONCE_TOO_HIGH),  # nethermind
    ("nonce too far in future", SendError.NONCE_TOO_HIGH),  # nethermind
    ("too far in the future", SendError.NONCE_TOO_HIGH),  # besu
    ("too distant from current sender nonce", SendError.NONCE_TOO_HIGH),  # besu
    ("transaction with a lower nonce exists", SendError.NONCE_TOO_HIGH),  # besu
    ("future transaction tries to replace pending", SendError.NONCE_TOO_HIGH),  # geth
    ("exceeds next nonce", SendError.NONCE_TOO_HIGH),
    ("gapped-nonce tx", SendError.NONCE_TOO_HIGH),  # geth, op: of a delegated account (EIP-7702)
    ("nonce has max value", SendError.INVALID),  # geth, reth
    ("insufficient gas for floor", SendError.INVALID),  # geth (EIP-7623)
    ("insufficient funds", SendError.INSUFFICIENT_FUNDS),  # geth, reth, anvil, erigon
    ("insufficientfunds", SendError.INSUFFICIENT_FUNDS),  # nethermind
    ("upfront cost exceeds account balance", SendError.INSUFFICIENT_FUNDS),  # besu
    ("less than block base fee", SendError.UNDERPRICED),  # geth, reth, anvil
    ("underpriced", SendError.UNDERPRICED),  # geth, reth, erigon
    ("below minimum required priority fee", SendError.UNDERPRICED),  # reth
    ("below current base fee", SendError.UNDERPRICED),  # besu
    ("fee too low", SendError.UNDERPRICED),  # erigon
    ("feetoolow", SendError.UNDERPRICED),  # nethermind
    ("below configured minimum", SendError.UNDERPRICED),  # besu
    ("below the minimum", SendError.UNDERPRICED),  # besu
    ("txpool is full", SendError.TRY_LATER),  # geth, reth
    ("sub-pool is full", SendError.TRY_LATER),  # erigon
    ("account limit exceeded", SendError.TRY_LATER),  # geth
    ("in-flight transaction limit", SendError.TRY_LATER),  # geth, op: of a delegated account
    ("already reserved", SendError.TRY_LATER),  # geth: the account has a blob transaction
    ("syncing", SendError.TRY_LATER),  # nethermind
    ("sync is still in progress", SendError.TRY_LATER),  # besu
    ("transaction pool not enabled", SendError.TRY_LATER),  # besu
    ("exceeds block gas limit", SendError.INVALID),  # geth, reth, besu
    ("gas limit reached", SendError.INVALID),  # nethermind
    ("gaslimitexceeded", SendError.INVALID),  # nethermind
    ("gas limit too high", SendError.INVALID),  # geth, reth (EIP-7825)
    ("gas limit is too high", SendError.INVALID),  # erigon
    ("intrinsic gas too", SendError.INVALID),  # geth, reth, nethermind: too low, too high
    ("intrinsic gas exceeds", SendError.INVALID),  # besu
    ("intrinsicgas", SendError.INVALID),  # erigon
    ("oversized data", SendError.INVALID),  # geth, reth, erigon
    ("rlptoolong", SendError.INVALID),  # erigon
    ("type not supported", SendError.INVALID),  # geth, reth
    ("invalid transaction type", SendError.INVALID),  # besu
    ("invalid sender", SendError.INVALID),  # geth, erigon
    ("invalid chain id", SendError.INVALID),  # geth, reth
    ("wrong chainid", SendError.INVALID),  # besu
    ("not an eoa", SendError.INVALID),  # geth, reth, nethermind
    ("higher than max fee per gas", SendError.INVALID),  # geth, reth: the tip
    ("priority fee per gas exceeds", SendError.INVALID),  # besu: the same
)
_NOT_KNOWN = "unknown transaction"

_REVERT_CODE = 3
_REVERT_WORDS = ("revert", "out of gas", "outofgas", "invalid opcode", "vm execution error")

_LACKING_CODES = frozenset({-32601, -32004})
"""Method not found (JSON-RPC 2.0), method not supported (EIP-1474)."""
_LACKING_WORDS = ("not found", "not supported", "unsupported", "does not exist", "not available")


def classify(message: str) -> SendError:
    """Reads an error message of any client. What is in no row is UNKNOWN: never guessed."""
    text = message.lower().replace(_NOT_KNOWN, "")
    for fragment, meaning in _FRAGMENTS:
        if fragment in text:
            return meaning
    return SendError.UNKNOWN


def is_revert(error: RpcError) -> bool:
    """Whether a call failed in the chain's own eyes, and not in the endpoint's."""
    text = error.message.lower()
    return error.code == _REVERT_CODE or any(word in text for word in _REVERT_WORDS)


def lacks_method(error: RpcError) -> bool:
    """Whether the endpoint does not have the method at all."""
    text = error.message.lower()
    return error.code in _LACKING_CODES or (
        "method" in text and any(word in text for word in _LACKING_WORDS)
    )
