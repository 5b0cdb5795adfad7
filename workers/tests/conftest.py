"""What the worker's tests share: a git repository with commits, and settings of this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gprojci_workers.settings import Settings

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "kernel-under-test"
version = "1.0"
"""


class Origin:
    """A repository that a worker clones."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")

    @property
    def url(self) -> str:
        return self.directory.as_uri()

    def commit(self, files: dict[str, str], message: str = "a change") -> str:
        """Writes files, commits them, returns the SHA."""
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        identity = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Ada"), ("EMAIL", "a@b.c"))
        }
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "HOME": str(self.directory),
            **identity,
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.directory, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """An empty repository."""
    return Origin(tmp_path / "origin")


@pytest.fixture
def kernel() -> Callable[[str], dict[str, str]]:
    """Makes the files of a package `kernel_under_test` with a body."""

    def make(body: str = "VALUE = 1\n", pyproject: str = PYPROJECT) -> dict[str, str]:
        return {"pyproject.toml": pyproject, "kernel_under_test/__init__.py": body}

    return make


@pytest.fixture
def worker_settings(tmp_path: Path) -> Settings:
    """Settings of a CPU worker."""
    return Settings(
        service_url="http://127.0.0.1:9",
        worker_token="t",
        broker_url="redis://127.0.0.1:9/0",
        device="cpu",
        cache_dir=tmp_path / "cache",
        worker_name="w",
        allow_unsandboxed=True,  # what needs a sandbox asks for `namespaces`
    )


@pytest.fixture
def left_alive() -> Callable[[str], list[psutil.Process]]:
    """Finds the processes with a mark in their command that have not ended after twenty seconds."""

    def find(mark: str) -> list[psutil.Process]:
        give_up = time.monotonic() + 20
        while alive := [entry for entry in psutil.process_iter(["cmdline"]) if mark in _command(entry)]:
            if time.monotonic() > give_up:
                break
            time.sleep(0.02)
        return alive

    return find


def _command(entry: psutil.Process) -> str:
    return " ".join(entry.info["cmdline"] or [])
