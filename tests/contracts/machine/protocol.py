"""The machine: all actions over one arena."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.contracts.arena import Arena
from tests.contracts.cast import MAX_ID, POSTER_BPS
from tests.contracts.machine.answering import Answering
from tests.contracts.machine.asking import Asking
from tests.contracts.machine.base import Draw
from tests.contracts.machine.disputing import Disputing
from tests.contracts.machine.governing import Governing
from tests.contracts.machine.staking import Staking

_STARTS = [254, 254, 246, 246, 1, 1, MAX_ID - 6]
"""The edge of a bitmap's word, ids whose bit is one that means something in a request's word, the
beginning, and the last ids there are."""
_WEIGHTS = {
    "submit": 7,
    "submit_many": 3,
    "raise_fee": 2,
    "request_cancel": 2,
    "refund": 3,
    "post": 7,
    "post_again": 3,
    "post_proven": 6,
    "deliver": 5,
    "deliver_with_little_gas": 4,
    "behave": 1,
    "register": 2,
    "update": 1,
    "set_enabled": 1,
    "stake": 4,
    "unstake": 2,
    "withdraw_stake": 3,
    "slash_equivocation": 4,
    "release": 3,
    "open": 6,
    "rule_on": 8,
    "close": 3,
    "set_model_terms": 2,
    "set_paused": 1,
    "offer_ownership": 1,
    "accept_ownership": 2,
    "set_arbiter": 1,
    "set_enclave": 1,
    "withdraw": 1,
    "withdraw_to": 2,
    "credit": 1,
    "transfer_credit": 1,
    "intrude": 1,
}
_INSTEAD = {
    "rule_on": "open",
    "close": "open",
    "open": "post_disputable",
    "release": "post_disputable",
    "post_disputable": "submit_disputable",
    "post_again": "post",
    "deliver": "post_callable",
    "deliver_with_little_gas": "post_callable",
    "post_callable": "submit_callable",
    "withdraw_stake": "unstake",
    "unstake": "stake",
}
"""What leads to the thing that an action found nothing to do with; otherwise a request."""
_ACTIONS = [name for name, weight in _WEIGHTS.items() for _ in range(weight)]
_SEEDS = st.integers(0, 2**24 - 1)
"""No wider: hypothesis prefers the small among numbers of more bits."""


class Protocol(Asking, Answering, Staking, Disputing, Governing, RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._started = False

    @initialize(
        deployment=st.sampled_from([0, 0, *range(len(POSTER_BPS))]),
        start=st.sampled_from(_STARTS),
    )
    def start(self, deployment: int, start: int) -> None:
        self.arena.start(deployment, start)
        self._started = True

    @rule(action=st.sampled_from(_ACTIONS), seed=_SEEDS)
    def step(self, action: str, seed: int) -> None:
        draw, before = Draw(seed), self.arena.steps
        active = sum(map(self.model.registry.is_active, self.model.registry.all))
        if self.model.requests.paused and not draw.number(0, 3):
            action = "set_paused"
        elif active < 2 and not draw.number(0, 2):
            action = "stake"
        getattr(self, action)(draw)
        while self.arena.steps == before:
            action = _INSTEAD.get(action, "credit" if action == "submit" else "submit")
            getattr(self, action)(draw)

    def teardown(self) -> None:
        if self._started and self.arena.agrees:
            self.arena.compare_replay()
            self.arena.compare_balances()


def protocol_on(arena: Arena) -> type[Protocol]:
    return type("ProtocolOnArena", (Protocol,), {"arena": arena})
