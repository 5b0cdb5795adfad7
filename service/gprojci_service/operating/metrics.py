"""The metrics of the whole service for Prometheus, read from the database and the broker at each scrape.

No process counts by itself: web processes, tasks and restarts would each have other numbers, and the database has them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from kombu.exceptions import OperationalError
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from gprojci_service import __version__
from gprojci_service.context import Context
from gprojci_service.jobs.usage import usage
from gprojci_service.models import Attempt, Worker, now
from gprojci_service.operating import repository
from gprojci_service.queue import SERVICE_QUEUE, measure_queue
from gprojci_service.settings import Settings

WINDOW = timedelta(hours=1)
QUANTILES = (0.5, 0.95)


def registry(context: Context) -> CollectorRegistry:
    """A registry whose collection asks database and broker once."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Service(context))
    return made


class _Service(Collector):
    def __init__(self, context: Context) -> None:
        self.context = context

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        moment = now()
        yield _gauge("gprojci_build_info", "Version of the service.", {(("version", __version__),): 1.0})
        with self.context.database.session(writes=False) as session:
            workers = repository.workers(session)
            yield from _jobs(session, moment)
            yield _workers(workers, self.context.settings, moment)
            yield from _last_hour(session, self.context.settings, moment)
            yield from _lags(session, moment)
        yield from _broker(self.context, {worker.hardware for worker, _ in workers})


Values = dict[tuple[tuple[str, str], ...], float]
"""Values by their labels, as pairs of name and value."""


def _gauge(name: str, text: str, values: Values) -> Metric:
    return _family(GaugeMetricFamily, name, text, values)


def _counter(name: str, text: str, values: Values) -> Metric:
    return _family(CounterMetricFamily, name, text, values)


def _family(kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, text: str, values: Values) -> Metric:
    names = [label for label, _ in next(iter(values), ())]
    family = kind(name, text, labels=names)
    for labels, value in values.items():
        family.add_metric([word for _, word in labels], value)
    return family


def _age(since: datetime | None, moment: datetime) -> float:
    return 0.0 if since is None else max(0.0, (moment - since).total_seconds())


def _jobs(session: Session, moment: datetime) -> Iterator[Metric]:
    jobs = repository.open_jobs(session)
    count: Values = {(("hardware", hardware), ("state", state)): number for hardware, state, number, _ in jobs}
    yield _gauge("gprojci_jobs", "Jobs that have not ended, by state; queued is the depth of the queue.", count)
    oldest: Values = {
        (("hardware", hardware),): _age(made, moment) for hardware, state, _, made in jobs if state == "queued"
    }
    yield _gauge("gprojci_queue_age_seconds", "How long the oldest queued job has waited.", oldest)
    told: Values = {(("verdict", word),): number for word, number in repository.verdicts(session).items()}
    yield _counter("gprojci_verdicts", "Verdicts of the gate.", told)
    tries: Values = {(("state", state),): number for state, number in repository.attempts(session).items()}
    yield _counter("gprojci_attempts", "Attempts by what became of them.", tries)


def _workers(workers: Iterable[tuple[Worker, bool]], settings: Settings, moment: datetime) -> Metric:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    silent = timedelta(seconds=settings.lease_seconds)
    for worker, busy in workers:
        state = "busy" if busy else "away" if worker.last_seen_at < moment - silent else "idle"
        counts[worker.hardware, "drained" if worker.draining_at and state == "idle" else state] += 1
    values: Values = {
        (("hardware", hardware), ("state", state)): number for (hardware, state), number in counts.items()
    }
    return _gauge("gprojci_workers", "Workers: busy, idle, drained, or away, silent for longer than a lease.", values)


def _last_hour(session: Session, settings: Settings, moment: datetime) -> Iterator[Metric]:
    ended = repository.ended_since(session, moment - WINDOW)
    by_step: dict[str, list[float]] = defaultdict(list)
    by_hardware: dict[str, list[Attempt]] = defaultdict(list)
    for attempt, hardware in ended:
        by_hardware[hardware].append(attempt)
        for step in attempt.steps:
            if step.get("seconds") is not None:
                by_step[str(step["name"])].append(float(step["seconds"]))
    steps: Values = {
        (("step", name), ("quantile", str(quantile))): _quantile(found, quantile)
        for name, found in by_step.items()
        for quantile in QUANTILES
    }
    yield _gauge("gprojci_step_seconds", "How long the steps of the attempts that ended in the last hour took.", steps)
    took = {hardware: usage(attempts, hardware, settings, moment) for hardware, attempts in by_hardware.items()}
    whole: Values = {(("hardware", hardware),): one.seconds for hardware, one in took.items()}
    yield _gauge("gprojci_worker_seconds", "Workers' time that the attempts which ended in the last hour took.", whole)
    shares: Values = {(("hardware", hardware),): one.measuring_share or 0.0 for hardware, one in took.items()}
    yield _gauge("gprojci_measuring_share", "Part of that time in which backends computed or were timed.", shares)
    costs: Values = {
        (("hardware", hardware), ("currency", one.currency)): one.cost
        for hardware, one in took.items()
        if one.cost is not None
    }
    yield _gauge("gprojci_worker_cost", "What that time cost, where the hardware class has a price.", costs)


def _quantile(values: list[float], quantile: float) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(quantile * 100) - 1]


def _lags(session: Session, moment: datetime) -> Iterator[Metric]:
    waiting, since = repository.webhooks_waiting(session)
    yield _gauge("gprojci_webhooks_waiting", "Webhooks that are stored and not yet processed.", {(): waiting})
    yield _gauge("gprojci_webhook_lag_seconds", "How long the oldest of them has waited.", {(): _age(since, moment)})
    found = {outbox: repository.outbox_waiting(session, outbox) for outbox in repository.OUTBOXES}
    depths: Values = {(("outbox", outbox),): number for outbox, (number, _) in found.items()}
    yield _gauge("gprojci_outbox_waiting", "Messages that are stored and not yet sent.", depths)
    lags: Values = {(("outbox", outbox),): _age(oldest, moment) for outbox, (_, oldest) in found.items()}
    yield _gauge("gprojci_outbox_lag_seconds", "How long the oldest of them has waited.", lags)


def _broker(context: Context, hardware: set[str]) -> Iterator[Metric]:
    names = [SERVICE_QUEUE, *(measure_queue(one) for one in sorted(hardware))]
    try:
        lengths: Values = {(("queue", name),): context.queue.length(name) for name in names}
    except (OperationalError, RedisError, OSError):
        lengths = {}
    yield _gauge("gprojci_broker_up", "Whether the broker answers.", {(): float(bool(lengths))})
    yield _gauge("gprojci_broker_messages", "Messages in the broker's queues, which are hints alone.", lengths)
