"""Starts Anvil as `anvil.toml` says: Anvil itself reads no file."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
import time
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

import msgspec

from indexer.errors import OperatorError, TemporaryError
from inferd.chain.child import die_with_parent

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_PACKAGED_CONFIG = Path(__file__).parent / "anvil.toml"
_CHECKOUT = Path(__file__).parents[2]


class BadAnvilConfig(OperatorError):
    """anvil.toml cannot be used."""

    code: ClassVar[str] = "bad_anvil_config"


class AnvilMissing(OperatorError):
    """The Anvil program is not installed."""

    code: ClassVar[str] = "anvil_missing"


class AnvilNotStarted(TemporaryError):
    """Anvil was started and does not answer."""

    code: ClassVar[str] = "anvil_not_started"


class AnvilAccounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mnemonic: str
    count: int
    balance_ether: int


class AnvilConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What anvil.toml holds. `block_time_s = 0` mines a block for each transaction."""

    chain_id: int
    host: str
    port: int
    block_time_s: float
    hardfork: str
    gas_limit: int
    base_fee_wei: int
    slots_in_an_epoch: int
    order: str
    accounts: AnvilAccounts

    def account(self, index: int) -> LocalAccount:
        """One of the chain's funded accounts; its key is public."""
        from eth_account import Account  # noqa: PLC0415 - takes a second to load

        Account.enable_unaudited_hdwallet_features()
        account: LocalAccount = Account.from_mnemonic(
            self.accounts.mnemonic, account_path=f"m/44'/60'/0'/0/{index}"
        )
        return account


def load_anvil_config(path: Path | None = None) -> AnvilConfig:
    """Reads anvil.toml. Raises BadAnvilConfig."""
    place = path or default_anvil_config()
    try:
        return msgspec.convert(tomllib.loads(place.read_text()), AnvilConfig)
    except FileNotFoundError:
        raise BadAnvilConfig(
            f"there is no file {place}", help_text="name one with `--config-file`"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadAnvilConfig(
            f"{place}: {error}", help_text="correct it; the checkout's anvil.toml is an example"
        ) from error


def default_anvil_config() -> Path:
    """./anvil.toml where there is one, else the one inferd carries."""
    here = Path("anvil.toml")
    if here.is_file():
        return here
    return _PACKAGED_CONFIG if _PACKAGED_CONFIG.is_file() else _CHECKOUT / "anvil.toml"


def anvil_program() -> Path:
    """The native binary: from INFERD_ANVIL, node_modules, or PATH. Raises AnvilMissing."""
    named = os.environ.get("INFERD_ANVIL")
    if named:
        return Path(named)
    machine = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    system = platform.system().lower()
    package = f"node_modules/@foundry-rs/anvil-{system}-{machine}/bin/anvil"
    for base in (Path.cwd(), _CHECKOUT):
        if (base / package).is_file():
            return base / package
    for folder in os.get_exec_path():
        if (Path(folder) / "anvil").is_file():
            return Path(folder) / "anvil"
    raise AnvilMissing(
        "Anvil is not installed",
        help_text="run `make setup` in the checkout, or put `anvil` on PATH, or set INFERD_ANVIL",
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Anvil:
    """A running Anvil process; leaves when its context, or the process that started it, ends."""

    config: AnvilConfig
    process: subprocess.Popen[bytes]
    url: str

    def __enter__(self) -> Anvil:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_anvil(
    config: AnvilConfig, *, log: Path | None = None, extra_arguments: tuple[str, ...] = ()
) -> Anvil:
    """Starts Anvil and waits until it answers.

    Raises AnvilMissing, BadAnvilConfig (port taken, options refused), AnvilNotStarted.
    """
    program = anvil_program()
    if config.port == 0:
        config = msgspec.structs.replace(config, port=free_port(config.host))
    url = f"http://{config.host}:{config.port}"
    _refuse_taken_port(config)
    output = log.open("ab") if log else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [str(program), *_arguments(config), *extra_arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
    finally:
        if not isinstance(output, int):
            output.close()
    anvil = Anvil(config, process, url)
    try:
        _wait_until_it_answers(anvil)
    except BaseException:
        anvil.stop()
        raise
    return anvil


def _arguments(config: AnvilConfig) -> list[str]:
    arguments = [
        *("--host", config.host, "--port", str(config.port)),
        *("--chain-id", str(config.chain_id), "--hardfork", config.hardfork),
        *("--gas-limit", str(config.gas_limit), "--base-fee", str(config.base_fee_wei)),
        *("--slots-in-an-epoch", str(config.slots_in_an_epoch), "--order", config.order),
        *("--mnemonic", config.accounts.mnemonic, "--accounts", str(config.accounts.count)),
        *("--balance", str(config.accounts.balance_ether)),
        "--silent",
    ]
    if config.block_time_s:
        arguments += ["--block-time", str(config.block_time_s)]
    return arguments


def _refuse_taken_port(config: AnvilConfig) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            raise BadAnvilConfig(
                f"port {config.port} on {config.host} is taken: {error.strerror}",
                help_text="stop what listens there, or choose another `port` (0 = a free one)",
            ) from error


def _wait_until_it_answers(anvil: Anvil, timeout_s: float = 30.0) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
    request = urllib.request.Request(  # noqa: S310 - http to the host we started it on
        anvil.url, data=body, headers={"content-type": "application/json"}
    )
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if anvil.process.poll() is not None:
            raise BadAnvilConfig(
                f"Anvil ended at once with exit code {anvil.process.returncode}",
                help_text="an option in anvil.toml is not one Anvil takes (hardfork, order, ...)",
            )
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
                answer.read()
            return
        time.sleep(0.02)
    raise AnvilNotStarted(
        f"Anvil does not answer at {anvil.url} after {timeout_s:.0f} s",
        help_text="the machine may be overloaded; try again",
    )
