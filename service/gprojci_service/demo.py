"""`gprojci demo`: the whole path for real, on this project's own kernel.

Makes a small git repository, starts the embedded service, delivers signed webhooks in GitHub's format to it, and waits
for three verdicts: a good commit passes, a pull request that optimises the projection away fails, its fix passes.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import click
import httpx

from gprojci_service.demo_repository import NAME, DemoRepository
from gprojci_service.errors import ConfigurationError
from gprojci_service.github.signature import sign
from gprojci_suite.contract.training import is_training

EXPECTED = ("pass", "fail", "pass")
MARKS = {"pass": "✓", "fail": "✗", "neutral": "–", "error": "!"}
JOB_SECONDS = 900.0
POLL_SECONDS = 1.0
EXAMPLES = Path("kernels", "suite", "examples")


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".demo"),
    show_default=True,
    help="Emptied at the start, but for its caches.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="A checkout of GProj CI; default: the current directory.",
)
@click.option("--port", default=8321, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--once",
    is_flag=True,
    envvar="DEMO_ONCE",
    help="End with the verdicts (DEMO_ONCE=1): exit code 0 exactly if they are pass, fail, pass.",
)
def demo(data_dir: Path, source: Path, port: int, once: bool) -> None:
    """Shows the whole path, webhook to verdict, on this machine."""
    repository = DemoRepository(data_dir / "repository", source)
    _clear(data_dir)
    repository.create()
    with _Service(data_dir, port) as service:
        _show_examples(service, source)
        verdicts = _play(service, repository)
        good = tuple(entry["verdict"]["verdict"] for entry in verdicts) == EXPECTED and _names_the_fault(verdicts[1])
        _conclude(service, verdicts, good)
        if not once:
            click.echo("\nThe service keeps running; Ctrl-C ends it.")
            service.wait()
    sys.exit(0 if good else 1)


def _clear(data_dir: Path) -> None:
    """Removes what an earlier demo left, except its clones and builds, which are worth keeping.

    Raises:
        ConfigurationError: a service still runs on the directory; nothing of it is touched.
    """
    if (data_dir / "lock").exists():
        with (data_dir / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigurationError(f"{data_dir} is in use; stop that service first (Ctrl-C)") from error
    for entry in data_dir.iterdir() if data_dir.is_dir() else ():
        if entry.name == "lock" or entry.name == "cache":
            continue
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _show_examples(service: _Service, source: Path) -> None:
    """Imports the checkout's example reports, so that the pages show sessions of real GPUs from the first minute."""
    headers = {"Authorization": f"Bearer {(service.data_dir / 'token').read_text().strip()}"}
    for file in sorted((source / EXAMPLES).glob("*.json.gz")):
        name = file.name.removesuffix(".json.gz")
        click.echo(f"example {name}: {service.url}{_show_example(service.url, headers, name, file)}")


def _show_example(url: str, headers: dict[str, str], name: str, file: Path) -> str:
    """Imports one report, of whatever kind it is, and returns the path of its page."""
    body = gzip.decompress(file.read_bytes())
    sent: dict[str, Any] = {"content": body, "headers": headers, "timeout": 60}
    report = json.loads(body)
    if is_training(report):
        answer = httpx.put(f"{url}/api/v1/training/{report['name']}", **sent)
    else:
        answer = httpx.post(f"{url}/api/v1/reports", params={"title": f"Example {name}"}, **sent)
    answer.raise_for_status()
    taken = answer.json()
    return f"/training/{taken['name']}" if is_training(report) else f"/reports/{taken['id']}"


def _play(service: _Service, repository: DemoRepository) -> list[dict[str, Any]]:
    service.deliver("ping", repository.ping_payload())
    click.echo(f"\n1. A good commit is pushed to main of {NAME}.")
    service.deliver("push", repository.push_payload())
    verdicts = [service.follow(repository.sha("main"))]
    click.echo("\n2. A pull request 'optimises' the projection away.")
    repository.skip_projection()
    service.deliver("pull_request", repository.pull_request_payload("opened"))
    verdicts.append(service.follow(repository.sha("skip-projection")))
    click.echo("\n3. Its author restores the projection.")
    repository.restore_projection()
    service.deliver("pull_request", repository.pull_request_payload("synchronize"))
    verdicts.append(service.follow(repository.sha("skip-projection")))
    return verdicts


