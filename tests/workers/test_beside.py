"""Who is asked beside the worker of a lease, for a quorum."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from indexer.types import Address
from inferd.protocol.request import ModelId
from inferd.workers.beside import able_beside, company_of
from scheduler.model import WorkerView
from tests.scheduler.make import model, service, worker

_EACH_MS = {1: 1_000.0, 2: 500.0, 3: 2_000.0, 4: 1_500.0, 5: 30_000.0}


def address(number: int) -> Address:
    return Address(number.to_bytes(20, "big"))


def crowd(**changes: dict[int, object]) -> dict[Address, WorkerView]:
    """Five workers of five owners, the first of which has the lease."""
    views = {}
    for number, mean_ms in _EACH_MS.items():
        values: dict[str, object] = {
            "service": {model(): service(mean_ms, 2 * mean_ms)},
            "owner": bytes([number]) * 20,
        }
        values |= {name: of[number] for name, of in changes.items() if number in of}
        views[address(number)] = worker(number, **values)
    return views


def asked(
    seen: dict[Address, WorkerView],
    number: int = 9,
    *,
    excluded: tuple[int, ...] = (),
    slowest: float = 10.0,
    proved: float = 0.5,
    is_free: Callable[[Address, WorkerView], bool] = lambda address, view: True,
) -> list[int]:
    able = able_beside(seen, address(1), ModelId(model()), 64, proved=proved, is_free=is_free)
    barred = [address(one) for one in excluded]
    found = company_of(seen, address(1), able, number, barred, slowest)
    return [int.from_bytes(one, "big") for one in found]


@pytest.mark.parametrize(
    ("changes", "how", "expected"),
    [
        ({}, {}, [2, 4, 3]),
        ({}, {"number": 2}, [2, 4]),
        ({}, {"number": 0}, []),
        ({}, {"slowest": 40.0}, [2, 4, 3, 5]),
        ({}, {"slowest": 1.0}, [2]),
        ({}, {"excluded": (2, 3)}, [4]),
        ({}, {"is_free": lambda one, view: one != address(4)}, [2, 3]),
        ({"owner": {3: b"\x02" * 20, 4: b"\x01" * 20}}, {}, [2]),
        ({"owner": {2: b""}}, {}, [4, 3]),
        ({"memory_mb": {4: 1}}, {}, [2, 3]),
        ({"loaded": {2: frozenset()}}, {}, [4, 3]),
        (
            {
                "owned": {2: False},
                "service": {2: {model(): service(500.0, 900.0, success_lower=0.4)}},
            },
            {},
            [4, 3],
        ),
        ({"service": {1: {}}}, {}, []),
    ],
)
def test_the_soonest_of_other_owners(
    changes: dict[str, dict[int, object]], how: dict[str, object], expected: list[int]
) -> None:
    assert asked(crowd(**changes), **how) == expected  # type: ignore[arg-type]
