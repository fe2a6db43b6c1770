"""Property tests here are about what holds, never about how long it takes on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-clock")
