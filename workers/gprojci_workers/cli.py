"""Command `gprojci-worker`: says hello to the service, then listens for work."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

import click
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from gprojci_workers import __version__, isolation, logs
from gprojci_workers.api import Api, ServiceRefused, ServiceUnreachable
from gprojci_workers.attempt import clear_scratches
from gprojci_workers.build import ruler_versions
from gprojci_workers.doctor import examine
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.settings import ConfigurationError, Settings, load_settings

logger = logging.getLogger(__name__)
HELLO_PATIENCE = 600.0
MARKS = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}


def stay_known(api: Api, seconds: float, listen: Callable[[bool], bool], stop_listening: Callable[[], None]) -> None:
    """Tells the service every now and then, from a thread of its own, that this worker is there.

    Args:
        listen: called with False where the worker is drained, with True once it is resumed, until it returns True.
        stop_listening: called once another worker has been started under this one's name.
    """

    def run() -> None:
        drained = False
        while True:
            try:
                if api.alive() != drained and listen(drained):
                    drained = not drained
                    logger.info("this worker is %s", "drained: it takes no more jobs" if drained else "resumed")
            except ServiceRefused as refused:
                logger.error("%s", refused)
                if refused.error == "WorkerReplaced":
                    stop_listening()
                    return
            except (ServiceUnreachable, OperationalError, RedisError) as error:
                logger.warning("%s", error)
            time.sleep(seconds)

    threading.Thread(target=run, name="alive", daemon=True).start()


def examined(settings: Settings) -> int:
    """Prints what the host has and lacks; the exit code."""
    wrong = False
    for check in examine(settings):
        click.echo(f"{MARKS[check.outcome]}  {check.name}: {check.found}")
        if check.to_do:
            click.echo(f"         → {check.to_do}")
        wrong = wrong or check.outcome == "wrong"
    return 3 if wrong else 0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)
@click.option("--describe", is_flag=True, help="Print the device and hardware class as JSON, and end.")
@click.option("--doctor", is_flag=True, help="Check what this host needs, say what to do, and end; 3 if any is wrong.")
def main(log_level: str, describe: bool, doctor: bool) -> None:
    """Measures jobs on this host until it is stopped.

    Settings are read from GPROJCI_… variables; GPROJCI_SERVICE_URL, GPROJCI_WORKER_TOKEN and GPROJCI_BROKER_URL are
    needed. Exit code 2: a setting is wrong, or this host can make no sandbox; 3: the service does not answer or refuses
    the token.
    """
    try:
        settings = load_settings()
    except ConfigurationError as error:
        click.echo(f"gprojci-worker: {error}", err=True)
        sys.exit(2)
    logs.configure(settings.log_format, log_level)
    if describe:
        described = {"device": settings.device, "device_name": settings.device_name, "hardware": settings.hardware}
        click.echo(json.dumps(described))
        return
    if doctor:
        sys.exit(examined(settings))
    if not (isolation.is_possible() or settings.allow_unsandboxed):
        click.echo(f"gprojci-worker: {isolation.REFUSAL}", err=True)
        sys.exit(2)
    os.environ["GPROJCI_BOOT_ID"] = settings.boot_id  # the pool processes are the same start of the same worker
    try:
        facts = {**ruler_versions(settings.ruler_python), "sandboxed": isolation.is_possible()}
        welcome = Api(settings).hello(settings, facts, patience=HELLO_PATIENCE)
    except AttemptFailed as error:
        click.echo(f"gprojci-worker: {error.detail}", err=True)
        sys.exit(2)
    except (ServiceRefused, ServiceUnreachable) as error:
        click.echo(f"gprojci-worker: {settings.service_url}: {error}", err=True)
        sys.exit(3)
    clear_scratches(settings)
    click.echo(f"{settings.worker_name}: measuring for {settings.hardware} on {settings.device_name}")
    # Built from the settings, which are known to be right only now.
    from gprojci_workers.worker import app, listen, stop_listening

    stay_known(Api(settings), float(welcome["heartbeat_seconds"]), listen, stop_listening)
    app.worker_main(
        [
            "worker",
            "--loglevel",
            log_level,
            "--hostname",
            f"{settings.worker_name}@%h",
            "--without-gossip",
            "--without-mingle",
        ]
    )
