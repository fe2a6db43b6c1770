"""When a stored result can still be posted: one condition for whoever asks the tables."""

from __future__ import annotations

POSTABLE = """
    EXISTS (SELECT FROM chain.worker w WHERE w.signer = n.worker AND w.enabled AND w.staked)
    AND NOT EXISTS (SELECT FROM node.tx_item i
                    WHERE i.request_id = n.request_id AND i.commitment = n.commitment
                      AND i.worker = n.worker AND i.outcome = 'abandoned')
"""
"""SQL over a row `n` of node.result: its worker is enabled and staked, and it was not given up."""
