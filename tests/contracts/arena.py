"""One chain for all examples: each starts from the same snapshot."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

from indexer.types import Address as PlainAddress
from inferd.protocol.typed_data import consent_digest, domain_separator
from tests.contracts import cast
from tests.contracts.abi import Address, Event
from tests.contracts.books import Asked, Books, calldata, views
from tests.contracts.model import values
from tests.contracts.model.hashes import group_digest_of
from tests.contracts.model.outcome import Refused, Tx, unmatched
from tests.contracts.model.values import Reaction, Terms
from tests.contracts.model.world import Model
from tests.contracts.moments import touched
from tests.contracts.replay import Replay
from tests.contracts.setting import Answer, Setting

STARTING_WORKERS = (0, 1, 3)
WINDOW = 300
BONDS = (7, 3 * cast.MIN_STAKE // cast.GWEI, cast.MIN_STAKE // cast.GWEI)
"""In gwei, for each deployment: less than a stake, more than the first, and about what it needs."""


class Disagreement(AssertionError):
    """The contracts did what the model did not expect."""


class Arena:
    """Acts on chain and model alike, and compares."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.seen: Counter[str] = Counter()
        self.steps = 0
        self.examples = 0
        self._step = 0
        self.agrees = True
        self._calldata = calldata(setting.abis)
        self._time = int(setting.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        self._bases = [self._base(place) for place in range(len(setting.deployments))]
        self.model = self._bases[0]
        known = {*cast.PEOPLE, *setting.consumers}.union(
            *(base.at.values() for base in self._bases)
        )
        self._balances = {who: setting.balance(who) for who in known}
        self._snapshot = setting.rpc("evm_snapshot")

    def start(self, deployment: int, next_id: int) -> None:
        """Back to the snapshot, with ids that count up from `next_id`."""
        self.setting.rpc("evm_revert", self._snapshot)
        self._snapshot = self.setting.rpc("evm_snapshot")
        self.model = deepcopy(self._bases[deployment])
        self.model.now = self._time
        self.model.received.clear()
        self.model.requests.next_id = next_id
        self.setting.start_ids_at(self.model.at, next_id)
        self.examples += 1
        self._step = 0
        self.agrees = True

    def act(
        self,
        role: str,
        function: str,
        arguments: tuple[Any, ...],
        tx: Tx,
        *,
        gas: int = 16_000_000,
        or_error: tuple[Any, ...] | None = None,
    ) -> bool:
        """One action on both; whether it succeeded. Raises Disagreement.

        `or_error` is an error the model cannot foresee, and then nothing has happened.
        """
        self.steps += 1
        self._step += 1
        self.agrees = False
        before = deepcopy(self.model) if or_error is not None else self.model
        expected: tuple[Any, list[Any]] | Refused
        try:
            expected = self.model.perform(role, function, arguments, tx)
        except Refused as refused:
            expected = refused
        answer = self._transact(role, function, arguments, tx, gas)
        said = f"{role}.{function}{arguments!r} by {tx}"
        if or_error is not None and answer.error == or_error:
            self.model = before
            self.model.now = tx.now
        elif isinstance(expected, Refused):
            if answer.error not in expected.errors:
                raise Disagreement(f"{answer} and not one of {expected.errors}: {said}")
        else:
            self._compare_success(said, answer, *expected)
        self._note(role, function, answer)
        self.compare(self.model.books(), latest=None if self._step % 8 == 0 else 6)
        self.agrees = True
        return answer.error is None

    def behave(self, consumer: Address, reaction: Reaction) -> None:
        """Tells a consumer what to do; it is no part of the protocol."""
        data = b""
        target = self.model.at[reaction.role]
        if reaction.arguments or reaction.function == "withdraw":
            abi = self.setting.abis[reaction.role]
            data = abi.call(reaction.function, reaction.arguments)
        tx = Tx(cast.BOB, 0, self.model.now + 1)
        answer = self.setting.transact(
            consumer,
            "consumer",
            "behave",
            (int(reaction.mode), target, data),
            sender=tx.sender,
            value=0,
            now=tx.now,
            roles={},
        )
        assert answer.error is None
        self.model.behave(tx, consumer, reaction)

    def compare(self, books: Books, latest: int | None = None) -> None:
        """The views of the contracts against what these books say; of requests, the latest."""
        expected = list(views(books, self._asked(latest or 0)))
        calls = [
            (self.model.at[role], self._calldata(role, function, arguments))
            for role, function, arguments, _ in expected
        ]
        answers = self.setting.view(calls)
        for (role, function, arguments, wanted), found in zip(expected, answers, strict=True):
            if found != wanted:
                abi = self.setting.abis[role]
                shown = found and abi.returned(function, found)
                meant = abi.returned(function, wanted)
                raise Disagreement(f"{role}.{function}{arguments!r}: {shown} and not {meant}")

    def compare_replay(self) -> None:
        """The state that the logs alone give, against the contracts."""
        at = self.model.at
        places = {place: role for role, place in at.items()}
        replay = Replay(at["disputes"])
        replay.next_id = self.model.requests.next_id if not self.model.requests.all else 1
        for event in self.setting.events(self.setting.logs(list(at.values())), places):
            replay.take(event)
        self.compare(replay.books())

    def compare_balances(self) -> None:
        for who, before in self._balances.items():
            balance, expected = self.setting.balance(who), before + self.model.received[who]
            if balance != expected:
                raise Disagreement(f"{who.hex()} has {balance} and not {expected}")
        owed = sum(self.model.credits.of.values())
        owed += sum(r.fee for r in self.model.requests.all.values() if not r.settled)
        assert self.setting.balance(self.model.at["requests"]) == owed

    def _asked(self, latest: int) -> Asked:
        model = self.model
        contracts = (model.at["disputes"], model.at["requests"], model.at["stakes"])
        return Asked(
            people=(*cast.PEOPLE, *self.setting.consumers, *contracts),
            signers=tuple(key.address for key in cast.SIGNERS),
            keys=tuple(key.address for key in cast.ENCLAVES),
            models=tuple(cast.MODELS),
            requests=tuple(model.requests.all.values())[-latest:],
            next_id=model.requests.next_id,
            now=model.now,
        )

    def _transact(
        self, role: str, function: str, arguments: tuple[Any, ...], tx: Tx, gas: int
    ) -> Answer:
        places = {place: name for name, place in self.model.at.items()}
        places |= dict.fromkeys(self.setting.consumers, "consumer")
        return self.setting.transact(
            self.model.at[role],
            role,
            function,
            arguments,
            sender=tx.sender,
            value=tx.value,
            now=tx.now,
            roles=places,
            gas=gas,
        )

    @staticmethod
    def _compare_success(said: str, answer: Answer, returned: Any, events: list[Any]) -> None:
        if answer.error is not None:
            raise Disagreement(f"reverted with {answer.error}: {said}")
        if answer.returned != returned:
            raise Disagreement(f"returned {answer.returned} and not {returned}: {said}")
        missing, surplus = unmatched(events, answer.events)
        if missing or surplus:
            raise Disagreement(f"events missing {missing}, unexpected {surplus}: {said}")

    def _note(self, role: str, function: str, answer: Answer) -> None:
        self.seen.update(touched(self.model, answer))
        if answer.error is not None:
            self.seen[f"{role}.{function}: {answer.error[0]}"] += 1
            return
        self.seen[f"{role}.{function}"] += 1
        for event in answer.events:
            self.seen[_name(event)] += 1

    def _base(self, place: int) -> Model:
        setting = self.setting
        at = setting.deployments[place]
        bps = cast.POSTER_BPS[place]
        self.model = Model(at, setting.consumers, setting.odd_verifier, bps, self._time)
        for place_of_key in STARTING_WORKERS:
            self._enlist(place_of_key)
        verifier = setting.odd_verifier if place == 1 else at["verifier"]
        proven = Terms(cast.MODELS[1], verifier, 0, 0, 0)
        held = Terms(cast.MODELS[2], Address(20), WINDOW, BONDS[place], place + 1)
        for terms in (proven, held):
            self.act("requests", "setModelTerms", (tuple(terms),), self._tx(cast.ADMIN))
        trust = (cast.MODELS[1], cast.ENCLAVES[0].address, True)
        self.act("verifier", "setEnclave", trust, self._tx(cast.ADMIN))
        return self.model

    def _enlist(self, place: int) -> None:
        key = cast.SIGNERS[place]
        owner = cast.OWNER_B if place == STARTING_WORKERS[-1] else cast.OWNER_A
        info = (key.address, (cast.MODELS[0],), "", 1, 0)
        consent = consent_of(self.model, key, owner)
        self.act("registry", "register", (info, consent), self._tx(owner))
        stake = self._tx(owner, 2 * cast.MIN_STAKE)
        self.act("stakes", "stake", (key.address,), stake)

    def _tx(self, sender: Address, value: int = 0) -> Tx:
        self._time += 1
        return Tx(sender, value, self._time)


def consent_of(model: Model, key: cast.Key, owner: Address) -> tuple[bytes, bytes]:
    domain = domain_separator(cast.CHAIN_ID, PlainAddress(model.at["registry"]))
    signed = key.sign(consent_digest(domain, PlainAddress(owner), PlainAddress(key.address)))
    return signed[:32], signed[32:]


def signed_by(model: Model, key: cast.Key, packed: bytes) -> tuple[bytes, bytes]:
    signed = key.sign(group_digest_of(model.at["results"], packed))
    return signed[:32], signed[32:]


def _name(event: Event) -> str:
    reasons = {
        "ResultSkipped": "Skip",
        "RefundSkipped": "Skip",
        "GroupSkipped": "GroupSkip",
        "CallbackSkipped": "CallbackSkip",
        "ReleaseSkipped": "HoldSkip",
    }
    if event.name not in reasons:
        return event.name
    reason = getattr(values, reasons[event.name])(event.args[1])
    return f"{event.name}: {reason.name}"
