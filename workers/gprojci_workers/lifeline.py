"""Keeps an attempt alive: heartbeats, steps and log lines go to the service while the work is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from gprojci_workers.api import Api, ServiceRefused, ServiceUnreachable
from gprojci_workers.failure import AttemptCancelled

logger = logging.getLogger(__name__)

CHUNK = 200_000
RESOLVED_PATIENCE = 60.0
LAST_PATIENCE = 60.0


class Lifeline:
    """The attempt's connection to the service, kept by a thread of its own from entry to exit."""

    def __init__(self, api: Api, attempt: dict[str, Any], stopping: Callable[[], bool] = lambda: False) -> None:
        self._api = api
        self._stopping = stopping
        self._attempt_id = int(attempt["id"])
        self.fencing_token = int(attempt["fencing_token"])
        self._interval = float(attempt["heartbeat_seconds"])
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._steps: list[dict[str, Any]] = []
        self._resolved: dict[str, Any] | None = None
        self._text = ""
        self._chunk = ""
        self._sequence = 0
        self._thread = threading.Thread(target=self._run, name="lifeline", daemon=True)

    def __enter__(self) -> Lifeline:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(timeout=120)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps so far, as the worker API takes them."""
        with self._lock:
            return [dict(step) for step in self._steps]

    def should_stop(self) -> bool:
        """Whether to end: the service no longer wants this attempt, or this worker is told to stop."""
        return self._lost.is_set() or self._stopping()

    @property
    def is_ours(self) -> bool:
        """Whether the service still takes what is said of this attempt."""
        return not self._lost.is_set()

    def log(self, text: str) -> None:
        """Adds to the log that the job's page shows."""
        with self._lock:
            self._text += text

    def resolved(self, commits: dict[str, Any]) -> None:
        """Tells the service which commits are measured, before anything is built: it may refuse them."""
        self._resolved = commits
        self._beat(patience=RESOLVED_PATIENCE)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a step and shows it; a step that raises is marked failed."""
        if self.should_stop():
            raise AttemptCancelled(f"given up before step {name}")
        began = time.monotonic()
        entry: dict[str, Any] = {
            "name": name,
            "started_at": datetime.now(UTC).isoformat(),
            "seconds": None,
            "status": "running",
        }
        with self._lock:
            self._steps.append(entry)
        self._wake.set()
        try:
            yield
        except BaseException:
            entry.update(status="failed", seconds=time.monotonic() - began)
            raise
        entry.update(status="ok", seconds=time.monotonic() - began)

    def flush(self) -> None:
        """Sends what was logged and not sent yet; on an outage it stays for the next time, unchanged: the service may
        have stored it although its answer was lost, and passes over what comes again under the same number."""
        self._send_chunk(patience=0)

    def flush_all(self) -> None:
        """Sends the whole rest before the report, after which the service takes no more lines."""
        while self._send_chunk(patience=LAST_PATIENCE):
            pass

    def _send_chunk(self, patience: float) -> bool:
        """Sends the next lines; returns whether there were any and they arrived."""
        with self._flushing:
            with self._lock:
                self._chunk = self._chunk or self._text[:CHUNK]
            return bool(self._chunk) and self.is_ours and self._send(patience)

    def _send(self, patience: float) -> bool:
        body = {"fencing_token": self.fencing_token, "sequence": self._sequence, "text": self._chunk}
        try:
            self._api.log(self._attempt_id, body, patience=patience)
        except ServiceUnreachable as error:
            logger.warning("log of attempt %d: %s", self._attempt_id, error)
            return False
        except (AttemptCancelled, ServiceRefused) as error:
            logger.warning("log of attempt %d is refused: %s", self._attempt_id, error)
            self._lost.set()
            return False
        with self._lock:
            self._text, self._chunk = self._text[len(self._chunk) :], ""
        self._sequence += 1
        return True

    def _run(self) -> None:
        next_beat = 0.0
        while not self._ended.is_set():
            due = self._wake.is_set() or time.monotonic() >= next_beat
            self._wake.clear()
            if due and self.is_ours:
                self._beat()
                next_beat = time.monotonic() + self._interval
            self.flush()
            self._wake.wait(timeout=min(1.0, self._interval))

    def _beat(self, patience: float = 0) -> None:
        steps = self.steps
        running = [step["name"] for step in steps if step["status"] == "running"]
        body = {
            "fencing_token": self.fencing_token,
            "step": running[-1] if running else None,
            "steps": steps,
            "resolved": self._resolved,
        }
        try:
            if self._api.heartbeat(self._attempt_id, body, patience=patience):
                self._lost.set()
        except ServiceRefused as error:
            logger.error("heartbeat of attempt %d is refused: %s", self._attempt_id, error)
            self._lost.set()
