"""The Celery application of the worker: one task, one attempt at a time, torch in no process of it."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from functools import cache
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_ready, worker_shutting_down
from celery.utils.nodenames import gethostname
from kombu.transport import redis, virtual

from gprojci_workers import attempt
from gprojci_workers.api import Api, ServiceRefused, ServiceUnreachable
from gprojci_workers.settings import Settings, load_settings

logger = logging.getLogger(__name__)
MEASURE = "gprojci.measure"
VISIBILITY_SECONDS = 6 * 3600
# Who listens on a connection whose other end is gone notices within twice this.
HEALTH_CHECK_SECONDS = 10
_STOPPING = multiprocessing.Event()
"""Set in the main process, read in the pool's, which it is forked into."""
_consumers: list[Any] = []


class _QoS(redis.QoS):
    """Gives the place of a message back also where the broker does not hear that it was dealt with: kombu keeps it, and
    the only one there is would be gone for good. Delivered again, the message finds its job measured."""

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]
        except BaseException:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise


redis.Channel.QoS = _QoS  # a transport of our own would be left aside for addresses like redis+socket://


@cache
def settings() -> Settings:
    """This process's settings, read once."""
    return load_settings()


@cache
def api() -> Api:
    """This process's connection to the service, opened after Celery has forked it."""
    return Api(settings())


def build() -> Celery:
    """The application, listening for its hardware class."""
    app = Celery("gprojci-worker", broker=settings().broker_url, set_as_current=False)
    queue = f"measure.{settings().hardware}"
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_default_queue=queue,
        worker_prefetch_multiplier=1,
        worker_concurrency=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_connect_timeout": 5,
            "socket_timeout": HEALTH_CHECK_SECONDS,  # without it the check itself waits for ever
            "health_check_interval": HEALTH_CHECK_SECONDS,
        },
    )
    app.task(name=MEASURE)(measure)
    return app


def measure(job_id: int) -> None:
    """Claims the job that the message names, or whatever waits, and does one attempt. A lost message costs nothing:
    the service's reaper sends another."""
    try:
        attempt.measure(settings(), api(), job_id, _STOPPING.is_set)
    except (ServiceRefused, ServiceUnreachable) as error:
        logger.error("job %d: %s", job_id, error)


@setup_logging.connect
def _our_logs(**_: object) -> None:
    """The command has set logging up; with a receiver of this signal Celery leaves it alone."""


@worker_shutting_down.connect
def _hand_back_soon(**_: object) -> None:
    """Who is told to stop takes nothing more; what is measured may end within GPROJCI_STOP_SECONDS, or goes back."""
    timer = threading.Timer(settings().stop_seconds, _STOPPING.set)
    timer.daemon = True
    timer.start()


@worker_ready.connect
def _keep(sender: Any, **_: object) -> None:
    _consumers.append(sender)


def stop_listening() -> None:
    """Takes no more messages, for good. Celery's own command would reach every worker of this name on this host."""
    for consumer in _consumers:
        consumer.call_soon(consumer.cancel_task_queue, app.conf.task_default_queue)


def listen(yes: bool) -> bool:
    """Begins or ends taking messages: those that a drained worker took would be lost to others.

    Returns whether it did; a worker that has only just started does not hear it yet.

    Raises:
        OperationalError: the broker cannot be reached.
    """
    mine = [f"{settings().worker_name}@{gethostname()}"]
    change = app.control.add_consumer if yes else app.control.cancel_consumer
    return bool(change(app.conf.task_default_queue, destination=mine, reply=True, timeout=2))


app = build()
