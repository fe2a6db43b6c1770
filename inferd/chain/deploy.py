"""Puts the five contracts on a chain. They name each other, so their addresses are computed
before they exist: one sender creates them at consecutive nonces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from eth_abi.abi import encode
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak

from indexer.errors import OperatorError
from indexer.rpc import ChainIdentity
from indexer.types import Address, Contracts, Hash32
from inferd.chain.connect import read_view
from inferd.chain.transact import Sender
from inferd.protocol.artifacts import load
from inferd.protocol.deployment import Deployment

NOBODY = Address(bytes(20))
BURNT = Address(bytes(18) + b"\xde\xad")
"""An address whose key nobody has, by convention."""
MAX_BPS = 10_000
MAX_REPORTER_BPS = MAX_BPS // 2
MAX_UNBONDING_DELAY_S = 365 * 24 * 3600

_ORDER = ("WorkerRegistry", "StakeManager", "InferenceResults", "Disputes", "InferenceRequests")
_STAKE_CONFIG = "(address,address,address,address,address,uint256,uint40,uint256)"


class DeploymentDisturbed(OperatorError):
    """Another transaction of the same key came between; the contracts do not fit together."""

    code: ClassVar[str] = "deployment_disturbed"


class BadTerms(OperatorError):
    """The contracts would refuse these terms, or could not keep what they promise."""

    code: ClassVar[str] = "bad_terms"


@dataclass(frozen=True, slots=True)
class DeploymentTerms:
    """What the contracts fix for ever, and who may do what little can be changed."""

    poster_bps: int = 2_000
    """The poster's share of each fee, in 1/10,000; the rest is the worker's."""
    cancel_delay_s: int = 60
    min_stake_wei: int = 10**17
    unbonding_delay_s: int = 7 * 24 * 3600
    ruling_period_s: int = 3 * 24 * 3600
    """How long the arbiter has for a dispute."""
    reporter_bps: int = 1_000
    """The share of a slash that goes to who showed the fault, in 1/10,000."""
    owner: Address | None = None
    """Who may pause requests and set models' terms; None: the deployer, NOBODY: for ever none."""
    arbiter: Address | None = None
    """Who rules on disputes; None = the owner."""
    treasury: Address = BURNT
    """Who gets what a slash does not give to its reporter."""


async def deploy(sender: Sender, terms: DeploymentTerms) -> Deployment:
    """Deploys all five and checks that they know each other.

    Raises BadTerms, DeploymentDisturbed and what `Sender.send` raises. An interrupted deployment
    costs its gas and does no other harm: run it again.
    """
    check_terms(terms)
    genesis = await sender.rpc.header(0)
    if genesis is None:
        raise DeploymentDisturbed(
            "the endpoint does not serve the genesis block",
            help_text="use an endpoint with full headers",
        )
    # Behind the next endpoint there may be another chain.
    sender.rpc.expect(ChainIdentity(sender.chain_id, genesis.hash))
    nonce = await sender.rpc.nonce(sender.address, "pending")
    addresses = {
        name: create_address(sender.address, nonce + step) for step, name in enumerate(_ORDER)
    }
    start_block = None
    for name in _ORDER:
        arguments = _arguments(name, addresses, terms, sender.address)
        receipt = await sender.send(None, load(name).bytecode + arguments)
        start_block = receipt.block_number if start_block is None else start_block
        if not await sender.rpc.code(addresses[name]):
            raise _disturbed(name)
    contracts = Contracts(
        chain_id=sender.chain_id,
        start_block=start_block or 0,
        requests=addresses["InferenceRequests"],
        results=addresses["InferenceResults"],
        registry=addresses["WorkerRegistry"],
        stakes=addresses["StakeManager"],
        disputes=addresses["Disputes"],
    )
    await _check_wiring(sender, contracts)
    return Deployment(contracts, Hash32(genesis.hash))


