"""Where webhooks that arrive together are stored together: one transaction and one message for all that wait."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

from sqlalchemy.exc import DataError

from gprojci_service import logs
from gprojci_service.database import Database
from gprojci_service.webhooks import service
from gprojci_service.webhooks.schemas import Accepted, Delivery

_MOST = 64
"""Deliveries of one transaction."""


@dataclass
class _Waiting:
    event: str | None
    delivery_id: str | None
    body: bytes
    answer: Future[Accepted] = field(default_factory=Future)


class Intake:
    """One thread of a process that stores deliveries; those that come while it stores are stored next, together.

    A burst so costs one commit and one message for many, and a single webhook waits for nobody.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="webhooks")

    def take(self, event: str | None, delivery_id: str | None, body: bytes) -> Future[Accepted]:
        """Has an authentic delivery stored; the future ends once it is, or with the error of `service.read` or of the
        database."""
        waiting = _Waiting(event, delivery_id, body)
        self._waiting.append(waiting)
        # Finds nothing where it was stored with those before it; a trace follows the first of those stored together.
        self._thread.submit(copy_context().run, self._store_waiting)
        return waiting.answer

    def _store_waiting(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST))]
        with logs.fresh():
            self._store([one for one in batch if one.answer.set_running_or_notify_cancel()])

    def _store(self, batch: list[_Waiting]) -> None:
        read: list[tuple[_Waiting, Delivery]] = []
        for waiting in batch:
            try:
                read.append((waiting, service.read(waiting.event, waiting.delivery_id, waiting.body)))
            except Exception as error:  # noqa: BLE001 (whoever waits has it)
                waiting.answer.set_exception(error)
        if not read:
            return
        try:
            with self._database.session(writes=True) as session:
                answers = service.receive(session, [delivery for _, delivery in read])
        except (DataError, UnicodeEncodeError) as error:  # one of them cannot be stored: each for itself
            if len(read) == 1:
                read[0][0].answer.set_exception(error)
                return
            for waiting, _ in read:
                self._store([waiting])
        except Exception as error:  # noqa: BLE001 (whoever waits has it)
            for waiting, _ in read:
                waiting.answer.set_exception(error)
        else:
            for (waiting, _), answer in zip(read, answers, strict=True):
                waiting.answer.set_result(answer)
