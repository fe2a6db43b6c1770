"""What posting costs at least, for one who knows all arrivals and all prices in advance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.model import GasModel


def least_cost_wei(
    prices_wei: NDArray[np.float64],
    arrivals: NDArray[np.int64],
    deadline_blocks: int,
    delay_wei_per_block: float,
    gas: GasModel,
) -> float:
    """The least gas and delay cost of posting every result within its deadline, in wei.

    `prices_wei[t]` is the gas price and `arrivals[t]` the number of results of step t; one that
    arrives at t can be posted at t .. t + deadline_blocks, and costs `delay_wei_per_block` for
    each step that it waits. All are of one worker, and a transaction takes any number.

    Since windows are equally long, an exchange argument makes it optimal that the results of a
    transaction are neighbours in order of arrival: the cost of posting a result at s depends on its
    own arrival only by a constant. So the optimum is a partition of the steps with arrivals into
    runs, each posted at its own best step, by dynamic programming over the run's last step:
    O(T * D^2) vectorised over T. It also covers posting a part of what is ready.
    Raises ValueError where something arrives later than `deadline_blocks` before the end.
    """
    steps = len(prices_wei)
    if arrivals[max(steps - deadline_blocks, 0) :].any():
        raise ValueError("a result arrives too late for its whole window")
    index = np.arange(steps)
    counts = np.concatenate([[0], np.cumsum(arrivals)])
    sums = np.concatenate([[0], np.cumsum(arrivals * index)])
    longest = min(deadline_blocks, steps - 1)
    # run_wei[w, b]: the least cost of one transaction for all that arrive at b - w .. b.
    run_wei = np.full((longest + 1, steps), np.inf)
    for width in range(longest + 1):
        last = index[width:]
        number = counts[last + 1] - counts[last - width]
        arrived = sums[last + 1] - sums[last - width]
        taken = gas.of(1, 0) + gas.per_result_gas * number
        best = run_wei[width, width:]
        for later in range(deadline_blocks - width + 1):
            inside = len(last) - later
            if inside <= 0:
                break
            at = last[:inside] + later
            delay = delay_wei_per_block * (number[:inside] * at - arrived[:inside])
            cost = prices_wei[at] * taken[:inside] + delay
            np.minimum(best[:inside], cost, out=best[:inside])
    least = np.zeros(steps + 1)
    for step in range(steps):
        if arrivals[step] == 0:
            least[step + 1] = least[step]
            continue
        widths = np.arange(min(longest, step) + 1)
        least[step + 1] = (least[step - widths] + run_wei[widths, step]).min()
    return float(least[steps])
