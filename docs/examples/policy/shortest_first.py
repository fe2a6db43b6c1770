"""The shortest request first, which makes the mean wait as short as any order can.

Long requests would wait for ever where short ones keep coming, so age goes first: one that has
waited `max_wait_s` comes before all that have not.
"""

import numpy as np

from scheduler.policies import Floats, Ints, LoadsView, OrderView, SeatsView


class ShortestFirst:
    name = "shortest-first"
    version = "1"
    sampled = 0  # look at all workers that suit, not at a few drawn ones

    def scores(self, view: OrderView) -> Floats:
        bands = np.floor(view.wait_s / view.max_wait_s)
        return bands + 1 / (1 + view.service_ms)

    def work(self, seats: SeatsView) -> Floats:
        return seats.mean_ms

    def load(self, workers: LoadsView, used: Ints) -> Floats:
        return (used + 1) / workers.slots
