"""The demo's requests, read from a small file."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from indexer.errors import OperatorError
from indexer.types import Wei
from inferd.chain.amounts import Deadline, parse_fee_wei
from inferd.protocol.request import RequestParams, model_id


class BadDemoFile(OperatorError):
    """The file of requests cannot be used."""

    code: ClassVar[str] = "bad_demo_file"


class DemoRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request, and what must become of it."""

    model: str
    prompt: str
    fee: str
    deadline: str
    outcome: Literal["settled", "refunded"]
    max_tokens: int = 0
    cancel: bool = False

    @property
    def fee_wei(self) -> Wei:
        return parse_fee_wei(self.fee)

    def params(self, now_s: int) -> RequestParams:
        """As the contract takes it, `now_s` being the newest block's timestamp."""
        return RequestParams(
            model_id=model_id(self.model),
            max_tokens=self.max_tokens,
            deadline_s=Deadline.parse(self.deadline).at(now_s),
            memory_mb=0,
            input=self.prompt.encode(),
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    request: list[DemoRequest]


def load_script(path: Path | None) -> list[DemoRequest]:
    """The given file's requests, or the ones inferd carries. Raises BadDemoFile."""
    source = path or files("inferd.demo") / "requests.toml"
    try:
        script = msgspec.convert(tomllib.loads(source.read_text()), _File).request
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadDemoFile(
            f"{source}: {error}", help_text="inferd/demo/requests.toml is an example"
        ) from error
    if not script:
        raise BadDemoFile(f"{source} holds no request", help_text="add a [[request]]")
    return script
