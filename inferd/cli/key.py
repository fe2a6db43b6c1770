"""`inferd key`: keystore files, made and filled, and the address that is in one."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer
from eth_utils.address import to_checksum_address

from indexer.types import Address
from inferd.chain import keystores
from inferd.chain.keys import BadKey, KeySource, address_of, open_account
from inferd.cli.output import SCHEMA_VERSION, show, show_json
from inferd.cli.session import JsonOption

KeystoreArgument = Annotated[Path, typer.Argument(metavar="KEYSTORE", help="The keystore file.")]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="PATH",
        help="File with the keystore's password; without it, a terminal asks.",
    ),
]
_NO_CHAIN = 0


def register(app: typer.Typer) -> None:
    commands = typer.Typer(
        name="key",
        help="Make keystore files, and see whose they are.",
        no_args_is_help=True,
    )
    commands.command("new")(new_command)
    commands.command("import")(import_command)
    commands.command("show")(show_command)
    app.add_typer(commands)


def new_command(
    keystore: KeystoreArgument, password_file: PasswordOption = None, as_json: JsonOption = False
) -> None:
    """Make a new key in a new keystore file (version 3, mode 0600), and print its address.

    Example: inferd key new keys/poster.json --password-file keys/poster.password
    """
    keystores.refuse_existing(keystore)
    _show(keystores.create(keystore, _new_password(password_file)), as_json=as_json)


def import_command(
    keystore: KeystoreArgument,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="File with the key in hex, or another keystore; default: stdin.",
        ),
    ] = None,
    source_password_file: Annotated[
        Path | None,
        typer.Option(
            "--from-password-file",
            metavar="PATH",
            help="Where a keystore is imported: the password it has now.",
        ),
    ] = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a key that exists into a new keystore file (version 3, mode 0600), and print its address.

    A key is never an argument: every user of the machine could read it there.

    Example: inferd key import keys/poster.json --from old.json --from-password-file old.password
    """
    keystores.refuse_existing(keystore)
    text = _source_text(source)
    if text.lstrip().startswith("{"):
        account = keystores.from_keystore(text, _password(source_password_file, "Its password now"))
    else:
        account = keystores.from_hex(text)
    _show(keystores.store(keystore, account, _new_password(password_file)), as_json=as_json)


def show_command(
    keystore: KeystoreArgument, password_file: PasswordOption = None, as_json: JsonOption = False
) -> None:
    """Print the address of a keystore's key, and nothing else of it.

    The file names it in the clear; with a password file it is opened, and the address is that of
    the key that is really in it.

    Example: inferd key show keys/poster.json
    """
    source = KeySource(keystore=keystore, password_file=password_file or keystore)
    address = address_of(source, _NO_CHAIN, use="asked-for")
    if password_file is not None:
        opened = open_account(source, _NO_CHAIN, use="asked-for")
        if opened.address != to_checksum_address(address):
            raise BadKey(
                f"{keystore} names {to_checksum_address(address)}, and holds the key of"
                f" {opened.address}",
                help_text="somebody changed the file: make sure which account is meant",
            )
    _show(address, as_json=as_json)


def _show(address: Address, *, as_json: bool) -> None:
    shown = to_checksum_address(address)
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, "address": shown})
    else:
        show(shown)


def _source_text(source: Path | None) -> str:
    """Raises BadKey."""
    if source is None and sys.stdin.isatty():
        return getpass.getpass("Key in hex: ")
    try:
        return sys.stdin.read() if source is None else source.read_text()
    except OSError as error:
        raise BadKey(
            f"{source} cannot be read: {error.strerror}", help_text="correct the path"
        ) from None
    except UnicodeDecodeError:
        raise BadKey(
            "what was given is no text", help_text="give hex digits, or a keystore file"
        ) from None


def _password(place: Path | None, prompt: str) -> str:
    """From the file, or asked for. Raises BadPassword."""
    if place is not None:
        return keystores.read_password(place)
    if not sys.stdin.isatty():
        raise keystores.BadPassword(
            "there is no password, and no terminal to ask for one",
            help_text="name a file with it: `--password-file`, and for a keystore that is imported"
            " `--from-password-file`",
        )
    return keystores.checked_password(getpass.getpass(f"{prompt}: "))


def _new_password(place: Path | None) -> str:
    """Raises BadPassword."""
    password = _password(place, "New password")
    if place is None and getpass.getpass("The same again: ") != password:
        raise keystores.BadPassword("the two passwords differ", help_text="try again")
    return password
