"""Client of the worker API: every call is idempotent and is repeated until the service has answered it."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gprojci_workers.failure import AttemptCancelled
from gprojci_workers.settings import Settings

logger = logging.getLogger(__name__)


class ServiceRefused(Exception):
    """The service answered with an error that no repetition will change."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(f"HTTP {status} {error}: {detail}")
        self.status = status
        self.error = error


class ServiceUnreachable(Exception):
    """The service did not answer for as long as was waited."""


class _TryAgain(Exception):
    """The service answered that it cannot now."""


class Api:
    """Speaks to the service with the worker's token."""

    def __init__(self, settings: Settings) -> None:
        self._worker = {"worker": settings.worker_name, "boot_id": settings.boot_id}
        self._client = httpx.Client(
            base_url=settings.service_url.rstrip("/") + "/api/v1/worker",
            headers={"Authorization": f"Bearer {settings.worker_token.get_secret_value()}"},
            timeout=httpx.Timeout(60, connect=5),
        )

    def hello(self, settings: Settings, environment: dict[str, Any], *, patience: float) -> dict[str, Any]:
        """Says that this worker has started."""
        return self._post(
            "/hello",
            {
                "name": settings.worker_name,
                "hardware": settings.hardware,
                "device": settings.device,
                "device_name": settings.device_name,
                "boot_id": settings.boot_id,
                "environment": environment,
            },
            patience=patience,
        )

    def alive(self) -> bool:
        """Says that this worker is there; True means that it is drained. One try, the next one is the repetition."""
        return bool(self._post("/alive", self._worker, patience=0).get("draining"))

    def claim(self, job_id: int | None) -> dict[str, Any] | None:
        """Takes an attempt, or None where nothing waits."""
        answer = self._post("/claim", {**self._worker, "claim_id": uuid.uuid4().hex, "job_id": job_id}, patience=60)
        return answer or None

    def heartbeat(self, attempt_id: int, body: dict[str, Any], *, patience: float = 0) -> bool:
        """Renews the lease; True means that the attempt is to be given up. Mostly one try: the next beat repeats it."""
        try:
            answer = self._post(f"/attempts/{attempt_id}/heartbeat", body, patience=patience)
        except ServiceUnreachable as error:
            logger.warning("heartbeat of attempt %d: %s", attempt_id, error)
            return False
        except AttemptCancelled:
            return True
        return bool(answer["cancel"])

    def log(self, attempt_id: int, body: dict[str, Any], *, patience: float = 0) -> None:
        """Sends some lines; mostly raises ServiceUnreachable at once so that they are kept and sent later."""
        self._post(f"/attempts/{attempt_id}/log", body, patience=patience)

    def known(self, attempt_id: int, body: dict[str, Any], *, patience: float) -> dict[str, Any]:
        """Whether the very same was measured before: `report_id` and `job_id`, None where it was not."""
        return self._post(f"/attempts/{attempt_id}/known", body, patience=patience)

    def give_back(self, attempt_id: int, body: dict[str, Any], *, patience: float) -> None:
        """Hands an attempt back, so that its job waits again at once."""
        self._post(f"/attempts/{attempt_id}/return", body, patience=patience)

    def report(self, attempt_id: int, body: dict[str, Any], *, patience: float) -> dict[str, Any]:
        """Sends the terminal message until it is acknowledged."""
        return self._post(f"/attempts/{attempt_id}/report", body, patience=patience)

    def input_set(self, name: str, *, patience: float) -> dict[str, Any] | None:
        """An uploaded input set by name or content hash, or None where there is none."""

        def ask() -> dict[str, Any]:
            return self._answer(self._client.get(f"/inputs/{quote(name, safe='')}"))

        try:
            return self._patiently(f"/inputs/{name}", ask, patience)
        except ServiceRefused as refused:
            if refused.error == "InputSetNotFound":
                return None
            raise

    def download(self, name: str, path: Path, *, patience: float, should_stop: Callable[[], bool]) -> None:
        """Writes the file of an uploaded input set; one that breaks off goes on where it ended.

        Raises:
            AttemptCancelled: the attempt is to be given up.
        """
        path.touch()

        def fetch() -> dict[str, Any]:
            have = path.stat().st_size
            headers = {"Range": f"bytes={have}-"} if have else {}
            with self._client.stream("GET", f"/inputs/{quote(name, safe='')}/file", headers=headers) as response:
                if response.status_code == 416:  # it broke off behind the last byte
                    return {}
                if not response.is_success:
                    response.read()
                    return self._answer(response)
                with path.open("ab" if response.status_code == 206 else "wb") as file:
                    for chunk in response.iter_raw():  # as it comes: a buffer would be lost with the connection
                        file.write(chunk)
                        if should_stop():
                            raise AttemptCancelled("the job was cancelled while an input set was fetched")
            return {}

        self._patiently(f"/inputs/{name}/file", fetch, patience)

    def _post(self, path: str, body: dict[str, Any], *, patience: float) -> dict[str, Any]:
        return self._patiently(path, lambda: self._answer(self._client.post(path, json=body)), patience)

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        """The JSON of a success; raises _TryAgain for what may pass, else what the service said."""
        if response.is_success:
            return response.json() if response.content else {}
        if response.status_code < 500 and response.status_code not in (408, 429):
            raise self._refusal(response)
        raise _TryAgain(f"HTTP {response.status_code}: {response.text[:200]}")

    @staticmethod
    def _patiently(path: str, ask: Callable[[], dict[str, Any]], patience: float) -> dict[str, Any]:
        give_up, wait = time.monotonic() + patience, 0.5
        while True:
            try:
                return ask()
            except _TryAgain as error:
                problem = str(error)
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() + wait > give_up:
                raise ServiceUnreachable(f"{path}: {problem}")
            logger.warning("%s: %s; again in %.1f s", path, problem, wait)
            time.sleep(wait * random.uniform(0.7, 1.3))  # noqa: S311
            wait = min(wait * 2, 30)

    @staticmethod
    def _refusal(response: httpx.Response) -> Exception:
        try:
            body = response.json()
        except ValueError:
            body = {}
        error, detail = str(body.get("error", "")), str(body.get("detail", response.text[:200]))
        if error == "LeaseLost":
            return AttemptCancelled(detail)
        return ServiceRefused(response.status_code, error, detail)
