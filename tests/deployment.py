"""The service as it runs for real, for tests: separate processes on PostgreSQL and Redis, or `gprojci serve`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from gprojci_service.access import service as access
from gprojci_service.context import Context
from gprojci_service.github.signature import sign
from gprojci_service.settings import load_settings

BIN = Path(sys.executable).parent
SECRET = "a secret of the tests"
PATIENCE = 150.0
WIRE = httpx.Client(timeout=30, limits=httpx.Limits(max_keepalive_connections=0))
"""One for all: making a client reads every certificate anew, 30 ms of CPU, and tests ask several times a second."""
PASSED_ON = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
"""What the service keeps of the tests' environment: where programs lie, and how many cores are these tests' own."""

KERNEL = '''"""A small kernel under test."""
import torch

def attention(q, k, v, *, causal, softmax_scale):
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale)
    return o
'''
WRONG = KERNEL.replace("    return o", "    return o * 1.05")
SLOW = KERNEL.replace("import torch\n", "import time, torch\ntime.sleep(4)\n")
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "tiny-kernel"
version = "1.0"
"""
MANIFEST = """
[backends.tiny]
entry = "tiny_kernel:attention"
[accuracy]
inputs = ["synthetic:random?seq=64&heads=1"]
peers = ["sdpa-math"] # the anchor too, in one process: each takes a torch
[throughput]
anchor = "sdpa-math"
shapes = ["1x1x64x64"]
pairs = 4
max_pairs = 4
[gate]
dq_error_ceiling = 0.01
"""


class KernelRepository:
    """A git repository whose commits hold a small kernel; GitHub knows it by `number` and `name`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.number, self.name = 1, "o/tiny"
        (directory / "tiny_kernel").mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch", "main")
        (directory / "pyproject.toml").write_text(PYPROJECT)
        (directory / "gprojci.toml").write_text(MANIFEST)
        self.first = self.commit(KERNEL, "first")

    def commit(self, kernel: str, message: str) -> str:
        """Commits a kernel; returns the SHA."""
        (self.directory / "tiny_kernel" / "__init__.py").write_text(kernel)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "-m", message)
        return self._git("rev-parse", "HEAD").strip()

    def branch(self, name: str) -> None:
        """Begins a branch here."""
        self._git("switch", "--quiet", "--create", name)

    def push(self, sha: str) -> dict[str, Any]:
        """GitHub's payload of a push of this commit to main."""
        commit = {
            "id": sha,
            "message": "m",
            "timestamp": "2026-01-02T03:04:05Z",
            "author": {"name": "A", "email": "a@b.c"},
        }
        return {
            "ref": "refs/heads/main",
            "before": "0" * 40,
            "after": sha,
            "deleted": False,
            "head_commit": commit,
            "repository": self._payload(),
        }

    def pull_request(self, head: str, base: str) -> dict[str, Any]:
        """GitHub's payload of an opened pull request."""
        repository = self._payload()
        return {
            "action": "opened",
            "number": 1,
            "repository": repository,
            "pull_request": {
                "title": "t",
                "state": "open",
                "merged": False,
                "draft": False,
                "user": {"login": "a"},
                "html_url": None,
                "head": {"sha": head, "ref": "topic", "repo": repository},
                "base": {"sha": base, "ref": "main", "repo": repository},
            },
        }

    def merge_group(self, head: str, base: str) -> dict[str, Any]:
        """GitHub's payload of a merge group that is to be measured."""
        group = {"head_sha": head, "base_sha": base, "base_ref": "refs/heads/main"}
        group |= {"head_ref": "refs/heads/gh-readonly-queue/main/pr-1-x", "head_commit": self.push(head)["head_commit"]}
        return {"action": "checks_requested", "repository": self._payload(), "merge_group": group}

    def _payload(self) -> dict[str, Any]:
        url = self.directory.as_uri()
        return {
            "id": self.number,
            "full_name": self.name,
            "clone_url": url,
            "html_url": url,
            "default_branch": "main",
            "private": False,
        }

    def _git(self, *arguments: str) -> str:
        names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "GIT_CONFIG_GLOBAL": os.devnull,
            **names,
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.directory, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout


