"""What an operator can set about disputes of results that were found to be lies: `[disputes]`."""

from __future__ import annotations

from pydantic import Field

from inferd.node.settings_section import Section


class DisputeSettings(Section):
    """Whether the operator's money is staked on it that a settled result is wrong."""

    open: bool = False
    """Dispute results that are settled under a dispute window and that this node's checks found to
    be lies, whoever posted them. The bond comes back with a share of the accused's stake where the
    arbiter agrees, and goes to the workers' owners where he does not."""
    max_bond_gwei: int = Field(100_000_000, ge=0)
    """The bond of one dispute, at most, in gwei: its model's terms say how much it is."""
    max_bonds_gwei_per_day: int = Field(500_000_000, ge=0)
    """Bonds staked in any 24 hours, at most, in gwei, whether they came back meanwhile or not."""
