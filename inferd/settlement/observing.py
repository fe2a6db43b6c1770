"""Gathers what the chain shows of one intent, and says it as `state` understands it."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexer.database import Pool
from indexer.rpc import Receipt
from inferd.settlement.bidding import (
    Bid,
    Work,
    bid,
    blocks_until,
    first_bid,
    noop_fees,
    patience_blocks,
)
from inferd.settlement.chain import ChainRpc, Sight, canonical_hash
from inferd.settlement.fees import Fees
from inferd.settlement.launch import Launcher
from inferd.settlement.outbox import Outbox
from inferd.settlement.purse import Purse
from inferd.settlement.records import Intent, Payload
from inferd.settlement.sending import Sender
from inferd.settlement.settings import SettlementSettings
from inferd.settlement.state import LIVE_SQL, IntentState, Observation, ReceiptView

_FIT = f"""
    SELECT count(*) FILTER (WHERE fits) AS fit, min(deadline_s) FILTER (WHERE fits) AS deadline_s,
           coalesce(sum(earned_wei) FILTER (WHERE fits), 0) AS fit_earned_wei,
           coalesce(sum(earned_wei), 0) AS all_earned_wei
    FROM (
        SELECT poster.wei + div(r.fee_wei - poster.wei, r.quorum) * paid.owned AS earned_wei,
               CASE $3::text WHEN 'post' THEN r.deadline_s
                                        WHEN 'dispute' THEN h.disputable_until_s END AS deadline_s,
               CASE $3::text
            WHEN 'post' THEN r.status = 'pending' AND r.deadline_s >= $4
            WHEN 'refund' THEN r.status = 'pending' AND r.deadline_s < $2
            WHEN 'deliver' THEN r.callback_delivered_block IS NULL
                AND (r.status = 'fulfilled' OR r.status = 'pending' AND EXISTS (
                    SELECT FROM node.tx_item p JOIN node.tx_intent t ON t.id = p.intent_id
                    WHERE p.request_id = r.id AND p.commitment = r.commitment
                      AND t.kind = 'post' AND t.{LIVE_SQL}))
            WHEN 'release' THEN h.state = 'held'
            WHEN 'close' THEN h.state = 'disputed'
            WHEN 'dispute' THEN h.state = 'held' AND h.disputable_until_s >= $4
            END AS fits
        FROM node.tx_item i
        JOIN chain.request r ON r.id = i.request_id AND r.commitment = i.commitment
        LEFT JOIN chain.hold h ON h.request_id = i.request_id AND h.commitment = i.commitment
        CROSS JOIN LATERAL (SELECT div(r.fee_wei * $5, 10000) AS wei) poster
        CROSS JOIN LATERAL (
            SELECT count(*) AS owned FROM chain.worker w
            WHERE w.signer = ANY(coalesce(i.worker, r.worker) || i.others)
              AND w.owner = ANY($6::bytea[])
        ) paid
        WHERE i.intent_id = $1
    ) item
"""  # noqa: S608 - constants
"""Of the items of an intent, those that still wait for it, and what they earn this operator: the
poster's share, and those of its own workers."""

UNTAKEN = frozenset({IntentState.SIGNED, IntentState.UNKNOWN})
"""States of what no endpoint is known to have taken."""


@dataclass(slots=True)
class Evidence:
    """What is known about one intent at one head."""

    receipts: dict[bytes, Receipt] = field(default_factory=dict)
    """In canonical blocks at or below the head."""
    known: set[bytes] = field(default_factory=set)
    ahead: set[bytes] = field(default_factory=set)
    """With a receipt in a block above the head."""
    proven: frozenset[bytes] = frozenset()
    """Hashes that indexed events name, where the endpoint shows nothing of a spent nonce."""
    wanted: bool = False
    """Its items are worth a transaction: all of them before it is signed, any of them later."""
    fit_earned_wei: int = 0
    """What the items earn that still wait."""
    all_earned_wei: int = 0
    """The same of all of them that there still are."""
    deadline_s: int | None = None
    """The first of the items that still wait."""
    hopeless: bytes | None = None
    """The newest attempt's hash, where it was refused for too many blocks."""
    reachable: bool = True
    in_the_way: bool = False
    noop: Payload | None = None
    """What can be signed for the nonce instead; only looked for where it may be needed."""
    signer_away: bool = False
    """Nothing can be signed at this step: what is signed already has to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an intent stands among the others of its sender."""

    reachable: bool
    """Every lower nonce is spent, or a live intent has it."""
    in_the_way: bool
    """Later nonces wait for it, or results that would be posted now for its slot."""
    interval_s: float
    """Between two blocks of the chain; 0 = unknown."""


