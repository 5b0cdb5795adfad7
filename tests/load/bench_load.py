"""Measures what the service takes: webhooks, claims, long reports, and what a job costs as its series grow.

    python tests/load/bench_load.py                        # everything, some ten minutes
    python tests/load/bench_load.py --only webhooks        # one of webhooks, claims, reports, growth

Each part runs the service's own processes on a PostgreSQL and a Redis of their own, both with their defaults, and
prints a table. CPU is what processes spent: on a machine that does other work too, it says more than the time does.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "service" / "tests"))
from bodies import Bodies
from github_examples import example
from host import fill, job, project, running, worker
from sender import Order, Outcome, post, send
from servers import SECRET, Servers, cpu_seconds, machine, servers, web
from shape import Shape, Values

from gprojci_service.access import service as access
from gprojci_service.github.signature import sign

WORKERS, JOBS = 100, 10_000
REPORTS = {
    # cases, metrics, slices: 70.5 values go into series for each case of six metrics, of two metrics a third.
    "of 50,000 values, 3,500 of them medians": Shape(commits=2, backends=12, cases=50, metrics=6, slices=12),
    "of 50,000 medians": Shape(commits=2, backends=12, cases=710, metrics=6, slices=1),
}
LNT_A_SECOND = 310
"""Samples that LNT 0.4.20 stores: 480 in 1.5 s."""
GROWTH = (10, 1_000, 100_000, 1_000_000)
"""Samples that each series has before a job is measured."""


def late(values: Sequence[float], share: float) -> float:
    """A quantile."""
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


def row(*cells: object) -> None:
    """Prints a line of a table."""
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def header(*names: str) -> None:
    """Prints the head of a table."""
    print()
    row(*names)
    print("|---" + "|--:" * (len(names) - 1) + "|")


def milliseconds(seconds: float) -> str:
    """A time."""
    return f"{seconds * 1e3:.1f} ms"


class Spent:
    """Processor time of the web processes and of PostgreSQL and Redis since it was made."""

    def __init__(self, on: Servers, *processes: psutil.Process) -> None:
        self._parts = (processes, on.processes)
        self._before = [cpu_seconds(part) for part in self._parts]

    def each(self, count: int) -> list[str]:
        """For each of so many requests."""
        spent = [cpu_seconds(part) - before for part, before in zip(self._parts, self._before, strict=True)]
        return [f"{seconds / count * 1e3:.2f} ms" for seconds in spent]


def _must_be(status: int, came: Outcome) -> None:
    others = {one for one in came.statuses if one != status}
    if others:
        raise RuntimeError(f"answers were {sorted(others)} instead of {status}")


def webhooks(on: Servers) -> None:
    """Webhooks at fixed rates against two web processes; what they ask for waits in the queue."""
    context = on.database("webhooks")
    payload, stored = example("push", deleted=False), 0
    header("webhooks", "asked", "accepted", "median", "p99", "CPU: web", "PostgreSQL, Redis", "stored", "lost")
    with web(context.settings) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        for words, count, rate in (("warming up", 500, 200), ("steady", 5000, 500), ("all at once", 5000, None)):
            made = []
            for _ in range(count):
                payload["after"] = f"{uuid.uuid4().int:040x}"[:40]
                body = json.dumps(payload).encode()
                names = {"X-GitHub-Event": "push", "X-GitHub-Delivery": str(uuid.uuid4())}
                made.append(post(host, "/webhooks/github", body, names | {"X-Hub-Signature-256": sign(body, SECRET)}))
            spent = Spent(on, process)
            came = send(Order(host, int(port), made, rate, connections=16))
            cpu = spent.each(count)
            before, stored = stored, on.count(context, "webhook_delivery")
            cells = [milliseconds(late(came.seconds, share)) for share in (0.5, 0.99)]
            asked = f"{rate}/s" if rate else ""
            row(
                words,
                asked,
                f"{count / came.took:.0f}/s",
                *cells,
                *cpu,
                f"{stored - before:,}",
                count - (stored - before),
            )
            _must_be(202, came)
    context.database.close()


def claims(on: Servers) -> None:
    """100 workers claim 10,000 queued jobs: one after the other at first, the rest as fast as they are answered."""
    context = on.database("claims")
    with context.database.session(writes=True) as session:
        token = access.create_token(session, "bench", "worker")[1]
        session.add(project())
        session.add_all(worker(f"worker-{number}") for number in range(WORKERS))
        session.flush()
        session.add_all(job(number) for number in range(JOBS))
    header("claims", "asked", "claimed", "median", "p99", "CPU: web", "PostgreSQL", "jobs", "claimed twice")
    with web(context.settings) as (address, process):
        host, port = address.removeprefix("http://").split(":")
        claimed: list[int] = []
        parts = (("warming up", 500, 50), ("in turn", 2500, 50), ("in turn", 2500, 100), ("all at once", 4500, None))
        for words, count, rate in parts:
            made = []
            for number in range(count):
                body = {"worker": f"worker-{number % WORKERS}", "claim_id": uuid.uuid4().hex}
                bearer = {"Authorization": f"Bearer {token}"}
                made.append(post(host, "/api/v1/worker/claim", json.dumps(body).encode(), bearer))
            spent = Spent(on, process)
            came = send(Order(host, int(port), made, rate, connections=WORKERS))
            cpu = spent.each(count)
            _must_be(200, came)
            claimed += [json.loads(body)["job"]["id"] for body in came.bodies]
            cells = [milliseconds(late(came.seconds, share)) for share in (0.5, 0.99)]
            asked = f"{rate}/s" if rate else ""
            twice = len(claimed) - len(set(claimed))
            row(words, asked, f"{count / came.took:.0f}/s", *cells, *cpu, f"{len(set(claimed)):,}", twice)
    assert on.count(context, "attempt") == JOBS, "the database and the answers say the same"
    context.database.close()


def reports(on: Servers) -> None:
    """Long reports, from the worker's request until the verdict stands; the second of each meets its series."""
    header("report", "JSON", "into series", "acknowledged", "with the verdict", "values a second", "over LNT")
    for number, (words, shape) in enumerate(REPORTS.items()):
        context = on.database(f"reports-{number}")
        report = Bodies(shape).whole(0, Values(shape).of_next())
        with running(on, context) as host:
            for place, which in enumerate(("first", "second")):
                began, acknowledged, decided = host.measured(place, report)
                values = 50_000
                filed = on.count(context, "sample") // (place + 1)
                seconds = decided - began
                cells = [f"{host.sent / 1e6:.1f} MB", f"{filed:,}", f"{acknowledged - began:.2f} s", f"{seconds:.2f} s"]
                rate = values / seconds
                row(f"{which} {words}", *cells, f"{rate:,.0f}", f"{rate / LNT_A_SECOND:.0f}×")
        context.database.close()


