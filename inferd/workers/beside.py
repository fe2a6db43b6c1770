"""Who could answer a request beside the worker that has it, or instead of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from indexer.types import Address
from inferd.protocol.request import ModelId
from scheduler import model as scheduling


def able_beside(
    seen: Mapping[Address, scheduling.WorkerView],
    first: Address,
    model: ModelId,
    tokens: int,
    *,
    proved: float,
    is_free: Callable[[Address, scheduling.WorkerView], bool],
) -> list[tuple[float, Address]]:
    """How many times as long as `first` each takes on average, and who it is.

    Only who is free, has the model loaded and as much memory as `first`, and is ours or succeeds
    with a probability of at least `proved`.
    """
    asked = seen.get(first)
    wanted = scheduling.ModelId(model)
    if asked is None or wanted not in asked.service:
        return []
    first_ms = max(_mean_ms(asked.service[wanted], tokens), 1.0)
    found = []
    for address, view in seen.items():
        if address == first or not is_free(address, view):
            continue
        offer = view.service.get(wanted)
        if offer is None or view.memory_mb < asked.memory_mb:
            continue
        if not view.owned and offer.success_lower < proved:
            continue
        if view.loaded is not None and wanted not in view.loaded:
            continue
        found.append((_mean_ms(offer, tokens) / first_ms, address))
    return found


def company_of(
    seen: Mapping[Address, scheduling.WorkerView],
    first: Address,
    able: Iterable[tuple[float, Address]],
    number: int,
    excluded: Collection[Address],
    slowest: float,
) -> list[Address]:
    """The soonest of them, each of an owner of its own, which `first` has not either."""
    owners = {seen[first].owner} if first in seen else set()
    found: list[Address] = []
    for times_as_long, address in sorted(able):
        owner = seen[address].owner
        if len(found) >= number or times_as_long > slowest:
            break
        if owner and owner not in owners and address not in excluded:
            owners.add(owner)
            found.append(address)
    return found


def _mean_ms(of: scheduling.ServiceEstimate, tokens: int) -> float:
    return of.base_ms + of.per_token_ms * tokens
