"""Turns ready results into transactions, as long as posting decides to and slots are free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog

from indexer.database import Pool
from indexer.types import ZERO_HASH, Contracts, Hash32
from inferd.protocol.typed_data import domain_separator
from inferd.settlement.apart import companies
from inferd.settlement.batch import (
    Group,
    SignGroup,
    StoredResult,
    apart,
    build_groups,
    load_base_fees,
    load_decisions,
    load_gas_model,
    load_ready,
    post_calldata,
)
from inferd.settlement.chain import RPC_TROUBLE, Sight
from inferd.settlement.drafting import drafted
from inferd.settlement.fees import first_fees, market_tip, within
from inferd.settlement.holds import Holds
from inferd.settlement.intervals import block_interval_s, load_newest, rhythm_s
from inferd.settlement.lanes import Lane, Lanes
from inferd.settlement.launch import Call, Launched, gas_cap
from inferd.settlement.records import Item
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from inferd.settlement.terms import held_model
from inferd.settlement.turns import ResultTurns
from scheduler.batching import decide
from scheduler.gathering import Gathering, gather
from scheduler.model import Block, GasModel, RequestKey
from scheduler.posting_model import PostingDecision, PostingSnapshot, PostReason
from scheduler.words import count

_log = structlog.get_logger("settlement")

_PAUSES = {
    PostReason.GAS_PRICE_OVER_CAP: PausedReason.GAS_PRICE_OVER_CAP,
    PostReason.UNPROFITABLE: PausedReason.UNPROFITABLE,
}


class _Verdict(Enum):
    POSTED = auto()
    """It is under way."""
    KEPT = auto()
    """It is with a key that could not send it: the others go on with the rest."""
    SIFTED = auto()
    """Some of its results are held back now: decide again without them."""
    ANOTHER_KEY = auto()
    """Decide again, with the keys that are left."""
    TOO_LARGE = auto()
    """Decide again, for half as many results at most."""
    STOP = auto()
    """Nothing more in this step."""


_VERDICTS = {
    Launched.SENT: _Verdict.POSTED,
    Launched.KEPT: _Verdict.KEPT,
    Launched.NOT_BY_THIS_KEY: _Verdict.ANOTHER_KEY,
    Launched.BY_NOBODY: _Verdict.STOP,
}


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a post costs, as far as the tables tell."""

    gas: GasModel
    block_interval_s: float
    base_fees_wei: tuple[int, ...]
    due_at_s: float
    """From when on posting is decided under this head."""
    began_s: float
    """When this step's decisions began."""


