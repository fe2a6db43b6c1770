"""What a worker agent counts, in Prometheus' text format at /metrics of its own listener."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

REQUESTS = Counter(
    "inferd_agent_requests",
    "Requests of operators, by what they ask and the HTTP status",
    ["kind", "status"],
    registry=REGISTRY,
)
DOUBTS = Counter(
    "inferd_agent_refused_requests",
    "Requests that are not believed, by why",
    ["doubt"],
    registry=REGISTRY,
)
JOBS = Counter(
    "inferd_agent_jobs", "Jobs that ended: done, or the code of why not", ["end"], registry=REGISTRY
)
COMPUTE_SECONDS = Histogram(
    "inferd_agent_compute_seconds",
    "From the slot to the signed result",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
    registry=REGISTRY,
)
RUNNING = Gauge("inferd_agent_running_jobs", "Jobs that have a slot", registry=REGISTRY)
QUEUED = Gauge("inferd_agent_queued_jobs", "Jobs that wait for a slot", registry=REGISTRY)
SLOTS = Gauge("inferd_agent_slots", "Jobs that can be computed at the same time", registry=REGISTRY)
MODEL_LOADED = Gauge(
    "inferd_agent_model_loaded", "Whether a model is in memory", ["model"], registry=REGISTRY
)
WAITING_FOR_MEMORY = Gauge(
    "inferd_agent_waiting_for_memory",
    "Jobs that have a slot and wait until other models have made room",
    registry=REGISTRY,
)
CONNECTIONS = Gauge("inferd_agent_connections", "Open connections", registry=REGISTRY)
NONCES = Gauge(
    "inferd_agent_nonces", "Nonces of requests that could be sent again", registry=REGISTRY
)
KEPT_OUTPUTS = Gauge(
    "inferd_agent_kept_outputs", "Outputs that nobody has acknowledged", registry=REGISTRY
)
KEPT_OUTPUT_BYTES = Gauge("inferd_agent_kept_output_bytes", "Their size", registry=REGISTRY)
