"""A signer on another machine, over JSON-RPC: web3signer, clef, or any with eth_signTransaction.

Nothing it says is believed: see `signed_answer`. While it is away, nothing is signed, no nonce is
spent, and what is signed already is sent and followed as ever.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from eth_utils.address import is_hex_address, to_checksum_address
from eth_utils.hexadecimal import encode_hex

from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError
from indexer.rpc.endpoint import Endpoint
from indexer.rpc.exchange import call_object, parsed, parser
from indexer.types import Address
from inferd.chain.encoding import is_dynamic
from inferd.chain.keys import BadKey
from inferd.chain.signed_answer import NotWhatWasAsked, checked, raw_of
from inferd.chain.signers import SignedTx, SignerTrouble

SETTING = "remote_signer_url"
_TIMEOUT_S = 2.5
_MAX_ANSWER_BYTES = 1024 * 1024
_FIRST_REST_S = 1.0
_MAX_REST_S = 30.0
_NUMBERS = ("chainId", "nonce", "gas", "value")
_PRICES = {True: ("maxFeePerGas", "maxPriorityFeePerGas"), False: ("gasPrice",)}

_log = structlog.get_logger("settlement")


class RemoteSigner:
    """Signs as one address. After a failure it is not asked for a while, twice as long each time,
    up to 30 s: who needs a signature meanwhile is told at once that there is none."""

    def __init__(
        self,
        url: str,
        address: Address,
        *,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`clock` counts seconds; `tls` is for a signer that asks who we are. Raises BadRpcUrl."""
        self._endpoint = Endpoint(
            url,
            timeout_s=timeout_s,
            setting=SETTING,
            max_answer_bytes=_MAX_ANSWER_BYTES,
            tls=tls,
        )
        self._address = address
        self._clock = clock
        self._rest_s = 0.0
        self._asked_again_at_s = 0.0
        self._last_id = 0

    @property
    def address(self) -> Address:
        return self._address

    async def close(self) -> None:
        await self._endpoint.close()

    async def check(self) -> None:
        """Whether it has the key. One that is away, or does not tell, may still sign later.

        Raises BadKey where it lists its accounts and ours is none of them.
        """
        try:
            accounts = await self._ask("eth_accounts", ())
        except (RpcUnreachable, RpcError) as error:
            _log.warning("signer_unavailable", signer=self._endpoint.shown, error=error.message)
            return
        if not isinstance(accounts, list):
            return
        listed = {account.lower() for account in accounts if is_hex_address(account)}
        if "0x" + self._address.hex() not in listed:
            raise BadKey(
                f"the signer at {self._endpoint.shown} has no key of"
                f" {to_checksum_address(self._address)}",
                help_text=f"give it the key, or correct `{SETTING}` or `address`",
            )

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        """Raises SignerTrouble: it does not answer, refuses, or signed something else."""
        left_s = self._asked_again_at_s - self._clock()
        if left_s > 0:
            raise self._trouble(f"failed, and is asked again in {left_s:.0f} s")
        try:
            answer = await self._ask("eth_signTransaction", [_as_json(transaction, self._address)])
            signed = checked(raw_of(answer), transaction, self._address)
        except NotWhatWasAsked as error:
            raise self._failed(f"gave back something else than it was asked: {error}") from None
        except (RpcUnreachable, RpcError) as error:
            raise self._failed(f"does not sign: {error.message}") from None
        self._rest_s = 0.0
        return signed

    async def _ask(self, method: str, params: Sequence[Any]) -> Any:
        self._last_id += 1
        body = msgspec.json.encode(call_object(self._last_id, method, params))
        answer = await self._endpoint.post(body)
        return parsed(answer, self._endpoint, parser(self._last_id, msgspec.json.decode))

    def _failed(self, what: str) -> SignerTrouble:
        self._rest_s = min(_MAX_REST_S, 2 * self._rest_s or _FIRST_REST_S)
        self._asked_again_at_s = self._clock() + self._rest_s
        return self._trouble(what)

    def _trouble(self, what: str) -> SignerTrouble:
        return SignerTrouble(
            f"the signer at {self._endpoint.shown} {what}",
            help_text="look at the signer; nothing was signed, so nothing is lost",
        )

    def __repr__(self) -> str:
        return f"RemoteSigner({self._endpoint.shown}, {to_checksum_address(self._address)})"


def _as_json(transaction: Mapping[str, Any], sender: Address) -> dict[str, str]:
    """In the fields of the JSON-RPC method."""
    return {
        "from": to_checksum_address(sender),
        **({"to": to_checksum_address(transaction["to"])} if "to" in transaction else {}),
        "data": encode_hex(transaction["data"]),
        **{name: hex(transaction[name]) for name in (*_NUMBERS, *_PRICES[is_dynamic(transaction)])},
    }
