"""Which roles there are, and with which settings a process can have some of them."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from inferd.chain.keys import KeySource
from inferd.node.pool_settings import PoolSettings
from inferd.node.roles import ALL, WORK, Role, computes, exclusive, require_usable, roles_of
from inferd.node.settings import BadSettings, Settings
from inferd.node.worker_settings import WorkerSettings

SHARED = Settings(database_url=SecretStr("postgresql://somewhere/inferd"))
EMBEDDED = WorkerSettings(
    name="mine", backend="markov", model="markov", key=KeySource(dev_account=5)
)


def test_roles_by_their_names() -> None:
    assert roles_of("index, schedule") == {Role.INDEX, Role.SCHEDULE}
    assert roles_of("index,schedule,dispatch,settle,api") == ALL
    for text, complaint in (("index,indexer,x", "no role indexer, x"), (" ,", "names no role")):
        with pytest.raises(BadSettings, match=complaint) as refused:
            roles_of(text)
        assert "index, schedule, dispatch, settle, api" in refused.value.help_text


def test_locks_are_taken_in_one_order() -> None:
    assert exclusive(ALL) == (Role.INDEX, Role.SCHEDULE)
    assert exclusive(frozenset({Role.API, Role.DISPATCH})) == ()


def test_processes_of_one_node_share_a_database() -> None:
    require_usable(Settings(), ALL)
    require_usable(Settings(), WORK)
    with pytest.raises(BadSettings, match="database_url"):
        require_usable(Settings(), frozenset({Role.INDEX}))
    require_usable(SHARED, frozenset({Role.INDEX}))


@pytest.mark.parametrize("role", [Role.DISPATCH, Role.SETTLE])
def test_embedded_workers_are_where_is_dispatched_and_settled(role: Role) -> None:
    settings = SHARED.model_copy(
        update={"workers": (EMBEDDED,), "pool": PoolSettings(operator=KeySource(dev_account=8))}
    )
    for roles in ({Role.INDEX}, {Role.SCHEDULE, Role.API}, {Role.DISPATCH, Role.SETTLE}, ALL):
        require_usable(settings, frozenset(roles))
    with pytest.raises(BadSettings, match="worker mine computes inside a process") as refused:
        require_usable(settings, frozenset({role}))
    assert "inferd worker" in refused.value.help_text
    assert not computes(frozenset({role}))


def test_who_dispatches_without_a_posters_key_has_a_key_to_ask_with() -> None:
    with pytest.raises(BadSettings, match="to ask workers with"):
        require_usable(SHARED, frozenset({Role.DISPATCH}))
    pool = PoolSettings(operator=KeySource(dev_account=8))
    require_usable(SHARED.model_copy(update={"pool": pool}), frozenset({Role.DISPATCH}))
    require_usable(SHARED, frozenset({Role.SETTLE}))
