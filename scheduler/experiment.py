"""Two or more policies at once, each for its share of the requests, and what the comparison says.

**Arms.** A request's arm follows from its commitment, a hash nobody can choose bit by bit, mixed
with the experiment's number: the same request is always in the same arm, and two experiments divide
the requests independently of each other.

**Merging.** Each arm ranks its own requests, and the arms take places in turns (`places`). A round
often has one slot to give, so it is not enough that each arm has its share of many places: the
turns begin elsewhere in each round, so that each arm is expected to have its share of any number.

**The longest wait.** Turns alone bound no wait: an arm may be out of luck. So the requests at the
head of an arm that have waited k * W (W = max_wait_s) go before all of other arms that have not, in
turns among themselves. An arm whose policy orders by bands of age has these at its head. Hence the
bound of `scheduler.policies.aging` holds for its requests under any split, with A counted over all
arms: what is ahead of R in another arm has waited as many W as R, so came before t + W.

**Reading the result.** If requests do not divide as the shares say, something loses them on the way
and no figure can be trusted: Pearson's chi-square test tells, and p < 0.001 is a warning. Where
they do, the difference of two means has the interval of Welch (1947), with the normal quantile in
place of Student's: it is meant for hundreds of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import erfc, exp, inf, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from scheduler.policies.protocol import Floats, Policy

_MERGING = 2
"""Changes with the order in which arms take turns."""
RATIO_ALARM = 0.001
"""Below this probability the division of requests is not what the shares say."""
_Z95 = 1.959963984540054
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Split:
    """An experiment as a round takes it: one policy and share an arm."""

    policies: tuple[Policy, ...]
    shares: tuple[int, ...]
    experiment: int

    @property
    def name(self) -> str:
        arms = zip(self.policies, self.shares, strict=True)
        return ",".join(f"{policy.name}={share}" for policy, share in arms)

    @property
    def version(self) -> str:
        """With the number of the experiment, on which the arms depend, and how they are merged."""
        versions = ",".join(policy.version for policy in self.policies)
        return f"{versions}#{self.experiment}/{_MERGING}"

    @staticmethod
    def experiment_of(number: str) -> int:
        """From what stands behind the `#` of a version. Raises ValueError."""
        return int(number.partition("/")[0])


def commitment_bytes(commitments: Sequence[bytes]) -> NDArray[np.uint8]:
    """The commitments as `arms_of` takes them: (requests, 20)."""
    return np.array(commitments, "S20").view(np.uint8).reshape(len(commitments), 20)


def arms_of(
    commitments: NDArray[np.uint8], experiment: int, shares: Sequence[int]
) -> NDArray[np.intp]:
    """The arm of each request, whose commitments are rows of 20 bytes; shares have no unit."""
    words = np.zeros((len(commitments), 24), np.uint8)
    words[:, :20] = commitments
    # SplitMix64's finaliser (Steele et al. 2014), folded over the words: every bit counts.
    mixed = np.full(len(commitments), _salt(experiment), dtype=np.uint64)
    for word in words.view("<u8").T:
        mixed = _mix(mixed ^ word)
    edges = np.cumsum(np.asarray(shares, dtype=np.float64)) / sum(shares)
    # 53 bits are what a double holds exactly, hence always below 1.
    return np.searchsorted(edges[:-1], (mixed >> np.uint64(11)) / 2.0**53, side="right")


def arm_of(commitment: bytes, experiment: int, shares: Sequence[int]) -> int:
    """The arm of one request."""
    return int(arms_of(commitment_bytes([commitment]), experiment, shares)[0])


def turns(experiment: int, arms: int, block_number: int, now_s: float) -> Floats:
    """Where a round's turns begin: a number in [0, 1) for each arm but the last.

    By a hash, so that no pattern of blocks or of free slots can favour an arm.
    """
    when = np.array([block_number & _MASK, round(now_s * 1000) & _MASK], np.uint64)
    word = _mix(_mix(np.uint64(_salt(experiment)) ^ when[:1]) ^ when[1:])
    words = _mix(word ^ np.arange(arms - 1, dtype=np.uint64))
    beginnings: Floats = (words >> np.uint64(11)) / 2.0**53
    return beginnings


def places(
    rank: NDArray[np.intp], arm: NDArray[np.intp], shares: Sequence[int], begin: Floats
) -> Floats:
    """Where each request is served, from its rank within its arm; least first.

    Systematic sampling (Madow 1949). Of two arms with shares s and 1 - s the first has
    floor(n * s + b) of the first n places, for a beginning b in [0, 1): n * s to within one, and
    n * s in the mean over b. More arms are the first one against all others, and so on.
    """
    last = len(shares) - 1
    place = rank.astype(np.float64)
    for one in range(last - 1, -1, -1):
        share, start = shares[one] / sum(shares[one:]), float(begin[one])
        ours, later = arm == one, arm > one
        place[ours] = np.ceil((rank[ours] + 1.0 - start) / share) - 1.0
        place[later] = np.floor((place[later] + start) / (1.0 - share))
    return place


def _salt(experiment: int) -> int:
    return experiment * 0x9E3779B97F4A7C15 & _MASK


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def ratio_p_value(counts: Sequence[int], shares: Sequence[int]) -> float:
    """The probability of a division at least as uneven if the shares are true; 1 without data."""
    total = sum(counts)
    if not total:
        return 1.0
    expected = [total * share / sum(shares) for share in shares]
    statistic = sum(
        (count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True)
    )
    return _chi_square_tail(statistic, len(counts) - 1)


def _chi_square_tail(statistic: float, freedom: int) -> float:
    """P(chi-square with `freedom` degrees > statistic).

    By Abramowitz and Stegun 26.4.4 and 26.4.5: a finite sum, started by erfc or exp.
    """
    if freedom == 0 or statistic <= 0.0:
        return 1.0
    half = statistic / 2.0
    odd = freedom % 2
    tail = erfc(sqrt(half)) if odd else exp(-half)
    power = 0.5 if odd else 1.0
    while power < freedom / 2.0:
        tail += exp(power * log(half) - half - lgamma(power + 1.0))
        power += 1.0
    return min(tail, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """Count, mean and variance of a measure; all that a comparison needs."""

    count: int
    mean: float
    variance: float
    """Unbiased; 0 for fewer than two."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more one arm has than another, with its 95 % interval; infinite where unknown."""

    mean: float
    lower: float
    upper: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.lower > 0.0 or self.upper < 0.0


def sample(values: Iterable[float]) -> Sample:
    """Condenses the measured values."""
    array = np.fromiter(values, dtype=np.float64)
    if not len(array):
        return Sample(0, 0.0, 0.0)
    variance = float(array.var(ddof=1)) if len(array) > 1 else 0.0
    return Sample(len(array), float(array.mean()), variance)


def difference(one: Sample, other: Sample) -> Difference:
    """`one` less `other`."""
    mean = one.mean - other.mean
    if min(one.count, other.count) < 2:
        return Difference(mean, -inf, inf)
    margin = _Z95 * sqrt(one.variance / one.count + other.variance / other.count)
    return Difference(mean, mean - margin, mean + margin)
