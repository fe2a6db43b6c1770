"""What befalls settlement in the stories of `test_kill_points`, told by the numbers of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from indexer.types import BlockRef
from inferd.chain.signers import LocalSigner
from inferd.settlement.orders import Order, give
from inferd.settlement.state import LIVE_SQL
from tests.settlement.poison import mine_under_poison
from tests.settlement.rival import Rival
from tests.settlement.world import ETHER, GWEI, World

_SPIKE_WEI, _CALM_WEI = 20 * GWEI, GWEI
_OTHER_KEY = 8
POSTERS = (2, _OTHER_KEY)
"""Anvil's accounts whose keys sign: the first, until the operator takes another."""


@dataclass(frozen=True)
class Story:
    """What befalls the chain and the operator, by the number of the step it is before."""

    ways: tuple[str, ...] = ()
    """What a run that nobody kills comes past, beside the usual way."""
    outcomes: tuple[tuple[str, str], ...] = ()
    """Of intents, with their kinds, that such a run has beside those that are done."""
    transactions: tuple[int, ...] = (3,)
    """How many of ours there may be on the chain at the end: no gas is paid for nothing, whatever
    was begun twice. Fewer where a death costs the step in which something would have come of it."""
    never: tuple[str, ...] = ()
    """What no run comes past."""
    spike: tuple[int, ...] = ()
    """Gas is dear."""
    still: tuple[int, ...] = ()
    """No block comes, and there is a step more at the same head."""
    reorg_at: int = 0
    reorg_depth: int = 0
    rival: bool = False
    """The new branch has a rival's post of the first result."""
    foreign_at: int = 0
    """Somebody with our key pools a transaction of the next nonce, dearer than any of ours."""
    foreign_mined: bool = False
    """It is mined before the step."""
    foreign_leaves: bool = False
    """The reorganisation takes it."""
    lost_send: int = 0
    """Of which call that sends, counted in each process, the answer is lost."""
    refused_until: int = 0
    """Before that step all is refused for good that has an effect."""
    evicted: tuple[int, ...] = ()
    """The pool loses all, before the block comes."""
    cancel_at: int = 0
    """The operator cancels what is under way."""
    poison_until: int = 0
    """Whatever has the second result in it reverts, as no simulation shows. From then on it does
    not, and the operator has what was given up tried again."""
    poor: tuple[int, ...] = ()
    """The poster's account is empty."""
    another_key_at: int = 0
    until_final: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told_after(self) -> int:
        return max(
            *self.spike,
            *self.still,
            *self.evicted,
            *self.poor,
            self.reorg_at + self.reorg_depth,
            self.foreign_at,
            self.cancel_at,
            self.poison_until,
            self.refused_until,
            self.another_key_at,
        )

    def key_at(self, tick: int) -> int:
        """Anvil's account whose key signs."""
        return POSTERS[bool(self.another_key_at) and tick >= self.another_key_at]