class Observer:
    """Without `launcher`, as for a key that is no longer here, nothing can be signed."""

    def __init__(
        self,
        rpc: ChainRpc,
        pool: Pool,
        outbox: Outbox,
        sender: Sender,
        launcher: Launcher | None,
        settings: SettlementSettings,
        purse: Purse,
    ) -> None:
        self._rpc = rpc
        self._pool = pool
        self._outbox = outbox
        self._sender = sender
        self._launcher = launcher
        self._settings = settings
        self._purse = purse

    async def evidence(self, intent: Intent, sight: Sight, place: Place) -> Evidence:
        """Raises RPC_TROUBLE."""
        found = Evidence(reachable=place.reachable, in_the_way=place.in_the_way)
        for attempt in intent.attempts:
            receipt = await self._rpc.receipt(attempt.hash)
            if receipt is not None:
                found.known.add(attempt.hash)
                canonical = await canonical_hash(
                    self._rpc, self._pool, sight.head, receipt.block_number
                )
                if receipt.block_hash == canonical:
                    found.receipts[attempt.hash] = receipt
                elif receipt.block_number > sight.head.number:
                    found.ahead.add(attempt.hash)
            elif await self._rpc.transaction_exists(attempt.hash):
                found.known.add(attempt.hash)
        if not found.known and intent.nonce is not None and intent.nonce < sight.chain_nonce:
            found.proven = await self._outbox.logged(intent)
        await self._look_at_items(intent, found, sight, place)
        if intent.attempts:
            newest = intent.attempts[-1]
            if self._sender.refused_blocks(newest) >= self._settings.max_refused_blocks:
                found.hopeless = newest.hash
        if self._launcher is not None and self._may_need_noop(intent, found, sight):
            found.noop = await self._launcher.noop(sight)
        return found

    def bid(self, intent: Intent, found: Evidence, sight: Sight, place: Place) -> Bid:
        """What the next transaction of this intent offers, should it need one."""
        settings = self._settings
        if self._launcher is None or found.signer_away:
            return Bid()
        if not intent.attempts:
            refund = intent.kind == "refund"
            caps = settings.refund_fee_caps() if refund else settings.fee_caps()
            most_wei = self._gas_budget(intent, intent.gas_limit, sight)
            work = Work(gas_limit=intent.gas_limit, worth_wei=self._worth_wei(intent, found, sight))
            return first_bid(sight.market, caps, work, most_wei)
        newest = intent.attempts[-1]
        most_wei = self._gas_budget(intent, newest.gas_limit, sight)
        left = blocks_until(found.deadline_s, sight.head.timestamp_s, place.interval_s)
        work = Work(
            gas_limit=newest.gas_limit,
            worth_wei=self._worth_wei(intent, found, sight) if intent.has_effect(newest) else None,
            blocks_left=left,
            in_the_way=found.in_the_way,
            noop_gas=found.noop.gas_limit if found.noop is not None else None,
            without_effect=not intent.has_effect(newest),
        )
        return bid(newest.fees, sight.market, settings.fee_caps(), work, most_wei)

    def noop_fees(self, offered: Bid, intent: Intent, noop: Payload) -> Fees:
        """Of a transaction without effect in place of the newest."""
        caps, most_wei = self._settings.fee_caps(), self._purse.most_wei(intent.kind, intent)
        return noop_fees(offered, intent.attempts[-1].fees, caps, noop.gas_limit, most_wei)

    def observation(
        self, intent: Intent, found: Evidence, offered: Bid, sight: Sight, place: Place
    ) -> Observation:
        """The same at this very moment of the step: what was sent and refused in it counts."""
        free_wei = sight.free_wei
        newest = intent.attempts[-1] if intent.attempts else None
        next_gas = newest.gas_limit if newest is not None else intent.gas_limit
        raised = offered.raised
        next_data_wei = sight.data.reserve(len(intent.calldata), next_gas)
        next_value_wei = intent.value_wei if newest is None else newest.value_wei
        next_pays = (
            raised is not None
            and raised.max_fee_wei * next_gas + next_data_wei + next_value_wei <= free_wei
        )
        priced_out = newest is not None and newest.fees.max_fee_wei < sight.next_base_fee_wei
        not_taken = newest is not None and newest.error is not None
        can_cancel = False
        if newest is not None and found.noop is not None and not found.signer_away:
            noop = found.noop
            fees = self.noop_fees(offered, intent, noop)
            has_effect = bool(intent.items) and intent.has_effect(newest)
            noop_data_wei = sight.data.reserve(len(noop.calldata), noop.gas_limit)
            can_cancel = (
                has_effect and fees.max_fee_wei * noop.gas_limit + noop_data_wei <= free_wei
            )
        left = blocks_until(found.deadline_s, sight.head.timestamp_s, place.interval_s)
        patience = patience_blocks(self._settings.resend_after_blocks, left)
        sender = self._sender
        return Observation(
            head_number=sight.head.number,
            confirmations=self._settings.confirmations,
            chain_nonce=sight.chain_nonce,
            settled_nonce=sight.settled_nonce,
            receipts={
                tx_hash: ReceiptView(receipt.block_number, receipt.block_hash, receipt.succeeded)
                for tx_hash, receipt in found.receipts.items()
            },
            known=frozenset(found.known),
            ahead=frozenset(found.ahead),
            proven=found.proven,
            pool_visible=self._settings.pool_visible,
            taken=frozenset()
            if self._settings.pool_visible
            else frozenset(a.hash for a in intent.attempts if sender.was_taken(a)),
            overdue=frozenset(
                a.hash for a in intent.attempts if sender.blocks_since_sent(a, sight) >= patience
            ),
            refused=frozenset(a.hash for a in intent.attempts if sender.was_refused_at(a, sight)),
            hopeless=newest is not None and newest.hash == found.hopeless,
            wanted=found.wanted,
            reachable=found.reachable,
            priced_out=priced_out,
            can_sign=found.wanted and next_pays,
            can_bump=next_pays and (sight.replaces or priced_out or not_taken),
            can_pay=newest is not None and newest.max_cost_wei <= free_wei,
            can_cancel=can_cancel,
            outbid=offered.noop is not None,
            cancel_asked=intent.cancel_asked,
            has_key=self._launcher is not None,
        )

    def _gas_budget(self, intent: Intent, gas_limit: int, sight: Sight) -> int | None:
        """What its next transaction may cost beside the fee for its bytes; None = any."""
        most_wei = self._purse.most_wei(intent.kind, intent)
        if most_wei is None:
            return None
        return max(most_wei - sight.data.reserve(len(intent.calldata), gas_limit), 0)

    def _worth_wei(self, intent: Intent, found: Evidence, sight: Sight) -> int | None:
        """Of a gas, for what of its items still waits. A refund earns nothing: its cap says what it
        is worth to the operator."""
        if not found.wanted and intent.items:
            return 0
        if intent.kind == "refund":
            return self._settings.refund_max_fee_per_gas_wei
        earning = intent.earning
        if earning is None:
            return None
        if found.all_earned_wei:
            earning = earning.left(found.fit_earned_wei, found.all_earned_wei)
        return earning.break_even_wei(len(intent.calldata), sight.data)

    def _may_need_noop(self, intent: Intent, found: Evidence, sight: Sight) -> bool:
        if not intent.attempts or found.receipts or found.ahead:
            return False
        newest = intent.attempts[-1]
        priced_out = (
            newest.fees.max_fee_wei < sight.next_base_fee_wei + newest.fees.priority_fee_wei
        )
        worth_wei = self._worth_wei(intent, found, sight)
        return (
            (worth_wei is not None and newest.fees.max_fee_wei > worth_wei)
            or found.hopeless is not None
            or intent.cancel_asked
            or not intent.has_effect(newest)
            or (intent.state in UNTAKEN and not found.wanted)
            or (found.in_the_way and priced_out)
        )

    async def _look_at_items(
        self, intent: Intent, found: Evidence, sight: Sight, place: Place
    ) -> None:
        """Whether they still wait for this: results and disputes, until the next block will be past
        their time;
        calls also while a post of theirs is under way again, which has the lower nonce.

        An empty one was to fill a gap, and is made anew where the gap is still there.
        """
        async with self._pool.acquire() as connection:
            (row,) = await connection.fetch(
                _FIT,
                intent.id,
                sight.head.timestamp_s,
                intent.kind,
                sight.head.timestamp_s + int(place.interval_s),
                self._settings.poster_bps,
                sorted(self._settings.own_accounts),
            )
        fit: int = row["fit"]
        found.wanted = fit > 0 if intent.attempts else fit == len(intent.items) > 0
        found.deadline_s = row["deadline_s"]
        found.fit_earned_wei = int(row["fit_earned_wei"])
        found.all_earned_wei = int(row["all_earned_wei"])
