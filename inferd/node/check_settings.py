"""What an operator can set about checks on results: `[checks]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from inferd.node.settings_section import Section
from inferd.protocol.request import model_id
from inferd.workers.checks.comparators import comparator_of
from inferd.workers.checks.rules import CheckRules, ModelRule
from inferd.workers.checks.suspension import SuspensionRule

_MILLION = 1_000_000


class CheckedModelSettings(Section):
    """What you know of a model."""

    name: str = Field(min_length=1, max_length=200)
    """The model's, as in requests."""
    deterministic: bool = False
    """Whether all honest workers give the same answer to the same input, by `comparator`. Only then
    are results computed once more. Other quantisations, other software and other processors mostly
    give other texts, also at temperature 0."""
    comparator: str = "exact"
    """What the same answer is: `exact` bytes, `json` (the same value), `text` (Unicode's form C,
    white space folded) or `vectors:0.999` (lists of numbers, by their least cosine)."""

    @field_validator("comparator")
    @classmethod
    def _known(cls, comparator: str) -> str:
        comparator_of(comparator)
        return comparator


class CheckSettings(Section):
    """Whether results of workers that are not yours are right. Rates are in parts of a million."""

    spot_ppm: int = Field(20_000, ge=0, le=_MILLION)
    """How many of their results of deterministic models are computed once more, by a worker of
    another owner: yours where you have one for the model. The first three of each worker and model
    are in any case, unless this is 0."""
    probation_spot_ppm: int = Field(200_000, ge=0, le=_MILLION)
    """The same of workers on probation, if it is more."""
    hold: Literal["before", "after"] = "before"
    """Whether a result that is checked is posted when that is done, or meanwhile."""
    hold_s: float = Field(60.0, gt=0, le=86_400)
    """How long it waits for its check at most, and never longer than half of its time left: then it
    is posted unchecked, and checked all the same."""
    canary_ppm: int = Field(5_000, ge=0, le=_MILLION)
    """After how many of its results a worker is sent a canary (`inferd canary`). A worker on
    probation is sent one at once."""
    suspend_after: int = Field(1, ge=0)
    """Wrong answers after which a worker is suspended, since you last gave it work again; 0 = it is
    only recorded."""
    suspend_after_lies: int = Field(3, ge=0)
    """The same of answers within a day that are not what they say, in signature, digest or
    manifest, though their worker signed all of it. 0 = never."""
    models: tuple[CheckedModelSettings, ...] = ()
    """What you know of models, as `[[checks.models]]`."""

    @field_validator("models")
    @classmethod
    def _different(
        cls, models: tuple[CheckedModelSettings, ...]
    ) -> tuple[CheckedModelSettings, ...]:
        if len({model.name for model in models}) != len(models):
            raise ValueError("two of the models have one name")
        return models


def check_rules(settings: CheckSettings) -> CheckRules:
    """The settings as checks take them."""
    return CheckRules(
        models={
            model_id(model.name): ModelRule(model.deterministic, comparator_of(model.comparator))
            for model in settings.models
        },
        spot_ppm=settings.spot_ppm,
        probation_spot_ppm=settings.probation_spot_ppm,
        canary_ppm=settings.canary_ppm,
        hold=settings.hold == "before",
        hold_s=settings.hold_s,
        suspension=SuspensionRule(settings.suspend_after, settings.suspend_after_lies),
    )
