"""The GPU host of the day: the worker's own way from claim to report over HTTP, with scripted measurements.

Kernels are not the point here, so nothing is built and nothing is timed: git's answers and the ruler's report come from
the day's history, within milliseconds.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import day_report
import httpx
from day_clock import Clock
from day_history import History
from day_storm import Storm

from gprojci_workers import attempt, checkout
from gprojci_workers.api import Api
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.settings import Settings

MANIFEST = """
[build]
path = "."
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias"]
[throughput]
anchor = "fa3"
shapes = ["4x16x4096x128"]
[gate]
dq_error_ceiling = 0.0035
dq_error_ratio = 1.05
kernel_time_increase = 0.1
"""


class PowerCut(BaseException):
    """The host is gone in the middle of an attempt."""


class Day:
    """What attempts know of the day."""

    def __init__(self, history: History, clock: Clock, storm: Storm, seed: int) -> None:
        self.history, self.clock, self.storm = history, clock, storm
        self.random = random.Random(seed)
        self.throttle_pushes = False
        """Whether the GPU is too hot for any timing to count while main is measured."""
        self.power_cut_at: str | None = None
        """Head during whose next attempt the power is cut, once."""
        self.measured: list[tuple[str, str]] = []
        """Kind and head of every job that was measured to its end."""


class Worker:
    """One host that measures what waits."""

    def __init__(self, directory: Path, url: str, token: str, broker: str, day: Day) -> None:
        self.settings = Settings(
            service_url=url,
            worker_token=token,
            broker_url=broker,
            worker_name="gpu-host",
            device="cpu",  # no GPU is looked for; what is reported is of the class that jobs ask for
            device_name="scripted, no GPU",
            hardware=day_report.HARDWARE,
            cache_dir=directory / "cache",
        )
        self.api, self.day = Api(self.settings), day
        self.wire = Wire(day.storm)
        self.api._client = httpx.Client(
            base_url=self.api._client.base_url, headers=self.api._client.headers, transport=self.wire
        )
        self.api.hello(self.settings, {}, patience=60)

    def work(self, waiting: int) -> None:
        """Claims and measures as often as jobs are said to wait."""
        with patch.object(attempt, "Attempt", partial(_Attempt, self.day)):
            for _ in range(waiting):
                try:
                    attempt.measure(self.settings, self.api, None)
                except PowerCut:
                    return


class _Git:
    """git's answers."""

    def __init__(self, day: Day) -> None:
        self.day = day

    def fetch(self, head: str, base: str | None, pull_request: int | None) -> None:
        if head not in self.day.history.commits:
            raise AttemptFailed("checkout_error", f"there is no commit {head}")

    def resolve(self, head: str, base: str | None) -> tuple[checkout.Commit, checkout.Commit | None]:
        history, found = self.day.history, self._describe(head)
        if base is not None:
            return found, self._describe(history.merge_base(head, base))
        return found, self._describe(found.parents[0]) if found.parents else None

    def manifest(self, sha: str) -> str:
        return MANIFEST

    def _describe(self, sha: str) -> checkout.Commit:
        commit, at = self.day.history.commits[sha], self.day.clock.real(self.day.history.commits[sha].moment)
        return checkout.Commit(sha, commit.message, "Ada", "ada@example.com", at, commit.parents)


class _Attempt(attempt.Attempt):
    """The worker's attempt, but for git, builds and the ruler."""

    def __init__(self, day: Day, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.day = day
        self.repository: Any = _Git(day)

    def build(self, *_: object) -> tuple[dict[Any, Any], dict[Any, Any]]:
        return {}, {}

    def measure(self, head: checkout.Commit, base: checkout.Commit | None, *_: object) -> dict[str, Any]:
        with self.lifeline.step("run"):
            return {"status": "measured", "report": self._report(head, base)}

    def _report(self, head: checkout.Commit, base: checkout.Commit | None) -> dict[str, Any]:
        if self.day.power_cut_at == head.sha:
            self.day.power_cut_at = None
            raise PowerCut
        history = self.day.history.commits
        commits = {"head": history[head.sha], **({"base": history[base.sha]} if base else {})}
        throttled = self.day.throttle_pushes and self.job["kind"] == "push"
        self.day.measured.append((self.job["kind"], head.sha))
        moment = self.day.clock.real(self.day.clock.now())
        return day_report.make(commits, self.day.random, moment, throttled=throttled)


class Wire(httpx.BaseTransport):
    """The worker's network. Lost is a request that never arrives, doubled one that arrives twice, delayed one that
    arrives after the next although the worker has given up waiting for its answer."""

    def __init__(self, storm: Storm) -> None:
        self._storm, self._real, self._lock = storm, httpx.HTTPTransport(), threading.Lock()
        self._held: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, or does not."""
        request.read()
        fate = self._storm.fate("worker")
        with self._lock:
            held, self._held = self._held, [request] if fate == "delayed" else []
        if fate == "lost":
            self._arrive(held)
            raise httpx.ConnectError("the storm took it", request=request)
        if fate == "delayed":
            self._arrive(held)
            raise httpx.ReadTimeout("the storm holds it", request=request)
        if fate == "doubled":
            self._arrive([request])
        answer = self._real.handle_request(request)
        answer.read()
        self._arrive(held)
        return answer

    def deliver_late(self) -> None:
        """What was delayed arrives."""
        with self._lock:
            held, self._held = self._held, []
        self._arrive(held)

    def _arrive(self, requests: list[httpx.Request]) -> None:
        for request in requests:
            self._real.handle_request(request).read()

    def close(self) -> None:
        """Ends the connections."""
        self._real.close()
