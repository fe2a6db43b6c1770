"""Where a key comes from, and the account it opens.

At a remote signer it is opened by nobody here: inferd.chain.signers has who signs for it.

A raw key is taken on development chains only; the chain's own public accounts likewise.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import structlog
from eth_utils.address import is_address, is_hex_address, to_canonical_address
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from indexer.errors import OperatorError
from indexer.types import Address
from inferd.chain.anvil import load_anvil_config

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_log = structlog.get_logger("keys")

DEVELOPMENT_CHAIN_IDS = frozenset({31337, 1337})


class BadKey(OperatorError):
    """A key cannot be opened, or must not be used here. The text never holds the key."""

    code: ClassVar[str] = "bad_key"


class KeySource(BaseModel):
    """One of: a keystore v3 file with a password file, a raw key, an account of anvil.toml, an
    account of a remote signer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keystore: Path | None = None
    """An encrypted key, keystore version 3."""
    password_file: Path | None = None
    """Its password; a line end at the end is left out."""
    raw: SecretStr | None = None
    """From the environment, on development chains."""
    dev_account: int | None = Field(None, ge=0)
    """Index of one of anvil.toml's accounts, on development chains."""
    remote_signer_url: SecretStr | None = None
    """An http:// or https:// endpoint that answers `eth_signTransaction`, as web3signer does.
    Not for a worker's `key`, which signs results."""
    address: str | None = None
    """The account that the remote signer signs for."""
    signer_certificate: Path | None = None
    """Shown to a remote signer that asks who calls (mutual TLS); PEM."""
    signer_certificate_key: Path | None = None
    """The private key of that certificate; PEM, not encrypted."""
    signer_ca: Path | None = None
    """Who signs the remote signer's own certificate, where the system does not know them; PEM."""

    @model_validator(mode="after")
    def _one_source(self) -> KeySource:
        given = [self.keystore, self.raw, self.dev_account, self.remote_signer_url]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of keystore, dev_account, remote_signer_url or raw")
        if (self.remote_signer_url is None) != (self.address is None):
            raise ValueError("remote_signer_url and address go together")
        if (self.signer_certificate is None) != (self.signer_certificate_key is None):
            raise ValueError("signer_certificate and signer_certificate_key go together")
        of_tls = (self.signer_certificate, self.signer_ca)
        url = self.remote_signer_url.get_secret_value() if self.remote_signer_url else ""
        if any(file is not None for file in of_tls) and not url.startswith("https://"):
            raise ValueError("certificates are for a remote_signer_url of https://")
        if self.remote_signer_url is not None:
            _check_signer_url(self.remote_signer_url.get_secret_value())
        if self.address is not None and not (
            is_hex_address(self.address) and is_address(self.address)
        ):
            raise ValueError("address is not 0x and 40 hex digits, or its checksum is wrong")
        if (self.keystore is None) != (self.password_file is None):
            raise ValueError("keystore and password_file go together")
        return self


def open_account(source: KeySource, chain_id: int, *, use: str) -> LocalAccount:
    """The account behind `source`; `use` names it in errors ("poster", "worker text").

    Raises BadKey.
    """
    if source.remote_signer_url is not None:
        raise BadKey(
            f"the {use} key is at a remote signer, and this needs it in its own process",
            help_text="only transactions can be signed elsewhere: name a `keystore` for this",
        )
    if source.keystore is not None and source.password_file is not None:
        return _from_keystore(source.keystore, source.password_file, use)
    if chain_id not in DEVELOPMENT_CHAIN_IDS:
        raise BadKey(
            f"the {use} key is a development key, and chain {chain_id} is no development chain",
            help_text="give it as `keystore` with `password_file`",
        )
    if source.raw is not None:
        try:
            account: LocalAccount = accounts().from_key(source.raw.get_secret_value())
        except Exception:  # its text may hold the key
            raise BadKey(
                f"the {use} key is not 32 bytes of hex", help_text="correct the variable"
            ) from None
        _log.warning("raw_key", use=use, address=account.address, chain_id=chain_id)
        return account
    return load_anvil_config().account(source.dev_account or 0)


def address_of(source: KeySource, chain_id: int, *, use: str) -> Address:
    """The account's address; a keystore is not decrypted for it. Raises BadKey."""
    if source.address is not None:
        return Address(to_canonical_address(source.address))
    if source.keystore is None:
        return Address(to_canonical_address(open_account(source, chain_id, use=use).address))
    try:
        named = json.loads(source.keystore.read_text())["address"]
        return Address(to_canonical_address("0x" + named.removeprefix("0x")))
    except OSError as error:
        raise BadKey(
            f"the {use} key cannot be read: {error.filename}: {error.strerror}",
            help_text="correct the path, or list your accounts as `own_accounts` in [posting]",
        ) from None
    except (KeyError, TypeError, AttributeError, ValueError):
        raise BadKey(
            f"{source.keystore} does not name its address",
            help_text="list your accounts as `own_accounts` in [posting]",
        ) from None


def signer_tls(source: KeySource) -> ssl.SSLContext | None:
    """Who we are to the remote signer, and whom we take for it; None where the system says.

    Raises BadKey, which holds nothing of the files.
    """
    if source.signer_certificate is None and source.signer_ca is None:
        return None
    try:
        context = ssl.create_default_context(cafile=source.signer_ca)
        if source.signer_certificate is not None:
            context.load_cert_chain(
                source.signer_certificate,
                source.signer_certificate_key,
                # An encrypted key would make OpenSSL ask the terminal.
                password=lambda: b"",
            )
    except OSError as error:  # SSLError is one
        named = [source.signer_certificate, source.signer_certificate_key, source.signer_ca]
        files = ", ".join(str(file) for file in named if file is not None)
        raise BadKey(
            f"the certificates for the remote signer cannot be used: {error.strerror or 'not PEM'}"
            f" ({files})",
            help_text="they are PEM files that belong together, the key among them not encrypted",
        ) from None
    return context


def _check_signer_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("remote_signer_url is no http:// or https:// URL with a host")


def _from_keystore(keystore: Path, password_file: Path, use: str) -> LocalAccount:
    try:
        encrypted = json.loads(keystore.read_text())
        password = password_file.read_text().rstrip("\r\n")
    except OSError as error:
        raise BadKey(
            f"the {use} key cannot be read: {error.filename}: {error.strerror}",
            help_text="correct the path, or the file's permissions",
        ) from None
    except ValueError:
        raise BadKey(
            f"{keystore} is not a keystore file of version 3",
            help_text="make one with `inferd key new` or `inferd key import`",
        ) from None
    try:
        private_key = accounts().decrypt(encrypted, password)
    except Exception as error:  # its text or context may hold the password
        what = "the password is wrong" if "MAC" in str(error) else "it is no keystore of version 3"
        raise BadKey(
            f"{keystore} does not open: {what}", help_text=f"look at it and at {password_file}"
        ) from None
    opened: LocalAccount = accounts().from_key(private_key)
    return opened


def accounts() -> Any:
    """eth_account's Account."""
    from eth_account import Account  # noqa: PLC0415 - takes a second to load

    return Account
