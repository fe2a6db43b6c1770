"""Celery as either side uses it: JSON only, and nothing that one could be made to do from afar."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.entity import Queue

from indexer.types import Address
from inferd.protocol.worker_api import MAX_WAIT_MS
from inferd.workers.pull import names
from inferd.workers.pull.broker import CONNECT_S, Broker

TASK_LIMIT_S = MAX_WAIT_MS / 1000 + 15.0
"""How long one request takes at most: it waits for its answer as long as the API lets it."""
VISIBILITY_S = 2 * TASK_LIMIT_S
"""After which the broker hands a task out again that was taken and not ended: nobody can still be
at it."""
_ANSWER_KEPT_S = 60
"""How long an answer stays at the broker: whoever waits is told at once, and reads it there only
where its connection broke."""


def asking(broker: Broker) -> Celery:
    """Sends tasks, and has no result backend: who waits for answers reads them itself."""
    return _app(broker, {})


def pulling(broker: Broker, worker: Address) -> Celery:
    """Takes this worker's tasks, one a thread, and acknowledges each when its answer is there."""
    return _app(
        broker,
        {
            "task_queues": [queue_of(worker)],
            "task_default_queue": names.queue(worker),
            "task_acks_late": True,
            "task_reject_on_worker_lost": True,
            "worker_prefetch_multiplier": 1,
            "result_backend": broker.url,
            "redis_backend_use_ssl": broker.tls,
            "redis_socket_timeout": CONNECT_S,
            "redis_socket_connect_timeout": CONNECT_S,
            "redis_socket_keepalive": True,
            "result_backend_transport_options": {"global_keyprefix": names.prefix(worker)},
            "result_expires": _ANSWER_KEPT_S,
            "broker_transport_options": {**_TRANSPORT, **names.taken(worker)},
        },
    )


def queue_of(worker: Address) -> Queue:
    """Without an exchange, which would be one key for all workers."""
    name = names.queue(worker)
    return Queue(name, exchange="", routing_key=name)


_TRANSPORT = {
    "visibility_timeout": VISIBILITY_S,
    "socket_timeout": CONNECT_S,
    "socket_connect_timeout": CONNECT_S,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # One list instead of one for each priority.
    "priority_steps": [0],
}


def _app(broker: Broker, more: dict[str, Any]) -> Celery:
    app = Celery("inferd", set_as_current=False, fixups=[])
    app.conf.update(
        {
            "broker_url": broker.url,
            "broker_use_ssl": broker.tls,
            "broker_transport_options": _TRANSPORT,
            "broker_connection_retry": True,
            "broker_connection_retry_on_startup": True,
            "broker_connection_max_retries": None,
            "accept_content": ["json"],
            "result_accept_content": ["json"],
            "task_serializer": "json",
            "result_serializer": "json",
            "task_create_missing_queues": False,
            "task_send_sent_event": False,
            "worker_send_task_events": False,
            "worker_enable_remote_control": False,
            "worker_hijack_root_logger": False,
            "worker_redirect_stdouts": False,
            "enable_utc": True,
            **more,
        }
    )
    return app
