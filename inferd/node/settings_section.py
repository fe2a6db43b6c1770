"""What all sections of inferd.toml have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of inferd.toml: frozen once read, and an unknown name in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
