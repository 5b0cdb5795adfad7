"""The service as it is deployed, with time that a test moves: web and task processes on PostgreSQL and Redis.

The timetable of `celery --beat` is the test's: what that would send every few seconds or minutes is sent whenever time
has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import redis
from day_github import DayGitHub
from day_worker import Day, Worker
from deployment import BIN, SECRET, Processes
from sqlalchemy import exists, func, select, union_all

from gprojci_service import queue
from gprojci_service.context import Context
from gprojci_service.models import GithubReport, Job, PullRequestComment, WebhookDelivery
from gprojci_service.settings import load_settings

TIMETABLE = (queue.RECONCILE, queue.RUN_SCHEDULES, queue.REAP)
"""One after the other, for the reaper looks for lost messages only while none waits."""
ROUND = timedelta(minutes=10)
"""The service's GPROJCI_RECONCILE_SECONDS."""
PATIENCE_SECONDS = 60.0


class DayService(Processes):
    """The service's processes and its one GPU host; a test waits by letting time pass."""

    def __init__(self, directory: Path, database: str, broker: str, github: DayGitHub, day: Day) -> None:
        super().__init__(directory, database, broker)
        self.environment |= {f"GPROJCI_{name.upper()}": value for name, value in github.settings(directory).items()}
        self.environment |= {
            "GPROJCI_DEFAULT_HARDWARE": '["h200"]',
            "GPROJCI_LEASE_SECONDS": "60",
            "GPROJCI_HEARTBEAT_SECONDS": "10",
            "GPROJCI_REAPER_SECONDS": "15",
        }
        self.commands["tasks"] = [
            *(str(BIN / "celery"), "-A", "gprojci_service.task_worker", "worker", "-Q", "service"),
            *("--concurrency", "2", "--without-gossip", "--without-mingle"),
        ]
        del self.commands["worker"]
        self.github, self.day, self.clock = github, day, github.clock
        self.context = Context.open(load_settings(database_url=database, broker_url=broker, webhook_secret=SECRET))
        self.redis = redis.Redis(unix_socket_path=broker.removeprefix("redis+socket://"))
        self.rounds = 0
        """How often something had to be waited for by letting time pass."""

    def __enter__(self) -> DayService:
        self.start("tasks")  # beside the other, since both take their seconds
        self.start("web")
        self.wait_for("the web process", self._answers)
        self.github.service_url = self.url
        token = self.environment["GPROJCI_WORKER_TOKEN"]
        self.worker = Worker(self.directory, self.url, token, self.context.settings.broker_url, self.day)
        self.people = httpx.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {self.write_token}"}, timeout=30
        )
        return self

    def __exit__(self, *arguments: object) -> None:
        super().__exit__(*arguments)
        self.worker.wire.close()
        self.people.close()
        self.redis.close()
        self.context.database.close()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def wait_for(self, what: str, condition: Callable[[], object]) -> None:
        """Waits, in real time, for what processes are busy with."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < give_up, f"{what} is not as wished: {self._state()}\n{self.logs()}"
            time.sleep(0.02)

    def ask(self, method: str, path: str, **body: object) -> dict[str, object]:
        """What somebody does over the API."""
        answer = self.people.request(method, path, json=body or None)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return dict(answer.json())

    def settle(self) -> None:
        """Until nobody has anything to do at this moment: neither the tasks nor the GPU host."""
        while True:
            self.wait_for("the queue of tasks", self._idle)
            waiting = self._count(select(func.count()).select_from(Job).where(Job.state == "queued"))
            if not waiting:
                return
            self.worker.work(waiting)

    def until(self, what: str, condition: Callable[[], object], rounds: int = 12) -> None:
        """Until it is so; while it is not, time passes and the timetable goes on."""
        for _ in range(rounds):
            self.settle()
            self.github.advance_queue()
            self.settle()
            if condition():
                return
            self.rounds += 1
            self.pass_time(ROUND)
        raise AssertionError(f"{what}: still not so after {rounds * ROUND}\n{self.logs()}")

    def pass_time(self, by: timedelta) -> None:
        """Lets time pass; what was delayed arrives, and what the timetable has comes up."""
        self.settle()
        self.github.deliver_late()
        self.worker.wire.deliver_late()
        self.clock.advance(self.context, by)
        for task in TIMETABLE:
            self.context.queue.send(queue.Message(task, [], queue.SERVICE_QUEUE))
            self.settle()

    def _idle(self) -> bool:
        return self._tasks_wait() and not self._due()

    def _tasks_wait(self) -> bool:
        """Whether the task worker listens for messages, has none and none is there: all that at one moment, since while
        it takes one that is neither in the queue nor among the taken."""
        with self.redis.pipeline(transaction=True) as look:
            look.llen(queue.SERVICE_QUEUE)
            look.hlen("unacked")
            look.client_list()
            queued, taken, clients = look.execute()
        listens = any(client["cmd"] == "brpop" and "b" in client["flags"] for client in clients)
        return listens and not queued and not taken

    def _state(self) -> str:
        """What waits where, for whoever reads a failure."""
        queued, taken = self.redis.lrange(queue.SERVICE_QUEUE, 0, 3), self.redis.hgetall("unacked")
        with self.context.database.session(writes=False) as session:
            waiting = [
                {name: str(value)[:200] for name, value in row.__dict__.items() if not name.startswith("_")}
                for table in (GithubReport, PullRequestComment)
                for row in session.scalars(select(table).where(table.state == "pending"))
            ]
        return f"queued {queued}, taken {taken}, waiting {waiting}"

    def _due(self) -> int:
        """How many things the tasks have to do at this moment; what is tried again is the timetable's."""
        later = exists().where(PullRequestComment.state == "pending", PullRequestComment.next_attempt_at.is_not(None))
        counted = (
            select(WebhookDelivery.id).where(WebhookDelivery.state == "received"),
            select(Job.id).where(Job.state == "deciding"),
            select(GithubReport.id).where(GithubReport.state == "pending", GithubReport.next_attempt_at.is_(None)),
            select(PullRequestComment.id).where(PullRequestComment.state == "pending", ~later),  # one after the other
        )
        return self._count(select(func.count()).select_from(union_all(*counted).subquery()))

    def _count(self, query: object) -> int:
        with self.context.database.session(writes=False) as session:
            return int(session.scalar(query) or 0)  # type: ignore[call-overload]