class Running:
    """A running service: what a test does to it from outside."""

    url = ""
    secret = SECRET
    write_token = ""
    directory: Path

    def command(self, *arguments: str) -> str:
        """What `gprojci` prints, spoken to this service as somebody who may write."""
        environment = {"PATH": os.environ["PATH"], "GPROJCI_URL": self.url, "GPROJCI_TOKEN": self.write_token}
        done = subprocess.run(
            [str(BIN / "gprojci"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def deliver(
        self, event: str, payload: dict[str, Any], *, delivery: str | None = None, secret: str | None = None
    ) -> httpx.Response:
        """Sends a signed webhook."""
        body = json.dumps(payload).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
            "X-Hub-Signature-256": sign(body, secret or self.secret),
        }
        return WIRE.post(f"{self.url}/webhooks/github", content=body, headers=headers)

    def get(self, path: str, **parameters: Any) -> Any:
        """Reads the API."""
        answer = WIRE.get(f"{self.url}/api/v1{path}", params=parameters)
        answer.raise_for_status()
        return answer.json()

    def job_of(self, sha: str, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The commit's job, once it is as wished."""
        give_up = time.monotonic() + PATIENCE
        job: dict[str, Any] = {}
        while time.monotonic() < give_up:
            jobs = self.get("/jobs", head_sha=sha)
            job = self.get(f"/jobs/{jobs[0]['id']}") if jobs else {}
            if job and ready(job):
                return job
            time.sleep(0.4)  # each time it is asked takes the service some 20 ms of CPU
        raise AssertionError(f"job of {sha} is not as wished: {json.dumps(job)[:3000]}\n{self.logs()}")

    def finished(self, sha: str) -> dict[str, Any]:
        """The commit's job, once it has ended."""
        return self.job_of(sha, lambda job: job["state"] in ("finished", "cancelled"))

    def in_step(self, sha: str, step: str) -> dict[str, Any]:
        """The commit's job, once its newest attempt is in this step."""
        return self.job_of(sha, lambda job: bool(job["attempts"]) and job["attempts"][-1]["step"] == step)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-2500:]}" for path in self.directory.rglob("logs/*.log")
        )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes(Running):
    """The deployed form: web server, task worker and measuring worker as processes of their own."""

    def __init__(self, directory: Path, database_url: str, broker_url: str) -> None:
        self.directory = directory
        (directory / "logs").mkdir(parents=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            **PASSED_ON,
            "HOME": str(directory),
            "GPROJCI_DATABASE_URL": database_url,
            "GPROJCI_BROKER_URL": broker_url,
            "GPROJCI_WEBHOOK_SECRET": SECRET,
            "GPROJCI_PUBLIC_URL": self.url,
            "GPROJCI_LEASE_SECONDS": "4",
            "GPROJCI_HEARTBEAT_SECONDS": "1",
            "GPROJCI_REAPER_SECONDS": "1",
            "GPROJCI_SERVICE_URL": self.url,
            "GPROJCI_DEVICE": "cpu",
            "GPROJCI_PRIVATE_REPOSITORIES": "true",  # the kernel's is a directory
            "GPROJCI_CACHE_DIR": str(directory / "cache"),
            "GPROJCI_UPLOAD_DIR": str(directory / "uploads"),
        }
        context = Context.open(load_settings(database_url=database_url, broker_url=broker_url, webhook_secret=SECRET))
        with context.database.session(writes=True) as session:
            self.environment["GPROJCI_WORKER_TOKEN"] = access.create_token(session, "host", "worker")[1]
            self.write_token = access.create_token(session, "people", "admin")[1]
        context.database.close()
        celery = [
            str(BIN / "celery"),
            "-A",
            "gprojci_service.task_worker",
            "worker",
            "-Q",
            "service",
            "--concurrency",
            "1",
            "--beat",
        ]
        uvicorn = [
            str(BIN / "uvicorn"),
            "--factory",
            "gprojci_service.app:create_from_environment",
            "--port",
            str(port),
        ]
        self.commands = {
            "web": uvicorn,
            "tasks": celery,
            "worker": [str(BIN / "gprojci-worker")],
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        self.start("web")
        self.start("tasks")  # beside the other, since both take their seconds
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            try:
                if WIRE.get(f"{self.url}/readyz", timeout=2).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        self.start("worker")
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def start(self, name: str) -> None:
        """Starts a part."""
        with (self.directory / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.commands[name],
                env=self.environment,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """kill -9 of a part's main process."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(timeout=30)

    def stop(self, name: str) -> None:
        """Asks a part to end, as `docker stop` and systemd do, and waits for it."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(timeout=30)

    def kill_worker(self) -> None:
        """kill -9 of the measuring worker, and another one started on the same host."""
        self.kill("worker")
        self.start("worker")


class Embedded(Running):
    """The embedded form: `gprojci serve` with everything in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Embedded:
        environment = {
            **PASSED_ON,
            "HOME": str(self.directory),
            "GPROJCI_DEVICE": "cpu",
            "GPROJCI_PRIVATE_REPOSITORIES": "true",  # the kernel's is a directory
            "GPROJCI_LEASE_SECONDS": "4",
            "GPROJCI_HEARTBEAT_SECONDS": "1",
            "GPROJCI_REAPER_SECONDS": "1",
        }
        command = [str(BIN / "gprojci"), "serve", "--data-dir", str(self.directory), "--port", "0"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " is at http" in line, f"{line}\n{self.logs()}"
        self.url = line.split(" is at ")[1].split()[0]
        self.secret = (self.directory / "webhook-secret").read_text().strip()
        self.write_token = (self.directory / "token").read_text().strip()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop(signal.SIGTERM)

    def family(self) -> list[psutil.Process]:
        """All processes of the service but the supervisor."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, how: int) -> int:
        """Ends the supervisor with a signal; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        if self.process.stdout:
            self.process.stdout.close()
        self.process = None
        return code

    def kill_worker(self) -> None:
        """kill -9 of the measuring worker's main process; the supervisor starts another."""
        mains = [process for process in self.family() if "gprojci-worker" in " ".join(process.cmdline())]
        mains[0].kill()
