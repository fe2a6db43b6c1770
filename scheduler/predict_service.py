"""How long a request takes on a worker, learnt from what it took before.

service_ms = base_ms + per_token_ms * output tokens, times a log-normal error. Only the service
itself is learnt, never the time spent in this router's own queue: congestion would make the best
worker look bad.

The two coefficients are a least-squares fit with forgetting, kept as its five sums. Errors are
relative, so an observation of x tokens has the weight 1 / (x + 32)^2: right where a request's fixed
part is worth 32 tokens, and fixed, so that no early misjudgement of the speed can give an
observation a weight that later ones never reach. A prior of a few made-up observations at two
lengths keeps the fit defined when all lengths were equal, or none was seen; its level follows what
was observed, so that a wrong one is overcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, isfinite, log, log2, sqrt
from statistics import median

from scheduler import calibration
from scheduler.model import ServiceEstimate
from scheduler.reliability import Reliability, success_lower

KEEP = 0.97
"""What an observation's weight is multiplied by at each later one: a memory of about 33."""
PEAK_DECAY_S = 60.0
"""The time constant in which a peak of the moving average fades."""
PRIOR_WEIGHT = 3.0
"""How many observations the prior counts as."""
_PRIOR_SIGMA = 0.5
_WEIGHT_TOKENS = 32.0
_CLIP_SIGMAS = 3.0
"""An observation further off than so many sigmas counts as one that far off."""
_TRUSTED = 5.0
"""Effective observations before anything counts as an outlier."""
_MIN_MS = 1e-3
_NO_PEAK = 1.1
"""Below so many times the time of a typical request there is no peak."""


@dataclass(frozen=True, slots=True)
class ServicePrior:
    """What is assumed of a worker before it is known."""

    base_ms: float
    per_token_ms: float
    tokens: float
    """Of a typical request."""

    @staticmethod
    def from_mean(mean_ms: float, tokens: float) -> ServicePrior:
        """From the time of a typical request alone: a fifth of it is the fixed part."""
        return ServicePrior(mean_ms / 5.0, mean_ms * 0.8 / max(tokens, 1.0), tokens)


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """Observed service times of one (worker, model), older ones counting less."""

    count: float = 0.0
    """The effective number of observations."""
    weight: float = 0.0
    weight_x: float = 0.0
    weight_xx: float = 0.0
    weight_y: float = 0.0
    weight_xy: float = 0.0
    """The sums of the fit: x in tokens, y in ms."""
    error_square: float = 0.0
    """Sum of the squared errors of log(service_ms), each predicted before it was seen."""
    log_factor: float = 0.0
    """Of the p90, see `scheduler.calibration`."""
    peak_ms: float = 0.0
    peak_at_s: float = 0.0
    """The moving average that follows a rise at once, and when it was last moved."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Both coefficients are not negative."""

    base_ms: float
    per_token_ms: float
    sigma: float

    def mean_ms(self, tokens: float) -> float:
        return max(self.base_ms + self.per_token_ms * tokens, _MIN_MS)


def fit(history: ServiceHistory, prior: ServicePrior) -> Fit:
    """The coefficients of least weighted squared error, observations and prior together."""
    weight, x, xx = history.weight, history.weight_x, history.weight_xx
    y, xy = history.weight_y, history.weight_xy
    made_up = PRIOR_WEIGHT / 2.0 * (weight + _weight(prior.tokens)) / (history.count + 1.0)
    scale = _scale(history, prior, made_up)
    for tokens in (0.0, 2.0 * max(prior.tokens, 1.0)):
        service_ms = scale * (prior.base_ms + prior.per_token_ms * tokens)
        weight += made_up
        x += made_up * tokens
        xx += made_up * tokens * tokens
        y += made_up * service_ms
        xy += made_up * tokens * service_ms
    determinant = weight * xx - x * x
    per_token_ms = (weight * xy - x * y) / determinant
    base_ms = (y - per_token_ms * x) / weight
    # A coefficient that would be negative is 0, and the other the best one then.
    if per_token_ms < 0.0:
        base_ms, per_token_ms = y / weight, 0.0
    elif base_ms < 0.0:
        base_ms, per_token_ms = 0.0, xy / xx
    square = history.error_square + PRIOR_WEIGHT * _PRIOR_SIGMA**2
    return Fit(base_ms, per_token_ms, sqrt(square / (history.count + PRIOR_WEIGHT)))