STORIES = {
    "dear gas and a reorganisation": Story(
        ways=(
            "Outbox.add_replacement",
            "Outbox.mark_unmined",
            "Outbox.mark_dropped",
            "Outbox.reopen",
        ),
        spike=(2, 3),
        reorg_at=7,
        reorg_depth=4,
    ),
    "a foreign transaction and lost answers": Story(
        ways=(
            "Outbox.mark_refused",
            "Outbox.mark_unanswered",
            "Outbox.mark_found",
            "Outbox.mark_unknown",
            "Follower._give_back",
            "Outbox.finalise",
        ),
        outcomes=(("post", "nonce_taken"),),
        still=(4,),
        foreign_at=1,
        lost_send=3,
        until_final=True,
    ),
    "a nonce that a reorganisation left unspent": Story(
        ways=(
            "GapFiller.fill > GapFiller._fill_hole > Launcher.launch > Signing.first",
            "GapFiller.fill > GapFiller._fill_hole > Launcher.launch > Sender.send",
        ),
        outcomes=(("post", "done"),),
        transactions=(4,),
        foreign_at=1,
        foreign_mined=True,
        foreign_leaves=True,
        reorg_at=4,
        reorg_depth=3,
    ),
    "a rival's post on the new branch": Story(
        ways=("Outbox.reopen",),
        reorg_at=4,
        reorg_depth=2,
        rival=True,
    ),
    "an order to cancel": Story(
        ways=(
            "Orders.obey > Orders._do > Orders._cancel",
            "Follower._signed > Signing.replacement > Outbox.add_replacement",
        ),
        outcomes=(("post", "cancelled_by_operator"),),
        transactions=(3, 4),
        spike=(2, 3, 4),
        cancel_at=3,
    ),
    "a result that spoils its transactions": Story(
        ways=("diagnose > _traced", "Orders.obey > Orders._do > _retry"),
        outcomes=(("post", "reverted"),),
        transactions=(8,),
        poison_until=11,
        settings={"max_item_failures": 2},
    ),
    "lost by the pool, and no dearer": Story(
        ways=("Outbox.mark_dropped",),
        never=("Outbox.add_replacement",),
        spike=(2, 3, 4),
        evicted=(3,),
        settings={"max_fee_per_gas_wei": 2 * GWEI},
    ),
    "refused for good": Story(
        ways=("Outbox.mark_unanswered", "Outbox.add_replacement"),
        outcomes=(("post", "refused"),),
        transactions=(3, 4, 5),
        refused_until=5,
        settings={"max_refused_blocks": 2},
    ),
    "another key": Story(
        ways=("Settlement._follow_former_keys > KeyQueue.follow > Follower.follow",),
        outcomes=(("post", "former_key"), ("refund", "former_key")),
        transactions=(3,),
        spike=(2, 3, 4, 5, 6),
        another_key_at=4,
        settings={"max_fee_per_gas_wei": 3 * GWEI},
    ),
    "an empty account": Story(
        ways=("Outbox.mark_dropped", "Outbox.mark_refused"),
        never=("Outbox.add_replacement",),
        evicted=(3,),
        poor=(1, 3, 4, 5),
    ),
}


async def befall(world: World, story: Story, tick: int) -> BlockRef:
    """What is to happen before that step; the head it is made at."""
    if story.poor:
        await world.set_balance(0 if tick in story.poor else ETHER)
    await _order(world, story, tick)
    if tick == story.foreign_at:
        head = await world.index()
        await world.poster_transfer(await world.posted())
        return await world.mine() if story.foreign_mined else head
    if tick in story.still:
        return await world.index()
    if tick in story.evicted:
        await world.rpc.request("anvil_dropAllTransactions", [])
    price_wei = _SPIKE_WEI if tick in story.spike else _CALM_WEI
    await world.rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(price_wei)])
    if tick == story.reorg_at:
        return await _reorg(world, story)
    if tick < story.poison_until:
        await mine_under_poison(world.rpc)
        return await world.index()
    return await world.mine()


async def _reorg(world: World, story: Story) -> BlockRef:
    branch = []
    if story.rival:
        first = await world.pool.fetchval("SELECT min(id) FROM chain.request")
        branch = [["0x" + (await Rival(world).signed_post([first])).hex(), 0]]
    return await world.reorg(story.reorg_depth, branch)


async def _order(world: World, story: Story, tick: int) -> None:
    """Once, as soon as there is what it is about."""
    if story.cancel_at and tick >= story.cancel_at:
        wanted = f"kind = 'post' AND {LIVE_SQL}"
        await _ask(world, Order.CANCEL, f"SELECT min(id) FROM node.tx_intent WHERE {wanted}")
    if story.poison_until and tick >= story.poison_until:
        wanted = "outcome = 'abandoned'"
        await _ask(world, Order.RETRY, f"SELECT min(intent_id) FROM node.tx_item WHERE {wanted}")


async def _ask(world: World, act: Order, of_intent: str) -> None:
    async with world.pool.acquire() as connection:
        asked = await connection.fetchval("SELECT count(*) FROM node.settlement_order")
        intent_id = await connection.fetchval(of_intent)
        if not asked and intent_id is not None:
            await give(connection, act, intent_id, "a test")


def signer_of(world: World, account: int) -> LocalSigner:
    return LocalSigner(world.anvil.config.account(account))
