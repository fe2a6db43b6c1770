"""The pending requests as columns, kept between rounds.

A request has a *slot* for as long as it is pending; slots of requests that left are given to new
ones. Adding and removing cost the same however many requests there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scheduler.kinds import Ints, kind_codes
from scheduler.model import DeliveryKind, ModelId, PendingRequest, RequestKey
from scheduler.quota import cost_tokens

_KEEP_NAMES = 4096
"""Names of models and tenants that no request has are forgotten beyond this many."""

OPEN, UNSUPPORTED, BAD_INPUT, INPUT_LOST, INPUT_AWAITED = range(5)

DELIVERIES: tuple[DeliveryKind, ...] = tuple(DeliveryKind)
"""By the code that columns have for them."""
_DELIVERY_CODES = {delivery: code for code, delivery in enumerate(DELIVERIES)}

NO_CELL = -1
"""The request's cell is not looked up yet."""

_COLUMNS: dict[str, DTypeLike] = {
    "id": np.int64,
    "kind": np.int64,
    "tenant": np.int64,
    "fee_wei": np.float64,
    "submitted_at_s": np.float64,
    "deadline_s": np.float64,
    "memory_mb": np.int64,
    "attempts": np.int64,
    "delivery": np.uint8,
    "later_gas": np.int64,
    "later_bytes": np.int64,
    "batchable": np.bool_,
    "commitment": np.dtype("S20"),
    "cost_tokens": np.int64,
    "closed": np.uint8,
    "tried": np.bool_,
    "quorum": np.int64,
    "answers": np.int64,
    "live": np.bool_,
    "cell": np.int64,
    "told": np.uint8,
    "request": np.object_,
}


