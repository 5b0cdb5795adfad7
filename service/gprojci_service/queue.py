"""The Celery side of the service: how messages are sent, and what they are called."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport import redis, virtual
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

SERVICE_QUEUE = "service"
PROCESS_DELIVERY = "gprojci.process_delivery"
DECIDE = "gprojci.decide"
REPORT_TO_GITHUB = "gprojci.report_to_github"
CARRY_OUT_COMMENT = "gprojci.carry_out_comment"
REAP = "gprojci.reap"
RECONCILE = "gprojci.reconcile"
WATCH = "gprojci.watch"
NOTIFY = "gprojci.notify"
ADVANCE = "gprojci.advance_bisection"
THIN_REPORTS = "gprojci.thin_reports"
RUN_SCHEDULES = "gprojci.run_schedules"
MEASURE = "gprojci.measure"

# A message may stay unacknowledged as long as the longest attempt; only then does Redis deliver it again.
VISIBILITY_SECONDS = 6 * 3600

# Who listens on a connection whose other end is gone notices within twice this.
HEALTH_CHECK_SECONDS = 10


def measure_queue(hardware: str) -> str:
    """Queue that the workers of a hardware class listen on."""
    return f"measure.{hardware}"


@dataclass(frozen=True)
class Message:
    """A task to be sent."""

    task: str
    args: list[Any]
    queue: str


class _QoS(redis.QoS):
    """Gives the place of a message back also where the broker does not hear that it was dealt with.

    kombu keeps it: a process with one place then takes nothing more, until somebody starts it again. The broker
    delivers such a message once more after `VISIBILITY_SECONDS`, which costs nothing: every task looks what is left to
    do.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]
        except BaseException:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
            raise


redis.Channel.QoS = _QoS  # a transport of our own would be left aside for addresses like redis+socket://


class Queue:
    """Sends hints to the workers. The database is the truth: a message that cannot be sent now is logged and
    found again by the reaper, so an outage of Redis delays work and loses none."""

    def __init__(self, broker_url: str) -> None:
        self.celery = celery_app(broker_url)

    def send(self, message: Message) -> None:
        try:
            self.celery.send_task(message.task, message.args, queue=message.queue, retry=False, ignore_result=True)
        except (OperationalError, RedisError, OSError) as error:
            logger.warning(
                "the broker did not take %s%s: %s; the reaper will send it", message.task, message.args, error
            )

    def length(self, queue: str) -> int:
        """How many messages wait in a queue.

        Raises:
            OperationalError: the broker cannot be reached.
        """
        with self.celery.connection_for_read() as connection:
            return int(connection.default_channel.client.llen(queue))


def celery_app(broker_url: str) -> Celery:
    """A Celery application on the broker, without result backend: results live in the database."""
    app = Celery("gprojci", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_default_queue=SERVICE_QUEUE,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_SECONDS,
            "socket_connect_timeout": 2,
            "socket_timeout": HEALTH_CHECK_SECONDS,
            "max_retries": 0,
            "health_check_interval": HEALTH_CHECK_SECONDS,
        },
    )
    return app
