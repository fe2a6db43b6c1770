"""`[limits]` and `[[tenants]]`: what is refused, and what the scheduler gets of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferd.chain.keys import KeySource
from inferd.node.limit_settings import LimitSettings, TenantSettings, budgets_of, limits_of
from inferd.node.settings import BadSettings, Settings, load_settings
from scheduler.allowance import Probation, Quota

ADDRESS = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[limits]\ntenant_in_flight = -1", "limits.tenant_in_flight"),
        ("[limits]\ntenant_burst_tokens = 0", "limits.tenant_burst_tokens"),
        ("[limits]\nprobation_success = 2", "limits.probation_success"),
        ("[limits]\nbudget_gwei_per_hour = nan", "limits.budget_gwei_per_hour"),
        ("[limits]\nquota = 1", "limits.quota"),
        ("[[tenants]]\naddress = '0x12'", "0x12 is no address"),
        (f"[[tenants]]\naddress = '{ADDRESS}'\nweight = 0", "tenants.0.weight"),
        (
            f"[[tenants]]\naddress = '{ADDRESS}'\n[[tenants]]\naddress = '{ADDRESS.lower()}'",
            "two tenants have one address",
        ),
        ("[scheduling]\npolicy = 'nothing'", "there is no policy 'nothing'"),
        ("[scheduling]\nsplit = 'value=1'", "a split needs two policies at least"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "inferd.toml"
    path.write_text(text)
    with pytest.raises(BadSettings) as refused:
        load_settings(path)
    assert words in refused.value.message


def test_a_tenant_has_what_it_is_given_and_else_what_all_have() -> None:
    settings = LimitSettings(
        tenant_in_flight=3, tenant_tokens_per_s=5, tenant_burst_tokens=7, probation_stake_ratio=0.25
    )
    tenants = [TenantSettings(address=ADDRESS, weight=2, in_flight=0, burst_tokens=9)]
    limits = limits_of(settings, tenants)
    assert limits.quota_of(bytes(20)) == Quota(5.0, 7.0, 3)
    assert limits.quota_of(bytes.fromhex(ADDRESS[2:])) == Quota(5.0, 9.0, 0, 2.0)
    assert limits.probation == Probation(0.8, 2, 2_500)


def test_only_budgets_that_are_set_are_budgets() -> None:
    assert budgets_of(LimitSettings()) == ()
    both = budgets_of(LimitSettings(budget_gwei_per_hour=2, budget_gwei_per_day=3))
    assert both == ((3_600, 2 * 10**9), (86_400, 3 * 10**9))
    assert not limits_of(LimitSettings(), ()).of_tenants


def test_as_many_results_may_wait_as_transactions_under_way_have_room_for() -> None:
    assert Settings().most_unposted == 5 * 240
    two = (KeySource(dev_account=1), KeySource(dev_account=2))
    assert Settings(posters=two).most_unposted == 2 * 5 * 240
    assert limits_of(LimitSettings(), (), unposted=7).unposted == 7
    assert limits_of(LimitSettings(), ()).unposted == 0