class PendingTable:
    """Columns by slot; `order` gives the slots in use."""

    id: NDArray[np.int64]
    kind: NDArray[np.int64]
    tenant: NDArray[np.int64]
    fee_wei: NDArray[np.float64]
    """Rounded to floats; the exact amount is in `request`."""
    submitted_at_s: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    memory_mb: NDArray[np.int64]
    attempts: NDArray[np.int64]
    delivery: NDArray[np.uint8]
    """Codes, see `DELIVERIES`."""
    later_gas: NDArray[np.int64]
    later_bytes: NDArray[np.int64]
    batchable: NDArray[np.bool_]
    commitment: NDArray[np.bytes_]
    cost_tokens: NDArray[np.int64]
    """What its tenant's bucket still has to pay for it."""
    closed: NDArray[np.uint8]
    tried: NDArray[np.bool_]
    """Whether a worker failed on it, or is not to be asked."""
    quorum: NDArray[np.int64]
    answers: NDArray[np.int64]
    live: NDArray[np.bool_]
    """Whether the slot is in use."""
    cell: NDArray[np.int64]
    """Of `scheduler.cells`; NO_CELL until it is looked up."""
    told: NDArray[np.uint8]
    """The code of the reason that was given for keeping it last; 0 = none."""
    request: NDArray[np.object_]

    def __init__(self) -> None:
        self.naming = 0
        """Changes when models and tenants are given other indexes."""
        self._begin()

    def _begin(self) -> None:
        self._capacity = 0
        self.naming += 1
        for name, kind in _COLUMNS.items():
            setattr(self, name, np.zeros(0, kind))
        self._slot_of: dict[tuple[int, bytes], int] = {}
        self._free: list[int] = []
        self._models: dict[ModelId, int] = {}
        self.models: list[ModelId] = []
        """By the index that is in `kind`."""
        self._tenants: dict[bytes, int] = {}
        self.tenants: list[bytes] = []
        """By the index that is in `tenant`."""
        self._order: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._slot_of)

    def add(self, requests: Sequence[PendingRequest]) -> None:
        """Adds the requests, each in place of one with the same key if there is one.

        Raises ValueError if two of them have the same key.
        """
        if not requests:
            return
        keys = [(request.key.id, request.key.commitment) for request in requests]
        slot_of = self._slot_of
        known = [slot_of.get(key, -1) for key in keys]
        fresh = known.count(-1)
        if len(set(keys)) < len(keys):
            raise ValueError(f"the snapshot holds request {_twice(keys)} twice")
        if fresh:
            taken = iter(self._allocate(fresh))
            slots = [slot if slot >= 0 else next(taken) for slot in known]
            slot_of.update(zip(keys, slots, strict=True))
            self._order = None
        else:
            slots = known
        self._write(np.array(slots, np.int64), requests)

    def remove(self, keys: Iterable[RequestKey]) -> None:
        """Removes the requests; those that are not there are passed over."""
        for key in keys:
            slot = self._slot_of.pop((key.id, key.commitment), None)
            if slot is not None:
                self.request[slot] = None
                self.told[slot] = 0
                self.live[slot] = False
                self._free.append(slot)
                self._order = None
        if len(self._tenants) + len(self._models) > _KEEP_NAMES + 4 * len(self._slot_of):
            self._forget_names()

    def order(self) -> NDArray[np.int64]:
        """The slots in use, in the order of keys. Do not change it."""
        if self._order is None:
            slots = np.flatnonzero(self.live)
            slots = slots[np.argsort(self.id[slots], kind="stable")]
            ids = self.id[slots]
            if (ids[1:] == ids[:-1]).any():
                requests = self.request[slots].tolist()
                slots = slots[sorted(range(len(slots)), key=lambda at: requests[at].key)]
            self._order = slots
        return self._order

    def _allocate(self, number: int) -> list[int]:
        lacking = number - len(self._free)
        if lacking > 0:
            capacity = max(1024, 2 * self._capacity, self._capacity + lacking)
            for name, kind in _COLUMNS.items():
                column: NDArray[Any] = np.zeros(capacity, kind)
                column[: self._capacity] = getattr(self, name)
                setattr(self, name, column)
            self._free[:0] = range(capacity - 1, self._capacity - 1, -1)
            self._capacity = capacity
        taken = self._free[-number:]
        del self._free[-number:]
        taken.reverse()
        return taken

    def _write(self, slots: Ints, requests: Sequence[PendingRequest]) -> None:
        models, tenants = self._models, self._tenants
        for request in requests:
            if request.model not in models:
                models[request.model] = len(models)
                self.models.append(request.model)
            if request.tenant not in tenants:
                tenants[request.tenant] = len(tenants)
                self.tenants.append(request.tenant)
        model = np.array([models[request.model] for request in requests], np.int64)
        tenant = [tenants[request.tenant] for request in requests]
        tokens_mean = np.array([request.tokens_mean for request in requests], np.float64)
        tokens_sigma = np.array([request.tokens_sigma for request in requests], np.float64)
        self.id[slots] = [request.key.id for request in requests]
        self.kind[slots] = kind_codes(model, tokens_mean, tokens_sigma)
        self.tenant[slots] = tenant
        self.fee_wei[slots] = [request.fee_wei for request in requests]
        self.submitted_at_s[slots] = [request.submitted_at_s for request in requests]
        self.deadline_s[slots] = [request.deadline_s for request in requests]
        self.memory_mb[slots] = [request.memory_mb for request in requests]
        self.attempts[slots] = [request.attempts for request in requests]
        self.delivery[slots] = [_DELIVERY_CODES[request.delivery] for request in requests]
        self.later_gas[slots] = [request.later_gas for request in requests]
        self.later_bytes[slots] = [request.later_bytes for request in requests]
        self.commitment[slots] = [request.key.commitment for request in requests]
        self.batchable[slots] = [request.batchable for request in requests]
        self.cost_tokens[slots] = [_cost_tokens(request) for request in requests]
        self.closed[slots] = [_closed(request) for request in requests]
        self.tried[slots] = [bool(request.tried or request.excluded) for request in requests]
        self.quorum[slots] = [request.quorum for request in requests]
        self.answers[slots] = [request.answers for request in requests]
        self.live[slots] = True
        self.cell[slots] = NO_CELL
        objects: Any = np.empty(len(requests), np.object_)
        objects[:] = requests
        self.request[slots] = objects

    def _forget_names(self) -> None:
        slots = self.order()
        requests, told = self.request[slots].tolist(), self.told[slots]
        self._begin()
        self.add(requests)
        self.told[self.order()] = told


def _cost_tokens(request: PendingRequest) -> int:
    return 0 if request.charged else cost_tokens(request.input_bytes, request.tokens_mean)


def _closed(request: PendingRequest) -> int:
    if request.unsupported is not None:
        return UNSUPPORTED
    if request.bad_input is not None:
        return BAD_INPUT
    if request.input_lost is not None:
        return INPUT_LOST
    return INPUT_AWAITED if request.input_awaited else OPEN


def _twice(keys: Sequence[tuple[int, bytes]]) -> int:
    seen: set[tuple[int, bytes]] = set()
    for key in keys:
        if key in seen:
            return key[0]
        seen.add(key)
    raise AssertionError("every key is there once")
