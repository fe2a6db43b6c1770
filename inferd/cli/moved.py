"""How commands say what their transaction has done."""

from __future__ import annotations

from inferd.chain.amounts import show_ether
from inferd.cli.output import SCHEMA_VERSION, note, show, show_json


def show_moved(
    amount_wei: int, tx_hash: bytes, *, as_json: bool, name: str = "amount_wei", **more: int
) -> None:
    """The amount on stdout and the transaction on stderr, or both with `more` as JSON."""
    if as_json:
        body = {"schema_version": SCHEMA_VERSION, **more, name: str(amount_wei)}
        show_json({**body, "tx_hash": "0x" + tx_hash.hex()})
        return
    show(show_ether(amount_wei))
    note(f"transaction 0x{tx_hash.hex()}")


def show_sent(text: str, tx_hash: bytes, *, as_json: bool, **facts: object) -> None:
    """What is so now on stdout and the transaction on stderr, or the facts as JSON."""
    shown_hash = "0x" + tx_hash.hex()
    if as_json:
        show_json({"schema_version": SCHEMA_VERSION, **facts, "tx_hash": shown_hash})
        return
    show(text)
    note(f"transaction {shown_hash}")