def growth(on: Servers) -> None:
    """The same job where its series have ever more samples: a report of a few values, its decision, its steps."""
    shape = Shape(commits=2, backends=3, cases=2, metrics=1, slices=1)
    report = Bodies(shape).whole(0, Values(shape).of_next()) | {"throughput": None}
    report["accuracy"] = {part: entries[:1] for part, entries in report["accuracy"].items()}  # two series
    header("samples of each series", "with the verdict, median", "p95", "CPU: web, tasks", "PostgreSQL, Redis")
    context = on.database("growth")
    with running(on, context) as host:
        place = 0
        for _ in range(10):  # the series are there, the processes are warm
            host.measured(place := place + 1, report)
        for size in GROWTH:
            fill(context.settings.database_url, size)
            spent, took = Spent(on, *host.processes), []
            for _ in range(60):
                began, _, decided = host.measured(place := place + 1, report)
                took.append(decided - began)
            host.idle()
            row(f"{size:,}", milliseconds(late(took, 0.5)), milliseconds(late(took, 0.95)), *spent.each(60))
    context.database.close()


PARTS: dict[str, Callable[[Servers], None]] = {
    "webhooks": webhooks,
    "claims": claims,
    "reports": reports,
    "growth": growth,
}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(PARTS), help="one of the parts")
    options = parser.parse_args()
    with servers() as on:
        for name, part in PARTS.items():
            if options.only in (None, name):
                part(on)
    print(f"\n{machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