class Poster:
    def __init__(
        self,
        pool: Pool,
        contracts: Contracts,
        sign_group: SignGroup,
        settings: SettlementSettings,
        status: SettlementStatus,
        now: Callable[[], float],
        turns: ResultTurns,
    ) -> None:
        self._pool = pool
        self._contracts = contracts
        self._sign_group = sign_group
        self._settings = settings
        self._status = status
        self._now = now
        self._turns = turns
        self._domain = domain_separator(contracts.chain_id, contracts.results)
        self._holds = Holds()
        self._too_late: set[Item] = set()
        self._gathering: Gathering | None = None
        self._told = ""
        """What the newest sentence ends with, beside the decision."""
        self.again_at_s: float | None = None
        """When to post again at the latest, though no block and no result has come; of the calls
        of `post` since it was None."""

    async def post(self, sight: Sight, lanes: Lanes) -> None:
        """Creates new transactions while keys have slots. Raises RPC_TROUBLE."""
        settings = self._settings
        self._status.posting = self._status.posting.removesuffix(self._told)
        self._told = ""
        found = await load_ready(
            self._pool,
            sight.head,
            settings,
            max_gas=gas_cap(settings.max_gas, sight),
            data=sight.data,
        )
        undeliverable = [result for result in found if not result.deliverable]
        found = [result for result in found if result.deliverable]
        self._count(found, sight)
        self._holds.keep_only(result.outbox_item() for result in found)
        self._too_late &= {result.outbox_item() for result in found}
        terms = await self._terms(sight)
        await self._turns.look(sight.head)
        if self._turns.has_rivals and settings.pool_visible:
            lanes.expect_others()
        come = self._turns.come(found, sight.head, self._now(), terms.block_interval_s)
        taken: set[RequestKey] = set()
        # Those that spoilt a transaction, or may have, come last and keep to themselves.
        for number, company in enumerate(_companies(come) or [()]):
            left = [result for result in company if result.ready.key not in taken]
            if not await self._post_company(left, terms, sight, lanes, taken, say=number == 0):
                break
        self._status.waiting_for_slot = (
            0 if lanes.slots else await self._left_out(come, taken, terms, sight)
        )
        self._status.set_apart["post"] = told = self._holds.told("result")
        self._told = self._turns.told(len(found) - len(come)) + _undeliverable(len(undeliverable))
        self._told += f" {told}" if told else ""
        self._status.posting += self._told
        self._count([result for result in found if result.ready.key not in taken], sight)

    async def _post_company(
        self,
        company: Sequence[StoredResult],
        terms: _Terms,
        sight: Sight,
        lanes: Lanes,
        taken: set[RequestKey],
        *,
        say: bool,
    ) -> bool:
        """Makes transactions of results that may share them; whether others can still be made.
        `taken` learns whose they are. `say` tells why there is none."""
        found = list(company)
        if found and found[0].under_terms:
            terms = replace(terms, gas=held_model(terms.gas))
        max_results = self._settings.max_results
        while lanes.slots:
            ready = [r for r in found if not self._holds.holds(r.outbox_item(), sight.head.number)]
            decision = await self._decide(sight, ready, terms, max_results)
            self._remember(decision, terms.began_s)
            self._tell_too_late(ready, decision)
            if say or decision.results:
                self._status.posting = decision.sentence
                self._status.noticed = _PAUSES.get(decision.reason, self._status.noticed)
            if not decision.results:
                break
            wanted = set(decision.results)
            chosen = [result for result in ready if result.ready in wanted]
            verdict = await self._try(decision, chosen, lanes, sight, terms.gas)
            if verdict is _Verdict.STOP:
                return False
            if verdict is _Verdict.TOO_LARGE:
                max_results = max(len(chosen) // 2, 1)
            if verdict in (_Verdict.POSTED, _Verdict.KEPT):
                taken.update(result.key for result in decision.results)
                found = [result for result in found if result.ready.key not in taken]
        return True

    async def _left_out(
        self, found: Sequence[StoredResult], taken: set[RequestKey], terms: _Terms, sight: Sight
    ) -> int:
        """How many results would be posted, in one transaction and those after it, had they slots;
        none where there were no such transaction."""
        ready = [
            result
            for result in found
            if result.ready.key not in taken
            and not self._holds.holds(result.outbox_item(), sight.head.number)
        ]
        decision = await self._decide(sight, ready, terms, self._settings.max_results)
        if not decision.results:
            return 0
        never = ("duplicates", "unprofitable", "too_late", "expired")
        return len(ready) - sum(int(decision.inputs[name]) for name in never)

    def _remember(self, decision: PostingDecision, began_s: float) -> None:
        """What was put off is due at a time of its own; what was decided is not, for a while.

        Where the moment comes in mid-step, it is not over: others were put off to it before.
        """
        if self._gathering is None:
            return
        if decision.reason is PostReason.GATHERING:
            self._gathering = self._gathering.held()
            at_s = decision.again_at_s
            self.again_at_s = at_s if self.again_at_s is None else min(at_s, self.again_at_s)
        elif decision.reason is not PostReason.NOTHING_READY:
            self._gathering = self._gathering.decided(began_s)

    async def _terms(self, sight: Sight) -> _Terms:
        async with self._pool.acquire() as connection:
            blocks = await load_newest(connection)
        began_s = self._now()
        self._gathering = gather(
            self._gathering,
            _block(sight),
            now_s=began_s,
            interval_s=rhythm_s(blocks),
            lead_s=self._settings.lead_s,
        )
        return _Terms(
            await load_gas_model(self._pool, self._settings),
            block_interval_s(blocks),
            await load_base_fees(self._pool, sight.head),
            self._gathering.due_at_s,
            began_s,
        )

    def _count(self, found: Sequence[StoredResult], sight: Sight) -> None:
        number = sight.head.number
        # Of two results for one request, one is posted.
        ready = {result.ready.key: result.ready for result in found}.values()
        self._status.ready = len(ready)
        self._status.ready_later_gas = sum(one.later_gas for one in ready)
        self._status.ready_later_data_wei = sum(one.later_data_wei for one in ready)
        self._status.held = sum(self._holds.holds(r.outbox_item(), number) for r in found)

    def _tell_too_late(self, ready: Sequence[StoredResult], decision: PostingDecision) -> None:
        late = set(decision.too_late)
        items = {result.outbox_item() for result in ready if result.ready in late}
        fresh = items - self._too_late
        self._too_late |= items
        self._status.too_late += len(fresh)
        if fresh:
            _log.warning("results_too_late", trace_ids=sorted(item.trace_id for item in fresh))

    async def _try(
        self,
        decision: PostingDecision,
        chosen: Sequence[StoredResult],
        lanes: Lanes,
        sight: Sight,
        gas: GasModel,
    ) -> _Verdict:
        fees = first_fees(sight.market, self._settings.fee_caps())
        if fees is None:
            self._status.noticed = PausedReason.GAS_PRICE_OVER_CAP
            return _Verdict.STOP
        fees = within(fees, decision.fee_cap_wei)
        least_data_wei = sight.data.of(0, decision.gas_limit_estimate)
        lane = lanes.next(decision.gas_limit_estimate * fees.max_fee_wei + least_data_wei)
        if lane is None:
            return _Verdict.STOP  # Known before any worker is asked for a signature.
        groups = await build_groups(
            chosen,
            self._sign_group,
            domain=self._domain,
            timeout_s=self._settings.sign_timeout_s,
        )
        anchored = await load_decisions(self._pool, self._settings.max_decisions)
        call = self._call(groups, anchored.root, proven=chosen[0].under_terms)
        try:
            alive = await lane.launcher.simulate(call, sight)
        except RPC_TROUBLE as error:
            # Of these bytes, or of the endpoint: sifting tells.
            _log.warning("simulation_failed", results=len(chosen), error=str(error))
            alive = 0
        if alive != len(chosen):
            return await self._sift(chosen, lane)
        try:
            estimate = await lane.launcher.estimate(call)
        except RPC_TROUBLE as error:
            await lane.launcher.estimate(self._call((), ZERO_HASH, proven=chosen[0].under_terms))
            return self._too_large(chosen, sight, str(error))
        cap = gas_cap(self._settings.max_gas, sight)
        if estimate is None or estimate > cap:
            return self._too_large(chosen, sight)
        data_wei = sight.data.of(len(call.calldata), estimate)
        cost_wei = estimate * (sight.next_base_fee_wei + fees.priority_fee_wei) + data_wei
        earned_wei = decision.revenue_wei - decision.later_cost_wei
        if cost_wei > earned_wei:
            # The model was too kind. Held for a block only: prices move, and others may join.
            self._status.noticed = PausedReason.UNPROFITABLE
            for result in apart(groups, chosen) or chosen:
                self._holds.hold_once(result.outbox_item(), sight.head.number)
            return _Verdict.SIFTED
        draft, fees = drafted(
            decision, chosen, groups, anchored, call, gas, estimate, cap, fees, sight
        )
        launched = await lanes.launch(lane, draft, fees)
        return _VERDICTS[launched]

    async def _sift(self, chosen: Sequence[StoredResult], lane: Lane) -> _Verdict:
        """Tries the results each under its own signature, and holds back those that fail."""
        sight = lane.sight

        def call_of(some: Sequence[StoredResult]) -> Call:
            groups = [Group(one.workers, (one.item,), one.signatures) for one in some]
            return self._call(groups, ZERO_HASH, proven=chosen[0].under_terms)

        found = await lane.launcher.sift(chosen, call_of, sight)
        for result in found.dead:
            self._holds.hold(result.outbox_item(), sight.head.number)
        for result, words in found.failing:
            self._holds.set_apart(result.outbox_item(), sight.head.number, words)
        if found.dead:
            _log.warning(
                "results_held_back",
                trace_ids=[result.outbox_item().trace_id for result in found.dead],
            )
        return _Verdict.SIFTED if found.any else self._too_large(chosen, sight)

    def _too_large(
        self, chosen: Sequence[StoredResult], sight: Sight, words: str | None = None
    ) -> _Verdict:
        """`words` are the node's, where it failed on them."""
        if len(chosen) > 1:
            return _Verdict.TOO_LARGE
        item = chosen[0].outbox_item()
        if words is None:
            self._holds.hold(item, sight.head.number)
        else:
            self._holds.set_apart(item, sight.head.number, words)
        return _Verdict.SIFTED

    def _call(self, groups: Sequence[Group], root: bytes, *, proven: bool) -> Call:
        calldata = post_calldata(groups, Hash32(root), proven=proven)
        function = "postProven" if proven else "post"
        return Call("InferenceResults", function, self._contracts.results, calldata)

    async def _decide(
        self,
        sight: Sight,
        ready: Sequence[StoredResult],
        terms: _Terms,
        max_results: int,
    ) -> PostingDecision:
        """In a thread: with thousands of results it would hold up the event loop."""
        tip_wei = market_tip(sight.market, self._settings.fee_caps())
        rules = self._settings.posting_rules(tip_wei)
        rules = replace(rules, max_results=max_results)
        snapshot = PostingSnapshot(
            block=_block(sight),
            now_s=self._now(),
            ready=tuple(result.ready for result in ready),
            gas=terms.gas,
            rules=rules,
            block_interval_s=terms.block_interval_s,
            recent_base_fees_wei=terms.base_fees_wei,
            due_at_s=terms.due_at_s,
            data_fee=sight.data.of_posts(),
        )
        return await asyncio.to_thread(decide, snapshot)


def _companies(come: Sequence[StoredResult]) -> list[tuple[StoredResult, ...]]:
    """Who may share a transaction with whom: what is under terms goes by another function."""
    plain = [result for result in come if not result.under_terms]
    held = [result for result in come if result.under_terms]
    return [
        *companies(plain, lambda one: one.cohort),
        *companies(held, lambda one: one.cohort),
    ]


def _block(sight: Sight) -> Block:
    """The head, with the base fee of the block after it."""
    head = sight.head
    return Block(head.number, head.hash, head.timestamp_s, sight.next_base_fee_wei, head.gas_limit)


def _undeliverable(number: int) -> str:
    if not number:
        return ""
    return f" {count(number, 'result')} not posted: the callback fits in no transaction."
