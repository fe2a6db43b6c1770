"""`inferd audit`: why a request was decided on as it was, proved against the chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from indexer.errors import ExitCode, OperatorError, TemporaryError
from indexer.types import Hash32
from inferd.chain.decision_audit import Anchor, Audited, Claim, Verdict, find_anchor, judge
from inferd.cli.audit_replay import Replayed, replay
from inferd.cli.client import NodeClient, NotAnInferdNode, NotFound
from inferd.cli.output import SCHEMA_VERSION, show, show_json
from inferd.cli.session import (
    DeployedChain,
    IdArgument,
    JsonOption,
    Session,
    deployed_chain,
    run_async,
    session_of,
)
from inferd.node.api_models import DecisionView
from scheduler.audit import Origin
from scheduler.decision import NUMBER_NAMES, Decision
from scheduler.model import Numbers, Reason, RequestKey, WorkerId

_SHOWN_CANDIDATES = 10


class DecisionMismatch(OperatorError):
    """What the node says of a decision is not what was anchored on chain."""

    code: ClassVar[str] = "decision_mismatch"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_AS_PROMISED


class NotAnchoredYet(TemporaryError):
    """A decision is on no chain yet: it travels with the next post."""

    code: ClassVar[str] = "not_anchored_yet"


class OtherEncoding(OperatorError):
    """A decision was anchored by a release that wrote other leaves."""

    code: ClassVar[str] = "other_encoding"


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision, judged."""

    view: DecisionView
    claim: Claim
    audited: Audited
    replayed: Replayed | None

    @property
    def failed(self) -> bool:
        return self.audited.verdict is Verdict.MISMATCH or (
            self.replayed is not None and self.replayed.same is False
        )


def register(app: typer.Typer) -> None:
    app.command("audit")(audit_command)


