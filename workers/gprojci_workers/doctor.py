"""`gprojci-worker --doctor`: looks at what a measuring host needs, and says of what is wrong what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

import httpx
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from gprojci_workers import isolation, sandbox
from gprojci_workers.build import files_of, ruler_versions
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.settings import Settings

PATIENCE_SECONDS = 10.0
LEAST_FREE_BYTES = 20 * 2**30
"""A build with its own torch takes some gigabytes."""
MOST_SKEW_SECONDS = 30.0
_TORCH = "import torch; print(torch.__version__, torch.cuda.is_available(), torch.version.cuda)"
_COMPUTES = "import sys, torch; print(float(torch.ones(2, device=sys.argv[1]).sum()))"

Outcome = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    found: str
    to_do: str = ""
    """What sets it right; empty where nothing is wrong."""


def examine(settings: Settings) -> Iterator[Check]:
    """Looks at one thing after the other; changes nothing but a file that it makes in the cache and removes."""
    yield from service(settings)
    yield broker(settings)
    yield device(settings)
    yield ruler(settings)
    yield git()
    yield disk(settings)
    yield enclosed(settings)
    if settings.device == "cuda":
        yield locks(settings)


def service(settings: Settings) -> Iterator[Check]:
    """Whether the service answers, takes the token, and has the same time."""
    url, token = settings.service_url.rstrip("/"), settings.worker_token.get_secret_value()
    try:
        answer = httpx.post(
            f"{url}/api/v1/worker/alive",
            json={"worker": settings.worker_name},
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE_SECONDS,
        )
    except httpx.HTTPError as error:
        to_do = "GPROJCI_SERVICE_URL: is the address right, and reached from this host?"
        yield Check("service", "wrong", f"{url}: {type(error).__name__}: {error}", to_do)
        return
    if answer.status_code in (401, 403):
        to_do = f"make a token: `gprojci token create {settings.worker_name} --scope worker`, into GPROJCI_WORKER_TOKEN"
        yield Check("service", "wrong", f"{url} refuses the token: {_detail(answer)}", to_do)
    elif answer.status_code == 404 and "WorkerNotFound" in answer.text:
        yield Check("service", "ok", f"{url} takes the token; {settings.worker_name} has not said hello yet")
    elif answer.is_success:
        drained = answer.json().get("draining")
        to_do = f"`gprojci worker resume {settings.worker_name}`" if drained else ""
        known = f"{url} knows {settings.worker_name}{', which is drained' if drained else ''}"
        yield Check("service", "warning" if drained else "ok", known, to_do)
    else:
        yield Check("service", "wrong", f"{url}: HTTP {answer.status_code}", "see the service's log; `gprojci doctor`")
    if "date" in answer.headers:
        apart = abs((datetime.now(UTC) - parsedate_to_datetime(answer.headers["date"])).total_seconds())
        outcome: Outcome = "ok" if apart <= MOST_SKEW_SECONDS else "warning"
        to_do = "" if outcome == "ok" else "run chrony or systemd-timesyncd on both: the pages show this host's times"
        yield Check("clock", outcome, f"{apart:.0f} s from the service's", to_do)


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"


def broker(settings: Settings) -> Check:
    app = Celery(broker=settings.broker_url, set_as_current=False)
    app.conf.broker_transport_options = {"socket_connect_timeout": PATIENCE_SECONDS, "max_retries": 0}
    try:
        with app.connection_for_read() as connection:
            connection.default_channel.client.ping()
    except (OperationalError, RedisError, OSError) as error:
        return Check("broker", "wrong", str(error), "GPROJCI_BROKER_URL: is the address right, and reached from here?")
    return Check("broker", "ok", "answers")


def device(settings: Settings) -> Check:
    """The GPU and its driver, as nvidia-smi knows them; who else computes on it would disturb measurements."""
    if settings.device != "cuda":
        return Check("device", "ok", f"{settings.device_name}, class {settings.hardware}")
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,persistence_mode", "--format=csv,noheader"]
    facts = _output(query).strip().splitlines()
    others = _output(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]).split()
    found = f"{'; '.join(facts)}, class {settings.hardware}"
    if others:
        return Check(
            "device", "warning", f"{found}; processes {', '.join(others)} compute on it", "end them or move them"
        )
    if any(line.endswith("Disabled") for line in facts):
        to_do = "turn persistence on (`nvidia-smi -pm 1`, or nvidia-persistenced): the GPU wakes up slowly otherwise"
        return Check("device", "warning", found, to_do)
    return Check("device", "ok", found)


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def ruler(settings: Settings) -> Check:
    """The ruler's interpreter, and whether its torch sees the GPU."""
    path = settings.ruler_python
    try:
        versions = ruler_versions(path)
    except (AttemptFailed, OSError) as error:
        return Check("ruler", "wrong", str(error), "GPROJCI_RULER_PYTHON: install gprojci-suite with torch there")
    done = subprocess.run([path, "-P", "-c", _TORCH], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return Check(
            "ruler", "wrong", done.stderr.strip()[-300:], f"torch cannot be imported by {path}: install it anew"
        )
    torch, sees, cuda = done.stdout.split()
    found = f"gprojci-suite {versions['ruler']}, torch {torch}"
    if settings.device == "cuda" and sees != "True":
        to_do = f"install a torch for CUDA that this driver runs (this one is for CUDA {cuda})"
        return Check("ruler", "wrong", f"{found}, which sees no GPU", to_do)
    return Check("ruler", "ok", found)


def git() -> Check:
    if not shutil.which("git"):
        return Check("git", "wrong", "is not there", "install git: commits are fetched with it")
    return Check("git", "ok", _output(["git", "--version"]).strip())


def enclosed(settings: Settings) -> Check:
    """Whether this host gives namespaces, in which code under test is kept apart, and whether torch computes there."""
    if not isolation.is_possible():
        to_do = (
            "allow unprivileged user namespaces, or grant the container what docker/README.md lists; unshare, setpriv"
        )
        return Check("sandbox", "wrong", "this host makes no sandbox: no code under test is run", to_do)
    said: list[str] = []
    try:
        scratch = tempfile.TemporaryDirectory(dir=settings.cache_dir, prefix=".doctor-")
    except OSError as error:
        return Check("sandbox", "wrong", f"not tried: {error}", "give GPROJCI_CACHE_DIR to the worker's user first")
    with scratch as home:
        result = sandbox.run(
            [str(settings.ruler_python), "-P", "-c", _COMPUTES, settings.device],
            directory=Path(home),
            limits=sandbox.Limits(300.0, settings.memory_bytes, settings.output_bytes),
            network=False,
            files=files_of(settings, writable=(Path(home),), readable=()),
            unsandboxed=False,
            on_output=said.append,
            should_stop=lambda: False,
        )
    if result.outcome != "exited" or result.returncode != 0:
        last = next((line for line in reversed("".join(said).splitlines()) if line.strip()), result.outcome)
        to_do = "see `ruler` for what is outside it; workers/README.md, The sandbox, says what is to be found in it"
        return Check("sandbox", "wrong", f"torch does not compute on {settings.device} in it: {last[-300:]}", to_do)
    return Check(
        "sandbox", "ok", f"namespaces: network, processes and files apart; torch computes on {settings.device}"
    )


def disk(settings: Settings) -> Check:
    path = settings.cache_dir
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".doctor-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return Check("disk", "wrong", f"{path}: {error.strerror}", "GPROJCI_CACHE_DIR: give it to the worker's user")
    free = shutil.disk_usage(path).free
    found = f"{free / 2**30:.0f} GiB free for {path}"
    if free < LEAST_FREE_BYTES:
        return Check("disk", "warning", found, "make room, or lower GPROJCI_KEPT_BUILDS: builds are kept there")
    return Check("disk", "ok", found)


def locks(settings: Settings) -> Check:
    path: Path = settings.lock_dir
    if path.is_dir() and os.access(path, os.W_OK):
        return Check("GPU lock", "ok", str(path))
    to_do = "GPROJCI_LOCK_DIR: a directory that all workers of this host can write"
    return Check("GPU lock", "wrong", f"{path} cannot be written", to_do)
