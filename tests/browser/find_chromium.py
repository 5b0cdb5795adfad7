"""Finds a Chromium for the browser tests; as a script with `--install` it makes sure that there is one."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
# What a headless Chromium needs in a container, and what keeps it from speaking to anybody but the page's server.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The last one is what the driver's own node needs and a minimal system lacks.
PACKAGES = ("chromium", "fonts-dejavu-core", "libatomic1")
_INSTALL_SECONDS = 900


def find_chromium() -> str | None:
    """Path of a Chromium that starts: of GPROJCI_CHROMIUM, on PATH, or Playwright's own download; else None.

    None too where Playwright's driver cannot run, since nothing could drive the browser then.

    Raises:
        FileNotFoundError: GPROJCI_CHROMIUM is set, but what it names does not start; nothing else is taken instead.
    """
    wanted = os.environ.get("GPROJCI_CHROMIUM")
    if wanted:
        if not _starts(wanted):
            raise FileNotFoundError(f"GPROJCI_CHROMIUM: {wanted} does not start")
        return wanted
    if not _driver_starts():
        return None
    on_path = (shutil.which(name) for name in NAMES)
    return next((path for path in on_path if path and _starts(path)), None) or _of_playwright()


def install() -> str | None:
    """Installs Chromium, by apt where that is possible, else by Playwright's download; returns its path, or None."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _run(["apt-get", "update", "-q"])
        _run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES])
        found = find_chromium()
        if found:
            return found
    _run([sys.executable, "-m", "playwright", "install", "chromium"])
    return find_chromium()


def _driver_starts() -> bool:
    command = [sys.executable, "-m", "playwright", "--version"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def _of_playwright() -> str | None:
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() and _starts(path) else None


def _starts(path: str) -> bool:
    """Whether it answers with its version; a stub that asks for a snap, or a build that lacks a library, does not."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        problem = ([line for line in lines if "error" in line.lower()] or lines)[:1] if done.returncode else []
    except subprocess.TimeoutExpired:
        problem = [f"took longer than {_INSTALL_SECONDS} s"]
    if problem:
        print(f"{' '.join(command[:3])}: {problem[0]}", file=sys.stderr)


def main() -> int:
    """The script: prints the path, or says in one line what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="install one where none is found")
    options = parser.parse_args()
    try:
        found = find_chromium() or (install() if options.install else None)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    if found:
        print(f"Chromium: {found}")
        return 0
    in_ci = bool(os.environ.get("CI"))
    what_follows = "the browser tests cannot run" if in_ci else "the browser tests will be skipped"
    print(f"no Chromium: {what_follows}; install one, or name one with GPROJCI_CHROMIUM", file=sys.stderr)
    return 1 if in_ci else 0


if __name__ == "__main__":
    sys.exit(main())
