"""What the rules share: how they draw, and how they act."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, TypeVar

from eth_utils.crypto import keccak

from tests.contracts import cast
from tests.contracts.abi import Address
from tests.contracts.arena import Arena
from tests.contracts.books import ALIAS
from tests.contracts.model.outcome import Tx
from tests.contracts.model.values import Request, RequestStatus
from tests.contracts.model.world import Model

T = TypeVar("T")
_FAR = 10**6
OUTPUTS = {keccak(output): output for output in (b"yes", b"", bytes(range(256)) * 256)}
DIGESTS = list(OUTPUTS)


class Draw:
    """What one action draws, all from one seed.

    Hypothesis draws the seeds and removes steps from a failing run. Drawing each choice through it
    would fill its buffer after a few steps, and it repeats choices too gladly to get far.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def one(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        return self._random.choices(options, k=self.number(least, most))

    def several(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """None of them twice."""
        return self._random.sample(options, min(self.number(least, most), len(options)))

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def flaw(self, *flaws: str) -> str:
        """Mostly nothing is wrong."""
        return "" if self.number(0, 6) else self.one(flaws)


class Base:
    """One deployment of the arena, as the rules see it."""

    arena: ClassVar[Arena]

    @property
    def model(self) -> Model:
        return self.arena.model

    def act(
        self,
        role: str,
        function: str,
        arguments: tuple[Any, ...],
        sender: Address,
        now: int,
        value: int = 0,
        **more: Any,
    ) -> bool:
        return self.arena.act(role, function, arguments, Tx(sender, value, now), **more)

    def when(self, draw: Draw, *moments: int, near_of_ten: int = 4) -> int:
        """Mostly at once; else just before, at, or just after one of the moments."""
        soon = self.model.now + 1
        if draw.number(1, 10) > near_of_ten:
            return soon
        near = [m + d for m in moments for d in (0, 1, -1) if soon < m + d < soon + _FAR]
        return draw.one(near) if near else soon

    def anyone(self, draw: Draw) -> Address:
        return draw.one([*cast.PEOPLE, *self.arena.setting.consumers])

    def requests(self, *statuses: RequestStatus) -> list[Request]:
        """The requests in one of these states, latest first."""
        model = self.model.requests
        found = [r for r in model.all.values() if model.status(r.id, self.model.now) in statuses]
        return found[::-1]

    def all_requests(self) -> list[Request]:
        return list(self.model.requests.all.values())[::-1]

    def strange_id(self, draw: Draw) -> int:
        """An id that no request has; some share their lower bits with one that does."""
        next_id = self.model.requests.next_id
        return draw.one([0, next_id, next_id - 1 + ALIAS, next_id - 1 + 2**63, 2**256 - 1])

    def id_among(self, draw: Draw, found: list[Request]) -> int:
        if not found or draw.flaw("strange"):
            return self.strange_id(draw)
        return draw.one(found).id
