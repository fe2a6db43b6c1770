"""What keeps the node from its work right now: one place, read by every endpoint and command."""

from __future__ import annotations

from dataclasses import dataclass, field

from inferd.node.api_models import Problem

PROBLEMS: dict[str, tuple[str, str]] = {
    "starting": ("The node is starting{detail}.", "Wait."),
    "standby": (
        "Another daemon works on this database; this one takes over when that one ends.",
        "Nothing: this is what a standby does.",
    ),
    "database_unreachable": (
        "PostgreSQL does not answer: {detail}.",
        "Start it; the node goes on by itself.",
    ),
    "rpc_unreachable": (
        "No RPC endpoint gives a usable answer: {detail}.",
        "Start one, or correct `rpc_urls`; the node goes on by itself.",
    ),
    "indexing_stalled": (
        "The indexer has not moved for {detail} s.",
        "Look at the endpoint and at PostgreSQL: one of them takes questions and does not answer.",
    ),
    "indexing_behind": (
        "The tables are {detail} blocks behind the chain.",
        "Wait for the backfill; if the lag grows, look at the endpoint's latency.",
    ),
    "endpoint_behind": (
        "The newest block of the RPC endpoint is {detail} blocks below what is indexed.",
        "Wait until it has synced, or use another endpoint; nothing new is seen until then.",
    ),
    "insufficient_funds": (
        "The poster cannot pay for more gas ({detail}); computing goes on, posting has stopped.",
        "Send funds to the poster; posting resumes by itself.",
    ),
    "gas_price_over_cap": (
        "Gas is dearer than the cap in the settings ({detail}); results wait.",
        "Wait, or raise `posting.max_fee_gwei`.",
    ),
    "spending_over_cap": (
        "The poster has spent what it may of late ({detail}); results wait.",
        "Wait, or raise `posting.cap_gwei_per_hour`, `posting.cap_gwei_per_day` or "
        "`posting.max_transaction_gwei`.",
    ),
    "transaction_refused": (
        "The endpoint refuses the poster's transactions ({detail}); results wait.",
        "Look at what it says; the node tries again with each block.",
    ),
    "signer_unavailable": (
        "Nothing can be signed ({detail}); computing goes on, posting has stopped.",
        "Look at the remote signer; posting resumes by itself.",
    ),
    "no_contract_code": (
        "The chain has no contract where the deployment has one ({detail}); nothing is sent.",
        "Name the right `deployment_file`, or look at the endpoint: its chain may be a new one.",
    ),
    "key_in_use": (
        "Another process sends with the posters' keys ({detail}); posting has stopped here.",
        "End that process, or take the keys out of its settings.",
    ),
    "no_workers": (
        "No worker can be given work ({detail}).",
        "Run `inferd worker register` for your own; `inferd workers` says why others get none.",
    ),
}

WARNINGS: dict[str, tuple[str, str]] = {
    "role_missing": (
        "No process with these roles works on this database: {detail}.",
        "Start one: `inferd node --roles`.",
    ),
    "posting_behind": (
        "{detail} results wait for room in a post; until there are fewer, no request is begun.",
        "Wait; if it lasts, raise `posting.max_in_flight`, or name more posters.",
    ),
    "poster_paused": (
        "A poster sends nothing new ({detail}); the others do its work.",
        "Look at what it says in `inferd status`; it goes on by itself.",
    ),
    "balance_low": (
        "The poster's balance will soon not pay for gas ({detail}).",
        "Send funds to the poster, or take its credit out with `inferd withdraw poster`.",
    ),
    "inputs_full": (
        "Requests wait whose inputs are at URIs: {detail}.",
        "Wait, or raise `inputs.total_mb`.",
    ),
    "outputs_not_written": (
        "Large outputs wait for the disk: {detail}.",
        "Make room below `data_dir`/outputs; what waits is written by itself.",
    ),
    "no_operator_key": (
        "{detail} registered workers of other machines get no work: no key of this node signs"
        " requests to them, as the poster's is at a remote signer.",
        "Name a key that they trust as `pool.operator`.",
    ),
    "lie_undisputed": (
        "A settled result is known to be wrong and is not disputed. {detail}",
        "Send funds to the poster or raise the caps of `[disputes]`, or dispute it yourself with "
        "`inferd dispute open`.",
    ),
    "set_apart": (
        "The endpoint has no answer for some items, each alone; the others go on. {detail}",
        "Use another endpoint, or wait: who paid is refunded after the deadline.",
    ),
}


def problem(code: str, detail: str = "") -> Problem:
    """A known problem or warning in words."""
    sentence, action = (PROBLEMS | WARNINGS)[code]
    return Problem(code=code, sentence=sentence.format(detail=detail), next_action=action)


@dataclass
class Health:
    """The daemon's own account of itself; the session fills it in."""

    role: str = "starting"
    problems: dict[str, Problem] = field(default_factory=lambda: {"starting": problem("starting")})
    warnings: dict[str, Problem] = field(default_factory=dict)
    """What will keep it from its work if nobody does anything."""

    def start_anew(self, role: str) -> None:
        """Another role: what was in the way of the last one says nothing about this one."""
        self.role = role
        self.problems.clear()
        self.warnings.clear()
        # A leader has everything to check first: it is ready when it has seen that it works.
        self.raise_problem("standby" if role == "standby" else "starting")

    def raise_problem(self, code: str, detail: str = "") -> None:
        self.problems[code] = problem(code, detail)

    def clear(self, code: str) -> None:
        self.problems.pop(code, None)

    def set(self, code: str, present: bool, detail: str = "") -> None:
        if present:
            self.raise_problem(code, detail)
        else:
            self.clear(code)

    def warn(self, code: str, present: bool, detail: str = "") -> None:
        if present:
            self.warnings[code] = problem(code, detail)
        else:
            self.warnings.pop(code, None)

    @property
    def ready(self) -> bool:
        return not self.problems
