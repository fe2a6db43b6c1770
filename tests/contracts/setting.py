"""A chain with the contracts on it, and the one way in which the tests act there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexer.types import Address as PlainAddress
from inferd.chain.deploy import create_address
from tests.contracts import cast
from tests.contracts.abi import Abi, Address, Event, error_of, words
from tests.contracts.build import Code, under_test
from tests.contracts.rpc import Rpc

_ORDER = ("WorkerRegistry", "StakeManager", "InferenceResults", "Disputes", "InferenceRequests")
_ROLES = {
    "registry": "WorkerRegistry",
    "stakes": "StakeManager",
    "results": "InferenceResults",
    "disputes": "Disputes",
    "requests": "InferenceRequests",
    "verifier": "AttestationVerifier",
    "consumer": "Consumer",
    "checker": "ProofChecker",
}
_GAS = 16_000_000
"""Below the cap that the hardfork puts on one transaction."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a transaction came to: an error, or a return value and logs."""

    error: tuple[Any, ...] | None
    returned: Any
    events: list[Event]


class Setting:
    """Deployments that differ by `posterBps`, two consumers and the viewer."""

    def __init__(self, rpc: Rpc, helpers: dict[str, Code]) -> None:
        self.rpc = rpc
        code = {name: under_test(name) for name in (*_ORDER, "AttestationVerifier")} | helpers
        self.abis = {role: Abi(code[name].abi) for role, name in _ROLES.items()}
        self._errors = {k: v for abi in self.abis.values() for k, v in abi.errors.items()}
        self._state_slot = code["InferenceRequests"].storage["_state"]
        self._code = code
        rpc("anvil_autoImpersonateAccount", True)
        for person in cast.PEOPLE:
            self.fund(person)
        self._nonce = 0
        self.viewer = self._create("Viewer")
        self.odd_verifier = self._create("OddVerifier")
        self.checker = self._create("ProofChecker")
        self.consumers = [self._create("Consumer"), self._create("Consumer")]
        for consumer in self.consumers:
            self.fund(consumer)
        self.deployments = [self._deploy(bps) for bps in cast.POSTER_BPS]

    def fund(self, who: Address) -> None:
        self.rpc("anvil_setBalance", _hex(who), hex(2**120))

    def start_ids_at(self, deployment: dict[str, Address], next_id: int) -> None:
        """The lowest 64 bits of the state are the next id; the others stay as they are."""
        at, slot = _hex(deployment["requests"]), f"0x{self._state_slot:064x}"
        others = int(self.rpc("eth_getStorageAt", at, slot, "latest"), 16) >> 64 << 64
        self.rpc("anvil_setStorageAt", at, slot, f"0x{others | next_id:064x}")

    def transact(
        self,
        at: Address,
        role: str,
        function: str,
        arguments: tuple[Any, ...],
        *,
        sender: Address,
        value: int,
        now: int,
        roles: dict[Address, str],
        gas: int = _GAS,
    ) -> Answer:
        """One transaction in a block of its own at the time `now`."""
        self.rpc("evm_setNextBlockTimestamp", now)
        receipt = self.rpc(
            "eth_sendTransactionSync",
            {
                "from": _hex(sender),
                "to": _hex(at),
                "data": _hex(self.abis[role].call(function, arguments)),
                "value": hex(value),
                "gas": hex(gas),
                "gasPrice": "0x0",
            },
        )
        trace = self.rpc(
            "debug_traceTransaction",
            receipt["transactionHash"],
            {"tracer": "callTracer", "tracerConfig": {"onlyTopCall": True}},
        )
        output = bytes.fromhex(trace.get("output", "0x")[2:])
        if receipt["status"] == "0x0":
            return Answer(error_of(self._errors, output), None, [])
        returned = self.abis[role].returned(function, output)
        return Answer(None, returned, self.events(receipt["logs"], roles))

    def events(self, logs: list[dict[str, Any]], roles: dict[Address, str]) -> list[Event]:
        """The logs of the contracts that have a role."""
        events = []
        for log in logs:
            role = roles[Address(bytes.fromhex(log["address"][2:]))]
            events.append(self.abis[role].event(role, log))
        return events

    def logs(self, contracts: list[Address]) -> list[dict[str, Any]]:
        """All logs of these contracts since the chain began."""
        asked = {"fromBlock": "0x0", "toBlock": "latest", "address": [_hex(c) for c in contracts]}
        found: list[dict[str, Any]] = self.rpc("eth_getLogs", asked)
        return found

    def view(self, calls: list[tuple[Address, bytes]]) -> list[bytes | None]:
        """What each view returns now; None where it reverts."""
        packed = b"".join(to + len(data).to_bytes(2, "big") + data for to, data in calls)
        asked = {"to": _hex(self.viewer), "data": _hex(packed)}
        raw = bytes.fromhex(self.rpc("eth_call", asked, "latest")[2:])
        answers: list[bytes | None] = []
        at = 0
        for _ in calls:
            length = int.from_bytes(raw[at : at + 4], "big")
            at += 4
            if length == 2**32 - 1:
                answers.append(None)
            else:
                answers.append(raw[at : at + length])
                at += length
        return answers

    def balance(self, who: Address) -> int:
        return int(self.rpc("eth_getBalance", _hex(who), "latest"), 16)

    def try_deploy(self, name: str, arguments: bytes) -> tuple[Any, ...] | None:
        """The error of a constructor, if it has one."""
        sent = {"from": _hex(cast.BOB), "data": self._code[name].bytecode + arguments.hex()}
        receipt = self.rpc("eth_sendTransactionSync", sent | {"gas": hex(_GAS), "gasPrice": "0x0"})
        if receipt["status"] == "0x1":
            return None
        trace = self.rpc(
            "debug_traceTransaction", receipt["transactionHash"], {"tracer": "callTracer"}
        )
        return error_of(self._errors, bytes.fromhex(trace.get("output", "0x")[2:]))

    def _create(self, name: str, arguments: bytes = b"") -> Address:
        sent = {"from": _hex(cast.DEPLOYER), "data": self._code[name].bytecode + arguments.hex()}
        receipt = self.rpc("eth_sendTransactionSync", sent | {"gas": hex(_GAS), "gasPrice": "0x0"})
        assert receipt["status"] == "0x1", name
        self._nonce += 1
        return Address(bytes.fromhex(receipt["contractAddress"][2:]))

    def _deploy(self, poster_bps: int) -> dict[str, Address]:
        sender = PlainAddress(cast.DEPLOYER)
        at = [Address(create_address(sender, self._nonce + step)) for step in range(len(_ORDER))]
        registry, stakes, results, disputes, requests = at
        arguments = {
            "WorkerRegistry": words(stakes),
            "StakeManager": words(
                *(registry, requests, results, disputes, cast.TREASURY),
                *(cast.MIN_STAKE, cast.UNBONDING_DELAY, cast.REPORTER_BPS),
            ),
            "InferenceResults": words(requests, registry),
            "Disputes": words(requests, stakes, cast.ARBITER, cast.RULING_PERIOD),
            "InferenceRequests": words(
                results, disputes, cast.ADMIN, poster_bps, cast.CANCEL_DELAY
            ),
        }
        for name, expected in zip(_ORDER, at, strict=True):
            assert self._create(name, arguments[name]) == expected
        return {
            "registry": registry,
            "stakes": stakes,
            "results": results,
            "disputes": disputes,
            "requests": requests,
            "verifier": self._create("AttestationVerifier", words(cast.ADMIN)),
        }


def _hex(data: bytes) -> str:
    return "0x" + data.hex()
