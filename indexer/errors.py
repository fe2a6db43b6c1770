"""Errors an operator can act on."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of every `inferd` command."""

    OK = 0
    CONFIGURATION = 1
    """Something you wrote or chose is wrong; the same call will fail again."""
    USAGE = 2
    """The command line itself could not be read."""
    NOT_AS_PROMISED = 3
    """The command ran, and what it checked does not hold."""
    INTERNAL = 70
    """A fault of inferd itself; the log has the traceback."""
    TRY_AGAIN = 75
    """Something outside is not there now; the same call may succeed later."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


class OperatorError(Exception):
    """An error with one line of what is wrong and one of what to do.

    `code` is stable and machine-readable, `exit_code` is what a command ends with.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.CONFIGURATION

    def __init__(self, message: str, *, help_text: str) -> None:
        super().__init__(message)
        self.message = message
        self.help_text = help_text


class TemporaryError(OperatorError):
    """Something outside is not there now: worth another try."""

    code: ClassVar[str] = "temporary"
    exit_code: ClassVar[ExitCode] = ExitCode.TRY_AGAIN


class RpcUnreachable(TemporaryError):
    """No endpoint answers."""

    code: ClassVar[str] = "rpc_unreachable"


class BadRpcUrl(OperatorError):
    """An endpoint's URL cannot be used."""

    code: ClassVar[str] = "bad_rpc_url"


class NodeBehind(TemporaryError):
    """The node has not synced to the block of the deployment yet."""

    code: ClassVar[str] = "node_behind"


class DatabaseUnreachable(TemporaryError):
    """PostgreSQL does not answer."""

    code: ClassVar[str] = "database_unreachable"


class WrongChain(OperatorError):
    """The endpoint serves another chain, or the same chain id with another genesis block."""

    code: ClassVar[str] = "wrong_chain"


class RangeRefused(OperatorError):
    """The endpoint refuses the logs of a single block, or the very range that it proposes."""

    code: ClassVar[str] = "range_refused"


class NoContractCode(OperatorError):
    """There is no contract at an address of the deployment."""

    code: ClassVar[str] = "no_contract_code"


class DatabaseNewer(OperatorError):
    """The database was migrated by a newer release than this one."""

    code: ClassVar[str] = "database_newer"


class DatabaseOlder(OperatorError):
    """The database was not migrated to this release yet."""

    code: ClassVar[str] = "database_older"


class WrongDatabase(OperatorError):
    """The database holds the index of another deployment."""

    code: ClassVar[str] = "wrong_database"


class ReorgTooDeep(OperatorError):
    """The chain was reorganised below the stored window of headers."""

    code: ClassVar[str] = "reorg_too_deep"