def _names_the_fault(entry: dict[str, Any]) -> bool:
    """Whether the failing verdict names dQ, the input set, the head, and the value against its limit."""
    return any(
        finding["verdict"] == "fail"
        and finding["limit_key"] == "dq_error_ceiling"
        and finding["case"] == "late-keybias"
        and finding["slice"]
        and finding["value"] > finding["limit"]
        for finding in entry["verdict"]["evidence"]
    )


def _conclude(service: _Service, verdicts: list[dict[str, Any]], good: bool) -> None:
    click.echo("\nVerdicts")
    for title, entry in zip(("good commit", "projection removed", "projection restored"), verdicts, strict=True):
        verdict = entry["verdict"]
        click.echo(f"  {MARKS[verdict['verdict']]} {verdict['verdict']:7} {title:20} {service.url}/jobs/{entry['id']}")
        click.echo(f"            {verdict['summary']}")
    click.echo(f"\n{'As it should be' if good else 'NOT as it should be: ' + ' / '.join(EXPECTED) + ' was expected'}.")
    click.echo(f"Look at it: {service.url}")


class _Service:
    """A `gprojci serve` in a process of its own."""

    def __init__(self, data_dir: Path, port: int) -> None:
        self.data_dir = data_dir
        command = [
            sys.executable,
            "-P",
            "-m",
            "gprojci_service",
            "serve",
            "--data-dir",
            str(data_dir),
            "--port",
            str(port),
        ]
        # Its code is this checkout's own and its repository a directory, so it also runs where no sandbox can be made.
        own = {"GPROJCI_PRIVATE_REPOSITORIES": "true", "GPROJCI_ALLOW_UNSANDBOXED": "true"}
        self.process = subprocess.Popen(
            command, env={**own, **os.environ}, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.url = ""
        # One for all: making a client reads every certificate anew, 30 ms of CPU, and it is asked every second.
        self.client = httpx.Client(timeout=30)

    def __enter__(self) -> _Service:
        signal.signal(signal.SIGTERM, _interrupt)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            click.echo(line, nl=False)
            if " is at http" in line:
                self.url = line.split(" is at ")[1].split()[0]
                return self
        raise ConfigurationError("the service did not start; its message stands above")

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)

    def wait(self) -> None:
        """Until the service or the user ends it."""
        try:
            self.process.wait()
        except KeyboardInterrupt:
            click.echo("stopping")

    def deliver(self, event: str, payload: dict[str, Any]) -> None:
        """Sends a webhook as GitHub does: signed, with a delivery id."""
        body = json.dumps(payload).encode()
        secret = os.environ.get("GPROJCI_WEBHOOK_SECRET") or (self.data_dir / "webhook-secret").read_text().strip()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/demo",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-Hub-Signature-256": sign(body, secret),
        }
        answer = self.client.post(f"{self.url}/webhooks/github", content=body, headers=headers)
        answer.raise_for_status()
        click.echo(f"   webhook {event}: HTTP {answer.status_code} {answer.json()['status']}")

    def follow(self, sha: str) -> dict[str, Any]:
        """Shows the progress of the commit's job until its verdict is there."""
        give_up, shown = time.monotonic() + JOB_SECONDS, ""
        while time.monotonic() < give_up:
            jobs = self._get("/jobs", head_sha=sha)
            entry = self._get(f"/jobs/{jobs[0]['id']}") if jobs else None
            now = _progress(entry) if entry else ""
            if entry and now != shown:
                click.echo(f"   job {entry['id']} {sha[:10]}: {now}")
                shown = now
            if entry and entry["verdict"]:
                return dict(entry)
            if entry and entry["state"] == "cancelled":
                break
            time.sleep(POLL_SECONDS)
        raise ConfigurationError(f"no verdict on {sha[:10]}; the logs are in {self.data_dir / 'logs'}")

    def _get(self, path: str, **parameters: str) -> Any:
        answer = self.client.get(f"{self.url}/api/v1{path}", params=parameters)
        answer.raise_for_status()
        return answer.json()


def _progress(entry: dict[str, Any]) -> str:
    if entry["verdict"]:
        return f"{entry['verdict']['verdict']}: {entry['verdict']['summary']}"
    steps = entry["attempts"][-1]["steps"] if entry["attempts"] else []
    done = [
        f"{step['name']} {step['seconds']:.0f} s" if step["seconds"] is not None else f"{step['name']} …"
        for step in steps
    ]
    return ", ".join([entry["state"], *done])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