def audit_command(
    context: typer.Context,
    request_id: IdArgument,
    with_replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Compute each round once more from what it saw, and compare; shows whom it could"
            " choose from.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say why a request got its worker, and prove it: nothing was changed since it was anchored.

    Builds each decision's leaf anew of what the node tells, and checks it against the Merkle root
    that its post anchored on chain. Exit code 0: all are proved. 75: one is not anchored yet; it
    travels with the next post. 3: one is not what was anchored, or comes out otherwise.

    Example: inferd audit 7 --replay
    """
    entries = run_async(audit_decisions(session_of(context), request_id, with_replay=with_replay))
    if as_json:
        show_json(
            {
                "schema_version": SCHEMA_VERSION,
                "id": request_id,
                "decisions": [_json(entry) for entry in entries],
            }
        )
    else:
        for entry in entries:
            for line in _lines(entry):
                show(line)
    conclude(request_id, entries)


async def audit_decisions(
    session: Session, request_id: int, *, with_replay: bool = False
) -> list[Entry]:
    """All decisions on a request, judged. Raises NotFound and what client and chain raise."""
    async with deployed_chain(session) as chain, NodeClient(session.settings.node_url) as client:
        views = (await client.decisions(request_id)).decisions
        if not views:
            raise NotFound(
                f"the node at {client.shown} has no decision on request {request_id}",
                help_text="no round has looked at it yet, or its decisions were deleted after 30"
                " days",
            )
        anchors: dict[Hash32, Anchor | None] = {}
        entries = []
        for view in views:
            claim = _claim(client, request_id, view)
            anchor = await _anchor(chain, anchors, claim.tx_hash)
            replayed = await replay(client, view.round_id, claim) if with_replay else None
            entries.append(Entry(view, claim, judge(claim, anchor), replayed))
        return entries


async def _anchor(
    chain: DeployedChain, known: dict[Hash32, Anchor | None], tx_hash: Hash32 | None
) -> Anchor | None:
    if tx_hash is None:
        return None
    if tx_hash not in known:
        known[tx_hash] = await find_anchor(chain.rpc, chain.contracts, tx_hash)
    return known[tx_hash]


def _claim(client: NodeClient, request_id: int, view: DecisionView) -> Claim:
    try:
        numbers: dict[str, Any] = {
            name: int(value) if name.endswith("_wei") else value
            for name, value in view.inputs.items()
        }
        if unknown := set(numbers) - set(NUMBER_NAMES):
            raise ValueError(f"unknown inputs {', '.join(sorted(unknown))}")
        worker = _bytes(view.worker)
        decision = Decision(
            RequestKey(request_id, bytes.fromhex(view.commitment[2:])),
            Reason(view.reason),
            None if worker is None else WorkerId(worker),
            view.score,
            view.lease_ms,
            Numbers(**numbers),
        )
        origin = Origin(
            view.block_number,
            bytes.fromhex(view.block_hash[2:]),
            int(view.base_fee_wei),
            view.policy,
            view.policy_version,
            _bytes(view.snapshot_digest),
        )
        leaf, tx_hash = _bytes(view.leaf), _bytes(view.tx_hash)
        return Claim(
            decision,
            origin,
            None if leaf is None else Hash32(leaf),
            view.leaf_version,
            None if view.proof is None else [bytes.fromhex(step[2:]) for step in view.proof],
            None if tx_hash is None else Hash32(tx_hash),
        )
    except (ValueError, TypeError) as error:
        raise NotAnInferdNode(
            f"the node at {client.shown} tells of a decision that cannot be read: {error}",
            help_text="run the same release on both sides",
        ) from None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text[2:])


def conclude(request_id: int, entries: Sequence[Entry]) -> None:
    """Raises what the command ends with: the worst that was found."""
    if any(entry.audited.verdict is Verdict.MISMATCH for entry in entries):
        raise DecisionMismatch(
            f"a decision on request {request_id} is not what was anchored on chain",
            help_text="a row of node.decision or node.round was changed, or the node does not tell"
            " the truth: compare with a backup of the database",
        )
    if any(entry.failed for entry in entries):
        raise DecisionMismatch(
            f"a decision on request {request_id} comes out otherwise when it is computed again",
            help_text="the code of a policy was changed without a new version, or what the round"
            " saw was changed: compare with a backup of the database",
        )
    if any(entry.audited.verdict is Verdict.OTHER_RELEASE for entry in entries):
        raise OtherEncoding(
            f"a decision on request {request_id} was anchored by a release with another encoding",
            help_text="audit it with that release",
        )
    if any(entry.audited.verdict is Verdict.NOT_ANCHORED for entry in entries):
        raise NotAnchoredYet(
            f"a decision on request {request_id} is not anchored yet",
            help_text="it travels with the next post; try again later",
        )


def _lines(entry: Entry) -> Iterator[str]:
    origin, decision, audited = entry.claim.origin, entry.claim.decision, entry.audited
    score = "" if decision.score is None else f", score {decision.score:.6g}"
    yield (
        f"block {origin.block_number}: {decision.reason} by policy {origin.policy}"
        f" {origin.policy_version}{score}, base fee {origin.base_fee_wei} wei"
    )
    yield f"  why      {decision.sentence}"
    yield f"  {audited.verdict:<13} {audited.sentence}"
    if entry.replayed is not None:
        yield f"  replay   {entry.replayed.sentence}"
        for one in entry.replayed.candidates[:_SHOWN_CANDIDATES]:
            chosen = " <- chosen" if one.worker == decision.worker else ""
            state = "" if one.available else ", not available"
            state += ", has failed on it" if one.tried else ""
            yield (
                f"    worker 0x{one.worker.hex()}: p90 {one.p90_ms / 1000:.2f} s,"
                f" {one.in_flight} of {one.slots} slots taken, success at least"
                f" {one.success_lower:.0%}{state}{chosen}"
            )
        if (more := len(entry.replayed.candidates) - _SHOWN_CANDIDATES) > 0:
            yield f"    and {more} slower ones"


def _json(entry: Entry) -> dict[str, Any]:
    audited, anchor = entry.audited, entry.audited.anchor
    found: dict[str, Any] = {
        **entry.view.model_dump(mode="json"),
        "sentence": entry.claim.decision.sentence,
        "verdict": str(audited.verdict),
        "verdict_sentence": audited.sentence,
        "rebuilt_leaf": "0x" + audited.leaf.hex(),
        "anchor": None
        if anchor is None
        else {
            "root": "0x" + anchor.root.hex(),
            "block_number": anchor.block_number,
            "poster": "0x" + anchor.poster.hex(),
        },
    }
    if entry.replayed is not None:
        found["replay"] = {
            "same": entry.replayed.same,
            "sentence": entry.replayed.sentence,
            "candidates": [
                {**one._asdict(), "worker": "0x" + one.worker.hex()}
                for one in entry.replayed.candidates
            ],
        }
    return found