def observed(
    history: ServiceHistory,
    prior: ServicePrior,
    *,
    tokens: float,
    service_ms: float,
    at_s: float,
    p90_ms: float,
    keep: float = KEEP,
) -> ServiceHistory:
    """The history after one more result; `p90_ms` is what was predicted of it, 0 if nothing was.

    Raises ValueError for what is negative or not finite, and for a `keep` outside (0, 1].
    """
    values = (tokens, service_ms, p90_ms)
    if not (0.0 < keep <= 1.0 and all(isfinite(v) and v >= 0.0 for v in values)):
        raise ValueError(f"cannot learn from {service_ms} ms of {tokens} tokens with keep={keep}")
    before = fit(history, prior)
    expected_ms = before.mean_ms(tokens)
    error = log(max(service_ms, _MIN_MS) / expected_ms)
    if history.count >= _TRUSTED:
        most = _CLIP_SIGMAS * before.sigma
        error = min(max(error, -most), most)
    learnt_ms = expected_ms * exp(error)
    weight = _weight(tokens)
    log_factor = history.log_factor
    if p90_ms > 0.0:
        log_factor = calibration.tracked(log_factor, predicted=p90_ms, observed=service_ms)
    return replace(
        history,
        count=history.count * keep + 1.0,
        weight=history.weight * keep + weight,
        weight_x=history.weight_x * keep + weight * tokens,
        weight_xx=history.weight_xx * keep + weight * tokens * tokens,
        weight_y=history.weight_y * keep + weight * learnt_ms,
        weight_xy=history.weight_xy * keep + weight * tokens * learnt_ms,
        error_square=history.error_square * keep + error * error,
        log_factor=log_factor,
        peak_ms=peak_ewma(history.peak_ms, service_ms, at_s - history.peak_at_s),
        peak_at_s=max(at_s, history.peak_at_s),
    )


def overdue(
    history: ServiceHistory, *, waited_ms: float, at_s: float, p90_ms: float
) -> ServiceHistory:
    """The history after a result that had not come when its time, `waited_ms`, was over.

    How long it would have taken stays unknown, so the fit learns nothing; but a p90 that lies below
    was missed. Without this, only results in time would be learnt from, and a worker that has
    become slow would look as fast as ever.
    """
    log_factor = history.log_factor
    if 0.0 < p90_ms < waited_ms:
        log_factor = calibration.tracked(log_factor, predicted=p90_ms, observed=waited_ms)
    return replace(
        history,
        log_factor=log_factor,
        peak_ms=peak_ewma(history.peak_ms, waited_ms, at_s - history.peak_at_s),
        peak_at_s=max(at_s, history.peak_at_s),
    )


def peak_ewma(average_ms: float, service_ms: float, since_s: float) -> float:
    """The peak-sensitive moving average, `since_s` after it was last moved.

    A rise is followed at once; a fall exponentially in time (as Finagle's `peak_ewma` balancer).
    """
    if service_ms >= average_ms:
        return service_ms
    kept = exp(-max(since_s, 0.0) / PEAK_DECAY_S)
    return average_ms * kept + service_ms * (1.0 - kept)


def estimate(
    history: ServiceHistory,
    prior: ServicePrior,
    reliability: Reliability,
    *,
    now_s: float,
    load_ms: float = 0.0,
) -> ServiceEstimate:
    """What a round reckons with."""
    fitted = fit(history, prior)
    return ServiceEstimate(
        base_ms=fitted.base_ms,
        per_token_ms=fitted.per_token_ms,
        sigma=fitted.sigma,
        samples=round(history.count),
        success_lower=success_lower(reliability),
        load_ms=load_ms,
        ewma_ms=_peak_ms(history, fitted.mean_ms(_typical_tokens(history, prior)), now_s),
        p90_factor=calibration.factor(history.log_factor),
    )


def newcomer_prior(known: Sequence[ServiceHistory], fallback: ServicePrior) -> ServicePrior:
    """What is assumed of a worker, from the others that serve the model: the median of each
    coefficient. Those with few observations stand for the fallback, so they change little."""
    if not known:
        return fallback
    fits = [fit(history, fallback) for history in known]
    return ServicePrior(
        median(one.base_ms for one in fits),
        median(one.per_token_ms for one in fits),
        median(_typical_tokens(history, fallback) for history in known),
    )


def _peak_ms(history: ServiceHistory, typical_ms: float, now_s: float) -> float:
    """The peak as it has faded towards the time of a typical request; 0 once it is not above it.

    In steps of an eighth of an octave: rounds keep what they know of a worker as long as its
    estimate stays the same, and time alone should seldom change it.
    """
    faded_ms = peak_ewma(history.peak_ms, typical_ms, now_s - history.peak_at_s)
    if faded_ms <= _NO_PEAK * typical_ms:
        return 0.0
    return float(2.0 ** (ceil(8.0 * log2(faded_ms)) / 8.0))


def _scale(history: ServiceHistory, prior: ServicePrior, made_up: float) -> float:
    """How many times the prior's speed the worker has shown: what the prior keeps for ever is its
    shape alone. Its level is forgotten like an observation."""
    level = prior.base_ms * history.weight + prior.per_token_ms * history.weight_x
    fading = max(1.0 - history.count * (1.0 - KEEP), 0.0)
    own = made_up * fading * (prior.base_ms + prior.per_token_ms * prior.tokens)
    return (history.weight_y + own) / (level + own) if level + own > 0.0 else 1.0


def _typical_tokens(history: ServiceHistory, prior: ServicePrior) -> float:
    return history.weight_x / history.weight if history.weight > 0.0 else prior.tokens


def _weight(tokens: float) -> float:
    return (_WEIGHT_TOKENS / (tokens + _WEIGHT_TOKENS)) ** 2