def check_terms(terms: DeploymentTerms) -> None:
    """Raises BadTerms for what the contracts would refuse, or accept to nobody's use."""
    if not 0 <= terms.poster_bps <= MAX_BPS:
        raise BadTerms(
            f"a poster's share of {terms.poster_bps} is not within 0 and {MAX_BPS}",
            help_text="it is in 1/10,000 of each fee",
        )
    if not 0 <= terms.reporter_bps <= MAX_REPORTER_BPS:
        raise BadTerms(
            f"a reporter's share of {terms.reporter_bps} is not within 0 and {MAX_REPORTER_BPS}",
            help_text="it is in 1/10,000 of a slash: above a half, to report oneself could pay",
        )
    if terms.cancel_delay_s <= 0:
        raise BadTerms(
            "the cancel delay is nothing",
            help_text="give results under way some time, like 60s: else requesters read and cancel",
        )
    if terms.unbonding_delay_s > MAX_UNBONDING_DELAY_S:
        raise BadTerms(
            f"an unbonding delay of {terms.unbonding_delay_s} s is longer than a year",
            help_text="the contract takes up to 365d: shorten --unbonding-delay",
        )
    if terms.ruling_period_s >= terms.unbonding_delay_s:
        raise BadTerms(
            f"a ruling period of {terms.ruling_period_s} s is not shorter than the unbonding delay"
            f" of {terms.unbonding_delay_s} s",
            help_text="a ruling must come before the stake is gone: lengthen --unbonding-delay, or"
            " shorten --ruling-period",
        )
    if terms.treasury == NOBODY:
        raise BadTerms(
            "the zero address cannot be the treasury",
            help_text=f"leave it out to burn what is slashed at 0x{BURNT.hex()}",
        )


def create_address(sender: Address, nonce: int) -> Address:
    """Where CREATE puts a contract: the last 20 bytes of keccak256(rlp([sender, nonce]))."""
    if nonce < 0x80:
        number = bytes([nonce or 0x80])
    else:
        digits = nonce.to_bytes((nonce.bit_length() + 7) // 8, "big")
        number = bytes([0x80 + len(digits)]) + digits
    items = bytes([0x80 + len(sender)]) + sender + number
    return Address(keccak(bytes([0xC0 + len(items)]) + items)[12:])


async def _check_wiring(sender: Sender, contracts: Contracts) -> None:
    wanted = (
        (contracts.requests, "InferenceRequests", "results", contracts.results),
        (contracts.requests, "InferenceRequests", "disputes", contracts.disputes),
        (contracts.results, "InferenceResults", "requests", contracts.requests),
        (contracts.results, "InferenceResults", "registry", contracts.registry),
        (contracts.registry, "WorkerRegistry", "stakeManager", contracts.stakes),
        (contracts.stakes, "StakeManager", "registry", contracts.registry),
        (contracts.stakes, "StakeManager", "requests", contracts.requests),
        (contracts.stakes, "StakeManager", "results", contracts.results),
        (contracts.stakes, "StakeManager", "disputes", contracts.disputes),
        (contracts.disputes, "Disputes", "requests", contracts.requests),
        (contracts.disputes, "Disputes", "stakes", contracts.stakes),
    )
    for at, name, function, expected in wanted:
        (named,) = await read_view(sender.rpc, at, name, function)
        if Address(to_canonical_address(named)) != expected:
            raise _disturbed(name)


def _arguments(
    name: str, at: dict[str, Address], terms: DeploymentTerms, deployer: Address
) -> bytes:
    owner = deployer if terms.owner is None else terms.owner
    arbiter = owner if terms.arbiter is None else terms.arbiter
    stake_config = (
        at["WorkerRegistry"],
        at["InferenceRequests"],
        at["InferenceResults"],
        at["Disputes"],
        terms.treasury,
        terms.min_stake_wei,
        terms.unbonding_delay_s,
        terms.reporter_bps,
    )
    values: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
        "WorkerRegistry": (("address",), (at["StakeManager"],)),
        "StakeManager": ((_STAKE_CONFIG,), (stake_config,)),
        "InferenceResults": (
            ("address", "address"),
            (at["InferenceRequests"], at["WorkerRegistry"]),
        ),
        "Disputes": (
            ("address", "address", "address", "uint40"),
            (at["InferenceRequests"], at["StakeManager"], arbiter, terms.ruling_period_s),
        ),
        "InferenceRequests": (
            ("address", "address", "address", "uint256", "uint40"),
            (
                at["InferenceResults"],
                at["Disputes"],
                owner,
                terms.poster_bps,
                terms.cancel_delay_s,
            ),
        ),
    }
    types, arguments = values[name]
    return encode(types, arguments)


def _disturbed(name: str) -> DeploymentDisturbed:
    return DeploymentDisturbed(
        f"{name} is not where it was expected: the key sent another transaction meanwhile",
        help_text="let nothing else use the key, and run `inferd deploy` again",
    )
