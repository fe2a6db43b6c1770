"""When a stored result can still be posted: one condition for whoever asks the tables."""

from __future__ import annotations

POSTABLE = """
    EXISTS (SELECT FROM chain.worker w WHERE w.signer = n.worker AND w.enabled AND w.staked
            AND w.signer <> ALL (ARRAY(SELECT s.worker FROM node.worker_suspension s
                                       WHERE s.distrusted)))
    AND NOT EXISTS (SELECT FROM node.tx_item i
                    WHERE i.request_id = n.request_id AND i.commitment = n.commitment
                      AND (i.worker = n.worker OR n.worker = ANY(i.others))
                      AND i.outcome = 'abandoned')
    AND NOT n.found_wrong
"""
"""SQL over a row `n` of node.result: its worker is enabled and staked, and it was not given up; it
was not found wrong, and its worker not suspended for another that was."""

RELEASED = """
    NOT EXISTS (SELECT FROM node.spot_check k
                WHERE k.request_id = n.request_id AND k.commitment = n.commitment
                  AND (k.undecided OR k.held_until > clock_timestamp()))
"""
"""SQL over the same: it is not waiting for its check, and no other answer contradicts it. Without
it such a result is as good as postable, so that nobody computes its request meanwhile. A check that
takes too long, or whose daemon has ended, holds nothing back after its time."""
