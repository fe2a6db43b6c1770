"""Turns ready results into transactions, as long as posting decides to and slots are free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog

from indexer.database import Pool
from indexer.types import ZERO_HASH, Contracts
from inferd.protocol.typed_data import domain_separator
from inferd.settlement.apart import companies
from inferd.settlement.batch import (
    Group,
    SignGroup,
    StoredResult,
    build_groups,
    load_base_fees,
    load_decisions,
    load_gas_model,
    load_ready,
    post_calldata,
)
from inferd.settlement.chain import Sight
from inferd.settlement.fees import first_fees, market_tip, within
from inferd.settlement.holds import Holds
from inferd.settlement.intervals import block_interval_s, load_newest, rhythm_s
from inferd.settlement.launch import Call, Launcher, fresh_slots, gas_cap, gas_limit
from inferd.settlement.records import Draft, Item
from inferd.settlement.settings import PausedReason, SettlementSettings, SettlementStatus
from inferd.settlement.turns import Turns
from scheduler.batching import decide
from scheduler.gas import calldata_floor
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
    SIFTED = auto()
    """Some of its results are held back now: decide again without them."""
    TOO_LARGE = auto()
    """Decide again, for half as many results at most."""
    STOP = auto()
    """Nothing more in this step."""


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
        launcher: Launcher,
        contracts: Contracts,
        sign_group: SignGroup,
        settings: SettlementSettings,
        status: SettlementStatus,
        now: Callable[[], float],
        turns: Turns,
    ) -> None:
        self._pool = pool
        self._launcher = launcher
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
        self.again_at_s: float | None = None
        """When to post again at the latest, though no block and no result has come; of the calls
        of `post` since it was None."""

    async def post(self, sight: Sight, slots: int) -> int:
        """Creates at most `slots` new transactions, and returns how many. Raises RPC_TROUBLE."""
        settings = self._settings
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
            self._launcher.behind_others = True
        come = self._turns.come(found, sight.head, self._now(), terms.block_interval_s)
        taken: set[RequestKey] = set()
        posted = 0
        # Those that spoilt a transaction, or may have, come last and keep to themselves.
        for number, company in enumerate(companies(come, lambda one: one.cohort) or [()]):
            left = [result for result in company if result.ready.key not in taken]
            many, stopped = await self._post_company(
                left, terms, sight, slots - posted, taken, say=number == 0
            )
            posted += many
            if stopped:
                break
        self._status.waits_for_slot = posted >= slots and await self._would_post(
            come, taken, terms, sight
        )
        self._status.posting += self._turns.told(len(found) - len(come))
        self._status.posting += _undeliverable(len(undeliverable))
        self._count([result for result in found if result.ready.key not in taken], sight)
        return posted

    async def _post_company(
        self,
        company: Sequence[StoredResult],
        terms: _Terms,
        sight: Sight,
        slots: int,
        taken: set[RequestKey],
        *,
        say: bool,
    ) -> tuple[int, bool]:
        """Of results that may share transactions: how many transactions there are of them now, and
        whether no more can be made. `taken` learns whose they are. `say` tells why there is none.
        """
        found = list(company)
        max_results = self._settings.max_results
        posted = 0
        while posted < slots:
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
            verdict = await self._try(decision, chosen, sight, terms.gas)
            if verdict is _Verdict.STOP:
                return posted, True
            if verdict is _Verdict.TOO_LARGE:
                max_results = max(len(chosen) // 2, 1)
            if verdict is _Verdict.POSTED:
                posted += 1
                taken.update(result.key for result in decision.results)
                found = [result for result in found if result.ready.key not in taken]
        return posted, False

    async def _would_post(
        self, found: Sequence[StoredResult], taken: set[RequestKey], terms: _Terms, sight: Sight
    ) -> bool:
        """Whether there were another transaction, had it a slot."""
        ready = [
            result
            for result in found
            if result.ready.key not in taken
            and not self._holds.holds(result.outbox_item(), sight.head.number)
        ]
        decision = await self._decide(sight, ready, terms, self._settings.max_results)
        return bool(decision.results)

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
        sight: Sight,
        gas: GasModel,
    ) -> _Verdict:
        fees = first_fees(sight.market, self._settings.fee_caps())
        if fees is None:
            self._status.noticed = PausedReason.GAS_PRICE_OVER_CAP
            return _Verdict.STOP
        fees = within(fees, decision.fee_cap_wei)
        least_data_wei = sight.data.of(0, decision.gas_limit_estimate)
        if decision.gas_limit_estimate * fees.max_fee_wei + least_data_wei > sight.free_wei:
            # Known before any worker is asked for a signature.
            self._status.noticed = PausedReason.INSUFFICIENT_FUNDS
            return _Verdict.STOP
        groups = await build_groups(
            chosen,
            self._sign_group,
            domain=self._domain,
            timeout_s=self._settings.sign_timeout_s,
        )
        anchored = await load_decisions(self._pool, self._settings.max_decisions)
        call = self._call(groups, anchored.root)
        if await self._launcher.simulate(call, sight) != len(chosen):
            return await self._sift(chosen, sight)
        estimate = await self._launcher.estimate(call)
        cap = gas_cap(self._settings.max_gas, sight)
        if estimate is None or estimate > cap:
            return self._too_large(chosen, sight)
        data_wei = sight.data.of(len(call.calldata), estimate)
        cost_wei = estimate * (sight.next_base_fee_wei + fees.priority_fee_wei) + data_wei
        earned_wei = decision.revenue_wei - decision.later_cost_wei
        if cost_wei > earned_wei:
            # The model was too kind. Held for a block only: prices move, and others may join.
            self._status.noticed = PausedReason.UNPROFITABLE
            for result in chosen:
                self._holds.hold_once(result.outbox_item(), sight.head.number)
            return _Verdict.SIFTED
        # At a higher price the calls of contracts that follow from it cost more, too.
        later_gas = sum(result.ready.later_gas for result in chosen)
        later_data_wei = sum(result.ready.later_data_wei for result in chosen)
        left_wei = max(decision.revenue_wei - data_wei - later_data_wei, 0)
        break_even_wei = left_wei // (estimate + later_gas)
        fees = within(fees, break_even_wei)
        # Groups that there are more of than workers, as some of these did not sign for all.
        unsigned = len(groups) - len({result.worker for result in chosen})
        draft = Draft(
            kind="post",
            target=call.target,
            calldata=call.calldata,
            gas_limit=gas_limit(
                estimate,
                decision.gas_limit_estimate + gas.per_group_gas * unsigned,
                cap,
                slots=fresh_slots(len(groups) + 1, (r.item.request_id for r in chosen)),
                floor=calldata_floor(call.calldata),
            ),
            items=tuple(result.outbox_item() for result in chosen),
            reason=decision.reason.value,
            inputs={
                **decision.inputs,
                "estimated_gas": estimate,
                "cost_wei": cost_wei,
                "data_fee_wei": data_wei,
                "revenue_wei": decision.revenue_wei,
                "later_cost_wei": decision.later_cost_wei,
                "break_even_wei": break_even_wei,
                "fee_cap_wei": fees.max_fee_wei,
                "next_base_fee_wei": sight.next_base_fee_wei,
                "groups": len(groups),
            },
            decisions_root=anchored.root if anchored.decisions else None,
            decisions=anchored.decisions,
        )
        launched = await self._launcher.launch(draft, fees, sight)
        return _Verdict.POSTED if launched else _Verdict.STOP

    async def _sift(self, chosen: Sequence[StoredResult], sight: Sight) -> _Verdict:
        """Tries each result alone under its own signature, and holds back those that fail."""
        dead = []
        for result in chosen:
            group = Group(result.worker, (result.item,), result.signature)
            if await self._launcher.simulate(self._call([group], ZERO_HASH), sight) != 1:
                dead.append(result)
                self._holds.hold(result.outbox_item(), sight.head.number)
        if not dead:
            return self._too_large(chosen, sight)
        _log.warning(
            "results_held_back",
            trace_ids=[result.outbox_item().trace_id for result in dead],
        )
        return _Verdict.SIFTED

    def _too_large(self, chosen: Sequence[StoredResult], sight: Sight) -> _Verdict:
        if len(chosen) > 1:
            return _Verdict.TOO_LARGE
        self._holds.hold(chosen[0].outbox_item(), sight.head.number)
        return _Verdict.SIFTED

    def _call(self, groups: Sequence[Group], root: bytes) -> Call:
        calldata = post_calldata(groups, type(ZERO_HASH)(root))
        return Call("InferenceResults", "post", self._contracts.results, calldata)

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


def _block(sight: Sight) -> Block:
    """The head, with the base fee of the block after it."""
    head = sight.head
    return Block(head.number, head.hash, head.timestamp_s, sight.next_base_fee_wei, head.gas_limit)


def _undeliverable(number: int) -> str:
    if not number:
        return ""
    return f" {count(number, 'result')} not posted: the callback fits in no transaction."
